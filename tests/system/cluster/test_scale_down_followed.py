"""A whole real broker drains as mqctl has it: followed, interrupted, taken back, and killed in the middle."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.client import sync
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.nodes import Node, open_admin
from mqctl.operation import HeldCluster
from mqctl.scaledown import drain_start, leaving_host, receipt
from mqctl.scaledown.cluster_look import look_at
from mqctl.scaledown.drain import DrainFollower
from mqctl.scaledown.forgetting import forget, require_forgotten, wait_for_answers
from mqctl.scaledown.leaving_host import Leaver, receipt_of
from mqctl.scaledown.plan import plan_of
from mqctl.world import World, real_world
from rich.console import Console

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import Make, linked
from tests.support.patience import PATIENCE_S
from tests.system.cluster.test_drains import Balanced, uri_of

pytestmark = pytest.mark.system

COUNT = 20_000
QUEUES = ("orders", "audit")
TIMEOUT_S = 300.0


class Site:
    """Three brokers, of which the first one leaves, as mqctl sees them."""

    def __init__(self, make_broker: Make) -> None:
        self.brokers = Balanced(make_broker, 3).start()
        for number, broker in enumerate(self.brokers):
            linked(broker, *(f"mq{each}" for each in range(3) if each != number))
        self.nodes = [
            Node(f"mq{number}", "default", socket=str(one.admin_socket)) for number, one in enumerate(self.brokers)
        ]
        self.ids = {
            node.name: one.admin("topology")["node_id"] for node, one in zip(self.nodes, self.brokers, strict=True)
        }
        hosts = tuple(Host(node.host, "main", {}, {}) for node in self.nodes)
        self.leaver = Leaver(InventoryCluster("main", hosts), hosts[0])

    def fill(self) -> None:
        with sync.connect(uri_of(self.brokers[0])) as c:
            for queue in QUEUES:
                c.sender(queue).send_many([mq.Message(f"{queue} {number}", durable=True) for number in range(COUNT)])

    def begin(self, world: World, **arguments: Any) -> Any:
        plan = plan_of(look_at(world, self.nodes[:1]), look_at(world, self.nodes[1:]), "mq1")
        assert (plan.overruled, plan.targets["mq0"].name) == ([], "mq1")
        with open_admin(world, self.nodes[0]) as session:
            return session.call("scale-down", node=plan.targets["mq0"].node_id, **arguments)

    def receipt(self, world: World, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return receipt_of(world, self.leaver, found, [self.ids["mq0"]], is_forced=False)

    def counts(self, number: int) -> dict[str, int]:
        rows = self.brokers[number].admin("queues")["queues"]
        return {row["name"]: row["message_count"] for row in rows if row["name"] in QUEUES}


@pytest.fixture
def site(make_broker: Make) -> Site:
    return Site(make_broker)


@pytest.fixture
def world() -> World:
    return replace(real_world(), err=Console(file=io.StringIO(), width=500))


def at_first_sleep(world: World, act: Callable[[], None]) -> World:
    """Something happens between the first look and the second."""
    waiting = [act]

    def sleep_s(duration_s: float) -> None:
        if waiting:
            waiting.pop()()
        world.sleep_s(duration_s)

    return replace(world, sleep_s=sleep_s)


def said(world: World) -> str:
    """To people."""
    assert isinstance(world.err.file, io.StringIO)
    return world.err.file.getvalue()


def interrupt() -> None:
    raise KeyboardInterrupt


def in_order(broker: BrokerProcess, queue: str) -> list[str]:
    found: list[str] = []
    with sync.connect(uri_of(broker)) as c:
        receiver = c.receiver(queue)
        while messages := receiver.receive_many(1000, timeout=PATIENCE_S if len(found) < COUNT else 1):
            for message in messages:
                found.append(str(message.body))
                message.accept()
    return found


def test_a_broker_passes_over_whom_the_last_run_names(
    site: Site, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that leaves later is given up, and the first goes on alone."""
    monkeypatch.setattr(leaving_host, "nodes_in", lambda _: site.nodes)
    party = replace(site.leaver, party=("mq0", "mq2"))
    plan = plan_of(look_at(world, party.nodes), look_at(world, party.heirs))
    drain_start.pass_over_later(world, party, plan)
    for leaver, later in ((party, [site.ids["mq2"]]), (site.leaver, [])):
        drain_start.begin(world, leaver, plan, HeldCluster({}, []))
        shown = site.brokers[0].admin("scale-down-show")
        assert (shown["node"], shown["passed_over"]) == ("mq1", later)
        plan = drain_start.as_it_goes(world, site.leaver, look_at(world, site.leaver.nodes))
    assert said(world) == ""


