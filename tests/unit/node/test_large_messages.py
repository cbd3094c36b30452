"""Large messages through a whole node: files in, files out, and none left behind."""

from __future__ import annotations

import random
from typing import Any

import pytest
from mqbroker.amqp import events as told
from mqbroker.base.errors import StorageFault
from mqbroker.node import inputs as given
from mqbroker.node import large_messages
from mqbroker.wire.large import HEAD_BYTES_MAX
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Disposition,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from mqbroker.wire.run import single
from mqbroker.wire.sections import body_values, build_message, decode_header, scan_sections
from mqbroker.wire.types import Described, Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with
from tests.support.transactions import coordinator_attach, declare, discharge, post

SIZE_MIN = 2000
BIG = 40_000


def stage_of(frame_size: int = 1024, **tables: Any) -> Stage:
    tables["limits"] = {"amqp_min_large_message_size_bytes": SIZE_MIN} | tables.get("limits", {})
    return Stage(options_with(listener={"max_frame_size_bytes": frame_size}, **tables))


def content(number: int, size: int = BIG) -> bytes:
    return random.Random(number).randbytes(size)


class Producer:
    def __init__(self, stage: Stage, name: str = "producer", address: str = "orders", *, settled: bool = False) -> None:
        self.stage = stage
        self.talker = stage.connect(name)
        assert self.talker.session is not None
        self.link = self.talker.session.attach_sender(
            Attach(name=name, handle=0, role=False, snd_settle_mode=int(settled), source=Source(),
                   target=Target(address=address), initial_delivery_count=0)
        )  # fmt: skip
        self.link.send_settled = settled
        stage.run()

    def send(self, body: bytes, **said: Any) -> None:
        """Into the connection; `stage.run` brings it to the node."""
        payload = build_message(body, **{"durable": True, **said})
        assert self.link.session.send_run(self.link, single(payload), 0, 1, len(body)) == 1

    def publish(self, body: bytes, **said: Any) -> None:
        self.send(body, **said)
        self.stage.run()

    @property
    def outcomes(self) -> list[Any]:
        return [event.outcome for event in self.talker.events if isinstance(event, told.Settled) for _ in event.taken]


class Consumer:
    def __init__(self, stage: Stage, name: str = "consumer", address: str = "orders", credit: int = 10,
                 frame_size: int = 65536, **fields: Any) -> None:  # fmt: skip
        self.stage = stage
        self.talker = stage.connect(name, open_=Open(container_id=name, max_frame_size=frame_size))
        assert self.talker.session is not None
        filters = fields.pop("filter", None)
        self.link = self.talker.session.attach_receiver(
            Attach(name=name, handle=0, role=True, source=Source(address=address, filter=filters,
                                                                 **fields.pop("source", {})),
                   target=Target(), **fields)
        )  # fmt: skip
        stage.run()
        if credit:
            self.link.grant(credit)
            stage.run()

    @property
    def incoming(self) -> list[told.Incoming]:
        return [event for event in self.talker.events if isinstance(event, told.Incoming)]

    @property
    def bodies(self) -> list[bytes]:
        return [body_in(bytes(event.run.payload(index))) for event in self.incoming for index in range(event.run.count)]

    def settle(self, number: int, outcome: Any = None) -> None:
        delivery_id = self.incoming[number].delivery_id
        self.link.session.dispose(delivery_id, delivery_id, outcome or Accepted(), as_receiver=True)
        self.stage.run()


def body_in(payload: bytes) -> bytes:
    return b"".join(body_values(payload, scan_sections(payload, 0, len(payload)))[1])


def test_a_subscription_without_its_own_messages_is_not_given_large_ones_either() -> None:
    stage = stage_of()
    terms = {"address": "news", "source": {"capabilities": (Symbol("topic"),)}}
    no_local = {Symbol("no-local"): Described(Symbol("apache.org:no-local-filter:list"), [])}
    own, other = Consumer(stage, "app", filter=no_local, **terms), Consumer(stage, "web", **terms)
    Producer(stage, "app", "news").publish(content(1))
    assert (own.bodies, other.bodies) == ([], [content(1)])


def is_clean(stage: Stage) -> bool:
    """No file, and nobody who thinks that there is one."""
    broker = stage.broker
    return not stage.large_files.sizes and not broker.store.large.count and not broker.large.downloads


