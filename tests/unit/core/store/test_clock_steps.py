"""A wall clock that is set: durations go on, times of day are those that the clock says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from mqbroker.base.time import At
from mqbroker.config.slices import BrokerOptions
from mqbroker.wire.run import single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS, scan_sections
from mqbroker.wire.sections import build_message, encode_section
from mqbroker.wire.values import Long, Symbol

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.support.large_messages import Consumer, Producer
from tests.support.stage import Stage, options_with

HOUR_MS = 3_600_000
STEPS_MS = (-24 * HOUR_MS, -HOUR_MS, HOUR_MS, 24 * HOUR_MS)


class Clocked(Stage):
    """A stage whose wall clock can be set."""

    step_ms = 0

    @property
    def at(self) -> At:
        now = super().at
        return At(now.monotonic_ns, now.wall_ms + self.step_ms)

    def set_clock(self, step_ms: int) -> None:
        self.step_ms += step_ms
        self.step()
        self.run()

    def counts(self, name: str) -> tuple[int, int]:
        """What could be delivered, and what waits for its time."""
        queue = self.broker.store.queues[name]
        return queue.ready_count, queue.scheduled_count


def publish(stage: Stage, address: str, **annotations: Any) -> None:
    whole = build_message(b"x", durable=True)
    bare = scan_sections(whole, 0, len(whole)).bare
    said = {Symbol(f"x-opt-delivery-{name}"): Long(value) for name, value in annotations.items()}
    payload = whole[:bare] + encode_section(MESSAGE_ANNOTATIONS, said) + whole[bare:]
    producer = Producer(stage, f"p-{address}", address)
    producer.link.session.send_run(producer.link, single(payload), 0, 1, "m")
    stage.run()


@pytest.mark.parametrize("step_ms", STEPS_MS)
@pytest.mark.parametrize("kind", [{}, {"last_value": True, "last_value_key": "k"}])
def test_a_delay_goes_on(step_ms: int, kind: dict[str, Any]) -> None:
    stage = Clocked()
    for name in ("one", "two"):
        stage.admin("queue-create", name=name, address="orders", routing_type="multicast", **kind)
    publish(stage, "orders", delay=10_000)
    stage.set_clock(step_ms)
    stage.wait(9_000)
    assert [stage.counts(name) for name in ("one", "two")] == [(0, 1)] * 2
    stage.set_clock(-step_ms // 2)
    stage.wait(1_500)
    assert [stage.counts(name) for name in ("one", "two")] == [(1, 0)] * 2


class ClockedNode(Clocked, ClusterNode):
    """A node of a cluster, of the same kind."""


class ClockedCluster(ClusterStage):
    """Of such nodes."""

    def make(self, name: str, options: BrokerOptions, identity: Mapping[str, Any]) -> ClusterNode:
        return ClockedNode(self, name, options, **identity)


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_delay_goes_on_while_its_queue_drains_and_a_time_of_day_is_what_the_clock_says(step_ms: int) -> None:
    cluster = ClockedCluster()
    a, _ = cluster.node("a", ["b"]), cluster.node("b", ["a"])
    assert isinstance(a, ClockedNode)
    cluster.run()
    cluster.wait(600)
    a.admin("queue-create", name="orders")
    publish(a, "orders", delay=10_000)
    publish(a, "orders", time=a.at.wall_ms + 48 * HOUR_MS)
    cluster.hold_up("a", "b")
    assert "condition" not in a.admin("drain-queue", queue="orders", node="b")
    a.set_clock(step_ms)
    a.admin("drain-cancel", queue="orders", force=True)
    cluster.run()
    queue = a.broker.store.queues["orders"]
    assert not queue.kind.is_draining
    due_ms = sorted(due - a.at.wall_ms for due, _, _ in queue.scheduled)
    assert [round(each, -3) for each in due_ms] == [10_000, 48 * HOUR_MS - step_ms]


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_delay_goes_on_that_the_disk_had_not_taken_yet(step_ms: int) -> None:
    stage = Clocked()
    stage.admin("queue-create", name="orders")
    stage.is_disk_held = True
    publish(stage, "orders", delay=10_000)
    stage.set_clock(step_ms)
    stage.is_disk_held = False
    stage.run()
    stage.wait(9_000)
    assert stage.counts("orders") == (0, 1)
    stage.wait(1_500)
    assert stage.counts("orders") == (1, 0)


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_redelivery_does_not_wait_longer(step_ms: int) -> None:
    stage = Clocked(options_with(address_settings={"#": {"redelivery_delay": 5_000}}))
    stage.admin("send", address="orders", messages=[{"body": "x"}])
    tag = stage.admin("receive", address="orders", wait_ms=1)["tag"]
    stage.admin("settle", tag=tag, outcome="modified")
    stage.set_clock(step_ms)
    stage.wait(4_000)
    assert stage.counts("orders") == (0, 1)
    stage.wait(1_500)
    assert stage.counts("orders") == (1, 0)


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_consumers_and_idle_queues_do_not(step_ms: int) -> None:
    stage = Clocked()
    stage.admin("queue-create", name="orders", consumers_before_dispatch=2, delay_before_dispatch_ms=5_000)
    stage.admin("send", address="orders", messages=[{"body": "x"}])
    stage.admin("send", address="idle", messages=[{"body": "x"}])
    tag = stage.admin("receive", address="idle")["tag"]
    stage.admin("settle", tag=tag)
    consumer = Consumer(stage)
    stage.set_clock(step_ms)
    stage.wait(4_000)
    assert not consumer.incoming
    stage.wait(1_500)
    assert len(consumer.incoming) == 1
    assert "idle" in stage.broker.store.queues
    stage.wait(30_000)
    assert "idle" not in stage.broker.store.queues


def test_a_time_of_day_is_the_clock_s() -> None:
    stage = Clocked()
    publish(stage, "orders", time=stage.at.wall_ms + 24 * HOUR_MS)
    stage.admin("send", address="prices", messages=[{"body": "x", "ttl_ms": 24 * HOUR_MS}])
    stage.set_clock(-HOUR_MS)
    stage.wait(24 * HOUR_MS + 1000)
    assert (stage.counts("orders"), stage.counts("prices")) == ((0, 1), (1, 0))
    stage.set_clock(HOUR_MS)
    stage.wait(1000)
    assert (stage.counts("orders"), stage.counts("prices")) == ((1, 0), (0, 0))
