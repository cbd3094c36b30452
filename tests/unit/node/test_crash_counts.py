"""What crashes add to delivery counts: what may have been seen is marked, and counts as often as it went out."""

from __future__ import annotations

import pytest
from mqbroker.wire.performatives import Modified, Released

from tests.support.large_messages import BIG, Consumer, Producer, content, header_of, stage_of
from tests.support.stage import Stage, options_with

CRASHES = 10
ATTEMPTS_MAX = 10
SETTINGS = {"#": {"max_delivery_attempts": ATTEMPTS_MAX, "dead_letter_address": "dead"}}
FAILED = Modified(delivery_failed=True)


def stage_with(count: int) -> Stage:
    stage = Stage(options_with(address_settings=SETTINGS))
    producer = Producer(stage)
    for number in range(count):
        producer.publish(b"%d" % number)
    return stage


def counts(consumer: Consumer) -> dict[bytes, int]:
    found = [header_of(event).delivery_count for event in consumer.incoming for _ in range(event.run.count)]
    return dict(zip(consumer.bodies, found, strict=True))


def crash(stage: Stage) -> None:
    stage.crash()
    stage.start()


def test_what_nobody_has_seen_is_marked_and_no_more_however_often_the_broker_crashes() -> None:
    stage = stage_with(3)
    for _ in range(CRASHES):
        assert Consumer(stage, credit=1).bodies == [b"0"]
        stage.run()
        crash(stage)
    consumer = Consumer(stage, credit=10)
    assert counts(consumer) == {b"0": CRASHES, b"1": 1, b"2": 1}
    for number in range(3):
        consumer.settle(number, FAILED)
    assert counts(consumer) == {b"0": CRASHES, b"1": 2, b"2": 2}, (
        "the first is a dead letter, and the others come again"
    )


def test_crashes_before_anybody_consumes_add_nothing() -> None:
    stage = stage_with(1)
    crash(stage)
    assert counts(Consumer(stage)) == {b"0": 0}


def test_large_messages_count_as_others_do() -> None:
    stage = stage_of()
    producer = Producer(stage)
    producer.publish(content(1))
    for number in range(3):
        consumer = Consumer(stage, credit=1)
        assert [len(body) for body in consumer.bodies] == [BIG]
        assert [header_of(event).delivery_count for event in consumer.incoming] == [number]
        crash(stage)


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_is_released_does_not_count_in_the_next_process_either(is_clean: bool) -> None:
    stage = stage_with(1)
    Consumer(stage, credit=1)
    crash(stage)
    for _ in range(CRASHES):
        consumer = Consumer(stage, credit=1)
        assert counts(consumer) == {b"0": 1}
        consumer.link.grant(0)
        consumer.settle(0, Released())
        consumer.link.detach()
        stage.run()
        if is_clean:
            stage.stop()
            stage.run()
            stage.start()
        else:
            crash(stage)
