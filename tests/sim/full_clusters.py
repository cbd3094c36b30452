"""Histories of clusters in which what queues and clients can do is switched on, one thing alone or several together.

By the seed it is one of FEATURES or a draw of them. Messages may be large, have priorities, duplicate ids and little
time to live; some are sent and taken in transactions; addresses page; an administrator pauses, purges, moves and
deletes under clients that go on; and a node is slow, ten to a thousand times, while its peers are not. The fate of each
accepted message has to be known at the end: a consumer took it, it is where expired or moved ones go, or a request of
the administrator explains that it is gone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from mqbroker.amqp import events as told
from mqbroker.amqp.links import SenderLink
from mqbroker.amqp.session import Session
from mqbroker.config.slices import BrokerOptions
from mqbroker.node.values.effects import AdminReply
from mqbroker.wire.parts import DUPLICATE_ID
from mqbroker.wire.run import single
from mqbroker.wire.sections import Header, build_message

from tests.sim.clients import Consumer, Producer
from tests.sim.clusters import BUSY_MS, STRICT, ClusterSimulation, ClusterVerdict
from tests.sim.disk import Faults
from tests.sim.keepers import MOVED, MovedDrain
from tests.sim.network import ClusterNode
from tests.sim.transactors import Transactor
from tests.sim.world import SimNode, paging, with_large
from tests.support.checker import History, Sent, body_of, id_in

LARGE, TRANSACTED, RESENT, EXPIRING = "large", "transacted", "resent", "expiring"
PRIORITIES, PAGED, ADMIN, SLOW = "priorities", "paged", "admin", "slow"
FEATURES: Final = (LARGE, TRANSACTED, RESENT, EXPIRING, PRIORITIES, PAGED, ADMIN, SLOW)
COLOURS: Final = ("red", "blue", "green")
PURGED: Final = "red"
EXPIRED: Final = "node0-q7"
PAUSE_MS_MAX: Final = 800
TTLS_MS: Final = (None, None, 30, 300, 2000)


def features_of(seed: int) -> frozenset[str]:
    """What is switched on: in every other history one thing."""
    chance = Random(f"features {seed}")
    if seed % 2 == 0:
        return frozenset((FEATURES[seed // 2 % len(FEATURES)],))
    return frozenset(each for each in FEATURES if chance.random() < 0.5)


class ExplainedHistory(History):
    """Knows what an administrator's requests explain: how many messages each took, without an answer any number."""

    colours: dict[str, str]
    purges: list[float]  # of messages of one colour
    deletions: list[float]  # of queues, with whatever is in them
    expired: set[str]

    def lost(self) -> list[str]:
        found = super().lost()
        purged = sum(self.colours.get(each) == PURGED for each in found)
        return found if len(found) - min(purged, sum(self.purges)) > sum(self.deletions) else []


class FullProducer(Producer):
    """Its messages have what the history has; with RESENT it sends again what it has no answer for."""

    def __init__(self, world: Any, node: SimNode, name: str, history: History, queue: str, count: int) -> None:
        self.features: frozenset[str] = frozenset()
        self.chance = Random(f"messages {name} {count}")
        self.unanswered: dict[str, bytes] = {}
        self.again: list[str] = []
        super().__init__(world, node, name, history, queue, count)

    def with_features(self, features: frozenset[str]) -> None:
        """Before anything is sent."""
        self.features = features
        if RESENT in features:
            self.durable_share, self.is_settled = 1.0, False

    def attach(self, session: Session) -> None:
        super().attach(session)
        self.again = list(self.unanswered) if RESENT in self.features else []

    def _tick(self) -> None:
        if not self.is_stopped:
            self._send()
            self.act()
            self.world.after(self.world.rng.random() * self.pace_ms, self._tick)

    def _send(self) -> None:
        link, session = self.link, self.session
        while self.again and link is not None and session is not None and link.is_attached:
            if not link.credit or not session.window:
                return
            message_id = self.again.pop(0)
            if message_id in self.unanswered:
                session.send_run(link, single(self.unanswered[message_id]), 0, 1, message_id)
        if self.left > 0:
            super()._send()

    def _send_one(self, session: Session, link: SenderLink) -> None:
        self.left -= 1
        self.number += 1
        message_id = f"{self.name}-{self.number}"
        is_durable = self.chance.random() < self.durable_share
        body = body_of(message_id, self.chance.randrange(20, self.size_max))
        self.history.send(message_id, Sent(self.name, self.number, self.queue, is_durable, len(body)))
        if self.is_settled:
            self.history.sent[message_id].outcome = "settled"
        message = build_message(body, **self._said(message_id, is_durable))
        if RESENT in self.features:
            self.unanswered[message_id] = message
        session.send_run(link, single(message), 0, 1, message_id)

    def _said(self, message_id: str, is_durable: bool) -> dict[str, Any]:
        features, chance = self.features, self.chance
        named = {"colour": chance.choice(COLOURS), "id": f"{message_id}|"}
        assert isinstance(self.history, ExplainedHistory)
        self.history.colours[message_id] = named["colour"]
        if RESENT in features:
            named[DUPLICATE_ID] = message_id
        priority = chance.choice((4, 4, 4, 0, 9)) if PRIORITIES in features else 4
        ttl = chance.choice(TTLS_MS) if EXPIRING in features else None
        return {"header": Header(durable=is_durable, priority=priority, ttl=ttl), "application_properties": named}

    def on_event(self, event: Any) -> None:
        super().on_event(event)
        if isinstance(event, told.Settled):
            for taken in event.taken:
                self.unanswered.pop(taken.token, None)
        elif isinstance(event, told.Detached):
            self.begin_anew()


