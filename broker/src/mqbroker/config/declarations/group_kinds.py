"""Which options a broadcast or discovery group may have with which kind of `discovery`, and which it must have.

A table with a row for each option; what is in no row goes with every kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from mqbroker.base.errors import ConfigFault

UDP: Final = "udp"
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "broadcast-groups": ("udp", "file", "gossip"),
    "discovery-groups": ("udp", "file", "dns", "gossip"),
}
# option: the kinds that it goes with
GOES_WITH: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "broadcast-groups": {
        "local-bind-address": ("udp", "gossip"),
        "local-bind-port": ("udp", "gossip"),
        "group-address": ("udp",),
        "group-port": ("udp",),
        "time-to-live": ("udp",),
        "directory": ("file",),
        "peers": ("gossip",),
    },
    "discovery-groups": {
        "local-bind-address": ("udp", "gossip"),
        "local-bind-port": ("gossip",),
        "group-address": ("udp",),
        "group-port": ("udp",),
        "directory": ("file",),
        "names": ("dns",),
        "tls-enabled": ("dns",),
        "peers": ("gossip",),
        "poll-period": ("file", "dns", "gossip"),
        "refresh-timeout": ("udp", "file", "gossip"),
    },
}
# kind: the options that it needs, each with the value that is none
NEEDS: Final[Mapping[str, Mapping[str, object]]] = {
    "udp": {"group-address": "", "group-port": 0},
    "file": {"directory": ""},
    "dns": {"names": []},
    "gossip": {"local-bind-address": "", "local-bind-port": 0},
}
HAVE_LOCAL_ADDRESS: Final = ("udp", "gossip")


def faults(path: str, head: str, row: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """What is wrong with one group, as TOML has it. Says nothing where the kind itself is wrong: its type does."""
    kind = row.get("discovery", UDP)
    if kind not in KINDS[head]:
        return
    own = [name for name, kinds in GOES_WITH[head].items() if kinds == (kind,) and name in row]
    for name, kinds in GOES_WITH[head].items():
        if name in row and kind not in kinds:
            with_what = f" (with {', '.join(own)})" if own else ""
            why = (
                f"{name} goes with discovery = {_listed(kinds)}, and this group has discovery = {kind}{with_what}; "
                "a group has one kind: remove one of them, or make two groups"
            )
            yield ConfigFault(f"{path}.{name}", why)
    for name, none in NEEDS[kind].items():
        if row.get(name, none) == none or row.get(name) == -1:
            yield ConfigFault(f"{path}.{name}", f"is required with discovery = {kind} and missing")


def place_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What makes the place of a group another one."""
    kind = str(row.get("discovery", UDP))
    names = {"file": ("directory",), "gossip": ("local-bind-address", "local-bind-port")}
    return (kind, *(str(row.get(name, "")) for name in names.get(kind, _UDP_PLACE)))


def place_option(row: Mapping[str, Any]) -> str:
    """The option to name where two groups have one place."""
    return {"file": "directory", "gossip": "local-bind-port"}.get(str(row.get("discovery", UDP)), "group-address")


_UDP_PLACE: Final = ("local-bind-address", "group-address", "group-port")


def _listed(kinds: tuple[str, ...]) -> str:
    return " or ".join((", ".join(kinds[:-1]), kinds[-1])) if len(kinds) > 1 else kinds[0]
