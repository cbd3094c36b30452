"""Outcomes, credit and drain as a foreign client uses them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.foreign.client import ProtonClient
from tests.foreign.conftest import wait_for_depth
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.foreign

DURABLE = pytest.mark.parametrize("durable", [True, False], ids=["durable", "not-durable"])


@DURABLE
def test_released_messages_come_again_without_a_count_and_modified_ones_with_it(
    broker: BrokerProcess, client: ProtonClient, queue: str, durable: bool
) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ["a", "b", "c"], durable=durable)
    client.receiver("c", "in", queue, credit=3)
    found = client.receive("in", 3, outcome=None)
    assert [row["id"] for row in found] == ["a", "b", "c"]
    client.ask("dispose", link="in", outcome="release", positions=[0])
    client.ask("dispose", link="in", outcome="modify-failed", positions=[0])
    client.ask("dispose", link="in", outcome="modify", positions=[0])
    again = client.receive("in", 3, more_credit=3)
    assert [(row["id"], row["delivery_count"]) for row in again] == [("a", 0), ("b", 1), ("c", 0)]
    assert [row["durable"] for row in again] == [durable] * 3
    client.ask("close", name="c")
    wait_for_depth(broker, queue, 0)


@DURABLE
def test_what_is_settled_without_an_outcome_was_delivered_in_vain(
    broker: BrokerProcess, client: ProtonClient, queue: str, durable: bool
) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ["a", "b"], durable=durable)
    client.receiver("c", "in", queue, credit=2)
    assert [row["id"] for row in client.receive("in", 2, outcome="none")] == ["a", "b"]
    again = client.receive("in", 2, more_credit=2)
    assert [(row["id"], row["delivery_count"]) for row in again] == [("a", 1), ("b", 1)]
    client.ask("close", name="c")
    wait_for_depth(broker, queue, 0)


def test_what_one_consumer_cannot_use_goes_to_another(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ["a", "b"])
    client.receiver("c", "in", queue, credit=10)
    assert [row["id"] for row in client.receive("in", 2, outcome="modify-undeliverable")] == ["a", "b"]
    client.send("out", ["c"])
    assert [row["id"] for row in client.receive("in", 1)] == ["c"]
    client.receiver("c", "other", queue, credit=10)
    assert [row["id"] for row in client.receive("other", 2)] == ["a", "b"]
    client.ask("close", name="c")
    wait_for_depth(broker, queue, 0)


@DURABLE
def test_released_messages_return_to_their_place(
    broker: BrokerProcess, client: ProtonClient, queue: str, durable: bool
) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", [f"m{number}" for number in range(10)], durable=durable)
    client.receiver("c", "in", queue, credit=6)
    client.receive("in", 6, outcome=None)
    # Given back in another order than they came in.
    for positions in ([4, 1], [2], [0, 1, 2]):
        client.ask("dispose", link="in", outcome="release", positions=positions)
    again = client.receive("in", 10, more_credit=10)
    assert [row["id"] for row in again] == [f"m{number}" for number in range(10)]


@DURABLE
def test_rejected_messages_do_not_come_again(
    broker: BrokerProcess, client: ProtonClient, queue: str, durable: bool
) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ["a", "b"], durable=durable)
    client.receiver("c", "in", queue, credit=10)
    client.receive("in", 1, outcome="reject")
    client.receive("in", 1)
    client.ask("close_link", name="in")
    wait_for_depth(broker, queue, 0)
    assert "message-rejected" in broker.log


def test_the_delivery_count_goes_up_with_each_failed_delivery(
    broker: BrokerProcess, client: ProtonClient, queue: str
) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ["a"])
    client.receiver("c", "in", queue)
    for count in range(5):
        (row,) = client.receive("in", 1, outcome="modify-failed", more_credit=1)
        assert (row["id"], row["delivery_count"]) == ("a", count)


@pytest.mark.parametrize("outcome", ["accept", "release", "modify-failed", "reject"])
def test_outcomes_of_a_receiver_that_settles_second(
    broker: BrokerProcess, client: ProtonClient, queue: str, outcome: str
) -> None:
    """The broker settles what the receiver told; until then the receiver remembers the delivery."""
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ["a", "b", "c"])
    client.receiver("c", "in", queue, rcv="second", credit=3)
    client.receive("in", 3, outcome=outcome, settle=False)
    client.ask("wait_settled", link="in", count=3)
    expected = {"accept": [], "reject": [], "release": [0, 0, 0], "modify-failed": [1, 1, 1]}[outcome]
    found = client.receive("in", 3, more_credit=3, settle=False, timeout_s=PATIENCE_S if expected else 0.3)
    assert [row["delivery_count"] for row in found] == expected


def wait_until_nothing_is_in_delivery(broker: BrokerProcess, queue: str) -> None:
    """A broken connection is noticed a moment later."""

    def is_delivering() -> bool:
        rows = {row["name"]: row["delivering_count"] for row in broker.admin("queues")["queues"]}
        return bool(rows[queue])

    wait_until(lambda: not is_delivering(), "the broker notices that the consumer is gone")


@DURABLE
@pytest.mark.parametrize("end", ["detach", "close link", "end session", "close connection", "break"])
def test_unsettled_messages_return_when_the_consumer_goes(
    broker: BrokerProcess, make_client: Callable[[], ProtonClient], queue: str, durable: bool, end: str
) -> None:
    """With a count where the consumer was lost: who leaves in order has told the outcome of what it has seen."""
    first, second = make_client(), make_client()
    for each in (first, second):
        each.connect("c", broker)
    second.sender("c", "out", queue)
    second.send("out", [f"m{number}" for number in range(10)], durable=durable)
    first.ask("session", connection="c", name="s")
    first.receiver("c", "in", queue, session="s", credit=6)
    first.receive("in", 2)
    first.receive("in", 4, outcome=None)
    # What follows goes behind them, and they come first again.
    second.send("out", ["later"], durable=durable)
    ways: dict[str, Callable[[], object]] = {
        "detach": lambda: first.ask("close_link", name="in", is_detach=True),
        "close link": lambda: first.ask("close_link", name="in"),
        "end session": lambda: first.ask("end", connection="c", name="s"),
        "close connection": lambda: first.ask("close", name="c"),
        "break": first.kill,
    }
    ways[end]()
    wait_until_nothing_is_in_delivery(broker, queue)
    second.receiver("c", "in", queue, credit=20)
    found = second.receive("in", 9)
    assert [row["id"] for row in found] == [*(f"m{number}" for number in range(2, 10)), "later"]
    is_lost = end == "break"
    assert [row["delivery_count"] for row in found] == [int(is_lost)] * 4 + [0] * 5
    assert not is_lost or [row["first_acquirer"] for row in found[:4]] == [False] * 4
    second.ask("close", name="c")
    wait_for_depth(broker, queue, 0)


def test_a_receiver_gets_no_more_than_its_credit(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", [f"m{number}" for number in range(20)])
    client.receiver("c", "in", queue)
    assert client.receive("in", 1, timeout_s=0.3) == []
    at = 0
    for credit in (1, 3, 7):
        client.ask("flow", link="in", credit=credit)
        found = client.receive("in", credit)
        assert [row["id"] for row in found] == [f"m{number}" for number in range(at, at + credit)]
        assert client.receive("in", 1, timeout_s=0.2) == []
        at += credit
    rows = [row for row in broker.admin("queues")["queues"] if row["name"] == queue]
    assert [(row["message_count"], row["delivering_count"]) for row in rows] == [(9, 0)]


@pytest.mark.option("limits.link-credit")
def test_a_sender_gets_the_credit_of_the_option_and_more_of_it(
    make_broker: Callable[..., BrokerProcess], client: ProtonClient
) -> None:
    broker = make_broker(options={"limits": {"link-credit": 7}})
    broker.start()
    client.connect("c", broker)
    client.sender("c", "out", "orders")
    assert client.ask("wait_credit", link="out", at_least=7)["credit"] == 7
    assert len(client.send("out", [f"m{number}" for number in range(100)])) == 100
    assert client.ask("wait_credit", link="out", at_least=4)["credit"] <= 7


def test_drain_gives_what_is_there_and_the_rest_of_the_credit_back(
    broker: BrokerProcess, client: ProtonClient, queue: str
) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.receiver("c", "in", queue)
    assert client.ask("drain", link="in", credit=10) == {"came": 0, "credit": 0, "unused": 10}
    client.send("out", ["a", "b", "c"])
    assert client.ask("drain", link="in", credit=10) == {"came": 3, "credit": 0, "unused": 7}
    client.receive("in", 3)
    # After a drain no credit is left: a message waits until there is some again.
    client.send("out", ["d"])
    assert client.receive("in", 1, timeout_s=0.3) == []
    assert client.ask("drain", link="in", credit=1)["came"] == 1
    assert [row["id"] for row in client.receive("in", 1)] == ["d"]
    client.ask("flow", link="in", credit=2)
    client.send("out", ["e", "f", "g"])
    assert [row["id"] for row in client.receive("in", 2)] == ["e", "f"]
    assert client.receive("in", 1, timeout_s=0.2) == []


def test_a_full_broker_grants_no_credit_and_goes_on_when_there_is_room(
    make_broker: Callable[..., BrokerProcess], make_client: Callable[[], ProtonClient]
) -> None:
    """What was sent ahead and does not fit is refused with the reason; a consumer makes room and credit comes again."""
    limits = {"global-max-size-bytes": 2 << 20, "max-message-size-bytes": 1 << 20, "link-credit": 10}
    broker = make_broker(options={"limits": limits, "address-settings": {"#": {"address-full-policy": "BLOCK"}}})
    broker.start()
    producer, consumer = make_client(), make_client()
    producer.connect("c", broker)
    producer.sender("c", "out", "orders")
    outcomes: list[str] = []
    for number in range(5):
        credit = producer.ask("credit", link="out")["credit"]
        if not credit:
            break
        found = producer.send("out", [f"m{number}-{each}" for each in range(credit)], size=100_000)
        outcomes += [row["outcome"] for row in found]
        refused = [row["error"]["condition"] for row in found if row["outcome"] == "rejected"]
        assert set(refused) <= {"amqp:resource-limit-exceeded"}
    assert producer.ask("credit", link="out")["credit"] == 0
    accepted = outcomes.count("accepted")
    assert 15 <= accepted <= 21
    consumer.connect("c", broker)
    consumer.receiver("c", "in", "orders", credit=100)
    assert len(consumer.receive("in", accepted)) == accepted
    producer.ask("wait_credit", link="out", at_least=1)
    assert [row["outcome"] for row in producer.send("out", ["again"], size=100_000)] == ["accepted"]
    assert [row["id"] for row in consumer.receive("in", 1)] == ["again"]