# -- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
def test_a_large_message_goes_through_a_file_and_the_file_goes_with_it(durable: bool) -> None:
    stage = stage_of()
    producer, consumer = Producer(stage), Consumer(stage)
    producer.publish(content(1), durable=durable)
    assert [type(outcome) for outcome in producer.outcomes] == [Accepted]
    assert consumer.bodies == [content(1)]
    (size,) = stage.large_files.sizes.values()
    assert BIG < size < BIG + 20
    assert stage.broker.store.memory.held_bytes < 200
    consumer.settle(0)
    assert is_clean(stage)


def test_what_comes_out_is_byte_for_byte_what_went_in() -> None:
    stage = stage_of()
    payload = build_message(content(1), durable=True, application_properties={"key": "value" * 50})
    producer, consumer = Producer(stage), Consumer(stage)
    producer.link.session.send_run(producer.link, single(payload), 0, 1, None)
    stage.run()
    (event,) = consumer.incoming
    assert bytes(event.run.payload(0)) == payload


@pytest.mark.option("limits.amqp-min-large-message-size-bytes")
def test_the_option_says_what_is_large() -> None:
    for size_min, files in ((SIZE_MIN, 1), (BIG * 2, 0), (-1, 0)):
        stage = stage_of(limits={"amqp_min_large_message_size_bytes": size_min})
        producer = Producer(stage)
        producer.publish(content(1))
        assert len(stage.large_files.sizes) == files
        assert Consumer(stage).bodies == [content(1)]


def test_one_that_fits_a_frame_is_large_too_and_its_neighbours_are_not() -> None:
    stage = stage_of(frame_size=65536)
    producer = Producer(stage)
    for body in (b"before", content(1), content(2), b"after"):
        producer.send(body)
    stage.run()
    assert len(stage.large_files.sizes) == 2
    consumer = Consumer(stage)
    assert consumer.bodies == [b"before", content(1), content(2), b"after"]


def test_a_long_head_keeps_a_message_in_memory() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1), application_properties={"long": "x" * (HEAD_BYTES_MAX + 1)})
    assert is_clean(stage)
    assert Consumer(stage).bodies == [content(1)]


def test_a_message_without_any_head_is_a_body() -> None:
    stage = stage_of()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
    data = b"\x00\x53\x75\xb0" + BIG.to_bytes(4, "big") + content(1)
    said = stage.talk(conn, pieces(data, 500))
    assert [type(each.state) for each in frames.of_kind(said, Disposition)] == [Accepted]
    assert Consumer(stage).bodies == [content(1)]


def pieces(payload: bytes, size: int, *, end: int | None = None, number: int = 0, handle: int = 0) -> bytes:
    """The transfers of a message; `end`: only the first so many bytes, without the last transfer."""
    found = b""
    for at in range(0, len(payload) if end is None else end, size):
        first: dict[str, Any] = {"delivery_id": number, "delivery_tag": b"t", "message_format": 0} if not at else {}
        found += frames.frame(Transfer(handle=handle, more=at + size < len(payload), **first), payload[at : at + size])
    return found


# -- the disk ---------------------------------------------------------------------------------------------------------


def test_it_is_accepted_when_file_and_journal_are_on_disk() -> None:
    stage = stage_of()
    producer = Producer(stage)
    stage.is_large_held = stage.is_disk_held = True
    appends = len(stage.appends)
    producer.publish(content(1))
    assert len(stage.appends) == appends, "the journal knows of it before its file is finished"
    stage.work_on_files()
    stage.run()
    assert len(stage.appends) == appends + 1
    assert producer.outcomes == []
    stage.sync()
    stage.run()
    assert [type(outcome) for outcome in producer.outcomes] == [Accepted]


def test_what_follows_on_the_link_does_not_overtake_it() -> None:
    stage = stage_of()
    producer, consumer = Producer(stage), Consumer(stage)
    stage.is_large_held = True
    producer.publish(content(1), durable=False)
    producer.publish(b"small", durable=False)
    assert consumer.bodies == []
    stage.is_large_held = False
    stage.run()
    assert consumer.bodies == [content(1), b"small"]


def test_a_producer_that_closes_at_once_has_published_all_the_same() -> None:
    stage = stage_of()
    producer = Producer(stage, settled=True)
    stage.is_large_held = True
    producer.send(content(1))
    producer.send(b"small")
    producer.talker.connection.close()
    stage.run()
    stage.drop(producer.talker)
    stage.is_large_held = False
    stage.run()
    assert stage.broker.peers == {}
    assert Consumer(stage).bodies == [content(1), b"small"]


