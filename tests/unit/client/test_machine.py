"""The client's machine against real nodes in memory: connecting, staying, sending, receiving, ends."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.client import errors
from mqbroker.client.inputs import (
    Begin,
    Blocked,
    CloseEnd,
    Drain,
    Finish,
    OpenReceiver,
    OpenSender,
    Post,
    Received,
    Shut,
    Start,
    Took,
    Txn,
)
from mqbroker.client.options import ReceiverTerms, SenderTerms
from mqbroker.client.stages import Stage as At
from mqbroker.config.users import make_verifier
from mqbroker.wire.performatives import Accepted, Modified, Rejected, Released

from tests.support.client_stage import A, App, B
from tests.support.stage import Stage, options_with

FOREVER = "?reconnect-attempts=-1&retry-interval=100"
S, R = 1, 2


def connected(uri: str = f"amqp://a{FOREVER}", stage: Stage | None = None, **settings: Any) -> App:
    app = App({A: stage or Stage()}, uri, **settings)
    app.connect()
    return app


def sender(app: App, handle: int = S, address: str = "orders", **terms: Any) -> None:
    app.ask(OpenSender(handle, SenderTerms(address=address, **terms), ("open", handle)))


def receiver(app: App, handle: int = R, address: str = "orders", **terms: Any) -> None:
    app.ask(OpenReceiver(handle, ReceiverTerms(address=address, **terms), ("open", handle)))


def count_in(app: App, queue: str = "orders") -> int:
    found: int = app.stage.broker.store.queues[queue].message_count
    return found


# -- connecting -------------------------------------------------------------------------------------------------------


def test_the_first_broker_that_answers_is_taken() -> None:
    app = App({B: Stage()}, "amqp://a,b")
    app.connect()
    assert app.dialled == [A, B]
    assert app.machine.stage is At.UP


def test_rounds_and_rests_until_a_broker_comes() -> None:
    stage = Stage()
    stage.crash()
    app = App({A: stage}, "amqp://a?initial-connect-attempts=-1&retry-interval=100&retry-interval-multiplier=2"
                          "&max-retry-interval=300")  # fmt: skip
    app.ask(Start("up"))
    waits = []
    for _ in range(4):
        before = stage.now_ns
        assert app.wake_at_ns is not None
        waits.append((app.wake_at_ns - before) // 1_000_000)
        stage.now_ns = app.wake_at_ns
        app.step()
        app.run()
    assert waits == [100, 200, 300, 300]
    stage.start()
    app.wait(300)
    assert app.answers == {"up": None}


def test_one_round_is_the_default() -> None:
    stage = Stage()
    stage.crash()
    app = App({A: stage}, "amqp://a,b")
    app.ask(Start("up"))
    assert isinstance(app.errors["up"], errors.ConnectionFailed)
    assert "amqp://a:5672, amqp://b:5672" in str(app.errors["up"])
    assert app.machine.stage is At.ENDED


def test_a_refused_login_is_the_end_of_trying() -> None:
    users = {"app": make_verifier("right-pw-1", b"s" * 16, ("client",))}
    stage = Stage(options_with(listener={"sasl_mechanisms": ("SCRAM-SHA-256",)}), users)
    app = App({A: stage, B: Stage()}, f"amqp://app:wrong-pw-1@a,b{FOREVER}&initial-connect-attempts=-1")
    app.ask(Start("up"))
    app.stage.wait(10_000)
    app.run()
    assert isinstance(app.errors["up"], errors.LoginRefused)
    assert app.dialled == [A]
    good = App({A: stage}, "amqp://app:right-pw-1@a")
    good.connect()


def test_no_common_mechanism_is_told() -> None:
    app = App({A: Stage()}, "amqp://app:pw@a")
    app.ask(Start("up"))
    assert isinstance(app.errors["up"], errors.LoginRefused)
    assert "ANONYMOUS" in str(app.errors["up"])


def test_a_broker_that_says_nothing_is_given_up_after_call_timeout() -> None:
    app = App({A: Stage(), B: Stage()}, "amqp://a,b?call-timeout=500")
    app.is_mute = True
    app.ask(Start("up"))
    app.is_mute = True
    app.stage.now_ns += 500_000_000
    app.is_mute = False
    app.brokers[A].crash()
    app.step()
    app.run()
    assert app.dialled == [A, B]
    assert app.answers == {"up": None}


def test_redirects_are_followed() -> None:
    app = App({A: Stage(options_with(listener={"redirect_to": "b:5672"})), B: Stage()}, "amqp://a")
    app.connect()
    assert app.dialled == [A, B]


def test_a_circle_of_redirects_ends() -> None:
    app = App({A: Stage(options_with(listener={"redirect_to": "a:5672"}))}, "amqp://a")
    app.ask(Start("up"))
    assert "in a circle" in str(app.errors["up"])


def test_the_brokers_list_is_where_to_go_when_it_dies() -> None:
    listener = {"failover_server_list": ("b:5672",)}
    app = App({A: Stage(options_with(listener=listener)), B: Stage()}, f"amqp://a{FOREVER}")
    app.connect()
    sender(app)
    app.brokers[A].crash()
    app.wait(1000)
    assert app.dialled[-1] == B
    app.send(S, "m")
    assert app.outcomes == {"m": None}
    assert app.brokers[B].broker.store.queues["orders"].message_count == 1


def test_a_lost_connection_is_an_error_without_reconnect_attempts() -> None:
    app = connected("amqp://a")
    sender(app)
    receiver(app)
    app.cut()
    assert isinstance(app.gone[S], errors.ConnectionFailed)
    assert "reconnect-attempts=-1" in str(app.gone[R])
    app.send(S, "late")
    assert isinstance(app.outcomes["late"], errors.ClientError)
    app.ask(OpenSender(3, SenderTerms(), "open"), Begin("tx"), Finish(Txn(0, b"x"), True, "commit"))
    assert {type(app.errors[each]) for each in ("open", "tx")} == {errors.ConnectionFailed}
    assert isinstance(app.errors["commit"], errors.TransactionFailed)


def test_a_broker_that_throws_us_out_at_once_is_not_asked_in_a_loop() -> None:
    app = connected()
    for count in range(1, 4):
        app.cut()
        assert app.dialled == [A] * count
        app.wait(100)
        assert app.dialled == [A] * (count + 1)
    assert app.machine.stage is At.UP


def test_reconnect_attempts_are_counted_in_rounds() -> None:
    app = connected("amqp://a,b?reconnect-attempts=2&retry-interval=100")
    app.wait(1000)
    app.stage.crash()
    app.run()
    app.wait(1000)
    assert app.dialled == [A, B, A, B, A]
    assert app.machine.stage is At.ENDED


# -- staying ----------------------------------------------------------------------------------------------------------


def test_heartbeats_keep_a_silent_connection() -> None:
    stage = Stage(options_with(listener={"idle_timeout_ms": 4000}))
    app = connected(stage=stage, idle_timeout_ms=3000)
    app.wait(60_000)
    assert app.dialled == [A]
    assert app.machine.stage is At.UP


def test_a_broker_that_is_silent_is_left() -> None:
    app = connected(idle_timeout_ms=3000)
    app.is_mute = True
    app.stage.now_ns += 3_000_000_000
    app.step()
    assert app.machine.stage is At.DIALLING
    assert "nothing was heard for 3000 ms" in app.told[-1]
    app.is_mute = False
    app.run()
    assert app.machine.stage is At.UP


def test_garbage_ends_the_connection_and_nothing_else() -> None:
    app = connected()
    sender(app)
    app.wait(1000)
    app.ask(Received(app._attempt, b"\x00\x00\x00\x08\x02\x09\x00\x00" * 4))
    app.wait(1000)
    assert len(app.dialled) == 2
    app.send(S, "m")
    assert app.outcomes == {"m": None}


def test_bytes_of_a_transport_that_was_given_up_change_nothing() -> None:
    app = connected()
    app.wait(1000)
    app.cut()
    app.ask(Received(1, b"garbage!"), Blocked(1, True))
    assert app.machine.stage is At.UP
    sender(app)
    app.send(S, "m")
    assert app.outcomes == {"m": None}


# -- sending ----------------------------------------------------------------------------------------------------------


def test_a_durable_message_is_accepted_when_it_is_on_disk() -> None:
    app = connected()
    sender(app)
    app.stage.is_disk_held = True
    app.send(S, "m", durable=True)
    assert app.outcomes == {}
    app.stage.is_disk_held = False
    app.run()
    assert app.outcomes == {"m": None}


def test_messages_wait_for_credit_and_keep_their_order() -> None:
    app = connected(stage=Stage(options_with(limits={"link_credit": 3})))
    sender(app)
    app.send(S, *range(20))
    assert list(app.outcomes) == list(range(20))
    receiver(app, credit=50)
    assert app.bodies(R) == list(range(20))


def test_what_has_no_outcome_is_sent_again_in_order() -> None:
    app = connected()
    sender(app)
    app.wait(1000)
    app.stage.is_disk_held = True
    app.send(S, 1, 2, 3, durable=True)
    app.stage.crash()
    app.stage.is_disk_held = False
    app.run()
    app.send(S, 4, durable=True)
    app.stage.start()
    app.wait(1000)
    assert app.outcomes == {1: None, 2: None, 3: None, 4: None}
    receiver(app)
    assert app.bodies(R) == [1, 2, 3, 4]


def test_an_acceptance_that_is_lost_makes_a_duplicate_or_none_by_its_id() -> None:
    for fields, count in (({}, 2), ({"application_properties": {"_AMQ_DUPL_ID": "d"}}, 1)):
        app = connected()
        sender(app)
        app.wait(1000)
        app.is_mute = True
        app.send(S, "m", **fields)
        app.is_mute = False
        app.stage.drop_bare(app._conn)
        app.stage.sent[app._conn] = app.stage.sent[app._conn][: app._heard]
        app.cut()
        assert app.outcomes == {"m": None}
        assert count_in(app) == count


def test_without_resend_the_outcome_is_unknown() -> None:
    app = connected()
    sender(app, resend=False)
    app.wait(1000)
    app.stage.is_disk_held = True
    app.send(S, "m", durable=True)
    app.stage.crash()
    app.run()
    assert isinstance(app.outcomes["m"], errors.OutcomeUnknown)
    app.stage.is_disk_held = False
    app.stage.start()
    app.send(S, "next")
    app.wait(1000)
    assert app.outcomes["next"] is None


def test_settled_messages_are_done_when_they_are_written() -> None:
    app = connected()
    sender(app, settled=True)
    app.stage.is_disk_held = True
    app.send(S, "m", durable=True)
    assert app.outcomes == {"m": None}


def test_a_message_in_many_frames() -> None:
    app = connected(stage=Stage(options_with(listener={"max_frame_size_bytes": 512})), max_frame_size=512)
    sender(app)
    receiver(app)
    app.send(S, b"x" * 5000, b"y")
    assert app.bodies(R) == [b"x" * 5000, b"y"]
    assert app.outcomes == {b"x" * 5000: None, b"y": None}


def test_a_message_that_is_too_large_is_told_and_the_next_one_goes() -> None:
    app = connected(stage=Stage(options_with(limits={"max_message_size_bytes": 1000})))
    sender(app)
    app.send(S, b"x" * 2000, b"y")
    assert isinstance(app.outcomes[b"x" * 2000], errors.MessageFault)
    assert app.outcomes[b"y"] is None


def test_a_transport_that_is_full_is_left_alone() -> None:
    app = connected()
    sender(app)
    app.ask(Blocked(app._attempt, True))
    app.send(S, "m")
    assert app.outcomes == {}
    app.ask(Blocked(app._attempt, False))
    assert app.outcomes == {"m": None}


def test_a_step_writes_a_bounded_number_of_bytes() -> None:
    app = connected(stage=Stage(options_with(limits={"link_credit": 100})))
    sender(app)
    body = bytes(200_000)
    for n in range(20):
        app._inputs.append(Post(S, app.sending(body + bytes([n]))))
    given, app._inputs = app._inputs, []
    batch = app.machine.step(given, app.stage.at)
    assert batch.more
    written = sum(len(chunk) for effect in batch.effects if hasattr(effect, "chunks") for chunk in effect.chunks)
    assert 1 << 20 <= written < (1 << 20) + 300_000


def test_refusals_of_messages_are_errors() -> None:
    settings = {"small": {"max_size_messages": 1, "address_full_policy": "FAIL"}}
    app = connected(stage=Stage(options_with(address_settings=settings)))
    sender(app, address="small")
    app.send(S, 1, 2)
    assert app.outcomes[1] is None
    assert isinstance(app.outcomes[2], errors.Rejected)
    assert app.outcomes[2].condition == "amqp:resource-limit-exceeded"


def test_closing_a_sender_tells_whoever_waits() -> None:
    app = connected()
    sender(app)
    app.stage.is_disk_held = True
    app.send(S, 1, durable=True)
    app.ask(Blocked(app._attempt, True), Post(S, app.sending(2)), CloseEnd(S, True, "closed"))
    assert isinstance(app.outcomes[1], errors.OutcomeUnknown)
    assert isinstance(app.outcomes[2], errors.Closed)
    assert app.answers["closed"] is None
    app.ask(CloseEnd(S, True, "again"))
    assert app.answers["again"] is None


# -- receiving --------------------------------------------------------------------------------------------------------


def test_no_more_waits_than_the_credit() -> None:
    app = connected()
    sender(app)
    app.send(S, *range(50))
    receiver(app, credit=10)
    assert len(app.arrived) == 10
    app.ask(Took(R, app.machine.epoch, 4))
    assert len(app.arrived) == 10
    app.ask(Took(R, app.machine.epoch, 2))
    assert len(app.arrived) == 16
    app.ask(Took(R, app.machine.epoch, 10))
    assert app.bodies(R) == list(range(26))


def test_outcomes_reach_the_broker() -> None:
    app = connected()
    sender(app)
    app.send(S, *range(4))
    receiver(app)
    states = (Accepted(), Rejected(), Released(), Modified(delivery_failed=True))
    app.ask(*(app.settlement(index, state, token=index) for index, state in enumerate(states)))
    assert [app.answers[index] for index in range(4)] == [True] * 4
    again = {message.body: message.delivery_count for _, _, _, message in app.arrived[4:]}
    assert again == {2: 0, 3: 1}
    assert count_in(app) == 2


def test_a_confirmed_settlement_is_answered_when_it_is_on_disk() -> None:
    app = connected()
    sender(app)
    app.send(S, 1, durable=True)
    receiver(app, confirm=True)
    app.stage.is_disk_held = True
    app.ask(app.settlement(0, Accepted(), "done"))
    assert "done" not in app.answers
    app.stage.is_disk_held = False
    app.run()
    assert app.answers["done"] is True


def test_receivers_come_back_and_what_is_old_counts_no_more() -> None:
    app = connected()
    sender(app)
    app.send(S, 1, durable=True)
    receiver(app, confirm=True)
    app.wait(1000)
    late = app.settlement(0, Accepted(), "late")
    app.cut()
    assert app.interrupted == [R]
    app.ask(late)
    assert app.answers["late"] is False
    assert [message.delivery_count for _, _, _, message in app.arrived] == [0, 1]
    app.is_mute = True
    app.ask(app.settlement(1, Accepted(), "lost"))
    assert "lost" not in app.answers
    app.is_mute = False
    app.wait(1000)
    app.stage.sent[app._conn] = app.stage.sent[app._conn][: app._heard]
    app.cut()
    assert app.answers["lost"] in (True, False)


def test_browsers_end() -> None:
    app = connected()
    sender(app)
    receiver(app, browse=True)
    assert app.at_end == [R]
    app.send(S, *range(25))
    receiver(app, handle=5, browse=True, credit=10)
    assert app.at_end == [R]
    app.ask(Took(5, app.machine.epoch, 10))
    app.ask(Took(5, app.machine.epoch, 10))
    assert app.at_end == [R, 5]
    assert app.bodies(5) == list(range(25))
    assert count_in(app) == 25


def test_a_link_that_is_refused() -> None:
    app = connected()
    receiver(app, selector="a = = 1")
    error = app.errors["open", R]
    assert isinstance(error, errors.LinkFailed)
    assert error.condition == "amqp:invalid-field"
    assert isinstance(app.gone[R], errors.LinkFailed)


def test_a_link_that_the_broker_ends() -> None:
    app = connected()
    receiver(app)
    app.stage.admin("queue-delete", name="orders", force=True)
    app.run()
    assert isinstance(app.gone[R], errors.LinkFailed)
    assert "amqp:resource-deleted" in str(app.gone[R])


def test_an_attach_without_an_answer_is_late() -> None:
    app = connected(call_timeout_ms=1000)
    app.is_mute = True
    receiver(app)
    app.stage.now_ns += 1_000_000_000
    app.step()
    assert "did not answer within call-timeout" in str(app.errors["open", R])


def test_a_durable_subscription_stays_until_it_is_ended_for_good() -> None:
    app = connected()
    terms = {"address": "news", "subscription": "mine"}
    receiver(app, **terms)
    app.ask(CloseEnd(R, False, "closed"))
    assert "app.mine" in app.stage.broker.store.queues
    receiver(app, handle=3, **terms)
    app.ask(CloseEnd(3, True, "ended"))
    assert "app.mine" not in app.stage.broker.store.queues


def test_a_name_may_be_attached_again_at_once() -> None:
    app = connected()
    terms = ReceiverTerms(address="news", subscription="mine")
    receiver(app, address="news", subscription="mine")
    app.ask(CloseEnd(R, False, "closed"), OpenReceiver(3, terms, "again"))
    assert app.answers["again"] == "news"
    assert 3 not in app.gone


def test_a_drained_receiver_gets_what_was_on_its_way_and_nothing_more() -> None:
    app = connected()
    sender(app)
    app.send(S, *range(30))
    receiver(app, credit=10)
    app.ask(Took(R, app.machine.epoch, 4), Drain(R, False, "drained"))
    assert app.answers["drained"] is None
    assert app.at_end == [R]
    assert len(app.bodies(R)) == 10, "its credit was used up already"
    receiver(app, handle=3, address="empty", credit=10)
    app.ask(Drain(3, False, "at once"))
    assert app.answers["at once"] is None
    sender(app, handle=4, address="empty")
    app.send(4, "late")
    app.ask(Took(3, app.machine.epoch, 0))
    assert app.bodies(3) == []
    app.wait(1000)
    app.cut()
    app.wait(1000)
    assert app.machine.stage is At.UP
    assert app.bodies(R) == app.bodies(3) == [], "nor on another connection"


def test_who_waits_for_a_drain_hears_of_the_end_of_the_connection() -> None:
    app = connected()
    receiver(app)
    app.is_mute = True
    app.ask(Drain(R, False, "drained"))
    assert "drained" not in app.answers
    app.cut()
    assert app.answers["drained"] is None
    app.ask(Drain(77, False, "nobody"))
    assert app.answers["nobody"] is None


def test_a_range_of_messages_may_be_given_back() -> None:
    app = connected()
    sender(app)
    app.send(S, *range(5))
    for handle, confirm in ((R, False), (R + 1, True)):
        receiver(app, handle=handle, credit=5, confirm=confirm)
        first = app.settlement(0, Released())
        assert [message.body for _, _, _, message in app.arrived] == list(range(5))
        app.arrived.clear()
        app.ask(Drain(handle, False, ("drained", handle)), first._replace(messages=5))
        queue = app.stage.broker.store.queues["orders"]
        assert (queue.ready_count, queue.message_count) == (5, 5)
        app.ask(CloseEnd(handle, True, ("closed", handle)))


def test_a_temporary_queue_has_a_new_name_after_a_reconnect() -> None:
    app = connected()
    receiver(app, address="", temporary=True)
    first = app.answers["open", R]
    app.wait(1000)
    app.cut()
    assert app.machine.ends[R].address not in ("", first)


# -- transactions -----------------------------------------------------------------------------------------------------


def begun(app: App, token: str = "tx") -> Txn:
    app.ask(Begin(token))
    found = app.answers.pop(token)
    assert isinstance(found, Txn)
    return found


def test_a_transaction_happens_as_a_whole() -> None:
    app = connected()
    sender(app)
    app.send(S, "in")
    receiver(app)
    txn = begun(app)
    app.ask(app.settlement(0, Accepted(), "accepted", txn))
    app.bodies(R)
    app.send(S, "out", txn=txn)
    assert app.outcomes["out"] is None
    assert app.bodies(R) == []
    app.ask(Finish(txn, True, "done"))
    assert app.answers["done"] is None
    assert app.bodies(R) == ["out"]
    app.ask(Finish(txn, True, "again"))
    assert isinstance(app.errors["again"], errors.TransactionFailed)


def test_a_rollback_undoes_it() -> None:
    app = connected()
    sender(app)
    receiver(app)
    txn = begun(app)
    app.send(S, "out", txn=txn)
    app.ask(Finish(txn, False, "done"))
    assert app.answers["done"] is None
    assert app.bodies(R) == []


def test_a_lost_connection_rolls_back_and_a_lost_answer_leaves_doubt() -> None:
    app = connected()
    sender(app)
    txn = begun(app)
    app.send(S, "out", txn=txn, durable=True)
    app.stage.is_disk_held = True
    app.ask(Finish(txn, True, "doubt"))
    app.stage.crash()
    app.stage.is_disk_held = False
    app.run()
    assert isinstance(app.errors["doubt"], errors.TransactionInDoubt)
    app.stage.start()
    app.wait(1000)
    app.send(S, "late", txn=txn)
    assert isinstance(app.outcomes["late"], errors.TransactionFailed)
    app.ask(Finish(txn, True, "commit"), Finish(txn, False, "rollback"))
    assert isinstance(app.errors["commit"], errors.TransactionFailed)
    assert not isinstance(app.errors["commit"], errors.TransactionInDoubt)
    assert app.answers["rollback"] is None
    assert begun(app, "next") != txn


def test_a_begin_that_was_lost_is_asked_again() -> None:
    app = connected()
    app.wait(1000)
    app.is_mute = True
    app.ask(Begin("tx"))
    app.is_mute = False
    app.stage.crash()
    app.run()
    app.stage.start()
    app.wait(1000)
    assert isinstance(app.answers["tx"], Txn)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_closing() -> None:
    app = connected()
    sender(app)
    receiver(app)
    app.ask(Shut("done"))
    assert app.answers["done"] is None
    assert app.machine.stage is At.ENDED
    assert {type(error) for error in app.gone.values()} == {errors.Closed}
    app.ask(Shut("again"))
    assert app.answers["again"] is None


def test_abandoning_waits_for_nobody() -> None:
    app = connected()
    sender(app)
    app.stage.is_disk_held = True
    app.send(S, "m", durable=True)
    app.is_mute = True
    app.ask(Shut("done", waits=False))
    assert app.answers["done"] is None
    assert app.machine.stage is At.ENDED
    assert isinstance(app.outcomes["m"], errors.OutcomeUnknown)
    app.is_mute = False
    other = connected()
    other.is_mute = True
    other.ask(Shut("patient"))
    assert "patient" not in other.answers
    other.ask(Shut("at once", waits=False))
    assert {"patient", "at once"} <= set(other.answers)


def test_the_broker_hears_of_the_close_of_who_abandons() -> None:
    app = connected()
    conn = app._conn
    app.ask(Shut("done", waits=False))
    assert conn in app.stage.closed
    assert not [each for each in app.stage.notices if "connection-failed" in str(each)]


@pytest.mark.parametrize("when", ["dialling", "waiting", "mute"])
def test_closing_at_other_times(when: str) -> None:
    stage = Stage()
    app = App({A: stage}, "amqp://a?initial-connect-attempts=-1")
    if when == "mute":
        app.connect()
        sender(app)
        app.is_mute = True
        app.send(S, "m")
        app.ask(Begin("tx"), Shut("done"))
        assert "done" not in app.answers
        app.stage.now_ns += 5_000_000_000
        app.step()
    elif when == "waiting":
        stage.crash()
        app.ask(Start("up"))
        app.ask(Shut("done"))
    else:
        app.ask(Start("up"), Shut("done"))
    assert app.answers["done"] is None
    assert app.machine.stage is At.ENDED
    if when == "mute":
        assert isinstance(app.outcomes["m"], errors.OutcomeUnknown)
        assert isinstance(app.errors["tx"], errors.TransactionFailed)
    else:
        assert isinstance(app.errors["up"], errors.Closed)


@pytest.mark.parametrize("turns", [1, 2])
def test_a_subscription_is_asked_for_again_before_the_first_answer(turns: int) -> None:
    """The answers come in the order of the attaches, under one name."""
    app = App({A: Stage()})
    app.connect()
    terms = ReceiverTerms(address="news", subscription="mine")
    app.is_mute = turns == 2
    given_up: list[OpenReceiver | CloseEnd] = [OpenReceiver(R, terms, "first"), CloseEnd(R, False, "given up")]
    if turns == 2:
        for each in given_up:
            app.ask(each)
        app.is_mute = False
        app.ask(OpenReceiver(R + 1, terms, "second"))
    else:
        app.ask(*given_up, OpenReceiver(R + 1, terms, "second"))
    assert "second" in app.answers, app.errors
    assert R + 1 not in app.gone
    app.ask(OpenSender(S, SenderTerms(address="news", topic=True), "sender"))
    app.send(S, "x")
    assert app.bodies(R + 1) == ["x"]


def test_who_did_not_answer_in_time_is_left_no_link() -> None:
    app = App({A: Stage()}, call_timeout_ms=1000)
    app.connect()
    app.is_mute = True
    app.ask(OpenReceiver(R, ReceiverTerms(address="orders"), "receiver"))
    app.ask(OpenSender(S, SenderTerms(address="orders"), "sender"))
    app.wait(1500)
    assert {"receiver", "sender"} <= set(app.errors)
    app.is_mute = False
    app.run()
    assert app.stage.admin("consumers")["consumers"] == []
    assert app.stage.admin("producers")["producers"] == []