class ExpiredDrain(Consumer):
    """Takes what has expired: whole, nothing that was not sent, and nothing that came before or was taken."""

    def note(self, body: bytes, delivery_count: int) -> str | None:
        message_id = id_in(body) or ""
        sent = self.history.sent.get(message_id)
        if sent is None or len(body) != sent.size:
            self.history.violations.append(f"unexpected: {body[:40]!r} has expired, which nobody sent like that")
            return None
        if sent.outcome == "rejected":
            self.history.violations.append(f"unexpected: {message_id} was rejected and has expired")
        assert isinstance(self.history, ExplainedHistory)
        is_open = message_id in self.history.forgiven or sent.is_exempt
        is_flagged = delivery_count > 0 or message_id in self.history.released
        is_second = message_id in self.history.expired and not is_flagged
        if not is_open and (is_second or message_id in self.history.settle_confirmed):
            self.history.violations.append(f"doubled: {message_id} has expired, and was taken or had expired before")
        self.history.expired.add(message_id)
        return message_id


class Operator:
    """Asks one node now and then for something. What is paused is resumed."""

    def __init__(self, history: ExplainedHistory, queues: list[str], *, may_delete: bool) -> None:
        self._history = history
        self._queues = queues
        self._acts: list[Callable[[ClusterNode, str], None]] = [self.pause, self.purge, self.move]
        if may_delete:
            self._acts.append(self.delete)

    def act(self, node: ClusterNode) -> None:
        """One of them."""
        if node.is_up:
            node.world.rng.choice(self._acts)(node, node.world.rng.choice(self._queues))

    def pause(self, node: ClusterNode, queue: str) -> None:
        """Nothing is handed out for a while."""
        node.ask("queue-pause", {"name": queue}, _no_matter)
        node.world.after(node.world.rng.random() * PAUSE_MS_MAX, partial(self.resume, node, queue))

    def resume(self, node: ClusterNode, queue: str) -> None:
        """Also where nothing was paused."""
        node.ask("queue-resume", {"name": queue}, _no_matter)

    def purge(self, node: ClusterNode, queue: str) -> None:
        """Messages of one colour."""
        said = {"name": queue, "selector": f"colour = '{PURGED}'"}
        self._take(node, ("queue-purge", said, "purged"), self._history.purges)

    def delete(self, node: ClusterNode, queue: str) -> None:
        """A queue at one node, with what is in it there."""
        said = {"name": queue, "force": True}
        self._take(node, ("queue-delete", said, "messages"), self._history.deletions)

    def _take(self, node: ClusterNode, request: tuple[str, dict[str, Any], str], taken: list[float]) -> None:
        operation, said, counted = request
        number = len(taken)
        taken.append(math.inf)

        def answered(reply: AdminReply) -> None:
            if reply.result is not None:
                taken[number] = reply.result[counted]
            elif reply.error is not None and "not-found" in reply.error["condition"]:
                taken[number] = 0

        node.ask(operation, said, answered)

    def move(self, node: ClusterNode, queue: str) -> None:
        """Some messages, or all, to a queue that nobody consumes from before the drain."""
        said = {"queue": queue, "address": queue + MOVED, "count_max": node.world.rng.choice((-1, 7))}
        node.ask("messages-move", said, _no_matter)


