"""Canaries: over each link, from disk to disk, and nothing of them stays."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.node.cluster.membership.canary import RUNS_MAX

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.stage import Stage


def trio() -> tuple[ClusterStage, list[ClusterNode]]:
    cluster = ClusterStage()
    a, b, c = nodes = [cluster.node(name, [each for each in "abc" if each != name]) for name in "abc"]
    cluster.run()
    cluster.wait(1_000)
    assert [a.state("b"), a.state("c")] == ["up", "up"]
    assert [b.state("c"), c.state("b")] == ["up", "up"]
    return cluster, nodes


def answer(cluster: ClusterStage, node: ClusterNode, request: int, wait_ms: int = 0) -> Any:
    cluster.run()
    if wait_ms:
        cluster.wait(wait_ms)
    return node.replies[request].result


def states(found: Any) -> dict[str, str]:
    return {row["node_id"][:2]: row["state"] for row in found["links"]}


def is_clean(node: Stage) -> bool:
    """Nothing of a canary is there, neither now nor after a restart."""
    store = node.broker.store
    names = [*store.queues, *store.addresses]
    return not [name for name in names if name.startswith("$.")] and not store.memory.held_bytes


def test_a_canary_crosses_each_link_and_leaves_nothing() -> None:
    cluster, (a, b, c) = trio()
    found = answer(cluster, a, a.ask("cluster-canary"))
    assert (found["is_whole"], states(found)) == (True, {"62": "confirmed", "63": "confirmed"})
    assert {row["node_id"] for row in found["links"]} == {node_id_of("b"), node_id_of("c")}
    assert all(row["round_trip_ms"] >= 0 and row["why"] is None for row in found["links"])
    cluster.wait(1_000)
    assert (is_clean(a), is_clean(b), is_clean(c), a.broker.canaries.due_ns) == (True, True, True, 0)
    for node in (a, b):
        node.crash()
        node.start()
        cluster.run()
        assert is_clean(node)


def test_a_canary_waits_for_the_disks_of_both_ends() -> None:
    cluster, (a, b, *_) = trio()
    for slow in (a, b):
        slow.is_disk_held = True
        request = a.ask("cluster-canary")
        cluster.run()
        assert request not in a.replies
        slow.is_disk_held = False
        cluster.run()
        cluster.wait(1_000)
        assert a.replies[request].result["is_whole"] is True
    assert is_clean(a)


def test_a_link_that_brings_no_answer_is_named_when_the_time_is_over() -> None:
    cluster, (a, b, *_) = trio()
    b.is_disk_held = True
    request = a.ask("cluster-canary", timeout_ms=1_000)
    cluster.wait(900)
    assert request not in a.replies
    found = answer(cluster, a, request, 300)
    assert (found["is_whole"], states(found)) == (False, {"62": "timeout", "63": "confirmed"})
    b.is_disk_held = False
    cluster.wait(1_000)
    assert (is_clean(a), is_clean(b)) == (True, True)


def test_what_a_dead_link_held_is_taken_out_again() -> None:
    cluster, (a, b, *_) = trio()
    b.is_disk_held = True
    request = a.ask("cluster-canary", timeout_ms=500)
    cluster.run()
    b.crash()
    found = answer(cluster, a, request, 1_000)
    assert states(found)["62"] == "timeout"
    cluster.wait(1_000)
    assert is_clean(a)
    (row,) = [row for row in answer(cluster, a, a.ask("cluster-canary"))["links"] if row["node_id"] == node_id_of("b")]
    assert (row["state"], row["round_trip_ms"]) == ("failed", None)
    assert row["why"].startswith("the link is ")


def test_a_node_that_has_stopped_is_told_and_counts_as_no_fault() -> None:
    cluster = ClusterStage()
    b = cluster.node("b", ["nowhere"])
    a = cluster.node("a", ["nowhere2"])
    a.broker.cluster.connections["cluster"].learn(node_id_of("b"), "", b.broker.cluster.connections["cluster"].own, 0)
    cluster.run()
    cluster.wait(1_000)
    b.stop()
    cluster.wait(500)
    found = answer(cluster, a, a.ask("cluster-canary"))
    assert {row["state"] for row in found["links"] if row["node_id"] == node_id_of("b")} == {"gone"}


def test_a_listed_node_that_has_stopped_is_missing_however_long_that_is() -> None:
    cluster, (a, b, *_) = trio()
    b.stop()
    for wait_ms in (500, 20_000, 60_000):
        cluster.wait(wait_ms)
        found = answer(cluster, a, a.ask("cluster-canary"))
        assert (found["is_whole"], states(found)) == (False, {"62": "missing", "63": "confirmed"})
        assert all(row["why"] for row in found["links"] if row["state"] == "missing")
    b.start()
    cluster.wait(31_000)
    assert answer(cluster, a, a.ask("cluster-canary"))["is_whole"] is True


def test_a_listed_node_that_is_never_dialled_again_is_missing() -> None:
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b"], topology_scanner_attempts=0), cluster.node("b", ["a"])
    cluster.run()
    b.stop()
    cluster.wait(500)
    found = answer(cluster, a, a.ask("cluster-canary"))
    assert (a.state("b"), found["is_whole"], states(found)) == ("gone", False, {"62": "missing"})


def test_a_node_that_was_lost_and_given_up_is_missing() -> None:
    cluster = ClusterStage()
    a = cluster.node("a", ["nowhere"], initial_connect_attempts=1, reconnect_attempts=2)
    cluster.node("b", ["a"])
    cluster.run()
    cluster.nodes["b"].crash()
    cluster.wait(10_000)
    found = answer(cluster, a, a.ask("cluster-canary"))
    assert {row["connector"]: row["state"] for row in found["links"]} == {
        "amqp://nowhere:5673": "missing", "amqp://b:5673": "missing"
    }  # fmt: skip
    assert found["is_whole"] is False


def test_a_member_without_a_link_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ClusterStage()
    cluster.node("b", ["c"])
    cluster.node("c", ["b"])
    cluster.wait(2_000)
    monkeypatch.setattr("mqbroker.node.cluster.membership.cluster_connection.BRIDGES_MAX", 1)
    a = cluster.node("a", ["b"])
    cluster.wait(2_000)
    found = answer(cluster, a, a.ask("cluster-canary"))
    assert (found["is_whole"], sorted(states(found).values())) == (False, ["confirmed", "missing"])


def test_a_member_that_is_not_to_be_linked_with_is_not_missing() -> None:
    cluster = ClusterStage()
    direct = {"allow_direct_connections_only": True}
    a, _, _ = (cluster.node(name, listed, **direct) for name, listed in (("a", ["b"]), ("b", ["a", "c"]), ("c", ["b"])))
    cluster.run()
    cluster.wait(2_000)
    assert len(a.admin("topology")["members"]) == 3
    found = answer(cluster, a, a.ask("cluster-canary"))
    assert (found["is_whole"], states(found)) == (True, {"62": "confirmed"})


def test_what_a_crash_left_of_a_canary_goes_at_the_next_start() -> None:
    cluster, (a, b, c) = trio()
    b.is_disk_held = c.is_disk_held = True
    a.ask("cluster-canary")
    cluster.run()
    for node in (b, c):
        node.crash()
    a.crash()
    a.start()
    assert not is_clean(a), "both canaries were on disk"
    cluster.wait(1_000)
    assert is_clean(a)
    a.crash()
    a.start()
    assert is_clean(a)


@pytest.mark.parametrize(("condition", "state"), [("amqp:not-found", "unsupported"), ("amqp:not-allowed", "failed")])
def test_a_node_that_knows_no_canaries_is_no_fault_and_one_that_refuses_is(condition: str, state: str) -> None:
    cluster, (a, b, *_) = trio()
    b.is_disk_held = True
    request = a.ask("cluster-canary")
    cluster.run()
    (queue,) = [each for each in a.broker.canaries.waiting if each.kind.forwards_to == node_id_of("b")]
    a.broker.canaries.refused(queue, condition, "there is no such address")
    a.step()
    found = a.replies[request].result
    assert (states(found)["62"], found["is_whole"]) == (state, state == "unsupported")
    b.is_disk_held = False
    cluster.wait(1_000)
    assert is_clean(a)


def test_without_a_cluster_there_is_nothing_to_cross() -> None:
    stage = Stage()
    assert stage.admin("cluster-canary") == {"is_whole": True, "links": []}
    assert stage.admin("cluster-canary", timeout_ms=0)["condition"] == "amqp:invalid-field"


def test_requests_that_wait_are_bounded() -> None:
    cluster, (a, b, *_) = trio()
    b.is_disk_held = True
    requests = [a.ask("cluster-canary", timeout_ms=1_000) for _ in range(RUNS_MAX)]
    assert a.admin("cluster-canary")["condition"] == "amqp:resource-limit-exceeded"
    cluster.wait(1_500)
    assert all(a.replies[each].result["is_whole"] is False for each in requests)


@pytest.mark.parametrize("name", ["$.canary", "$.canary::$.sf.cluster.x.1"])
def test_no_client_reaches_the_address(name: str) -> None:
    _, (a, *_) = trio()
    assert a.admin("send", address=name, messages=[{"body": "x"}])["condition"]
    refusal = a.admin("queue-create", name="mine", address=name)["condition"]
    assert refusal == ("amqp:invalid-field" if "::" in name else "amqp:not-allowed")


def test_who_has_a_link_here_is_told() -> None:
    _, (a, *_) = trio()
    assert a.admin("topology")["inbound"] == [node_id_of("b"), node_id_of("c")]
