"""Scenarios of clusters with real brokers: Qpid Proton at one node, Qpid JMS at another.

Each test has the number of the conversation in tests/scenarios/conversations that it repeats.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.foreign.client import ProtonClient
from tests.foreign.conftest import depth, wait_for_depth
from tests.foreign.jms_client import JmsClient
from tests.foreign.scenario_nodes import ScenarioNodes, Site, names
from tests.support.broker_process import brokers_in
from tests.support.cluster_processes import bodies, knows, wait_for

pytestmark = pytest.mark.foreign


@pytest.fixture(scope="module")
def proton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProtonClient]:
    client = ProtonClient(tmp_path_factory.mktemp("proton") / "client.log")
    yield client
    client.close()


@pytest.fixture(scope="module")
def _nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioNodes]:
    with brokers_in(tmp_path_factory.mktemp("nodes")) as make:
        nodes = ScenarioNodes(make)
        nodes.start()
        nodes.whole()
        yield nodes


@pytest.fixture
def site(_nodes: ScenarioNodes, proton: ProtonClient, jms: JmsClient) -> Iterator[Site]:
    """Proton at the first node, Qpid JMS at the second one."""
    made = Site(_nodes, proton, jms)
    made.connect_proton(1)
    made.connect_jms(2)
    yield made
    made.leave()


def test_01_own_announcements_make_no_entry(site: Site) -> None:
    """A node alone has heard itself and nobody; later it has heard all others and not itself."""
    assert site.nodes.heard[0] == []
    site.nodes.after_periods(2)
    found = site.one.admin("discovery")
    assert sorted(row["node"] for row in found["nodes"] if row["group"] == "lan") == ["mq1", "mq2", "mq3", "mq4"]
    assert found["conflicts"] == []
    # The links of this cluster connection come from what was heard, and messages go over them.
    site.jms.consumer("2", "there", "queue:demand.01")
    knows(site.one, 1, 1, "demand")
    site.send("demand.01", names(3))
    assert site.by_jms("there", 3) == names(3)


def test_02_entries_accumulate_and_each_is_told_of_once(site: Site) -> None:
    others = ["mq1", "mq2", "mq3", "mq4"]
    assert site.nodes.heard == [others[:count] for count in range(5)]
    log = site.nodes.log_of_starts
    told = {name: log.count(f"discovery-node-found group=lan node={name} ") for name in ("mq0", *others)}
    assert told == {"mq0": 0, "mq1": 1, "mq2": 1, "mq3": 1, "mq4": 1}
    assert not [event for event in ("changed", "restarted", "lost") if f"discovery-node-{event}" in log]


def test_09_address_list(site: Site) -> None:
    inside, outside = ("listed.a", "included.b"), ("listed.private.c", "unlisted.d")
    for address in (*inside, *outside):
        site.jms.consumer("2", address, f"queue:{address}")
    knows(site.one, 2, 2, "listed")
    knows(site.one, 2, 2)
    for number, address in enumerate((*inside, *outside)):
        site.send(address, [f"m{number}"])
    assert [site.by_jms(address, 1) for address in inside] == [["m0"], ["m1"]]
    for address in outside:
        assert depth(site.one, address) == 1
        assert site.jms.is_quiet(address)


def test_11_off_keeps_everything_here(site: Site) -> None:
    site.proton.receiver("1", "here", "off.11", credit=20)
    site.jms.consumer("2", "there", "queue:off.11")
    knows(site.one, 1, 1, "off")
    site.send("off.11", names(10))
    assert site.by_proton("here", 10) == names(10)
    assert site.jms.is_quiet("there")


def test_12_subscriptions_get_copies_with_off_too(site: Site) -> None:
    topic = {"capabilities": ["topic"]}
    site.proton.receiver("1", "here", "off.12", credit=20, **topic)
    site.jms.consumer("2", "there", "topic:off.12")
    knows(site.one, 1, 1, "off")
    site.send("off.12", names(5), **topic)
    assert site.by_proton("here", 5) == site.by_jms("there", 5) == names(5)


@pytest.mark.parametrize(("mode", "count"), [("off", 0), ("moving", 5)])
def test_12_a_queue_of_the_same_name_takes_over_where_messages_move(site: Site, mode: str, count: int) -> None:
    address, shared = f"{mode}.12", {"kind": "shared-durable", "subscription": f"readers-{mode}"}
    site.connect_jms(1)
    site.jms.consumer("1", "here", f"topic:{address}", **shared)
    site.jms.ask("close", name="here")
    site.send(address, names(5), capabilities=["topic"])
    (queue,) = [row["name"] for row in site.one.admin("queues")["queues"] if row["address"] == address]
    site.jms.consumer("2", "there", f"topic:{address}", **shared)
    knows(site.one, 1, 1, mode)
    assert site.by_jms("there", count) == names(count)
    assert site.jms.is_quiet("there")
    assert depth(site.one, queue) == 5 - count


def test_13_strict_alternates_although_consumers_are_only_here(site: Site) -> None:
    site.two.admin("queue-create", name="strict.13", address="strict.13", routing_type="anycast")
    site.proton.receiver("1", "here", "strict.13", credit=20)
    knows(site.one, 1, 0, "strict")
    site.send("strict.13", names(10))
    here = site.by_proton("here", 5)
    assert len(bodies(site.two, 5, "strict.13")) == 5
    site.jms.consumer("2", "there", "queue:strict.13")
    there = site.by_jms("there", 5)
    assert sorted([*here, *there]) == sorted(names(10))
    assert site.jms.is_quiet("there")


def test_15_the_target_stops_and_starts(site: Site) -> None:
    site.jms.consumer("2", "there", "queue:demand.15")
    knows(site.one, 1, 1, "demand")
    site.send("demand.15", names(10))
    assert site.by_jms("there", 10) == names(10)
    wait_for_depth(site.two, "demand.15", 0)
    assert site.two.stop() == 0
    wait_for(site.one, "it is gone", lambda found: "up" not in {
        row["state"] for row in found["links"] if row["node"] == "mq1" or row["node"] is None
    })  # fmt: skip
    site.send("demand.15", names(10, 11))
    assert depth(site.one, "demand.15") == 10
    site.two.start()
    site.nodes.whole()
    site.jms.ask("reset")
    site.connect_jms(2)
    site.jms.consumer("2", "there", "queue:demand.15")
    knows(site.one, 1, 1, "demand")
    site.send("demand.15", names(10, 21))
    assert sorted(site.by_jms("there", 20)) == sorted(names(20, 11))
    assert site.jms.is_quiet("there")
    assert depth(site.one, "demand.15") == 0


def test_19_the_end_of_the_chain_is_too_far_away(site: Site) -> None:
    site.connect_jms(4, 5)
    site.jms.consumer("5", "far", "queue:chain.19")
    site.proton.receiver("1", "here", "chain.19", credit=20)
    knows(site.two, 2, 2, "chain")
    knows(site.four, 2, 2, "chain")
    knows(site.five, 0, 0, "chain")
    knows(site.one, 0, 0, "chain")
    site.send("chain.19", names(10))
    assert site.by_proton("here", 10) == names(10)
    assert site.jms.is_quiet("far")
    # One node less is near enough.
    site.proton.ask("close_link", name="here")
    site.jms.ask("close", name="far")
    site.jms.consumer("4", "near", "queue:chain.19")
    knows(site.one, 1, 1, "chain")
    site.send("chain.19", names(5))
    assert site.by_jms("near", 5) == names(5)


def test_28_redistribution_stops_when_a_consumer_comes_here(site: Site) -> None:
    site.jms.consumer("2", "there", "queue:moving.28")
    knows(site.one, 1, 1, "moving")
    site.send("moving.28", names(10))
    assert site.by_jms("there", 10) == names(10)
    site.proton.receiver("1", "here", "moving.28", credit=20)
    site.send("moving.28", names(10, 11))
    assert site.by_proton("here", 10) == names(10, 11)
    assert site.jms.is_quiet("there")


def test_29_a_consumer_is_back_within_the_delay(site: Site) -> None:
    site.proton.receiver("1", "before", "demand.29")
    site.send("demand.29", names(20))
    site.proton.ask("close_link", name="before")
    site.jms.consumer("2", "there", "queue:demand.29")
    knows(site.one, 1, 1, "demand")
    site.proton.receiver("1", "here", "demand.29", credit=20)
    assert site.by_proton("here", 20) == names(20)
    assert site.jms.is_quiet("there")
    wait_for_depth(site.one, "demand.29", 0)


def test_30_with_strict_closing_a_consumer_moves_nothing(site: Site) -> None:
    site.proton.receiver("1", "here", "strict.30")
    site.jms.consumer("2", "there", "queue:strict.30")
    knows(site.one, 1, 1, "strict")
    site.send("strict.30", names(10))
    assert len(site.by_jms("there", 5)) == 5
    site.proton.ask("close_link", name="here")
    assert site.jms.is_quiet("there")
    assert depth(site.one, "strict.30") == 5


def test_31_messages_move_to_the_consumer_whose_selector_matches(site: Site) -> None:
    site.connect_jms(3)
    site.proton.receiver("1", "here", "demand.31")
    site.send("demand.31", names(3), properties={"color": "red"})
    site.send("demand.31", names(2, 4), properties={"color": "green"})
    site.jms.consumer("2", "blue", "queue:demand.31", selector="color = 'blue'")
    site.jms.consumer("3", "red", "queue:demand.31", selector="color = 'red'")
    knows(site.one, 2, 2, "demand")
    assert depth(site.one, "demand.31") == 5
    site.proton.ask("close_link", name="here")
    assert site.by_jms("red", 3) == names(3)
    assert site.jms.is_quiet("blue")
    assert site.jms.is_quiet("red")
    assert depth(site.one, "demand.31") == 2


def test_33_nothing_moves_until_the_consumer_here_leaves(site: Site) -> None:
    site.proton.receiver("1", "here", "moving.33")
    site.jms.consumer("2", "there", "queue:moving.33")
    knows(site.one, 1, 1, "moving")
    site.send("moving.33", names(10))
    assert site.jms.is_quiet("there")
    assert depth(site.one, "moving.33") == 10
    site.proton.ask("close_link", name="here")
    assert site.by_jms("there", 10) == names(10)
    assert depth(site.one, "moving.33") == 0


def test_35_groups_stay_and_the_others_move(site: Site) -> None:
    site.send("demand.35", names(5), group_id="g")
    site.send("demand.35", names(5, 6))
    site.jms.consumer("2", "there", "queue:demand.35")
    assert site.by_jms("there", 5) == names(5, 6)
    assert site.jms.is_quiet("there")
    assert depth(site.one, "demand.35") == 5
    site.proton.receiver("1", "here", "demand.35", credit=20)
    assert site.by_proton("here", 5) == names(5)


def test_36_what_waits_for_its_redelivery_moves_after_a_restart(site: Site) -> None:
    site.connect_jms(1, mode="transacted")
    site.send("demand.36", names(1))
    site.jms.consumer("1", "here", "queue:demand.36")
    assert site.by_jms("here", 1) == names(1)
    site.jms.ask("rollback", session="1")
    site.one.restart()
    site.nodes.whole()
    site.connect_proton(2)
    site.proton.receiver("2", "there", "demand.36", credit=20)
    assert site.by_proton("there", 1) == names(1)
    assert depth(site.one, "demand.36") == 0
