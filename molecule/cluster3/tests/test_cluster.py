"""Two clusters on one card that know nothing of each other, and what a cluster does with messages."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import testinfra  # type: ignore[import-untyped]
from mqbroker.client import Message, sync

from tests.support.rack_cluster import RackBroker, RackCluster, RackHosts, wait

GROUP = "231.7.7.7"
# Three periods of the broadcast groups.
LISTEN_S = 3
OPTIONS: dict[str, Any] = {"user": "load", "password": "secret-of-the-load", "allow_plain": True}
WHOLE_S = 30.0
COUNT = 300


def client(broker: RackBroker) -> sync.Connection:
    """A connection over the card that the cluster does not use."""
    port = 5772 if broker.instance == "beside" else 5672
    return sync.connect(f"amqp://{broker.address('eth0')}:{port}", **OPTIONS)


def durable(count: int) -> list[Message]:
    return [Message(f"m{number}", durable=True) for number in range(count)]


def knows_consumers(broker: RackBroker, count: int) -> None:
    """Wait until a broker knows of so many consumers elsewhere."""

    def lacks() -> str:
        found = sum(row["consumers"] for row in broker.ask("topology")["links"])
        return "" if found == count else f"{broker.host} knows {found} consumers elsewhere instead of {count}"

    wait(lacks)


def taken(receiver: sync.Receiver, count: int) -> list[str]:
    """The next messages, accepted."""
    found: list[str] = []
    while len(found) < count and (batch := receiver.receive_many(count, timeout=10)):
        for message in batch:
            message.accept()
        found += [message.text for message in batch]
    return found


def test_each_cluster_is_whole_and_has_its_own_nodes_alone(lan: RackCluster, beside: RackCluster) -> None:
    lan.whole_after_s(WHOLE_S)
    beside.whole_after_s(WHOLE_S)
    ids = [one.node_id for cluster in (lan, beside) for one in cluster.brokers.values()]
    assert len(set(ids)) == len(ids) == 6


def test_nothing_of_the_multicast_is_heard_on_the_other_card(rack: RackHosts, lan: RackCluster) -> None:
    """All cards of a network hear all multicast of it: one host is enough to listen at."""
    program = Path(__file__).with_name("listen.py").read_text(encoding="utf-8")
    heard = json.loads(rack.python("mq1", program, GROUP, str(LISTEN_S), "eth0", "eth1"))
    assert set(heard["eth1"]) == {one.address("eth1") for one in lan.brokers.values()}
    assert min(heard["eth1"].values()) >= 2
    assert heard["eth0"] == {}
    for host in rack.plan.hosts:
        seen = testinfra.get_host(f"ssh://{host.name}?sudo=true", ssh_config=str(rack.run_folder / "ssh_config"))
        assert GROUP in seen.check_output("ip maddress show dev eth1")
        assert GROUP not in seen.check_output("ip maddress show dev eth0")


def test_clients_and_nodes_come_in_by_different_cards(rack: RackHosts) -> None:
    for host in rack.plan.hosts:
        seen = testinfra.get_host(f"ssh://{host.name}?sudo=true", ssh_config=str(rack.run_folder / "ssh_config"))
        lines = [line.split()[3] for line in seen.check_output("ss -Hltn").splitlines()]
        wanted = {
            f"{host.card(card).address}:{port + offset}"
            for card, port in (("eth0", 5672), ("eth1", 5673))
            for offset in (0, 100)
        }
        assert {line for line in lines if line.rpartition(":")[2][:2] in ("56", "57")} == wanted


def test_consumers_at_all_nodes_share_what_comes_to_one(lan: RackCluster) -> None:
    with ExitStack() as stack:
        receivers = {
            name: stack.enter_context(stack.enter_context(client(broker)).receiver("shared", credit=COUNT))
            for name, broker in lan.brokers.items()
        }
        knows_consumers(lan["mq1"], 2)
        connection = stack.enter_context(client(lan["mq1"]))
        assert connection.sender("shared").send_many(durable(COUNT)) == COUNT
        wait(lambda: "messages are between nodes" if any("to" in name for name in lan["mq1"].depths()) else "")
        shares = {name: sum(queues.values()) for name, queues in lan.depths().items()}
        assert sum(shares.values()) == COUNT, shares
        assert max(abs(share - COUNT / 3) for share in shares.values()) <= COUNT / 30, shares
        texts = [text for name, receiver in receivers.items() for text in taken(receiver, shares[name])]
        assert sorted(texts) == sorted(f"m{number}" for number in range(COUNT))


def test_what_lies_where_nobody_takes_it_moves(lan: RackCluster) -> None:
    with client(lan["mq1"]) as sending, client(lan["mq3"]) as receiving:
        sending.sender("stranded").send_many(durable(COUNT))
        assert lan["mq1"].depths() == {"stranded": COUNT}
        with receiving.receiver("stranded") as receiver:
            assert sorted(taken(receiver, COUNT)) == sorted(f"m{number}" for number in range(COUNT))
    wait(lambda: str(lan.depths() or ""))


def test_messages_stay_in_their_cluster(lan: RackCluster, beside: RackCluster) -> None:
    """A consumer in the other cluster, on the same host, gets what is sent there and nothing else."""
    with client(beside["mq2"]) as other, other.receiver("mine") as receiver:
        knows_consumers(beside["mq1"], 1)
        with client(lan["mq2"]) as one, client(beside["mq1"]) as two:
            one.sender("mine").send(Message("of lan", durable=True))
            two.sender("mine").send(Message("of beside", durable=True))
            assert taken(receiver, 1) == ["of beside"]
        assert lan.depths() == {"mq2": {"mine": 1}}
        with client(lan["mq2"]) as one, one.receiver("mine") as own:
            assert taken(own, 1) == ["of lan"]
