"""What ends leaves nothing in an application that only a full look of Python's collector would find."""

from __future__ import annotations

import gc
from itertools import count

import pytest
from mqbroker.amqp.links import ReceiverLink
from mqbroker.client.inputs import Begin, CloseEnd, Finish, OpenReceiver, OpenSender, Post, Shut
from mqbroker.client.options import ReceiverTerms, SenderTerms
from mqbroker.wire.performatives import Accepted

from tests.support.client_stage import A, App
from tests.support.cycles import leave_out_what_is_there, nothing_to_collect
from tests.support.stage import Stage

only_of_here = pytest.fixture(scope="module", autouse=True)(leave_out_what_is_there)

FOREVER = "amqp://a?reconnect-attempts=-1&retry-interval=100"
FOR_LONG_MS = 400_000
S, R = 1, 2
TOKENS = count()


def connected() -> App:
    app = App({A: Stage()}, FOREVER)
    app.connect()
    return app


def forget(app: App) -> None:
    """What it keeps for tests, and what its broker does."""
    stage = app.stage
    for kept in (app.arrived, app.outcomes, app.answers, app.errors, app.gone, app.restored, app.told):
        kept.clear()
    for told in (stage.batches, stage.appends, stage.notices, stage.closed):
        told.clear()


def sender(handle: int = S) -> OpenSender:
    return OpenSender(handle, SenderTerms(address="orders"), next(TOKENS))


def receiver(handle: int = R) -> OpenReceiver:
    return OpenReceiver(handle, ReceiverTerms(address="orders"), next(TOKENS))


def close(handle: int) -> CloseEnd:
    return CloseEnd(handle, True, next(TOKENS))


@pytest.mark.slow
def test_links_that_are_closed_refused_or_lost_leave_nothing_to_look_for() -> None:
    app = connected()
    with nothing_to_collect():
        app.ask(sender(), receiver())
        app.send(S, "a", "b", "c")
        app.ask(app.settlement(0, Accepted(), next(TOKENS)))
        app.ask(close(R), close(S))
        app.ask(OpenReceiver(R, ReceiverTerms(address="no::such"), next(TOKENS)))
        app.ask(sender(), Post(S, app.sending("d")), close(S))
        app.ask(receiver())
        app.stage.admin("queue-delete", name="orders", force=True)
        app.wait(FOR_LONG_MS)
        forget(app)


@pytest.mark.slow
def test_connections_and_transactions_leave_nothing_to_look_for() -> None:
    app = connected()
    broker = app.stage.broker  # of the life before
    with nothing_to_collect():
        app.ask(sender(), receiver())
        for number, ends in enumerate((app.cut, app.cut, app.stage.crash, lambda: app.ask(Shut(next(TOKENS))))):
            app.ask(Begin(token := next(TOKENS)))
            txn = app.answers[token]
            app.send(S, f"{number}", txn=txn)
            if number == 0:
                app.ask(Finish(txn, True, next(TOKENS)))
            ends()
            if not app.stage.is_up:
                app.cut()
                app.stage.start()
            app.wait(FOR_LONG_MS)
            forget(app)
        assert broker is not app.stage.broker


def receiver_links() -> list[ReceiverLink]:
    """All that applications have in this process."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, ReceiverLink) and each.is_ours]


@pytest.mark.slow
def test_a_link_that_is_opened_again_at_once_keeps_none_of_those_before() -> None:
    others = receiver_links()  # of other tests
    app = connected()
    for _ in range(5):
        app.ask(receiver(), close(R), receiver(), close(R), receiver())
        app.ask(close(R))
    app.ask(receiver(), close(R), receiver())
    app.wait(FOR_LONG_MS)
    found = [each for each in receiver_links() if each not in others]
    assert [each.follows for each in found] == [None]
