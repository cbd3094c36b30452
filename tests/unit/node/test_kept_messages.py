"""Large messages that stay in memory because there is room: which ones, and never more than that."""

from __future__ import annotations

import pytest
from mqbroker.amqp import events as told
from mqbroker.wire.performatives import Accepted, Disposition, Transfer
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

from tests.support import frames
from tests.support.large_messages import BIG, SIZE_MIN, Consumer, Producer, content, is_clean, pieces, restart, stage_of
from tests.support.stage import Stage

KEPT = BIG + 100
MEMORY = 1 << 20


def keeping(kept_max: int = KEPT, **limits: int) -> Stage:
    return stage_of(limits={"large_message_in_memory_max_size_bytes": kept_max, **limits})


def publisher(stage: Stage, links: int = 1) -> int:
    """A bare connection with so many links to `orders`."""
    conn = stage.accept()
    hello = frames.anonymous() + frames.opened() + frames.begun()
    stage.talk(conn, hello + b"".join(frames.sender(handle=handle) for handle in range(links)))
    return conn


def halves(handle: int, size: int) -> tuple[bytes, bytes]:
    """The transfers of a message on this link: about the first `size` bytes of it, and the rest."""
    payload = build_message(content(handle))
    first = pieces(payload, 500, end=size, number=handle, handle=handle)
    return first, pieces(payload, 500, number=handle, handle=handle)[len(first) :]


@pytest.mark.option("limits.large-message-in-memory-max-size-bytes")
def test_the_option_says_up_to_which_size() -> None:
    for kept_max, files in ((0, 1), (SIZE_MIN, 1), (BIG, 1), (KEPT, 0)):
        stage = keeping(kept_max)
        producer = Producer(stage)
        producer.publish(content(1))
        assert len(stage.large_files.sizes) == files
        assert stage.large_files.finished_count == files
        assert [type(outcome) for outcome in producer.outcomes] == [Accepted]
        assert Consumer(stage).bodies == [content(1)]


def test_what_stays_counts_as_any_other() -> None:
    stage = keeping()
    Producer(stage).publish(content(1))
    assert stage.broker.store.memory.held_bytes > BIG
    assert stage.broker.large.partials.size_bytes == 0
    Consumer(stage).settle(0)
    assert stage.broker.store.memory.held_bytes == 0
    assert is_clean(stage)


def test_durable_ones_are_in_the_journal() -> None:
    stage = keeping()
    producer = Producer(stage)
    producer.publish(content(1))
    producer.publish(content(2), durable=False)
    restart(stage)
    assert not stage.large_files.sizes
    assert Consumer(stage).bodies == [content(1)]


def test_one_that_fits_a_frame_is_no_other() -> None:
    for kept_max, files in ((0, 3), (KEPT, 0)):
        stage = stage_of(frame_size=65536, limits={"large_message_in_memory_max_size_bytes": kept_max})
        conn = publisher(stage)
        said = b"".join(frames.transfer(number, content(number)) for number in range(3))
        said = stage.talk(conn, said)
        assert len(stage.large_files.sizes) == files
        assert len(frames.of_kind(said, Disposition)) in (1, 3)
        assert Consumer(stage).bodies == [content(number) for number in range(3)]


def test_half_of_the_memory_is_left_to_others() -> None:
    stage = keeping(global_max_size_bytes=MEMORY)
    producer = Producer(stage)
    for number in range(30):
        producer.publish(content(number), durable=number % 2 == 0)
        assert stage.broker.store.memory.held_bytes < MEMORY // 2 + KEPT
    assert 30 - len(stage.large_files.sizes) == MEMORY // 2 // BIG
    consumer = Consumer(stage, credit=30)
    assert consumer.bodies == [content(number) for number in range(30)]
    for number in range(30):
        consumer.settle(number)
    assert is_clean(stage)
    producer.publish(content(1))
    assert not stage.large_files.sizes


def test_unfinished_ones_of_all_connections_count() -> None:
    stage = keeping(global_max_size_bytes=MEMORY)
    message = pieces(build_message(content(1)), 500)
    conns = [publisher(stage) for _ in range(40)]
    for conn in conns:
        stage.talk(conn, message[:-400])
        assert stage.broker.large.partials.size_bytes <= MEMORY // 2 + SIZE_MIN + 500
    assert 40 - len(stage.large_files.sizes) == MEMORY // 2 // BIG
    for conn in conns:
        stage.talk(conn, message[-400:])
    assert stage.broker.large.partials.size_bytes == 0
    assert Consumer(stage, credit=40).bodies == [content(1)] * 40


def test_unfinished_ones_of_a_connection_are_bounded_together() -> None:
    stage = keeping()
    conn = publisher(stage, links=8)
    for handle in range(8):
        stage.talk(conn, halves(handle, 20_000)[0])
        assert stage.broker.peers[conn].connection.partial_bytes <= KEPT + SIZE_MIN + 500
    assert len(stage.large_files.sizes) == 6


def test_the_largest_message_bounds_what_is_unfinished_as_before() -> None:
    """Two are more than a connection may have unfinished: the second goes into a file, and nobody is refused."""
    stage = keeping(1 << 20, max_message_size_bytes=KEPT)
    conn = publisher(stage, links=4)
    messages = [halves(handle, BIG - 500) for handle in range(4)]
    said = b"".join(stage.talk(conn, first) for first, _ in messages)
    said += b"".join(stage.talk(conn, second) for _, second in messages)
    assert frames.errors(said) == []
    assert sorted(Consumer(stage).bodies) == sorted(content(number) for number in range(4))


@pytest.mark.parametrize("how", ["aborted", "detached", "ended", "lost"])
def test_nothing_is_left_of_one_that_does_not_end(how: str) -> None:
    stage = keeping()
    conn = publisher(stage)
    stage.talk(conn, pieces(build_message(content(1)), 500, end=20_000))
    assert stage.broker.large.partials.size_bytes > 19_000
    if how == "lost":
        stage.drop_bare(conn)
    else:
        last = {"aborted": frames.frame(Transfer(handle=0, aborted=True)), "detached": frames.detach(),
                "ended": frames.end()}[how]  # fmt: skip
        stage.talk(conn, last)
    assert stage.broker.large.partials.size_bytes == 0
    assert is_clean(stage)


def test_one_that_began_in_memory_goes_on_in_a_file_when_others_fill_it() -> None:
    stage = keeping(global_max_size_bytes=MEMORY)
    conn = publisher(stage)
    message = pieces(build_message(content(1)), 500)
    stage.talk(conn, message[:20_000])
    assert not stage.large_files.sizes
    other = Producer(stage, "other", "invoices")
    for number in range(15):
        other.publish(content(number))
    stage.talk(conn, message[20_000:])
    assert Consumer(stage).bodies == [content(1)]
    assert stage.broker.store.large.count > 0


def test_clients_with_small_windows_get_them_as_any_other() -> None:
    stage = keeping()
    producer = Producer(stage)
    payload = build_message(content(1), durable=True, application_properties={"key": "value" * 50})
    producer.link.session.send_run(producer.link, single(payload), 0, 1, None)
    stage.run()
    consumer = Consumer(stage, frame_size=512)
    assert [bytes(event.run.payload(0)) for event in consumer.incoming] == [payload]
    assert not [event for event in consumer.talker.events if isinstance(event, told.Dead)]
