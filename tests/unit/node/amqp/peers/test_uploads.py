"""Large messages on their way into files, and those that never get there."""

from __future__ import annotations

import random

import pytest
from mqbroker.amqp import events as told
from mqbroker.core.address.permissions import BROKER
from mqbroker.node.values.effects import FinishLarge, WriteLarge
from mqbroker.wire.large import HEAD_BYTES_MAX
from mqbroker.wire.performatives import (
    Accepted,
    Disposition,
    Rejected,
    Transfer,
)
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

from tests.support import frames
from tests.support.large_messages import (
    BIG,
    SIZE_MIN,
    Consumer,
    Producer,
    content,
    is_clean,
    pieces,
    stage_of,
)
from tests.support.stage import Stage


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
    monkeypatch.setattr("mqbroker.node.amqp.peers.uploads.UPLOAD_BYTES_MAX", 10_000)
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


def gathering(most: int, **limits: int) -> tuple[Stage, int, list[type]]:
    """A stage, a connection with eight links, and what is asked of the files."""
    stage = stage_of(limits=limits)
    stage.broker.large.gathered_bytes_max = most
    asked: list[type] = []
    stage.large_files.observe = lambda effect: asked.append(type(effect))
    conn = stage.accept()
    hello = frames.anonymous() + frames.opened() + frames.begun()
    stage.talk(conn, hello + b"".join(frames.sender(handle=handle) for handle in range(8)))
    return stage, conn, asked


def test_pieces_are_gathered_and_the_last_is_written_with_the_end() -> None:
    for most, wanted in ((BIG * 2, [FinishLarge]), (BIG // 2, [WriteLarge, FinishLarge])):
        stage, conn, asked = gathering(most)
        for data in reads(pieces(build_message(content(1)), 500)):
            stage.talk(conn, data)
            assert stage.broker.large.partials.size_bytes <= max(most, SIZE_MIN) + 1500
        assert asked == wanted
        assert stage.broker.large.partials.size_bytes == 0
        assert Consumer(stage).bodies == [content(1)]


def test_what_all_links_of_a_connection_gather_is_bounded() -> None:
    stage, conn, asked = gathering(10_000)
    for handle in range(8):
        for data in reads(pieces(build_message(content(1)), 500, number=handle, handle=handle, end=8_000)):
            stage.talk(conn, data)
            assert stage.broker.large.partials.size_bytes <= 10_000 + SIZE_MIN + 1500
    assert asked
    stage.talk(conn, frames.end())
    assert stage.broker.large.partials.size_bytes == 0
    assert is_clean(stage)


def test_without_room_nothing_is_gathered() -> None:
    stage, conn, asked = gathering(1 << 20, global_max_size_bytes=1 << 20)
    other = Producer(stage, "other", "invoices")
    for _ in range(280):
        other.send(b"x" * 1900)
    stage.run()
    assert not stage.broker.large.has_room
    for data in reads(pieces(build_message(content(1)), 500)):
        stage.talk(conn, data)
        assert stage.broker.large.partials.size_bytes <= SIZE_MIN + 1500
    assert len(asked) > 20


def reads(data: bytes) -> list[bytes]:
    """Cut behind every third frame."""
    found, at = [], 0
    while at < len(data):
        begin = at
        for _ in range(3):
            at += int.from_bytes(data[at : at + 4], "big")
        found.append(data[begin:at])
    return found


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
    assert stage.broker.store.make_address("news", BROKER).is_empty
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


@pytest.mark.slow
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
