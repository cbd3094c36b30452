"""The place where a group speaks or listens, as one text for people."""

from __future__ import annotations

from mqbroker.config.slices import BroadcastGroupOptions, DiscoveryGroupOptions


def place_of(group: BroadcastGroupOptions | DiscoveryGroupOptions) -> str:
    """An address and port, a directory, or names."""
    if group.discovery == "file":
        return group.directory
    if group.discovery == "gossip":
        return f"{group.local_bind_address}:{group.local_bind_port}"
    if group.discovery == "dns" and isinstance(group, DiscoveryGroupOptions):
        return ", ".join(group.names)
    return f"{group.group_address}:{group.group_port}"
