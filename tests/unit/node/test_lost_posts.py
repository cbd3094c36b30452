"""Messages of a transaction that come to nothing, most because we end their link: no commit without them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from mqbroker.wire.sections import build_message

from tests.support import frames, transactions
from tests.support.stage import Stage, options_with

TXN = TransactionalState(txn_id=(1).to_bytes(8, "big"))
CONTROL = 9
SIZE_MAX = 1000
MESSAGE, LARGE = build_message(b"m"), build_message(b"m" * SIZE_MAX)
BROKEN = b"\x00\x53\x70\xc0\xff"  # half a header section


def posted(number: int, payload: bytes, *, settled: bool, channel: int = 0, **fields: object) -> bytes:
    head = Transfer(handle=0, delivery_id=number, delivery_tag=b"%d" % number, message_format=0, settled=settled,
                    state=TXN)  # fmt: skip
    return frames.frame(replace(head, **fields), payload, channel)


def begun(credit: int = 10) -> tuple[Stage, int]:
    """A connection with a sender in each of two sessions, and a transaction."""
    stage = Stage(options_with(limits={"max_message_size_bytes": SIZE_MAX, "link_credit": credit}))
    conn = stage.accept()
    control = frames.frame(replace(transactions.coordinator_attach(), handle=CONTROL))
    sessions = frames.begun() + frames.begun(1) + frames.sender() + frames.sender(channel=1)
    said = stage.talk(conn, frames.anonymous() + frames.opened() + sessions + control)
    assert len(frames.of_kind(said, Attach)) == 3
    stage.talk(conn, transactions.request(0, Declare(), CONTROL))
    return stage, conn


def end_of(stage: Stage, conn: int) -> tuple[str, int]:
    """What the discharge comes to, and how many messages there are then."""
    said = stage.talk(conn, transactions.request(100, Discharge(txn_id=TXN.txn_id), CONTROL))
    (answer,) = (each for each in frames.of_kind(said, Disposition) if each.first == 100)
    condition = str(answer.state.error.condition) if isinstance(answer.state, Rejected) else ""
    queue = stage.broker.store.queues.get("orders")
    assert condition or answer.state == Accepted()
    return condition, queue.message_count if queue is not None else 0


LOST = {
    "too large": lambda settled: posted(2, LARGE, settled=settled),
    "too large in pieces": lambda settled: (
        posted(2, LARGE[:900], settled=settled, more=True) + frames.frame(Transfer(handle=0, settled=settled), LARGE)
    ),
    "not to be read": lambda settled: posted(2, BROKEN, settled=settled),
    "of another message-format": lambda settled: posted(2, MESSAGE, settled=settled, message_format=1),
    "on a link that has ended": lambda settled: (
        frames.transfer(2, b"m" * SIZE_MAX) + posted(3, MESSAGE, settled=settled)
    ),
    "several on such a link": lambda settled: (
        frames.transfer(2, b"m" * SIZE_MAX) + b"".join(posted(n, MESSAGE, settled=settled) for n in range(3, 20))
    ),
    "among several, too large": lambda settled: b"".join(
        posted(n, LARGE if n == 5 else MESSAGE, settled=settled) for n in range(2, 10)
    ),
}


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("name", LOST)
def test_a_message_that_ends_its_link_ends_the_transaction(name: str, settled: bool) -> None:
    stage, conn = begun()
    said = stage.talk(conn, posted(1, MESSAGE, settled=settled) + LOST[name](settled))
    assert [each.error is not None for each in frames.of_kind(said, Detach)] == [True]
    assert end_of(stage, conn) == ("amqp:illegal-state", 0)


@pytest.mark.parametrize("settled", [True, False])
def test_so_does_one_of_no_form_among_several(settled: bool) -> None:
    stage, conn = begun()
    said = stage.talk(
        conn, b"".join(posted(n, b"\x00\x53\x71" if n == 5 else MESSAGE, settled=settled) for n in range(1, 10))
    )
    assert frames.errors(said) == [("Detach", "amqp:decode-error")]
    assert end_of(stage, conn) == ("amqp:decode-error", 0)


@pytest.mark.parametrize("settled", [True, False])
def test_so_does_one_without_credit(settled: bool) -> None:
    stage, conn = begun(credit=1)
    assert frames.errors(stage.talk(conn, posted(1, MESSAGE, settled=settled))) == []
    (session, _) = stage.broker.peers[conn].connection.sessions
    session.by_peer_handle[0].credit = 0
    said = stage.talk(conn, posted(2, MESSAGE, settled=settled))
    assert frames.errors(said) == [("Detach", "amqp:link:transfer-limit-exceeded")]
    assert end_of(stage, conn) == ("amqp:illegal-state", 0)


def test_so_does_one_in_a_session_that_has_ended() -> None:
    stage, conn = begun()
    fault = frames.frame(Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1, handle=7),
                         channel=1)  # fmt: skip
    said = stage.talk(conn, posted(1, MESSAGE, settled=True) + fault + posted(2, MESSAGE, settled=True, channel=1))
    assert [str(each.error.condition) for each in frames.of_kind(said, End)] == ["amqp:session:unattached-handle"]
    assert end_of(stage, conn) == ("amqp:illegal-state", 0)


@pytest.mark.parametrize("settled", [True, False])
def test_a_delivery_without_a_message_keeps_its_link_and_ends_the_transaction(settled: bool) -> None:
    stage, conn = begun()
    said = stage.talk(conn, posted(1, MESSAGE, settled=True) + posted(2, b"", settled=settled))
    assert frames.errors(said) == []
    told = [(each.first, each.state.error.condition) for each in frames.of_kind(said, Disposition)]
    assert told == ([] if settled else [(2, "amqp:decode-error")])
    assert end_of(stage, conn) == ("amqp:decode-error", 0)


def test_an_empty_delivery_outside_of_the_transaction_is_no_matter_of_it() -> None:
    stage, conn = begun()
    stage.talk(conn, posted(1, MESSAGE, settled=True) + posted(2, b"", settled=True, state=None))
    assert end_of(stage, conn) == ("", 1)


def test_a_sender_that_leaves_keeps_what_it_has_posted_in_it() -> None:
    """Whether what it did not finish belonged there is its own affair."""
    stage, conn = begun()
    said = stage.talk(conn, posted(1, MESSAGE, settled=True) + posted(2, MESSAGE, settled=True, more=True)
                      + frames.detach())  # fmt: skip
    assert frames.errors(said) == []
    assert end_of(stage, conn) == ("", 1)


def test_a_link_that_ends_for_another_message_is_no_matter_of_the_transaction() -> None:
    stage, conn = begun()
    stage.talk(conn, posted(1, MESSAGE, settled=True) + frames.transfer(2, b"m" * SIZE_MAX))
    assert end_of(stage, conn) == ("", 1)


def test_a_link_may_be_attached_anew_for_another_transaction() -> None:
    stage, conn = begun()
    stage.talk(conn, posted(1, LARGE, settled=True) + frames.detach())
    end_of(stage, conn)
    sender = Attach(name="again", handle=0, role=False, source=Source(), target=Target(address="orders"),
                    initial_delivery_count=0)  # fmt: skip
    stage.talk(conn, transactions.request(101, Declare(), CONTROL) + frames.frame(sender))
    second = TransactionalState(txn_id=(2).to_bytes(8, "big"))
    stage.talk(conn, posted(3, MESSAGE, settled=True, state=second))
    stage.talk(conn, transactions.request(102, Discharge(txn_id=second.txn_id), CONTROL))
    assert stage.broker.store.queues["orders"].message_count == 1
