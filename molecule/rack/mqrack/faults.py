"""Owns what is wrong with the network: which cards are cut, lossy or slow.

Invariant: the wanted faults are one file and `apply` makes the switch match it, so a fault outlasts a power cut of
the host (it sits in the switch) and asking twice changes nothing. Per direction: loss N loses N percent of the
frames each way, delay D holds each frame back D ms each way.

    no delay:   host card ---- port (bridge)
    delay:      host card ---- port = relay process = stub ---- stub-b (bridge)

Loss rules sit at the device that is plugged into the bridge: a relay reads frames before rules at the port see them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from mqrack import cgroup, network
from mqrack.command import attempt, run
from mqrack.errors import RackError
from mqrack.layout import ENTRY, Layout
from mqrack.plan import Card, Host

DELAY_MS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one card; the default is nothing."""

    cut: bool = False
    loss_percent: float = 0.0
    delay_ms: float = 0.0


HEALTHY = Fault()


def check_loss(percent: float) -> float:
    if not 0 <= percent <= 100:
        raise RackError(f"loss of {percent:g} % asked for; give 0 to 100.")
    return percent


def check_delay(delay_ms: float) -> float:
    if not 0 <= delay_ms <= DELAY_MS_MAX:
        raise RackError(f"delay of {delay_ms:g} ms asked for; give 0 to {DELAY_MS_MAX}.")
    return delay_ms


def load(layout: Layout) -> dict[str, Fault]:
    """Faults by switch end, for instance `mq1-eth0`."""
    try:
        text = layout.faults.read_text()
    except FileNotFoundError:
        return {}
    return {end: Fault(**fields) for end, fields in json.loads(text).items()}


def change(layout: Layout, host: Host, card: Card, edit: Callable[[Fault], Fault]) -> None:
    """Notes the change and makes it so at once, or at the next boot of a host that is off."""
    faults = load(layout)
    end = network.port(host, card)
    before = faults.get(end, HEALTHY)
    faults[end] = edit(before)
    wanted = {name: asdict(fault) for name, fault in faults.items() if fault != HEALTHY}
    scratch = layout.faults.with_suffix(".new")
    scratch.write_text(json.dumps(wanted, indent=1))
    os.replace(scratch, layout.faults)
    if end in network.links(layout, network.SWITCH):
        _apply_card(layout, end, card, before, faults[end])


def apply(layout: Layout, host: Host) -> None:
    """For a host whose cables were just plugged in."""
    faults = load(layout)
    for card in host.cards:
        end = network.port(host, card)
        if end in faults:
            _apply_card(layout, end, card, HEALTHY, faults[end])


def stop(layout: Layout, host: Host) -> None:
    """Ends what runs for a host's faults; what is wanted stays noted."""
    faults = load(layout)
    for card in host.cards:
        end = network.port(host, card)
        _stop_relay(layout, end)
        if end in faults:
            _set_loss(layout, end, None, 0)


def _apply_card(layout: Layout, end: str, card: Card, before: Fault, after: Fault) -> None:
    if after.delay_ms != before.delay_ms:
        _stop_relay(layout, end)
        if after.delay_ms:
            _start_relay(layout, end, card, after.delay_ms)
        else:
            network.ip(layout, network.SWITCH, [f"link set {end} master {card.bridge}"])
    plugged = f"{end}-b" if after.delay_ms else end
    _set_loss(layout, end, plugged, after.loss_percent)
    network.ip(layout, network.SWITCH, [f"link set {end} {'down' if after.cut else 'up'}"])


def _set_loss(layout: Layout, end: str, device: str | None, percent: float) -> None:
    """Replaces the rules of one cable in one transaction."""
    table = f"netdev loss_{end.replace('-', '_')}"
    rules = [f"table {table}", f"delete table {table}"]
    if percent and device:
        drop = f"numgen random mod 1000 < {round(percent * 10)} drop"
        rules.append(f"table {table} {{")
        rules += [
            f'chain {hook} {{ type filter hook {hook} device "{device}" priority 0; {drop}; }}'
            for hook in ("ingress", "egress")
        ]
        rules.append("}")
    run(_in_switch(layout, ["nft", "-f", "-"]), stdin="\n".join(rules) + "\n")


def _in_switch(layout: Layout, argv: list[str]) -> list[str]:
    return ["nsenter", f"--net={layout.netns_path(network.SWITCH)}", "--", *argv]


def _relay_group(layout: Layout, end: str) -> cgroup.Group:
    return cgroup.rack_group(layout.name).child("relays").child(end)


def _stop_relay(layout: Layout, end: str) -> None:
    group = _relay_group(layout, end)
    if not group.exists():
        return
    group.kill()
    group.remove()
    attempt(["ip", "-netns", layout.netns(network.SWITCH), "link", "delete", f"{end}-r"])


def _start_relay(layout: Layout, end: str, card: Card, delay_ms: float) -> None:
    """Unplugs the cable from the bridge and puts a relay process in between."""
    stub, plugged = f"{end}-r", f"{end}-b"
    network.ip(layout, network.SWITCH, [
        f"link add {stub} type veth peer name {plugged}",
        f"link set {plugged} master {card.bridge} up",
        f"link set {end} nomaster",
        f"link set {end} promisc on",
        f"link set {stub} promisc on up",
    ])  # fmt: skip
    argv = _in_switch(layout, [sys.executable, str(ENTRY), "_relay", end, stub, f"{delay_ms:g}"])
    with layout.log(end).open("ab") as sink:
        relay = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sink, cwd="/",
            start_new_session=True, preexec_fn=_relay_group(layout, end).joiner(),
        )  # fmt: skip
    assert relay.stdout is not None
    # The relay says a word when it listens; before that, frames would vanish.
    if relay.stdout.readline() != b"relaying\n":
        raise RackError(f"the relay for {end} did not start; its log is {layout.log(end)}.")
    relay.stdout.close()
