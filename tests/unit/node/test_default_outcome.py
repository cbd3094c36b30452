"""What a receiver settles without an outcome gets the default outcome of its source (AMQP 1.0 §3.5.3)."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp import events as told
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
)

from tests.support import frames, transactions
from tests.support.stage import Stage, options_with

GO = frames.anonymous() + frames.opened() + frames.begun()
FAILED = Modified(delivery_failed=True)


def stage_with(*bodies: str, **settings: Any) -> Stage:
    stage = Stage(options_with(address_settings={"orders": settings}))
    stage.admin("send", address="orders", messages=[{"body": body} for body in bodies])
    return stage


def attach(default: Any = None, handle: int = 1, **fields: Any) -> bytes:
    source = Source(address="orders", default_outcome=default, **fields)
    return frames.frame(Attach(name=f"r{handle}", handle=handle, role=True, source=source, target=Target()))


def consumer(stage: Stage, default: Any = None, credit: int = 10, **fields: Any) -> tuple[int, list[bytes]]:
    conn = stage.accept()
    return conn, got(stage.talk(conn, GO + attach(default, **fields) + frames.flow(1, credit)))


def got(said: bytes) -> list[bytes]:
    """The last bytes of bodies that came."""
    return [each[1][-1:] for each in frames.heard(said) if isinstance(each, tuple) and isinstance(each[0], Transfer)]


def left(stage: Stage) -> list[tuple[int, int]]:
    """(messages, deliveries in vain) of each piece of the queue that is not in delivery."""
    return [(each.n, each.deliveries) for each in stage.broker.store.queues["orders"].segments()]


@pytest.mark.parametrize(
    ("asked", "told"),
    [(None, FAILED), *((each, each) for each in (Accepted(), Released(), Rejected(), FAILED, Modified()))],
    ids=repr,
)
def test_a_consumer_is_told_what_holds_and_may_choose_it(asked: Any, told: Any) -> None:
    stage = stage_with("a")
    (answer,) = frames.of_kind(stage.talk(stage.accept(), GO + attach(asked)), Attach)
    assert answer.source.default_outcome == told


@pytest.mark.parametrize("state", [None, Received(section_number=0, section_offset=0)], ids=["none", "received"])
@pytest.mark.parametrize(
    ("asked", "held", "is_logged"),
    [
        (None, [(1, 1)], False),
        (FAILED, [(1, 1)], False),
        (Released(), [(1, 0)], False),
        (Accepted(), [], False),
        (Rejected(), [], True),
    ],
    ids=repr,
)
def test_what_is_settled_without_an_outcome_gets_it(
    asked: Any, held: list[tuple[int, int]], is_logged: bool, state: Any
) -> None:
    stage = stage_with("a")
    conn, found = consumer(stage, asked, credit=1)
    assert found == [b"a"]
    stage.talk(conn, frames.disposition(0, 0, state))
    assert left(stage) == held
    assert stage.broker.store.queues["orders"].delivering_count == 0
    assert [notice.event for notice in stage.notices if notice.event == "message-rejected"] == (
        ["message-rejected"] if is_logged else []
    )
    assert stage.broker.counters.rejected == int(is_logged)


def test_it_comes_again_marked_and_is_a_dead_letter_at_last() -> None:
    stage = stage_with("a", dead_letter_address="dead", max_delivery_attempts=2)
    conn, _ = consumer(stage, credit=2)
    assert got(stage.talk(conn, frames.disposition(0, 0, None))) == [b"a"]
    assert got(stage.talk(conn, frames.disposition(1, 1, None))) == []
    assert stage.broker.store.queues["dead"].ready_count == 1


def test_an_outcome_that_was_told_before_holds() -> None:
    """Receivers that settle second tell it first, and let go of the delivery afterwards without a word."""
    stage = stage_with("a", "b")
    conn, _ = consumer(stage, credit=2)
    stage.talk(conn, frames.disposition(0, 1, Accepted(), settled=False))
    stage.talk(conn, frames.disposition(0, 1, None))
    assert left(stage) == []


def test_each_link_of_a_range_has_its_own() -> None:
    stage = stage_with("a", "b")
    conn = stage.accept()
    links = attach(Accepted(), 1) + frames.flow(1, 1) + attach(Released(), 2) + frames.flow(2, 1)
    assert sorted(got(stage.talk(conn, GO + links))) == [b"a", b"b"]
    stage.talk(conn, frames.disposition(0, 1, None))
    assert left(stage) == [(1, 0)]


def test_what_was_sent_settled_is_gone_whatever_is_said_of_it() -> None:
    stage = stage_with("a")
    conn = stage.accept()
    link = Attach(name="r", handle=1, role=True, snd_settle_mode=1, source=Source(address="orders"), target=Target())
    assert got(stage.talk(conn, GO + frames.frame(link) + frames.flow(1, 1))) == [b"a"]
    stage.talk(conn, frames.disposition(0, 0, None))
    assert (left(stage), stage.broker.store.queues["orders"].message_count) == ([], 0)


def test_a_browser_lets_go_of_copies() -> None:
    stage = stage_with("a")
    conn, found = consumer(stage, distribution_mode="copy")
    assert found == [b"a"]
    stage.talk(conn, frames.disposition(0, 0, None))
    assert left(stage) == [(1, 0)]


def test_a_link_that_ends_counts_no_delivery() -> None:
    """That is no settlement: what an application has prefetched was not seen by it (docs/CLIENTS.md)."""
    stage = stage_with("a")
    conn, _ = consumer(stage)
    stage.talk(conn, frames.detach(1))
    assert left(stage) == [(1, 0)]


@pytest.mark.parametrize(("asked", "held"), [(None, [(1, 1)]), (Accepted(), []), (Released(), [(1, 0)])], ids=repr)
def test_it_is_part_of_a_transaction_where_the_delivery_is(asked: Any, held: list[tuple[int, int]]) -> None:
    stage = stage_with("a")
    client = stage.connect("c")
    session = client.session
    assert session is not None
    link = session.attach_receiver(
        Attach(name="r", handle=0, role=True, source=Source(address="orders", default_outcome=asked), target=Target())
    )
    link.max_message_size = 0
    coordinator = session.attach_sender(transactions.coordinator_attach())
    stage.run()
    link.grant(1)
    transactions.declare(coordinator, ["t"])
    stage.run()
    (txn_id,) = [event.outcome.txn_id for event in client.events if isinstance(event, told.Settled)]
    session.dispose(0, 0, TransactionalState(txn_id=txn_id), as_receiver=True)
    stage.run()
    assert left(stage) == []
    transactions.discharge(coordinator, txn_id, ["d"], fail=False)
    stage.run()
    assert left(stage) == held
