"""Messages of a transaction that are alike become runs while they come, and nobody but the clock can tell.

Whatever is sent, and whatever lies between two that are alike: what queues hold after the commit, and after a crash
behind it, is what the same messages make that come one by one without a transaction.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.config.slices import DivertOptions
from mqbroker.core.address import gathering
from mqbroker.core.address.diverts import Diverts
from mqbroker.core.address.gathering import BYTES_MAX, COUNT_MAX, MESSAGE_BYTES_MAX
from mqbroker.node.amqp.peers import coordinator
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import (
    Accepted,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Rejected,
    TransactionalState,
    Transfer,
)
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS
from mqbroker.wire.sections import Header, Properties, build_message, encode_section
from mqbroker.wire.values import Symbol, Timestamp

from tests.support import frames, transactions
from tests.support.stage import Stage, options_with

TXN = (1).to_bytes(8, "big")
CONTROL = 7
TARGETS = ("orders", "invoices", "orders::orders")
GO = frames.anonymous() + frames.opened(1 << 20) + frames.begun(incoming_window=1 << 30)
MANY_CREDITS = {"link_credit": 1_000_000}
DURABLE = Header(durable=True)
BODY = b"\x00\x53\x75\xa0\x01x"


def annotated(name: str, value: Any, *, header: bytes = build_message(b"", durable=True)[:-5]) -> bytes:
    return header + encode_section(MESSAGE_ANNOTATIONS, {Symbol(name): value}) + BODY


MESSAGES: dict[str, bytes] = {
    "plain": build_message(b"plain", durable=True),
    "of another size": build_message(b"plain, and longer", durable=True),
    "text": build_message("text", durable=True),
    "not durable": build_message(b"plain"),
    "of a priority": build_message(b"plain", header=replace(DURABLE, priority=7)),
    "first acquirer": build_message(b"plain", header=replace(DURABLE, first_acquirer=True)),
    "for a while": build_message(b"plain", header=replace(DURABLE, ttl=50_000)),
    "delivered before": build_message(b"plain", header=replace(DURABLE, delivery_count=2)),
    "its default said": b"\x00\x53\x70\xc0\x04\x02\x41\x50\x04" + BODY,
    "a wide header": b"\x00\x53\x70\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x41" + BODY,
    "a header spelt out": b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70\xc0\x02\x01\x41" + BODY,
    "an empty header": b"\x00\x53\x70\x45" + BODY,
    "without a header": BODY,
    "a body spelt out": b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xa0\x01x",
    "null": b"\x00\x53\x77\x40",
    "two data sections": BODY + BODY,
    "a footer": BODY + b"\x00\x53\x78\xc1\x01\x00",
    "with properties": build_message(b"plain", durable=True, properties=Properties(message_id="m", subject="s")),
    "of a time": build_message(b"x", durable=True, properties=Properties(creation_time=Timestamp(5))),
    "with an end": build_message(b"x", durable=True, properties=Properties(absolute_expiry_time=Timestamp(1 << 41))),
    "of a group": build_message(b"x", durable=True, properties=Properties(group_id="g", group_sequence=1)),
    "of another group": build_message(b"x", durable=True, properties=Properties(group_id="h", group_sequence=1)),
    "with a property": build_message(b"x", durable=True, application_properties={"color": "red"}),
    "with an id": build_message(b"x", durable=True, application_properties={"_AMQ_DUPL_ID": "one"}),
    "with another id": build_message(b"x", durable=True, application_properties={"_AMQ_DUPL_ID": "two"}),
    "with a key": build_message(b"x", durable=True, application_properties={"_AMQ_LVQ_NAME": "k"}),
    "later": annotated("x-opt-delivery-delay", 5000),
    "at a time": annotated("x-opt-delivery-time", 1 << 41),
    "annotated": annotated("x-opt-mine", 1),
    "large": build_message(b"l" * (MESSAGE_BYTES_MAX + 1), durable=True),
}
ALONE = (
    "a header spelt out", "with an end", "of a group", "of another group", "with an id", "with another id",
    "with a key", "later", "at a time", "large",
)  # fmt: skip
AT_ONCE = ("a header spelt out", "large")  # which are joined by none, and are runs where they come at once
OTHER_HEADER = tuple(name for name, payload in MESSAGES.items() if not payload.startswith(MESSAGES["plain"][:7]))
Post = tuple[str, bytes]


class Site:
    """A node, and a client with a link to each target and to the coordinator."""

    def __init__(self, **tables: Any) -> None:
        tables["limits"] = MANY_CREDITS | tables.get("limits", {})
        self.stage = Stage(options_with(**tables))
        self.number = 100
        self.begin()

    def begin(self) -> None:
        self.conn = self.stage.accept()
        links = b"".join(frames.sender(name, handle=number, name=name) for number, name in enumerate(TARGETS))
        control = frames.frame(replace(transactions.coordinator_attach(), handle=CONTROL))
        self.stage.talk(self.conn, GO + links + control)
        said = frames.of_kind(self.stage.talk(self.conn, transactions.request(0, Declare(), CONTROL)), Disposition)
        assert [each.state for each in said] == [Declared(txn_id=TXN)]

    def bytes_of(self, posts: list[Post], *, together: bool = True) -> bytes:
        state = TransactionalState(txn_id=TXN) if together else None
        found = []
        for target, payload in posts:
            self.number += 1
            head = Transfer(handle=TARGETS.index(target), delivery_id=self.number, delivery_tag=b"%d" % self.number,
                            message_format=0, settled=True, state=state)  # fmt: skip
            found.append(frames.frame(head, payload))
        return b"".join(found)

    def post(self, posts: list[Post]) -> None:
        self.stage.talk(self.conn, self.bytes_of(posts))

    def send(self, posts: list[Post]) -> None:
        """Each by itself, without a transaction."""
        for each in posts:
            self.stage.talk(self.conn, self.bytes_of([each], together=False))

    def end(self, *, fail: bool = False) -> Any:
        """What the coordinator says to it."""
        said = self.stage.talk(self.conn, transactions.request(1, Discharge(txn_id=TXN, fail=fail), CONTROL))
        (answer,) = frames.of_kind(said, Disposition)
        return answer.state

    @property
    def ongoing(self) -> Any:
        """What the transaction holds."""
        peer = self.stage.broker.peers[self.conn]
        return next(iter(peer.transactions._ongoing.values())).work  # type: ignore[attr-defined]

    @property
    def held_bytes(self) -> int:
        return self.stage.broker.store.memory.held_bytes

    def contents(self) -> dict[str, list[Any]]:
        """Of each queue: what every message is, in its order."""
        return {
            name: [
                (segment.run.first_id + index, bytes(segment.run.payload(index)), segment.run.section,
                 segment.run.traits, segment.run.deliver_at_ms, segment.run.expires_ms, segment.deliveries)
                for segment in queue.segments() for index in range(segment.start, segment.start + segment.n)
            ]
            for name, queue in self.stage.broker.store.queues.items()
        }  # fmt: skip

    def bodies(self, name: str) -> list[bytes]:
        return [each[1] for each in self.contents()[name]]

    def crash(self) -> None:
        self.stage.crash()
        self.stage.start()
        self.stage.run()


def many(count: int, name: str = "plain", target: str = "orders") -> list[Post]:
    return [(target, MESSAGES[name])] * count


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_what_comes_of_it_is_what_comes_of_each_by_itself(seed: int) -> None:
    draw = random.Random(seed)
    names = draw.sample(list(MESSAGES), draw.choice((2, 3, 6, len(MESSAGES))))
    posts: list[Post] = []
    while len(posts) < draw.choice((5, 40, 600)):
        target = draw.choice(TARGETS) if draw.random() < 0.3 else "orders"
        posts += [(target, MESSAGES[draw.choice(names)])] * draw.choice((1, 1, 2, 3, 20, 300))
    site, reference = Site(), Site()
    site.post(posts)
    together = site.ongoing.parts_count
    assert site.end() == Accepted()
    reference.send(posts)
    assert site.contents() == reference.contents()
    assert together <= len(posts)
    for each in (site, reference):
        each.crash()
    assert site.contents() == reference.contents()


@pytest.mark.parametrize("name", MESSAGES)
def test_so_many_parts_they_are(name: str) -> None:
    site = Site()
    for each in many(20, name):
        site.post([each])
    assert site.ongoing.parts_count == (20 if name in ALONE else 1)
    assert site.ongoing.close() == (20 if name in (*ALONE, "a body spelt out") else 1)
    assert site.end() == Accepted()


@pytest.mark.parametrize("name", MESSAGES)
def test_so_many_parts_they_are_where_they_come_at_once(name: str) -> None:
    site = Site()
    site.post(many(20, name))
    parts = 5 if name in AT_ONCE else 20 if name in ALONE else 1  # 1, 1, 4, 4 and 10 of them
    assert site.ongoing.parts_count == parts
    assert site.ongoing.close() == (20 if name == "a body spelt out" else parts)
    assert site.end() == Accepted()


@pytest.mark.parametrize("name", MESSAGES)
def test_what_lies_between_two_that_are_alike_divides_them_or_is_alike(name: str) -> None:
    site = Site()
    for each in many(2) + many(1, name) + many(2):
        site.post([each])
    assert site.ongoing.parts_count == (3 if name in (*ALONE, *OTHER_HEADER) else 1)
    assert site.end() == Accepted()


def test_another_place_between_divides_them() -> None:
    site = Site()
    site.post([(target, MESSAGES["plain"]) for target in (*TARGETS, "orders")])
    assert site.ongoing.parts_count == 4
    assert site.end() == Accepted()
    assert [name for name, _ in site.stage.broker.store.queues.items()] == ["orders", "invoices"]


def test_a_run_has_so_many_messages_and_bytes() -> None:
    site = Site()
    site.post(many(COUNT_MAX))
    assert site.ongoing.parts_count == 1
    site.post(many(COUNT_MAX + 1))
    assert site.ongoing.parts_count == 3
    size = MESSAGE_BYTES_MAX - 100
    site.post([("orders", build_message(b"b" * size, durable=True))] * (BYTES_MAX // size + 1))
    assert site.ongoing.parts_count == 4, "the third has the one that was begun: they are alike"
    assert site.end() == Accepted()
    assert len({id(each.run) for each in site.stage.broker.store.queues["orders"].segments()}) == 4


@pytest.mark.parametrize("fail", [True, False])
def test_memory_holds_what_each_by_itself_would(fail: bool) -> None:
    site = Site()
    before = site.held_bytes
    size = 29 + len(MESSAGES["plain"])
    for place in range(1, 4):
        site.post(many(COUNT_MAX // 2 + 7))
        held = place * (COUNT_MAX // 2 + 7) * size
        assert (site.held_bytes - before, site.ongoing.size_bytes) == (held, held)
    site.ongoing.close()
    assert (site.held_bytes - before, site.ongoing.size_bytes) == (held, held)
    site.end(fail=fail)
    assert site.held_bytes - before == (0 if fail else held)


def test_without_a_header_and_begun_in_an_unusual_way_all_of_them_stay_alone_and_count() -> None:
    site = Site(limits={"transaction_parts_max": 4})
    site.post(many(2, "without a header") + many(1, "a body spelt out"))
    assert site.ongoing.parts_count == 1, "it looks like one of them"
    assert site.ongoing.close() == 3
    site.post(many(1, "without a header") + many(2, "a body spelt out"))
    assert isinstance(site.end(), Rejected), "which were too many"
    assert site.stage.broker.counters.refused == 6, "all that the commit would have brought"
    assert site.stage.broker.store.queues["orders"].message_count == 0


# -- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.option("limits.transaction-messages-max")
def test_messages_are_bounded_and_so_are_parts() -> None:
    site = Site(limits={"transaction_messages_max": 300, "transaction_parts_max": 2})
    site.post(many(300))
    assert site.ongoing.parts_count == 2, "the second one may be full, and a message may still join it"
    assert site.end() == Accepted()
    for posts, option in (many(301), "messages-max"), (many(2) + many(1, "not durable") + many(1), "parts-max"):
        other = Site(limits={"transaction_messages_max": 300, "transaction_parts_max": 2})
        other.post(posts)
        answer = other.end()
        assert isinstance(answer, Rejected)
        assert answer.error is not None
        assert option in (answer.error.description or "")
        assert other.contents()["orders"] == []
        assert other.held_bytes == 0


@pytest.mark.parametrize("posts_max", [coordinator.POSTS_MAX, 1])
@pytest.mark.parametrize(("name", "refused"), [("plain", 20), ("of a group", 16 + 4)])
def test_refused_are_as_many_messages_as_are_told_so(
    name: str, refused: int, posts_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they come: 1, 1, 4, 4 and 16 at once, which are taken apart where each is of a group, or one by one."""
    monkeypatch.setattr(coordinator, "POSTS_MAX", posts_max)
    site = Site(limits={"transaction_messages_max": 10 if name == "plain" else 12})
    site.post(many(10) + many(20, name))
    assert site.stage.broker.counters.refused == (18 if name != "plain" and posts_max == 1 else refused)
    assert isinstance(site.end(), Rejected)
    before = site.stage.broker.counters.refused
    site.post(many(3))
    assert site.stage.broker.counters.refused == before, "there is no transaction, and so it is not for want of room"