def test_whoever_follows_may_be_interrupted_and_the_source_killed(site: Site, world: World) -> None:
    site.fill()
    before = site.brokers[0].admin("scale-down-show")
    assert (before["state"], before["receipt"]) == ("none", None)
    assert site.begin(world, dry_run=True)["hindrances"] == []
    assert site.counts(0) == dict.fromkeys(QUEUES, COUNT)
    site.begin(world)
    with pytest.raises(KeyboardInterrupt):
        DrainFollower(at_first_sleep(world, interrupt), site.nodes[:1]).until("moved", TIMEOUT_S)

    def die() -> None:
        site.brokers[0].kill()
        site.brokers[0].start()

    found = DrainFollower(at_first_sleep(world, die), site.nodes[:1], is_json=True).until("moved", TIMEOUT_S)
    first, *_, last = said(world).splitlines()
    assert first == f"mq0 -> mq1: moving, 0 of {2 * COUNT} moved"
    last = json.loads(last)
    assert (last["schema"], last["nodes"]["mq0"]["state"]) == ("mqctl.scale-down-progress/1", "moved")
    told = said(world)
    follower = DrainFollower(world, site.nodes[:1])
    follower.until("moved", TIMEOUT_S)
    follower.until("moved", TIMEOUT_S)
    assert said(world) == f"{told}mq0 -> mq1: moved, {2 * COUNT} of {2 * COUNT} moved\n"
    document = site.receipt(world, found)
    assert document["differences"] == []
    assert "It balances." in receipt.page(document)
    assert {row["queue"]: row["moved"] for row in document["rows"] if row["queue"] in QUEUES} == dict.fromkeys(
        QUEUES, COUNT
    )
    assert site.counts(1) == dict.fromkeys(QUEUES, COUNT)
    leave(site, world)
    for queue in QUEUES:
        assert in_order(site.brokers[1], queue) == [f"{queue} {number}" for number in range(COUNT)]


def leave(site: Site, world: World) -> None:
    """Nothing of a node that is stopped is left at the others once they have forgotten it."""
    others, ids = site.nodes[1:], [site.ids["mq0"]]
    wait_for_answers(world, others, ids)
    site.brokers[0].stop()
    forget(world, others, ids)
    require_forgotten(world, others, ids)


def test_it_is_taken_back_in_the_middle_and_nothing_is_lost(site: Site, world: World) -> None:
    site.fill()
    site.begin(world)
    site.brokers[0].admin("scale-down-cancel")
    DrainFollower(world, site.nodes[:1]).until("none", TIMEOUT_S)
    here, there = site.counts(0), site.counts(1)
    assert {queue: here[queue] + there.get(queue, 0) for queue in QUEUES} == dict.fromkeys(QUEUES, COUNT)
    found = in_order(site.brokers[0], "orders") + (in_order(site.brokers[1], "orders") if there else [])
    assert sorted(found) == sorted(f"orders {number}" for number in range(COUNT))


def test_a_target_that_is_away_is_told_of_and_taken_again_when_it_is_back(site: Site, world: World) -> None:
    site.fill()
    site.begin(world)
    site.brokers[1].kill()
    hours = iter(range(0, 100_000, 10))
    hasty = replace(world, monotonic_s=lambda: next(hours))
    with pytest.raises(CommandError, match=r"nothing moves any more: .* no link to it stands"):
        DrainFollower(hasty, site.nodes[:1]).until("moved", 100_000)
    site.brokers[1].start()
    found = DrainFollower(world, site.nodes[:1]).until("moved", TIMEOUT_S)
    assert site.receipt(world, found)["differences"] == []
    assert site.counts(1) == dict.fromkeys(QUEUES, COUNT)


def test_a_time_that_is_up_says_what_is_still_there(site: Site, world: World) -> None:
    site.fill()
    site.begin(world)
    with pytest.raises(CommandError, match=r"are still there after 0 s.*the brokers go on") as raised:
        DrainFollower(world, site.nodes[:1]).until("moved", 0)
    assert raised.value.code is Exit.RUNNING
