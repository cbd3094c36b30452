"""Brokers under test. A peer is a small class: prepare, launch, stop, pid, port, user and password. Some kinds can be
several nodes, which are a cluster then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.peers.artemis import Artemis
from bench.peers.classic import Classic
from bench.peers.cluster import Cluster
from bench.peers.mqops import Mqops
from bench.peers.peer import Peer, free_port
from bench.peers.rabbitmq import Rabbitmq

OURS = "mqops"
ARTEMIS = "artemis"
VERSIONED: dict[str, Callable[[str, Path], Peer]] = {ARTEMIS: Artemis, "classic": Classic, "rabbitmq": Rabbitmq}
ARTEMIS_PEERS = ("artemis-2.33.0", "artemis-2.44.0")
DEFAULT_PEERS = (*ARTEMIS_PEERS, "classic-5.18.3", "rabbitmq-3.10", "rabbitmq-4.0")


def kind(name: str) -> str:
    """What the rows go by: the name without its version."""
    return name.split("-", 1)[0]


def require_known(name: str) -> None:
    """Refuses names that nothing can be started for."""
    this, _, version = name.partition("-")
    if name != OURS and not (this in VERSIONED and version[:1].isdigit()):
        forms = ", ".join(f"{each}-<version>" for each in VERSIONED)
        raise ValueError(f"no peer is called {name}; say one of {forms}, e.g. {DEFAULT_PEERS[0]}")


def make(name: str, directory: Path, nodes: int = 1) -> Peer | Cluster:
    """The peer of this name, or a cluster of so many nodes; directories are made."""
    if nodes == 1:
        return _one(name, directory)
    return Cluster([_one(name, directory / str(place)) for place in range(nodes)], [free_port() for _ in range(nodes)])


def _one(name: str, directory: Path) -> Peer:
    require_known(name)
    directory.mkdir(parents=True)
    this, _, version = name.partition("-")
    return Mqops(directory) if name == OURS else VERSIONED[this](version, directory)
