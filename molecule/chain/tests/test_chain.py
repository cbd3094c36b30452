"""How far messages go in a row of nodes, and what happens to them when the middle of it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mqbroker.client import Message, sync

from tests.support.cluster_faults import Scene
from tests.support.cluster_load import Load
from tests.support.nemesis import unleash
from tests.support.rack_cluster import RackBroker, RackCluster, wait

WHOLE_S = 30.0
COUNT = 20
OPTIONS: dict[str, Any] = {"user": "load", "password": "secret-of-the-load", "allow_plain": True}


def client(broker: RackBroker) -> sync.Connection:
    return sync.connect(f"amqp://{broker.address('eth0')}:5672", **OPTIONS)


def send(broker: RackBroker, address: str) -> None:
    with client(broker) as connection:
        connection.sender(address).send_many(Message(f"m{number}", durable=True) for number in range(COUNT))


def taken(receiver: sync.Receiver) -> list[str]:
    """As many messages as are sent at a time, accepted."""
    found: list[str] = []
    while len(found) < COUNT and (batch := receiver.receive_many(COUNT, timeout=10)):
        for message in batch:
            message.accept()
        found += [message.text for message in batch]
    return found


def knows(broker: RackBroker, consumers: int) -> None:
    """Wait until a broker knows of exactly so many consumers elsewhere."""

    def lacks() -> str:
        found = sum(row["consumers"] for row in broker.ask("topology")["links"])
        return "" if found == consumers else f"{broker.host} knows of {found} consumers instead of {consumers}"

    wait(lacks)


def test_all_know_all_and_are_linked_with_their_neighbours(chain: RackCluster) -> None:
    chain.whole_after_s(WHOLE_S)


def test_messages_cross_two_links_and_no_third(chain: RackCluster) -> None:
    wanted = [f"m{number}" for number in range(COUNT)]
    with client(chain["mq3"]) as third, client(chain["mq4"]) as fourth:
        near, far = third.receiver("near"), fourth.receiver("far")
        # What the fourth has, the second is told of, and the first is not.
        for name, consumers in (("mq1", 1), ("mq2", 2), ("mq3", 1), ("mq4", 1)):
            knows(chain[name], consumers)
        send(chain["mq1"], "far")
        send(chain["mq1"], "near")
        assert taken(near) == wanted
        assert chain.depths() == {"mq1": {"far": COUNT}}
        send(chain["mq2"], "far")
        assert taken(far) == wanted
        wait(lambda: "" if chain.depths() == {"mq1": {"far": COUNT}} else f"{chain.depths()}")


def test_what_could_not_go_so_far_goes_to_who_is_nearer(chain: RackCluster) -> None:
    with client(chain["mq2"]) as second:
        assert taken(second.receiver("far")) == [f"m{number}" for number in range(COUNT)]
    wait(lambda: str(chain.depths() or ""))


@pytest.fixture(scope="module")
def scene(chain: RackCluster) -> Iterator[Scene]:
    first, third = (f"amqp://load:secret-of-the-load@{chain[name].address('eth0')}:5672" for name in ("mq1", "mq3"))
    load = Load("orders", producers={"mq1": first}, consumers={"mq3": third})
    try:
        yield Scene(chain["mq1"].rack, [chain], load)
    finally:
        load.end()


def test_power_cut_of_the_node_between_producer_and_consumer(scene: Scene) -> None:
    with scene.fault("power cut of mq2"):
        scene.rack("kill", "mq2")
        scene.loses_links("mq1", "mq3")
        scene.goes_on(["mq1"])
        scene.rack("boot", "mq2")


def test_card_of_the_node_between_cut(scene: Scene) -> None:
    with scene.fault("eth1 of mq2 cut"):
        scene.rack("cut", "mq2", "eth1")
        scene.loses_links("mq1", "mq2", "mq3")
        scene.goes_on(["mq1"])
        scene.rack("heal", "mq2", "eth1")


@pytest.mark.timeout(7200)
def test_faults_that_nobody_chose(scene: Scene) -> None:
    unleash(scene, 2)


def test_the_checker_finds_nothing(scene: Scene) -> None:
    assert scene.verdict() == []
    assert scene.load.counts["sent"] == scene.load.accepted.total()