def test_a_producer_that_is_lost_has_not_published_what_is_not_finished() -> None:
    """It may be back, and send what comes behind that, before the disk is done."""
    stage = stage_of()
    producer = Producer(stage)
    stage.is_large_held = True
    producer.send(content(1))
    producer.send(b"behind")
    stage.run()
    stage.drop(producer.talker)
    Producer(stage, "again").publish(b"small")
    stage.is_large_held = False
    stage.run()
    assert is_clean(stage)
    assert Consumer(stage).bodies == [b"small"]


def test_a_slow_disk_stops_the_reading_and_not_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqbroker.node.uploads.UPLOAD_BYTES_MAX", 10_000)
    stage = stage_of()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
    stage.is_large_held = True
    message = pieces(build_message(content(1), durable=True), 500)
    stage.talk(conn, message[:9_000])
    assert not stage.paused.get(conn)
    stage.talk(conn, message[9_000:20_000])
    assert stage.paused[conn]
    stage.is_large_held = False
    stage.run()
    assert not stage.paused[conn]
    stage.talk(conn, message[20_000:])
    assert not stage.paused[conn]
    assert stage.broker.large.writing_bytes == 0
    assert Consumer(stage).bodies == [content(1)]


def test_when_all_of_the_node_is_behind_whoever_uploads_is_not_read() -> None:
    stage = stage_of(journal={"disk_pending_bytes_max": 64 << 10})
    conns = [stage.accept() for _ in range(5)]
    stage.is_large_held = True
    for conn in conns:
        stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
        stage.talk(conn, pieces(build_message(content(1), durable=True), 500, end=20_000))
    assert [bool(stage.paused.get(conn)) for conn in conns] == [False, False, False, True, True]
    stage.is_large_held = False
    stage.run()
    assert not any(stage.paused.values())


@pytest.mark.parametrize("settled", [False, True])
def test_a_disk_that_is_full_refuses_that_message_alone(settled: bool) -> None:
    stage = stage_of()
    producer = Producer(stage, settled=settled)
    stage.large_files.write_error = 1.0
    producer.publish(content(1))
    if settled:
        (gone,) = [event for event in producer.talker.events if isinstance(event, told.Detached)]
        error = gone.error
    else:
        (outcome,) = producer.outcomes
        assert isinstance(outcome, Rejected)
        error = outcome.error
    assert error is not None
    assert (error.condition, error.description) == (
        "amqp:internal-error",
        "the message cannot be stored: no space left",
    )
    assert [notice.event for notice in stage.notices if "large" in notice.event] == ["large-message-failed"]
    assert is_clean(stage)
    stage.large_files.write_error = 0.0
    other = Producer(stage, "other")
    other.publish(content(2))
    assert Consumer(stage).bodies == [content(2)]


def test_a_stop_waits_for_what_has_come_in_whole() -> None:
    stage = stage_of()
    producer = Producer(stage)
    stage.is_large_held = True
    producer.publish(content(1))
    stage.stop()
    assert stage.halted is None
    stage.is_large_held = False
    stage.run()
    assert stage.halted == 0
    assert [type(outcome) for outcome in producer.outcomes] == [Accepted]
    stage.start()
    assert Consumer(stage).bodies == [content(1)]


# -- deliveries that never come to their end --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["aborted", "detached", "ended", "lost", "too long"])
def test_nothing_is_left_of_a_delivery_that_does_not_end(how: str) -> None:
    stage = stage_of(limits={"max_message_size_bytes": 30_000})
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
    stage.talk(conn, pieces(build_message(content(1), durable=True), 500, end=20_000))
    assert len(stage.large_files.sizes) == 1
    if how == "aborted":
        stage.talk(conn, frames.frame(Transfer(handle=0, aborted=True)))
    elif how == "detached":
        stage.talk(conn, frames.detach())
    elif how == "ended":
        stage.talk(conn, frames.end())
    elif how == "lost":
        stage.drop_bare(conn)
    else:
        rest = pieces(build_message(content(1), durable=True), 500)[len(pieces(content(1), 500, end=20_000)) :]
        said = stage.talk(conn, rest)
        assert ("Detach", "amqp:link:message-size-exceeded") in frames.errors(said)
    assert is_clean(stage)
    if how == "aborted":
        said = stage.talk(conn, frames.transfer(1, b"next"))
        assert [type(each.state) for each in frames.of_kind(said, Disposition)] == [Accepted]


