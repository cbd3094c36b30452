"""Large messages on their way out of files, to consumers of all kinds."""

from __future__ import annotations

import pytest
from mqbroker.amqp import events as told
from mqbroker.node.amqp.peers import large_messages
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import (
    Accepted,
    Flow,
    Modified,
    Released,
)

from tests.support import frames
from tests.support.large_messages import (
    BIG,
    Consumer,
    Producer,
    body_in,
    content,
    header_of,
    is_clean,
    stage_of,
)


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
