"""Brokers under test. A peer is a small class: prepare, launch, stop, pid, port, user and password."""

from __future__ import annotations

from pathlib import Path

from bench.peers.artemis import Artemis
from bench.peers.mqops import Mqops
from bench.peers.peer import Peer

OURS = "mqops"
ARTEMIS_PREFIX = "artemis-"
DEFAULT_PEERS = ("artemis-2.33.0", "artemis-2.44.0")


def require_known(name: str) -> None:
    """Refuses names that nothing can be started for."""
    if name != OURS and not (name.startswith(ARTEMIS_PREFIX) and name.removeprefix(ARTEMIS_PREFIX)[:1].isdigit()):
        raise ValueError(f"no peer is called {name}; say {ARTEMIS_PREFIX}<version>, e.g. {DEFAULT_PEERS[0]}")


def kind(name: str) -> str:
    """What the rows go by: the name without its version."""
    return name.split("-", 1)[0]


def make(name: str, directory: Path) -> Peer:
    """The peer of this name, its directory made."""
    require_known(name)
    directory.mkdir(parents=True)
    return Mqops(directory) if name == OURS else Artemis(name.removeprefix(ARTEMIS_PREFIX), directory)
