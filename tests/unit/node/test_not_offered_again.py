"""`undeliverable-here` (§3.4.5): a message that a consumer cannot use is not offered to it again."""

from __future__ import annotations

from mqbroker.wire.performatives import Accepted, Modified, Transfer

from tests.support import frames
from tests.support.stage import Stage, options_with

GO = frames.anonymous() + frames.opened() + frames.begun()
NOT_HERE = Modified(undeliverable_here=True)
IN_VAIN = Modified(delivery_failed=True, undeliverable_here=True)


def stage_with(*bodies: str, **settings: object) -> Stage:
    stage = Stage(options_with(address_settings={"orders": settings}))
    stage.admin("send", address="orders", messages=[{"body": body} for body in bodies])
    return stage


def consumer(stage: Stage, credit: int = 10) -> tuple[int, list[bytes]]:
    conn = stage.accept()
    return conn, got(stage.talk(conn, GO + frames.receiver(credit=credit)))


def got(said: bytes) -> list[bytes]:
    """The last bytes of bodies that came."""
    return [each[1][-1:] for each in frames.heard(said) if isinstance(each, tuple) and isinstance(each[0], Transfer)]


def news(stage: Stage, conn: int, before: int) -> list[bytes]:
    return got(bytes(stage.sent[conn][before:]))


def test_it_waits_for_another_consumer_and_what_follows_goes_on() -> None:
    stage = stage_with("a", "b")
    one, first = consumer(stage)
    assert first == [b"a", b"b"]
    assert got(stage.talk(one, frames.disposition(0, 0, NOT_HERE))) == []
    queue = stage.broker.store.queues["orders"]
    assert (queue.ready_count, queue.delivering_count) == (1, 1)
    before = len(stage.sent[one])
    stage.admin("send", address="orders", messages=[{"body": "c"}])
    assert news(stage, one, before) == [b"c"]
    _, second = consumer(stage)
    assert second == [b"a"]


def test_another_consumer_gets_it_at_once() -> None:
    stage = stage_with("a")
    one, _ = consumer(stage)
    two, none = consumer(stage)
    assert none == []
    before = len(stage.sent[two])
    stage.talk(one, frames.disposition(0, 0, NOT_HERE))
    assert news(stage, two, before) == [b"a"]
    # Neither wants it: it stays until a third comes.
    stage.talk(two, frames.disposition(0, 0, IN_VAIN))
    assert stage.broker.store.queues["orders"].ready_count == 1
    assert consumer(stage)[1] == [b"a"]


def test_each_delivery_in_vain_counts_up_to_a_dead_letter() -> None:
    stage = stage_with("a", dead_letter_address="dead", max_delivery_attempts=2)
    for _ in range(2):
        conn, found = consumer(stage)
        assert found == [b"a"]
        stage.talk(conn, frames.disposition(0, 0, IN_VAIN))
    assert stage.broker.store.queues["dead"].ready_count == 1
    assert not stage.broker.store.queues["orders"].dispatcher.undeliverable_here


def test_the_plain_way_is_back_when_the_message_or_the_consumer_is_gone() -> None:
    stage = stage_with("a")
    dispatcher = stage.broker.store.queues["orders"].dispatcher
    one, _ = consumer(stage)
    stage.talk(one, frames.disposition(0, 0, NOT_HERE))
    assert dispatcher.is_selective
    two, found = consumer(stage)
    assert found == [b"a"]
    stage.talk(two, frames.disposition(0, 0, Accepted()))
    assert not dispatcher.is_selective
    assert not dispatcher.undeliverable_here


def test_a_link_that_comes_again_may_have_it() -> None:
    stage = stage_with("a")
    one, _ = consumer(stage)
    stage.talk(one, frames.disposition(0, 0, NOT_HERE) + frames.detach(1))
    assert not stage.broker.store.queues["orders"].dispatcher.undeliverable_here
    assert got(stage.talk(one, frames.receiver(credit=1))) == [b"a"]
