"""What the node that takes the messages makes of more than its addresses hold: as `mqctl scale-down` says before."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.unit.core.cluster.test_drains import LIMITS, count_at, filled
from tests.unit.node.test_scale_down import begin, moved, shown

COUNT = 60


def pair_with(kind: dict[str, Any] | None = None, **bounds: Any) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """The first node has messages in a queue of this kind, and the second one these settings."""
    cluster = ClusterStage()
    said: dict[str, Any] = {"message_load_balancing": "OFF"}
    a = cluster.node("a", ["b"], options=LIMITS, **said)
    b = cluster.node("b", ["a"], options={**LIMITS, "address_settings": {"orders": bounds}}, **said)
    cluster.run()
    cluster.wait(600)
    if kind is not None:
        a.admin("queue-create", name="orders", **kind)
    filled(a, COUNT, cluster)
    return cluster, a, b


def test_by_block_it_stands_until_somebody_consumes() -> None:
    cluster, a, b = pair_with(max_size_messages=COUNT // 2, address_full_policy="BLOCK")
    begin(a, cluster)
    cluster.wait(10_000)
    assert (shown(a)["state"], count_at(a) > 0) == ("moving", True)
    assert COUNT // 2 <= count_at(b) < COUNT


def test_by_page_it_stands_as_well_where_its_queue_cannot_page_and_the_plan_says_that() -> None:
    cluster, a, b = pair_with({"non_destructive": True}, max_size_messages=COUNT // 2, address_full_policy="PAGE")
    (row,) = begin(a, cluster, dry_run=True)["queues"]
    assert row["can_page"] is False
    begin(a, cluster)
    cluster.wait(10_000)
    assert (count_at(a) > 0, count_at(b) < COUNT) == (True, True)
    (there,) = [each for each in b.admin("addresses")["addresses"] if each["name"] == "orders"]
    assert there["can_page"] is False


@pytest.mark.parametrize(
    "bounds",
    [
        {"max_size_messages": 10, "address_full_policy": "FAIL"},
        {"max_size_messages": 10, "address_full_policy": "DROP"},
        {"max_size_messages": 1, "page_limit_messages": 10, "address_full_policy": "PAGE"},
        {"page_limit_messages": 10, "address_full_policy": "PAGE"},
        {"max_size_messages": 1, "page_limit_messages": 10, "page_full_policy": "DROP", "address_full_policy": "PAGE"},
    ],
)
def test_by_any_other_policy_all_is_taken_in(bounds: dict[str, Any]) -> None:
    cluster, a, b = pair_with(**bounds)
    begin(a, cluster)
    assert moved(a, cluster)["receipt"]["balances"]
    assert count_at(b) == COUNT


def test_a_plan_says_how_many_bytes_move_and_an_address_how_many_it_has() -> None:
    cluster, a, b = pair_with(max_size_messages=10, address_full_policy="PAGE")
    (row,) = begin(a, cluster, dry_run=True)["queues"]
    begin(a, cluster)
    moved(a, cluster)
    (there,) = [each for each in b.admin("addresses")["addresses"] if each["name"] == "orders"]
    assert min(row["bytes"], there["bytes"]) >= COUNT * len(b"00000")
    (here,) = [each for each in a.admin("addresses")["addresses"] if each["name"] == "orders"]
    assert here["bytes"] is None, "nothing bounds it there"