def test_a_message_for_nobody_leaves_no_file() -> None:
    stage = stage_of()
    stage.admin("address-create", name="news", routing_types=["multicast"])
    assert stage.broker.store.make_address("news").is_empty
    producer = Producer(stage, address="news")
    producer.publish(content(1))
    assert [type(outcome) for outcome in producer.outcomes] == [Accepted]
    assert is_clean(stage)


def test_a_duplicate_leaves_no_file() -> None:
    stage = stage_of()
    producer, consumer = Producer(stage), Consumer(stage)
    for _ in range(2):
        producer.publish(content(1), application_properties={"_AMQ_DUPL_ID": "one"})
    assert [type(outcome) for outcome in producer.outcomes] == [Accepted, Accepted]
    assert consumer.bodies == [content(1)]
    assert len(stage.large_files.sizes) == 1


# -- restarts ---------------------------------------------------------------------------------------------------------


def restart(stage: Stage) -> None:
    stage.crash()
    stage.start()


def test_after_a_crash_the_durable_ones_are_there_and_no_file_too_many() -> None:
    stage = stage_of()
    producer = Producer(stage)
    producer.publish(content(1))
    producer.publish(content(2), durable=False)
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
    stage.talk(conn, pieces(build_message(content(3), durable=True), 500, end=20_000))
    assert len(stage.large_files.sizes) == 3
    restart(stage)
    assert len(stage.large_files.sizes) == 1
    consumer = Consumer(stage)
    assert consumer.bodies == [content(1)]
    Producer(stage).publish(content(4))
    assert consumer.bodies == [content(1), content(4)]
    consumer.settle(0)
    consumer.settle(1)
    assert is_clean(stage)


def test_a_file_outlives_a_settlement_that_is_not_on_disk() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1))
    consumer = Consumer(stage)
    stage.is_disk_held = True
    consumer.settle(0)
    assert len(stage.large_files.sizes) == 1
    restart(stage)
    stage.is_disk_held = False
    stage.run()
    again = Consumer(stage)
    assert again.bodies == [content(1)]
    assert header_of(again.incoming[0]).delivery_count == 1
    again.settle(0)
    assert is_clean(stage)
    restart(stage)
    assert Consumer(stage).bodies == []


def header_of(event: told.Incoming) -> Any:
    payload = bytes(event.run.payload(0))
    return decode_header(payload, 0, len(payload))[0]


def test_a_crash_between_file_and_journal_leaves_neither() -> None:
    stage = stage_of()
    producer = Producer(stage)
    stage.is_disk_held = True
    producer.publish(content(1))
    assert len(stage.large_files.sizes) == 1
    restart(stage)
    assert is_clean(stage)


def test_a_file_that_is_gone_stops_the_start_unless_damage_is_given_up() -> None:
    stage = stage_of()
    producer = Producer(stage)
    producer.publish(content(1))
    producer.publish(b"small")
    (file,) = stage.large_files.sizes
    stage.crash()
    del stage.large_files._files[file]
    with pytest.raises(StorageFault, match=rf"large-messages/{file}.msg.* and is not there; .*truncate"):
        stage.start()
    stage.options = options_with(journal={"journal_on_damage": "truncate"})
    stage.start()
    assert [notice.event for notice in stage.notices if "large" in notice.event] == ["large-message-given-up"]
    assert Consumer(stage).bodies == [b"small"]
    stage.options = options_with()
    restart(stage)


def test_a_file_that_was_cut_short_stops_the_start() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1))
    (file,) = stage.large_files.sizes
    stage.crash()
    del stage.large_files._files[file].cached[-1:]
    with pytest.raises(StorageFault, match="and has "):
        stage.start()


def test_compaction_keeps_it() -> None:
    journal = {"journal_file_size_bytes": 65536, "journal_compact_min_files": 3, "journal_compact_percentage": 30}
    stage = stage_of(journal=journal)
    Producer(stage).publish(content(1))
    filler, sink = Producer(stage, "filler", "filler"), Consumer(stage, "sink", "filler", credit=1000)
    for number in range(300):
        filler.publish(bytes(1500))
        sink.settle(number)
    assert stage.broker.journal.segments_count < 4
    restart(stage)
    assert Consumer(stage).bodies == [content(1)]


