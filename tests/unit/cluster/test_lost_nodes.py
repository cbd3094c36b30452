"""When the grace of nodes that are away ends, and that it ends once."""

from __future__ import annotations

import pytest
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.lost_nodes import LostNodes

from tests.unit.cluster.neighbours import B, C
from tests.unit.cluster.options import connection


@pytest.mark.parametrize("action", ["reroute", "dead-letter"])
@pytest.mark.parametrize("grace_ms", [0, 100, 5000])
def test_grace_ends_once_for_each_absence(action: str, grace_ms: int) -> None:
    nodes = LostNodes(connection(on_node_lost=action, node_lost_grace=grace_ms))
    end_ns = 7 + grace_ms * NS_PER_MS
    nodes.lost(B, 7)
    assert (nodes.action, nodes.next_due_ns, nodes.due(end_ns - 1)) == (action, end_ns, [])
    assert nodes.due(end_ns) == [B]
    nodes.lost(B, end_ns)
    assert (nodes.due(end_ns * 10), nodes.next_due_ns) == ([], 0)
    nodes.back(B)
    nodes.lost(B, end_ns)
    assert nodes.next_due_ns == end_ns + grace_ms * NS_PER_MS


def test_what_is_lost_again_without_having_been_back_counts_from_the_first_time() -> None:
    nodes = LostNodes(connection(on_node_lost="reroute", node_lost_grace=1))
    nodes.lost(B, 5)
    nodes.lost(C, 6)
    nodes.lost(B, 9)
    assert nodes.next_due_ns == 5 + NS_PER_MS
    assert nodes.due(6 + NS_PER_MS) == [B, C]


@pytest.mark.parametrize(("stood_ms", "more_ms"), [(100, 100), (4000, 4000), (60_000, 5000)])
def test_while_we_stood_still_no_grace_ended(stood_ms: int, more_ms: int) -> None:
    nodes = LostNodes(connection(on_node_lost="reroute", node_lost_grace=5000))
    nodes.lost(B, 7)
    now_ns = 7 + (5000 + stood_ms) * NS_PER_MS
    assert (nodes.due(now_ns), nodes.next_due_ns) == ([], now_ns + more_ms * NS_PER_MS)
    # Once: who stands still again and again would else hold messages for ever.
    late_ns = nodes.next_due_ns + 10**12
    assert nodes.due(late_ns) == [B]
    nodes.back(B)
    nodes.lost(B, 7)
    assert nodes.due(now_ns) == [], "another absence"


def test_a_node_that_is_late_by_less_is_lost() -> None:
    nodes = LostNodes(connection(on_node_lost="reroute", node_lost_grace=5000))
    nodes.lost(B, 7)
    assert nodes.due(7 + 5099 * NS_PER_MS) == [B]


def test_who_is_back_in_time_is_not_lost() -> None:
    nodes = LostNodes(connection(on_node_lost="reroute"))
    nodes.lost(B, 5)
    nodes.back(B)
    nodes.back(C)
    assert (nodes.next_due_ns, nodes.due(10**18)) == (0, [])


def test_messages_that_are_held_are_held_for_ever() -> None:
    nodes = LostNodes(connection(node_lost_grace=0))
    nodes.lost(B, 5)
    assert (nodes.action, nodes.next_due_ns, nodes.due(10**18)) == ("hold", 0, [])
