"""Several instances of one kind on loopback, which are a cluster: each lists all others. It stands where a broker is
expected: the load goes to its nodes by their places, its CPU and memory are those of all nodes together."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench.peers.peer import Member, Peer


class Cluster:
    """See the module's docstring."""

    def __init__(self, nodes: list[Peer], ports: list[int]) -> None:
        first, secret = nodes[0], secrets.token_hex(16)
        self.nodes = tuple(nodes)
        self.name, self.kind, self.load_options = first.name, first.kind, first.load_options
        self.user, self.password = first.user, first.password
        for place, node in enumerate(nodes):
            node.password = self.password
            node.member = Member(place, tuple(ports), secret)

    def address(self, queue: str) -> str:
        """As all nodes call it."""
        return self.nodes[0].address(queue)

    def prepare(self) -> None:
        """All of them, at the same time."""
        self._all_at_once(lambda node: node.prepare())

    def launch(self) -> None:
        """Start all; they find each other when they are ready to."""
        self._all_at_once(lambda node: node.launch())

    def _all_at_once(self, do: Callable[[Peer], None]) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(do, self.nodes))

    def after_start(self) -> None:
        """Check that each runs as it was configured."""
        for node in self.nodes:
            node.after_start()

    def stop(self) -> None:
        """End all, also where one does not want to."""
        for node in self.nodes:
            node.stop()

    def log_end(self) -> str:
        """The last lines of all logs."""
        return "\n".join(node.log_end() for node in self.nodes)