class FullClusters(ClusterSimulation):
    """See the module's docstring."""

    producer = FullProducer
    history_type = ExplainedHistory

    def __init__(self, seed: int) -> None:
        self.features = self.features_for(seed)
        self.chance = Random(f"full {seed}")
        self.leaked: list[str] = []  # by the end of the drain
        super().__init__(seed)
        assert isinstance(self.history, ExplainedHistory)
        self.history.colours, self.history.expired = {}, set()
        self.history.purges, self.history.deletions = [], []
        self.explained = self.history
        for client in self.clients:
            if isinstance(client, FullProducer):
                client.with_features(self.features)
        if TRANSACTED in self.features:
            self._add_transactors()
        if SLOW in self.features:
            self.faults.kinds["slow node"] = self._slow_down
        may_delete = not self.features & {TRANSACTED, RESENT}
        self.operator = Operator(self.explained, self.queues, may_delete=may_delete)

    def features_for(self, seed: int) -> frozenset[str]:
        """What is switched on."""
        return features_of(seed)

    def _node(self, number: int, count: int, faults: Faults) -> ClusterNode:
        node = super()._node(number, count, faults)
        if LARGE in self.features:
            node.large_sizes = (300, 3000, 12_000)
            node.large_gathered_max = self.chance.choice((0, 1500, 1 << 20))
        return node

    def enriched(self, options: BrokerOptions) -> BrokerOptions:
        """Each node in its own way, drawn apart from all else."""
        if PAGED in self.features:
            options = paging(options, self.chance)
        if LARGE in self.features:
            kept_max = self.chance.choice((0, 20_000))
            options = with_large(options, self.chance.choice((600, 2000)), self.chance.choice((2048, 65536)), kept_max)
        if EXPIRING in self.features:
            settings = options.address_settings
            built_in = replace(settings.built_in, expiry_address=EXPIRED)
            options = replace(options, address_settings=replace(settings, built_in=built_in))
        return options

    def _add_transactors(self) -> None:
        for number in range(self.chance.choice((1, 2, 3))):
            node, queue = self.chance.choice(self.nodes), self.queues[0]
            name, count = f"{queue}-p9{number}", self.chance.choice((10, 40))
            self.clients.append(Transactor(self.world, node, name, self.history, queue, count))

    def _slow_down(self) -> None:
        self.chance.choice(self.nodes).slow_down(self.chance.choice((10, 100, 1000)), self.chance.random() * 1500)

    def run(self) -> ClusterVerdict:
        """The history from beginning to end."""
        for _ in range(self.chance.choice((4, 8, 16)) if ADMIN in self.features else 0):
            act = partial(self.operator.act, self.chance.choice(self.nodes))
            self.world.after(self.chance.random() * BUSY_MS / 2, act)  # while there is much
        for _ in range(2 if SLOW in self.features else 0):
            self.world.after(self.chance.random() * BUSY_MS, self._slow_down)
        verdict = super().run()
        verdict.violations += self.leaked
        return verdict

    def _drain(self) -> int:
        nodes = self.nodes if self.mode == STRICT else [self.chance.choice(self.nodes)]
        for node in self.nodes:
            for queue in self.queues if ADMIN in self.features else ():
                self.operator.resume(node, queue)
                MovedDrain(self.world, node, f"moved-{node.name}", self.history, queue + MOVED, is_drain=True)
        for node in nodes if EXPIRING in self.features else ():
            ExpiredDrain(self.world, node, f"expired-{node.name}", self.history, EXPIRED, is_drain=True)
        left = super()._drain()
        self.leaked = [] if left else self._leaks()
        return left

    def _leaks(self) -> list[str]:
        found = []
        for node in self.nodes:
            store = node.broker.store
            if store.memory.held_bytes:
                found.append(f"leak: {node.name} holds {store.memory.held_bytes} bytes of no message")
            if node.large_files.sizes or store.large.count:
                found.append(f"leak: {node.name} has files of no message: {node.large_files.sizes}")
        return found


def _no_matter(reply: AdminReply) -> None:
    """Done, refused, or ended by the end of the node: nothing may be lost or doubled by any of it."""
