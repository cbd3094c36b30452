"""Histories in which bugs show at random while bytes of clients are looked at, and behind what changes the store.

A bug before anything was touched ends that connection alone; any other stops the node, which somebody starts again.
Either way nothing that was accepted is lost, and the checker finds nothing. When a bug shows is drawn from the seed,
by a generator of its own: without bugs the history is that of the same seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

from mqbroker.amqp import connection as amqp_connection
from mqbroker.amqp import incoming as amqp_incoming
from mqbroker.amqp import session as amqp_session
from mqbroker.core.address.settings import Settings
from mqbroker.core.store.store import Store
from mqbroker.journal.plan import Journal
from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
from mqbroker.node.amqp.peers.containment import Containment
from mqbroker.node.amqp.peers.peer import Peer
from mqbroker.node.broker import termini

from tests.sim.histories import Simulation, Verdict
from tests.sim.world import SimNode

# Where bytes are looked at, or somebody is asked about them: (place, name), raised instead of the call.
LOOKS: tuple[tuple[Any, str], ...] = (
    (amqp_connection, "decode_performative"), (amqp_incoming, "parse_run"), (amqp_session, "decode_disposition_flat"),
    (Settings, "of"), (termini, "_filters"), (AcceptedPeer, "_mechanisms"), (Peer, "handle_events"),
)  # fmt: skip
# What changes the store and the journal: raised behind the call.
MUTATORS: tuple[tuple[Any, str], ...] = (
    (Store, "number"), (Store, "put"), (Store, "settle"), (Journal, "store"), (Journal, "settle"),
    (Journal, "declare"), (Store, "add_queue"),
)  # fmt: skip
BUGS_UNTIL_MS = 4_000  # after that all is to come to rest
CALLS_MEAN = 400  # of all these together, from one bug to the next


class Planted(Exception):
    """The bug."""


class Plant:
    """Says when the next bug shows."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._left = 0
        self.is_armed = False
        self.shown: Counter[str] = Counter()
        self._draw()

    def _draw(self) -> None:
        self._left = 1 + int(self._rng.expovariate(1 / CALLS_MEAN))

    def passed(self, where: str) -> None:
        """A place is passed; raises where it is time."""
        if self.is_armed:
            self._left -= 1
            if self._left <= 0:
                self._draw()
                self.shown[where] += 1
                raise Planted(where)


@contextmanager
def planted(plant: Plant) -> Iterator[None]:
    """While bugs are planted."""
    patches = [_patched(place, name, plant, is_before=True) for place, name in LOOKS]
    patches += [_patched(place, name, plant, is_before=False) for place, name in MUTATORS]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def _patched(place: Any, name: str, plant: Plant, *, is_before: bool) -> Any:
    original: Callable[..., Any] = getattr(place, name)
    where = f"{getattr(place, '__name__', place)}.{name}"

    @wraps(original)
    def call(*arguments: Any, **named: Any) -> Any:
        if is_before:
            plant.passed(where)
            return original(*arguments, **named)
        result = original(*arguments, **named)
        plant.passed(where)
        return result

    return patch.object(place, name, call)


class PlantedSimulation(Simulation):
    """See the module's docstring. `contained` bugs ended one connection, `stopped` ones a node."""

    IS_PATIENT = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.plant = Plant(seed)
        self.contained = self.stopped = 0
        for node in self.nodes:
            self._watch(node)

    def _watch(self, node: SimNode) -> None:
        step = node._step

        def stepping(life: int) -> None:
            before = node.broker.counters.bugs_contained if node.is_up else 0
            self.plant.is_armed = self.world.now_ns < BUGS_UNTIL_MS * 1_000_000
            try:
                step(life)
            except Planted:
                self.stopped += 1
                self.contained += node.broker.counters.bugs_contained - before  # earlier in the same step
                node.crash(power_cut=False)
                self._revive(node)
            else:
                if node.is_up and node.broker.counters.bugs_contained > before:
                    self.contained += node.broker.counters.bugs_contained - before
                    reset_ended(node)
            finally:
                self.plant.is_armed = False

        node._step = stepping  # type: ignore[method-assign]

    def run(self) -> Verdict:
        """The history from beginning to end."""
        with planted(self.plant), patch.object(Containment, "_end", self._watch_end(Containment._end)):
            return super().run()

    def _watch_end(self, end: Callable[[Containment, Peer], None]) -> Callable[[Containment, Peer], None]:
        """Who is ended has no groups any more, though others may be written to before it hears of that."""

        def ending(containment: Containment, peer: Peer) -> None:
            for node in self.nodes:
                reader = (
                    node.readers.get(peer.conn) if node.is_up and node.broker.peers.get(peer.conn) is peer else None
                )
                if reader is not None and reader.conn == peer.conn:
                    reader.conn = 0
            end(containment, peer)

        return ending


def reset_ended(node: SimNode) -> None:
    """What is under way on a connection that has ended is lost: else a first copy may come behind a second one."""
    for pipe in list(node.pipes.values()):
        peer = node.broker.peers.get(pipe.conn)
        if peer is None or peer.connection.is_dead:
            node.reset(pipe)