@pytest.mark.parametrize("posts_max", [coordinator.POSTS_MAX, 1])
def test_a_full_address_refuses_all_that_its_commit_brings(posts_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "POSTS_MAX", posts_max)
    site = Site(address_settings={"orders": {"address_full_policy": "FAIL", "max_size_messages": 7}})
    site.post(many(5, target="invoices") + many(20) + many(1, "not durable"))
    assert isinstance(site.end(), Rejected)
    assert site.stage.broker.store.meters.refused_total == 21


BOUNDS: dict[str, dict[str, Any]] = {
    "drop messages": {"address_full_policy": "DROP", "max_size_messages": 333},
    "drop bytes": {"address_full_policy": "DROP", "max_size_bytes": 9000},
    "fail": {"address_full_policy": "FAIL", "max_size_messages": 333},
    "fail, and it fits": {"address_full_policy": "FAIL", "max_size_messages": 700},
    "block": {"address_full_policy": "BLOCK", "max_size_messages": 1000},
    "page": {"address_full_policy": "PAGE", "max_size_messages": 100},
    "page, bounded": {"address_full_policy": "PAGE", "max_size_messages": 1, "page_limit_messages": 333,
                      "page_full_policy": "DROP"},
    "page, refused": {"address_full_policy": "PAGE", "max_size_messages": 1, "page_limit_messages": 333,
                      "page_full_policy": "FAIL"},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("before", [0, 1, 20])
def test_an_address_takes_in_as_many_as_if_none_were_gathered(
    bounds: str, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    posts = [("orders", build_message(b"%06d" % number, durable=True)) for number in range(700)]
    for count_max in (COUNT_MAX, 1):
        monkeypatch.setattr(gathering, "COUNT_MAX", count_max)
        monkeypatch.setattr(coordinator, "POSTS_MAX", min(coordinator.POSTS_MAX, count_max))
        site = Site(address_settings={"orders": BOUNDS[bounds]})
        site.send(many(before))
        site.post(posts)
        parts = site.ongoing.parts_count
        assert parts == (3 if count_max > 1 else 700)
        answer = site.end()
        queue = site.stage.broker.store.queues["orders"]
        meters = site.stage.broker.store.meters
        found.append((type(answer), queue.message_count, meters.dropped_total, meters.refused_total))
        site.crash()
        consumer = site.stage.accept()
        said = site.stage.talk(consumer, GO + frames.receiver(credit=2000))
        found[-1] += ([payload for _, payload in _messages(said + bytes(site.stage.sent[consumer]))][:1],)
    assert found[0] == found[1]


def _messages(data: bytes) -> list[Any]:
    return [each for each in frames.heard(data) if isinstance(each, tuple) and isinstance(each[0], Transfer)]


DIVERT = DivertOptions("d", "orders", "copies", filter="", exclusive=False, routing_type="STRIP")


@pytest.mark.parametrize("is_diverted", [True, False])
def test_where_each_is_looked_at_each_counts(is_diverted: bool) -> None:
    site = Site(address_settings={"orders": {"enable_ingress_timestamp": not is_diverted}})
    if is_diverted:
        site.stage.broker.store.diverts = Diverts((DIVERT,), site.stage.broker.store)
    site.post(many(30))
    assert site.ongoing.parts_count == 30
    assert site.end() == Accepted()
    assert site.stage.broker.store.queues["orders"].message_count == 30


def _filtered(site: Site) -> None:
    site.stage.admin("queue-create", name="red", address="orders", routing_type="multicast", selector="color = 'red'")


def _shared(site: Site) -> None:
    site.stage.admin("queue-create", name="other", address="orders", routing_type="anycast")


@pytest.mark.parametrize("make", [_filtered, _shared])
@pytest.mark.parametrize("is_late", [False, True])
def test_a_commit_counts_each_that_is_looked_at_by_then(make: Any, is_late: bool) -> None:
    site = Site(limits={"transaction_parts_max": 50})
    if not is_late:
        make(site)
    site.post(many(40))
    if is_late:
        assert site.ongoing.parts_count == 1
        make(site)
    assert site.ongoing.close() == 40
    site.post(many(20))
    answer = site.end()
    assert isinstance(answer, Rejected), "60 are too many"
    assert answer.error is not None
    assert "transaction-parts-max" in (answer.error.description or "")
    assert sum(each.message_count for each in site.stage.broker.store.queues.values()) == 0


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_rollback_of_very_many_goes_piece_by_piece_and_leaves_nothing() -> None:
    site = Site()
    before = site.held_bytes
    for _ in range(30):
        site.post(many(1000))
    assert site.ongoing.parts_count <= 30_000 // (COUNT_MAX - coordinator.POSTS_MAX)
    assert site.end(fail=True) == Accepted()
    assert site.held_bytes == before
    assert site.contents()["orders"] == []


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_crash_right_behind_a_commit_finds_all_of_it_or_nothing(is_synced: bool) -> None:
    site = Site()
    site.post(many(1000) + many(3, "with properties") + many(500, target="invoices"))
    site.stage.give(given.BytesReceived(site.conn, transactions.request(1, Discharge(txn_id=TXN, fail=False), CONTROL)))
    site.stage.turn()
    if is_synced:
        site.stage.sync()
    site.crash()
    counts = [len(site.contents()[name]) for name in ("orders", "invoices")]
    assert counts == ([1003, 500] if is_synced else [0, 0])


def test_a_full_memory_fails_it_in_the_middle_of_a_run() -> None:
    size = 29 + len(MESSAGES["plain"])
    site = Site(limits={"global_max_size_bytes": 100 * size})
    site.post(many(130))  # as of senders without a transaction, what comes at once is taken in at once
    site.post(many(20))
    answer = site.end()
    assert isinstance(answer, Rejected)
    assert site.held_bytes == 0
    assert site.contents()["orders"] == []