# -- consumers --------------------------------------------------------------------------------------------------------


def test_small_frames_and_windows_and_several_consumers_at_once() -> None:
    stage = stage_of()
    producer = Producer(stage)
    for number in range(4):
        producer.publish(content(number))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun(incoming_window=3))
    said = stage.talk(
        conn,
        frames.receiver("orders", 0) + frames.receiver("orders", 1) + frames.flow(0, 1, window=3)
        + frames.flow(1, 1, window=3),
    )  # fmt: skip
    others = [Consumer(stage, f"c{number}", credit=1, frame_size=512) for number in range(2)]
    assert sorted(each.bodies[0] for each in others) == sorted([content(2), content(3)])
    found: dict[int, bytes] = {0: b"", 1: b""}
    seen = 0
    for _ in range(1000):
        for performative, payload in [each for each in frames.heard(said) if isinstance(each, tuple)]:
            found[performative.handle] += payload
            seen += 1
        said = stage.talk(conn, frames.frame(_session_flow(seen, 3)))
        if not said:
            break
    assert sorted(body_in(each) for each in found.values()) == sorted([content(0), content(1)])


def _session_flow(seen: int, window: int) -> Flow:
    return Flow(next_incoming_id=seen, incoming_window=window, next_outgoing_id=0, outgoing_window=2048)


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("how", ["detached", "lost"])
def test_a_link_that_ends_in_the_middle_returns_the_message(settled: bool, how: str) -> None:
    stage = stage_of()
    producer = Producer(stage)
    producer.publish(content(1))
    producer.publish(b"second")
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun(incoming_window=5))
    said = stage.talk(conn, frames.receiver("orders", 0, snd_settle_mode=int(settled)) + frames.flow(0, 5, window=5))
    assert len([each for each in frames.heard(said) if isinstance(each, tuple)]) == 5
    if how == "detached":
        stage.talk(conn, frames.detach(0))
    else:
        stage.drop_bare(conn)
    consumer = Consumer(stage)
    assert consumer.bodies == [content(1), b"second"]
    assert header_of(consumer.incoming[0]).delivery_count == int(how == "lost")
    consumer.settle(0)
    assert is_clean(stage)


def test_a_consumer_that_gets_it_settled_ends_it_with_the_last_piece() -> None:
    stage = stage_of()
    producer, consumer = Producer(stage), Consumer(stage, snd_settle_mode=1)
    stage.is_large_held = True
    producer.publish(content(1))
    stage.work_on_files()
    stage.run()
    assert len(stage.large_effects) == 1
    assert stage.broker.store.queues["orders"].delivering_count == 1
    stage.is_large_held = False
    stage.run()
    assert consumer.bodies == [content(1)]
    assert stage.broker.store.queues["orders"].message_count == 0
    assert is_clean(stage)


def test_one_that_is_released_keeps_its_place_and_one_that_failed_says_so() -> None:
    stage = stage_of()
    producer, consumer = Producer(stage), Consumer(stage, credit=1)
    producer.publish(content(1))
    producer.publish(b"second")
    consumer.settle(0, Released())
    consumer.link.grant(1)
    stage.run()
    consumer.settle(1, Modified(delivery_failed=True))
    consumer.link.grant(2)
    stage.run()
    assert consumer.bodies == [content(1)] * 3 + [b"second"]
    assert [header_of(event).delivery_count for event in consumer.incoming[:3]] == [0, 0, 1]


def test_a_message_that_is_settled_before_all_of_it_was_sent() -> None:
    stage = stage_of()
    producer = Producer(stage)
    producer.publish(content(1))
    producer.publish(b"second")
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened(512) + frames.begun(incoming_window=5))
    stage.talk(conn, frames.receiver("orders", 0) + frames.flow(0, 5, window=5))
    stage.talk(conn, frames.disposition(0, 0, Accepted()))
    said = stage.talk(conn, frames.frame(_session_flow(5, 2000)))
    received = [each for each in frames.heard(said) if isinstance(each, tuple)]
    assert received[-2][0].more is False
    assert body_in(received[-1][1]) == b"second"
    assert is_clean(stage)


