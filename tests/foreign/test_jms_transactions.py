"""Qpid JMS: transacted sessions, in which messages are sent and received together or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.foreign.conftest import depth, wait_for_depth, wait_for_queues
from tests.foreign.jms_client import JmsClient
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.foreign

Make = Callable[..., BrokerProcess]
DURABLE = pytest.mark.parametrize("durable", [True, False], ids=["durable", "not-durable"])


@pytest.fixture
def session(broker: BrokerProcess, jms: JmsClient) -> str:
    """A session `s` that acknowledges by itself beside a transacted one, `tx`, both of connection `c`."""
    jms.connect("c", broker, client_id="app")
    jms.session("c", "s")
    jms.session("c", "tx", mode="transacted")
    return "s"


def redeliveries(jms: JmsClient, consumer: str, count: int) -> list[tuple[str, bool, int]]:
    """Bodies, whether they came before, and how often they have come."""
    rows = jms.receive(consumer, count)
    return [(row["body"], row["redelivered"], row["properties"]["JMSXDeliveryCount"]) for row in rows]


# -- sending -----------------------------------------------------------------------------------------------------------


@DURABLE
def test_nobody_sees_what_was_sent_before_the_commit(
    broker: BrokerProcess, jms: JmsClient, session: str, queue: str, durable: bool
) -> None:
    jms.consumer(session, "in", f"queue:{queue}")
    jms.producer("tx", "out", f"queue:{queue}")
    jms.send("out", "a", "b", "c", durable=durable)
    assert jms.is_quiet("in")
    wait_for_depth(broker, queue, 0)
    jms.ask("commit", session="tx")
    assert jms.bodies("in", 3) == ["a", "b", "c"]
    jms.send("out", "d", durable=durable)
    jms.ask("commit", session="tx")
    assert jms.bodies("in") == ["d"]


def test_what_is_rolled_back_was_never_sent(broker: BrokerProcess, jms: JmsClient, session: str, queue: str) -> None:
    jms.producer("tx", "out", f"queue:{queue}")
    jms.send("out", "a", "b")
    jms.ask("rollback", session="tx")
    jms.send("out", "c")
    jms.ask("commit", session="tx")
    jms.consumer(session, "in", f"queue:{queue}")
    assert jms.bodies("in") == ["c"]
    assert jms.is_quiet("in")


def test_one_commit_reaches_several_queues_and_topics(
    broker: BrokerProcess, jms: JmsClient, session: str, queue: str
) -> None:
    jms.consumer(session, "news", f"topic:{queue}-news", kind="durable", subscription="n")
    jms.producer("tx", "anywhere")
    for destination in (f"queue:{queue}-1", f"queue:{queue}-2", f"topic:{queue}-news"):
        jms.send("anywhere", "m", destination=destination)
    assert jms.is_quiet("news")
    jms.ask("commit", session="tx")
    assert jms.bodies("news") == ["m"]
    assert [depth(broker, f"{queue}-{number}") for number in (1, 2)] == [1, 1]


# -- receiving ---------------------------------------------------------------------------------------------------------


@DURABLE
def test_what_was_received_is_gone_with_the_commit(
    broker: BrokerProcess, jms: JmsClient, session: str, queue: str, durable: bool
) -> None:
    jms.put(session, f"queue:{queue}", "a", "b", "c", durable=durable)
    jms.consumer("tx", "in", f"queue:{queue}")
    assert jms.bodies("in", 2) == ["a", "b"]
    wait_for_depth(broker, queue, 3)
    jms.ask("commit", session="tx")
    wait_for_depth(broker, queue, 1)
    assert jms.bodies("in") == ["c"]
    jms.ask("commit", session="tx")
    wait_for_depth(broker, queue, 0)


@DURABLE
def test_what_was_rolled_back_comes_again_in_its_order(
    broker: BrokerProcess, jms: JmsClient, session: str, queue: str, durable: bool
) -> None:
    jms.put(session, f"queue:{queue}", *"abcde", durable=durable)
    jms.consumer("tx", "in", f"queue:{queue}")
    assert redeliveries(jms, "in", 2) == [("a", False, 1), ("b", False, 1)]
    jms.ask("rollback", session="tx")
    assert redeliveries(jms, "in", 3) == [("a", True, 2), ("b", True, 2), ("c", False, 1)]
    jms.ask("rollback", session="tx")
    found = redeliveries(jms, "in", 5)
    assert found == [("a", True, 3), ("b", True, 3), ("c", True, 2), ("d", False, 1), ("e", False, 1)]
    jms.ask("commit", session="tx")
    wait_for_depth(broker, queue, 0)


def test_another_consumer_gets_what_was_rolled_back(
    broker: BrokerProcess, jms: JmsClient, session: str, queue: str
) -> None:
    jms.put(session, f"queue:{queue}", "a", "b")
    jms.consumer("tx", "in", f"queue:{queue}")
    assert jms.bodies("in") == ["a"]
    jms.ask("rollback", session="tx")
    jms.ask("close", name="in")
    jms.consumer(session, "other", f"queue:{queue}")
    assert redeliveries(jms, "other", 2) == [("a", True, 2), ("b", False, 1)]


def test_a_message_that_is_rolled_back_too_often_is_a_dead_letter(make_broker: Make, jms: JmsClient) -> None:
    broker = make_broker(
        options={"address-settings": {"work": {"dead-letter-address": "dead", "max-delivery-attempts": 3}}}
    )
    broker.start()
    jms.connect("c", broker)
    jms.session("c", "tx", mode="transacted")
    jms.producer("tx", "out", "queue:work")
    jms.send("out", "poison", "good")
    jms.ask("commit", session="tx")
    jms.consumer("tx", "in", "queue:work")
    for count in (1, 2, 3):
        assert redeliveries(jms, "in", 1) == [("poison", count > 1, count)]
        jms.ask("rollback", session="tx")
    assert redeliveries(jms, "in", 1) == [("good", False, 1)]
    jms.ask("commit", session="tx")
    assert (depth(broker, "work"), depth(broker, "dead")) == (0, 1)


# -- both --------------------------------------------------------------------------------------------------------------


def test_a_request_and_its_answer_are_one(broker: BrokerProcess, jms: JmsClient, session: str, queue: str) -> None:
    """What fails after the answer was sent leaves no answer, and the request comes again."""
    jms.put(session, f"queue:{queue}-in", "request")
    jms.consumer("tx", "in", f"queue:{queue}-in")
    jms.producer("tx", "out", f"queue:{queue}-out")
    for is_last in (False, True):
        assert jms.bodies("in") == ["request"]
        jms.send("out", "answer")
        jms.ask("commit" if is_last else "rollback", session="tx")
    wait_for_depth(broker, f"{queue}-in", 0)
    wait_for_depth(broker, f"{queue}-out", 1)


def test_sessions_of_one_connection_do_not_touch_each_other(
    broker: BrokerProcess, jms: JmsClient, session: str, queue: str
) -> None:
    jms.session("c", "tx2", mode="transacted")
    jms.put(session, f"queue:{queue}", "a", "b")
    for name in ("tx", "tx2"):
        jms.consumer(name, f"in-{name}", f"queue:{queue}")
        jms.producer(name, f"out-{name}", f"queue:{queue}-out")
        jms.send(f"out-{name}", f"of {name}")
    jms.ask("rollback", session="tx")
    jms.ask("commit", session="tx2")
    jms.consumer(session, "in", f"queue:{queue}-out")
    assert jms.bodies("in") == ["of tx2"]
    assert jms.is_quiet("in")


# -- ends --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["tx", "c2"], ids=["session", "connection"])
def test_a_close_without_a_commit_is_a_rollback(
    broker: BrokerProcess, jms: JmsClient, session: str, queue: str, first: str
) -> None:
    jms.put(session, f"queue:{queue}", "a", "b")
    jms.connect("c2", broker)
    jms.session("c2", "tx", mode="transacted")
    jms.consumer("tx", "in", f"queue:{queue}")
    jms.producer("tx", "out", f"queue:{queue}-out")
    assert jms.bodies("in") == ["a"]
    jms.send("out", "answer")
    jms.ask("close", name=first)
    jms.consumer(session, "again", f"queue:{queue}")
    found = redeliveries(jms, "again", 2)
    assert [(body, count > 1) for body, _, count in found] == [("a", True), ("b", False)]
    wait_for_depth(broker, f"{queue}-out", 0)


def test_a_durable_subscription_in_a_transaction(
    broker: BrokerProcess, jms: JmsClient, session: str, queue: str
) -> None:
    jms.consumer("tx", "in", f"topic:{queue}", kind="durable", subscription="t")
    jms.put(session, f"topic:{queue}", "a")
    assert redeliveries(jms, "in", 1) == [("a", False, 1)]
    jms.ask("rollback", session="tx")
    assert redeliveries(jms, "in", 1) == [("a", True, 2)]
    jms.ask("commit", session="tx")
    wait_for_queues(broker, queue, {"app.t": 0})


def test_a_transaction_that_takes_too_long_cannot_be_committed(make_broker: Make, jms: JmsClient) -> None:
    broker = make_broker(options={"limits": {"transaction-timeout-ms": 3000}})
    broker.start()
    jms.connect("c", broker)
    jms.session("c", "s")
    jms.session("c", "tx", mode="transacted")
    jms.put("s", "queue:in", "a")
    jms.consumer("tx", "in", "queue:in")
    jms.producer("tx", "out", "queue:out")
    assert jms.bodies("in") == ["a"]
    jms.send("out", "late")
    deadline_s = time.monotonic() + PATIENCE_S
    while "transaction-failed" not in broker.log:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    why = jms.refusal("commit", session="tx")
    assert why.startswith("TransactionRolledBackException")
    wait_for_depth(broker, "out", 0)
    # The session goes on with a new transaction.
    jms.send("out", "in time")
    assert redeliveries(jms, "in", 1) == [("a", True, 2)]
    jms.ask("commit", session="tx")
    assert (depth(broker, "in"), depth(broker, "out")) == (0, 1)


def test_a_commit_for_which_there_is_no_room_is_rolled_back(make_broker: Make, jms: JmsClient) -> None:
    """And that is said, so that nobody has to think that it may have happened."""
    settings = {"small": {"max-size-messages": 2, "address-full-policy": "FAIL"}}
    broker = make_broker(options={"address-settings": settings})
    broker.start()
    jms.connect("c", broker)
    jms.session("c", "s")
    jms.session("c", "tx", mode="transacted")
    jms.put("s", "queue:in", "a")
    jms.consumer("tx", "in", "queue:in")
    jms.producer("tx", "out", "queue:small")
    assert jms.bodies("in") == ["a"]
    jms.send("out", "1", "2", "3")
    why = jms.refusal("commit", session="tx")
    assert why.startswith("TransactionRolledBackException")
    assert "amqp:resource-limit-exceeded" in why
    assert redeliveries(jms, "in", 1) == [("a", True, 2)]
    jms.send("out", "1")
    jms.ask("commit", session="tx")
    assert (depth(broker, "in"), depth(broker, "small")) == (0, 1)


def test_what_was_committed_outlives_a_crash_and_the_rest_does_not(make_broker: Make, jms: JmsClient) -> None:
    broker = make_broker()
    broker.start()
    jms.connect("c", broker)
    jms.session("c", "tx", mode="transacted")
    jms.producer("tx", "out", "queue:orders")
    jms.send("out", *(f"m{number}" for number in range(20)))
    jms.ask("commit", session="tx")
    jms.consumer("tx", "in", "queue:orders")
    assert len(jms.bodies("in", 5)) == 5
    jms.send("out", "not committed")
    broker.kill()
    broker.start()
    wait_for_depth(broker, "orders", 20)
