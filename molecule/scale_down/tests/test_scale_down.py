"""A host leaves its cluster by the playbook while foreign clients send and read, and comes back as another node.

The tests are one story and run in their order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_traffic import LOGIN, ForeignTraffic
from mqbroker.client import Message, sync

from tests.support.patience import PATIENCE_S, wait_until
from tests.support.rack_cluster import RackBroker, RackCluster

pytestmark = pytest.mark.timeout(1800)

WHOLE_S = PATIENCE_S
LEAVER, HEIR, OTHER = "mq3", "mq1", "mq2"
BACKLOG = 500
ARCHIVE = "/var/lib/mq/.archive"
Brokers = dict[str, RackBroker]


def url(broker: RackBroker) -> str:
    return f"amqp://{broker.address('eth0')}:5672"


def client(broker: RackBroker) -> sync.Connection:
    return sync.connect(url(broker), user=LOGIN.user, password=LOGIN.password, allow_plain=True)


def cluster(brokers: Brokers, *names: str) -> RackCluster:
    """Brokers that are asked anew who they are."""
    return RackCluster([RackBroker(brokers[name].rack, name) for name in names])


def depth(brokers: Brokers, *names: str) -> int:
    """Messages at these hosts, also those that are on their way to others; the backlog apart."""
    depths = cluster(brokers, *names).depths()
    return sum(count for queues in depths.values() for name, count in queues.items() if name != "old")


@pytest.fixture(scope="module")
def left() -> dict[str, str]:
    """Who left."""
    return {}


@pytest.fixture(scope="module")
def traffic(brokers: Brokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForeignTraffic]:
    one = ForeignTraffic(tmp_path_factory.mktemp("traffic"), lambda name: url(brokers[name]))
    try:
        yield one
    finally:
        one.close()


def test_clients_of_three_nodes_send_and_read(brokers: Brokers, traffic: ForeignTraffic) -> None:
    cluster(brokers, *brokers).whole_after_s(WHOLE_S)
    with client(brokers[LEAVER]) as connection:
        messages = [Message(f"{number}", durable=True) for number in range(BACKLOG)]
        connection.sender("old").send_many(messages)
    traffic.begin([(LEAVER, HEIR, OTHER), (OTHER, HEIR)])
    for name in ("jms-in-0", "jms-in-1"):
        wait_until(lambda name=name: traffic.received(name) > 50, f"{name} has read")  # type: ignore[misc]


def test_a_host_leaves(
    brokers: Brokers, traffic: ForeignTraffic, left: dict[str, str], play: Callable[..., str]
) -> None:
    left["node_id"] = brokers[LEAVER].node_id
    before = traffic.sent("jms-out-0")
    play("scale_down", mq_scale_down=LEAVER, mq_scale_down_to=HEIR)
    cluster(brokers, HEIR, OTHER).whole_after_s(WHOLE_S)
    # Who was connected to it goes on elsewhere.
    at = traffic.sent("jms-out-0")
    assert at > before
    wait_until(lambda: traffic.sent("jms-out-0") > at + 50, "it sends elsewhere")
    read = traffic.received("jms-in-0")
    wait_until(lambda: traffic.received("jms-in-0") > read + 50, "it reads elsewhere")


@pytest.mark.parametrize("name", [HEIR, OTHER])
def test_nothing_of_it_is_left_at_the_others(name: str, hosts: dict[str, Any], left: dict[str, str]) -> None:
    node_id = left["node_id"]

    def asked(operation: str) -> Any:
        return json.loads(hosts[name].check_output("/opt/mq/current/bin/mqbroker admin %s", operation))

    topology = asked("topology")
    members = {row["node_id"] for row in topology["members"]}
    links = {row["node_id"] for row in topology["links"]}
    assert node_id not in members | links | set(topology["inbound"])
    assert (len(members), len(links), len(topology["inbound"])) == (2, 1, 1)
    # No queue that keeps messages for it, no address, and nothing that is bound to one.
    for operation in ("queues", "addresses", "discovery"):
        assert node_id not in json.dumps(asked(operation)), operation
    assert asked("scale-down-show")["state"] == "none"
    assert not hosts[name].file("/var/lib/mq/.archive").exists


def test_it_is_removed_and_its_data_and_the_receipt_are_there(hosts: dict[str, Any], left: dict[str, str]) -> None:
    host = hosts[LEAVER]
    assert not host.service("mqbroker@default").is_running
    assert not host.service("mqbroker@default").is_enabled
    assert not host.file("/etc/mq/default").exists
    assert not host.file("/var/lib/mq/default").exists
    (folder,) = host.check_output("ls %s", ARCHIVE).split()
    assert host.file(f"{ARCHIVE}/{folder}/default/journal").is_directory
    text = host.check_output("cat %s", f"{ARCHIVE}/{folder}/receipts.json")
    receipts = json.loads(text)
    assert receipts["node_ids"] == [left["node_id"]]
    (receipt,) = receipts["receipts"]
    assert receipt["balances"]
    assert not receipt.get("difference")
    assert host.check_output("ss -Hltn 'sport = :5672 or sport = :5673'") == ""


def test_it_is_added_again_as_another_node(
    brokers: Brokers, hosts: dict[str, Any], left: dict[str, str], play: Callable[..., str]
) -> None:
    play("rollout")
    whole = cluster(brokers, *brokers)
    whole.whole_after_s(WHOLE_S)
    assert whole[LEAVER].node_id != left["node_id"]
    assert hosts[LEAVER].service("mqbroker@default").is_running
    assert hosts[LEAVER].service("mqbroker@default").is_enabled
    # What it had been is kept, and is nobody's data any more.
    assert len(hosts[LEAVER].check_output("ls %s", ARCHIVE).split()) == 1


def test_what_waited_there_is_read_where_it_went_in_its_order(brokers: Brokers) -> None:
    found: list[str] = []
    with client(brokers[HEIR]) as connection:
        receiver = connection.receiver("old")
        while len(found) < BACKLOG and (batch := receiver.receive_many(100, timeout=10)):
            for message in batch:
                message.accept()
            found += [message.text for message in batch]
        assert receiver.receive_many(1, timeout=1) == []
    assert found == [str(number) for number in range(BACKLOG)]


def test_it_is_sent_messages_and_gives_some_to_consumers(brokers: Brokers, traffic: ForeignTraffic) -> None:
    """New clients, because those that are connected stay where they are."""
    traffic.begin([(LEAVER,)])
    wait_until(lambda: traffic.received("jms-in-0") > 0, "the others read")
    wait_until(lambda: traffic.received("jms-in-2") > 50, "a consumer there reads")
    wait_until(lambda: traffic.sent("jms-out-2") > 50, "a producer there sends")
    rows = cluster(brokers, LEAVER)[LEAVER].ask("queues")["queues"]
    assert sum(row["messages_added"] for row in rows if row["name"] == "orders") > 50


def test_all_that_was_accepted_is_read_once(brokers: Brokers, traffic: ForeignTraffic, tmp_path: Path) -> None:
    traffic.stop_sending()
    violations, counts = traffic.verdict(lambda: depth(brokers, *brokers))
    print(json.dumps(counts))
    assert violations == []
    assert counts["outcome"] > 200
    assert counts["receive"] - counts["again"] >= counts["outcome"] - counts.get("lost", 0)