def test_a_reader_that_is_slow_costs_no_memory() -> None:
    stage = stage_of()
    producer, consumer = Producer(stage), Consumer(stage, credit=0)
    producer.publish(content(1, 2_000_000))
    stage.is_large_held = True
    consumer.link.grant(1)
    stage.run()
    assert len(stage.large_effects) == 1
    stage.give(given.WriteBlocked(consumer.talker.conn, True))
    stage.run()
    stage.work_on_files()
    stage.run()
    assert stage.large_effects == [], "it reads on for a peer that does not"
    stage.give(given.WriteBlocked(consumer.talker.conn, False))
    stage.is_large_held = False
    stage.run()
    assert consumer.bodies == [content(1, 2_000_000)]


def test_reads_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_messages, "READS_MAX", 2)
    stage = stage_of()
    producer = Producer(stage)
    for number in range(5):
        producer.publish(content(number))
    stage.is_large_held = True
    consumers = [Consumer(stage, f"c{number}", credit=1) for number in range(5)]
    assert len(stage.large_effects) == 2
    stage.drop(consumers[2].talker)
    stage.is_large_held = False
    stage.run()
    bodies = [body for each in consumers for body in each.bodies]
    assert len(set(bodies)) == len(bodies) == 4
    assert Consumer(stage, "last").bodies == [content(2)]


def test_the_receiver_s_bound_counts_the_file_too() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1))
    consumer = Consumer(stage, max_message_size=BIG)
    (gone,) = [event for event in consumer.talker.events if isinstance(event, told.Detached)]
    assert gone.error is not None
    assert gone.error.condition == "amqp:link:message-size-exceeded"
    assert Consumer(stage, "other").bodies == [content(1)]


def test_drain_is_answered_behind_it() -> None:
    stage = stage_of()
    producer, consumer = Producer(stage), Consumer(stage, credit=0)
    producer.publish(content(1))
    stage.is_large_held = True
    consumer.link.window = consumer.link.credit = 5
    consumer.talker.connection.out.append(frames.flow(0, 5, drain=True))
    stage.run()
    assert consumer.link.credit == 4
    stage.is_large_held = False
    stage.run()
    assert consumer.bodies == [content(1)]
    assert consumer.link.credit == 0


# -- features ---------------------------------------------------------------------------------------------------------


def test_copies_share_the_file_until_the_last_is_settled() -> None:
    stage = stage_of()
    topic = {"source": {"capabilities": (Symbol("topic"),)}}
    consumers = [Consumer(stage, f"c{number}", "news", **topic) for number in range(2)]
    Producer(stage, address="news").publish(content(1))
    assert [each.bodies for each in consumers] == [[content(1)]] * 2
    consumers[0].settle(0)
    assert len(stage.large_files.sizes) == 1
    consumers[1].settle(0)
    assert is_clean(stage)


def test_a_browser_s_copy_outlives_the_message() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1))
    stage.is_large_held = True
    browser = Consumer(stage, "browser", source={"distribution_mode": Symbol("copy")})
    stage.admin("queue-purge", name="orders")
    stage.run()
    assert len(stage.large_files.sizes) == 1
    stage.is_large_held = False
    stage.run()
    assert browser.bodies == [content(1)]
    assert is_clean(stage)


def test_a_dead_letter_keeps_its_body() -> None:
    settings = {"orders": {"dead_letter_address": "dead", "max_delivery_attempts": 1}}
    stage = stage_of(address_settings=settings)
    producer, consumer = Producer(stage), Consumer(stage)
    producer.publish(content(1), application_properties={"key": "value"})
    consumer.settle(0, Modified(delivery_failed=True))
    restart(stage)
    dead = Consumer(stage, address="dead")
    assert dead.bodies == [content(1)]
    dead.settle(0)
    assert is_clean(stage)


def test_moves_and_retries_of_administrators_keep_the_body() -> None:
    settings = {"orders": {"dead_letter_address": "dead", "max_delivery_attempts": 1}}
    stage = stage_of(address_settings=settings)
    producer, consumer = Producer(stage), Consumer(stage, credit=1)
    producer.publish(content(1))
    consumer.settle(0, Modified(delivery_failed=True))
    assert stage.admin("dead-letters-retry", queue="dead") == {"retried": 1, "left": 0}
    stage.admin("queue-create", name="other", address="other")
    assert stage.admin("messages-move", queue="orders", address="other") == {"moved": 1, "left": 0}
    restart(stage)
    found = Consumer(stage, address="other")
    assert found.bodies == [content(1)]
    found.settle(0)
    assert is_clean(stage)


