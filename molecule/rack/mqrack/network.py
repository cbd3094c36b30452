"""Owns cables and switches: namespaces, bridges, and the wires between them.

Invariant: every wire has its switch end in the rack's switch namespace and nothing appears in the namespace that
the rack's commands are called from. A switch end is named after the host and card at its other end. Wires are
deleted by their switch ends before any namespace, because the kernel deletes namespaces some time later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from mqrack.command import attempt, run
from mqrack.layout import NETNS, Layout
from mqrack.plan import BRIDGES, CONTROLLER_ADDRESS, Card, Host

SWITCH = "switch"
CONTROLLER = "controller"
_CONTROLLER_PORT = "controller"


def port(host: Host, card: Card) -> str:
    """The name of a card's switch end."""
    return f"{host.name}-{card.name}"


def ip(layout: Layout, member: str, commands: Iterable[str]) -> None:
    run(["ip", "-netns", layout.netns(member), "-batch", "-"], stdin="\n".join(commands) + "\n")


def links(layout: Layout, member: str) -> dict[str, set[str]]:
    """Flags of every link in a namespace of the rack; nothing when the namespace is not there."""
    if not exists(layout, member):
        return {}
    listed = attempt(["ip", "-json", "-netns", layout.netns(member), "link", "show"])
    return {link["ifname"]: set(link["flags"]) for link in json.loads(listed.stdout or "[]")}


def exists(layout: Layout, member: str) -> bool:
    return layout.netns_path(member).exists()


def add_namespace(layout: Layout, member: str) -> None:
    run(["ip", "netns", "add", layout.netns(member)])
    # Some kernels put queueing devices of their own into each new namespace.
    unasked = [name for name in links(layout, member) if name.startswith("ifb")]
    ip(layout, member, [*(f"link del {name}" for name in unasked), "link set lo up"])


def delete_namespace(layout: Layout, member: str) -> None:
    if exists(layout, member):
        run(["ip", "netns", "delete", layout.netns(member)])


def members(layout: Layout) -> list[str]:
    """Every namespace of the rack, found by name alone."""
    if not NETNS.is_dir():
        return []
    prefix = layout.netns_prefix
    return sorted(path.name.removeprefix(prefix) for path in NETNS.iterdir() if path.name.startswith(prefix))


def ensure_switch(layout: Layout) -> None:
    if not exists(layout, SWITCH):
        add_namespace(layout, SWITCH)
        # A switch has no voice of its own: IPv6 would make each of its ports announce itself.
        silent = "for name in all default; do echo 1 >/proc/sys/net/ipv6/conf/$name/disable_ipv6; done"
        attempt(["nsenter", f"--net={layout.netns_path(SWITCH)}", "--", "sh", "-c", silent])
    present = links(layout, SWITCH)
    for bridge in BRIDGES.values():
        # Without a querier a snooping bridge stops passing multicast after some minutes.
        if bridge not in present:
            commands = [f"link add {bridge} type bridge mcast_snooping 0 forward_delay 0", f"link set {bridge} up"]
            ip(layout, SWITCH, commands)


def ensure_controller(layout: Layout) -> None:
    """The namespace that Ansible runs in; it may outlive the switch, see destroy."""
    if not exists(layout, CONTROLLER):
        add_namespace(layout, CONTROLLER)
    if not exists(layout, SWITCH) or _CONTROLLER_PORT in links(layout, SWITCH):
        return
    peer = f"peer name eth0 address 02:00:00:00:00:fe netns {layout.netns(CONTROLLER)}"
    ip(layout, SWITCH, [
        f"link add {_CONTROLLER_PORT} type veth {peer}",
        f"link set {_CONTROLLER_PORT} master {BRIDGES['management']} up",
    ])  # fmt: skip
    ip(layout, CONTROLLER, [f"address add {CONTROLLER_ADDRESS}/24 dev eth0", "link set eth0 up"])


def wire(layout: Layout, host: Host) -> None:
    """Gives a host that is off a fresh namespace with its cards in it: rules of its last life are gone."""
    unwire(layout, host)
    add_namespace(layout, host.name)
    netns = layout.netns(host.name)
    switch_side: list[str] = []
    host_side: list[str] = []
    for card in host.cards:
        end = port(host, card)
        switch_side += [
            f"link add {end} type veth peer name {card.name} address {card.mac} netns {netns}",
            f"link set {end} master {card.bridge} up",
        ]
        host_side += [f"address add {card.address}/24 dev {card.name}", f"link set {card.name} up"]
    ip(layout, SWITCH, switch_side)
    ip(layout, host.name, [*host_side, f"route add default via {host.gateway} dev eth0"])


def unwire(layout: Layout, host: Host) -> None:
    present = links(layout, SWITCH)
    ends = [port(host, card) for card in host.cards if port(host, card) in present]
    if ends:
        ip(layout, SWITCH, [f"link delete {end}" for end in ends])
    delete_namespace(layout, host.name)


def silence(layout: Layout, host: Host) -> None:
    """Takes every port of the host down, so that nothing of its end reaches the others."""
    present = links(layout, SWITCH)
    ends = [port(host, card) for card in host.cards]
    ip(layout, SWITCH, [f"link set {end} down" for end in ends if end in present])


def remove_all(layout: Layout) -> None:
    """Deletes every namespace of the rack but the controller, wires first."""
    if exists(layout, SWITCH):
        ends = [name for name in links(layout, SWITCH) if name != "lo"]
        # A wire whose other end went first is gone already: absent links are no failure here.
        for end in ends:
            attempt(["ip", "-netns", layout.netns(SWITCH), "link", "delete", end])
    for member in members(layout):
        if member != CONTROLLER:
            delete_namespace(layout, member)


def is_inside(layout: Layout, member: str, pid: int | str = "self") -> bool:
    """Whether a process lives in that namespace of the rack."""
    try:
        own = os.stat(f"/proc/{pid}/ns/net")
        named = os.stat(layout.netns_path(member))
    except OSError:
        return False
    return (own.st_dev, own.st_ino) == (named.st_dev, named.st_ino)


def processes_in(layout: Layout, member: str) -> list[int]:
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    return [pid for pid in pids if is_inside(layout, member, pid)]
