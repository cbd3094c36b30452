"""Faults in an order that nobody chose: each to a random host, for a random time.

    FAULTS=60 FAULTS_SEED=7 molecule/run chain     sixty of them instead of a few

What happens when is up to the machine, so a seed gives the same faults and not the same history.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Final

from tests.support.cluster_faults import Scene
from tests.support.rack_cluster import RackHosts

CARD: Final = "eth1"
CLIENTS_CARD: Final = "eth0"
HOLD_S: Final = (0.2, 9.0)
Act = Callable[[RackHosts, str, float], None]


def _power_cut(rack: RackHosts, host: str, hold_s: float) -> None:
    rack("kill", host)
    time.sleep(hold_s)
    rack("boot", host)


def _restart(rack: RackHosts, host: str, _hold_s: float) -> None:
    rack("exec", host, "--", "systemctl", "restart", "mqbroker@default")


def _pause(rack: RackHosts, host: str, hold_s: float) -> None:
    rack("pause", host)
    time.sleep(hold_s)
    rack("resume", host)


def _pause_then_kill(rack: RackHosts, host: str, hold_s: float) -> None:
    rack("pause", host)
    time.sleep(hold_s)
    _power_cut(rack, host, 0)


def _flap(rack: RackHosts, host: str, hold_s: float) -> None:
    for _ in range(3):
        rack("cut", host, CARD)
        time.sleep(hold_s / 6)
        rack("heal", host, CARD)
        time.sleep(hold_s / 6)


def _on_card(card: str, *words: str) -> Act:
    """A fault of a card, by the words of the rack's command."""

    def act(rack: RackHosts, host: str, hold_s: float) -> None:
        rack(words[0], host, card, *words[1:])
        time.sleep(hold_s)
        rack("heal", host, card)

    return act


ACTS: Final[dict[str, Act]] = {
    "power cut": _power_cut,
    "restart": _restart,
    "pause": _pause,
    "pause, then power cut": _pause_then_kill,
    "flapping card": _flap,
    "cut card": _on_card(CARD, "cut"),
    "cut card of clients": _on_card(CLIENTS_CARD, "cut"),
    "20 % loss": _on_card(CARD, "loss", "20"),
    "50 ms delay": _on_card(CARD, "delay", "50"),
}


def unleash(scene: Scene, count: int) -> None:
    """As many faults as FAULTS says, or `count`."""
    seed = int(os.environ.get("FAULTS_SEED", "0")) or time.time_ns() % 10**6
    print(f"FAULTS_SEED={seed}")
    chance = random.Random(seed)
    for _ in range(int(os.environ.get("FAULTS", str(count)))):
        name, host = chance.choice(list(ACTS)), chance.choice(list(scene.cluster.brokers))
        hold_s = chance.uniform(*HOLD_S)
        with scene.fault(f"{name} at {host}"):
            ACTS[name](scene.rack, host, hold_s)