def test_selectors_look_at_the_head_and_the_size() -> None:
    stage = stage_of()
    producer = Producer(stage)
    for number in range(4):
        producer.publish(content(number), application_properties={"number": number})
    text = f"number > 1 AND AMQSize > {BIG}"
    selector = {Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), text)}
    assert Consumer(stage, filter=selector).bodies == [content(2), content(3)]


def test_one_of_a_transaction_stays_in_memory() -> None:
    stage = stage_of()
    producer = Producer(stage)
    session = producer.link.session
    coordinator = session.attach_sender(coordinator_attach())
    stage.run()
    declare(coordinator, "declare")
    stage.run()
    (declared,) = producer.outcomes
    post(producer.link, build_message(content(1), durable=True), "post", declared.txn_id)
    stage.run()
    assert is_clean(stage)
    discharge(coordinator, declared.txn_id, "discharge")
    stage.run()
    assert Consumer(stage).bodies == [content(1)]
    assert is_clean(stage)


def test_it_is_shown_without_its_body() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1))
    (row,) = stage.admin("browse", queue="orders")["messages"]
    assert row["body"] is None
    assert row["body_encoding"] == "omitted"
    assert row["size_bytes"] > BIG


def test_a_deleted_queue_takes_its_files_with_it() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1))
    stage.is_disk_held = True
    stage.admin("queue-delete", name="orders")
    stage.run()
    assert len(stage.large_files.sizes) == 1, "the deletion of the queue is not on disk"
    stage.is_disk_held = False
    stage.run()
    assert is_clean(stage)


def test_administrators_receive_what_is_before_it_and_are_told_of_it() -> None:
    stage = stage_of()
    producer = Producer(stage)
    producer.publish(b"before")
    producer.publish(content(1))
    assert [row["body"] for row in stage.admin("receive", address="orders", count_max=10)["messages"]] == ["before"]
    answer = stage.admin("receive", address="orders", count_max=10)
    assert answer["condition"] == "amqp:not-implemented"
    assert "message 2 is large" in answer["description"]
    assert Consumer(stage).bodies == [content(1)]


# -- how bytes are cut into reads -------------------------------------------------------------------------------------


def conversation(seed: int) -> bytes:
    """Two links on one connection with large and small messages, pieces of one between those of the other."""
    dice = random.Random(seed)
    waiting: dict[int, list[bytes]] = {0: [], 1: []}
    delivery = 0
    for handle in (0, 1):
        for _ in range(8):
            body = content(delivery, dice.choice((10, 1500, 3000, 9000)))
            payload = build_message(body, durable=dice.random() < 0.7)
            waiting[handle].append(pieces(payload, dice.choice((400, 900)), number=delivery, handle=handle))
            delivery += 1
    said = frames.anonymous() + frames.opened() + frames.begun()
    said += frames.sender("orders", 0) + frames.sender("invoices", 1)
    transfers = {handle: b"".join(messages) for handle, messages in waiting.items()}
    while any(transfers.values()):
        handle = dice.choice([each for each, left in transfers.items() if left])
        size = int.from_bytes(transfers[handle][:4], "big")
        said += transfers[handle][:size]
        transfers[handle] = transfers[handle][size:]
    return said + (frames.close() if seed % 2 else b"")


@pytest.mark.parametrize("seed", range(6))
def test_how_bytes_are_cut_into_reads_changes_nothing(seed: int) -> None:
    data, dice = conversation(seed), random.Random(seed)
    outcomes = []
    for cut in (len(data), 1000, 37):
        stage = stage_of()
        stage.is_large_held = True
        conn = stage.accept()
        at = 0
        while at < len(data):
            size = dice.randrange(1, cut + 1) if cut < len(data) else cut
            stage.talk(conn, data[at : at + size])
            at += size
            if dice.random() < 0.3:
                stage.work_on_files(dice.randrange(3))
                stage.run()
        stage.is_large_held = False
        stage.run()
        consumers = [Consumer(stage, name, name, credit=100) for name in ("orders", "invoices")]
        outcomes.append([each.bodies for each in consumers])
        assert stage.broker.large.writing_bytes == stage.broker.large.finishing_count == 0
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert sum(map(len, outcomes[0])) == 16
