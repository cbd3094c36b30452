"""Commands over what nodes know of each other: whom they hear, links, canaries, groups. The nodes are real below their
sockets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqbroker.wire.sections import Properties
from mqctl.brokers import verification
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.main import execute
from mqctl.nodes import Node
from mqctl.world import real_world

from tests.support.admin_stage import AdminStage
from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Consumer, Producer
from tests.unit.node.cluster.discovery.test_discovery import PLACE, Air
from tests.unit.node.cluster.discovery.test_discovery import options as discovery_options

ID_1, ID_2 = ({"node_id": node_id_of(name)} for name in "ab")


@pytest.mark.slow
def test_discovery_lists_who_is_heard_and_what_groups_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    air = Air()
    two_groups = [PLACE, {**PLACE, "name": "other"}]
    first, second = air.add("mq1", discovery_options("mq1", discovery_groups=two_groups)), air.add("mq2")
    air.wait(100)

    def rows(*words: str) -> list[tuple[Any, ...]]:
        capsys.readouterr()
        assert execute([*words, "--json", "--dev", "--directory", str(tmp_path)]) == 0
        found = json.loads(capsys.readouterr().out)["rows"]
        return [(row["host"], row["group"], row.get("node", row.get("state"))) for row in found]

    with AdminStage(tmp_path, "dev-1", first), AdminStage(tmp_path, "dev-2", second):
        assert rows("discovery", "list") == [
            ("dev-1", "lan", "mq2"),
            ("dev-1", "other", "mq2"),
            ("dev-2", "lan", "mq1"),
        ]
        assert rows("discovery", "list", "--group", "other") == [("dev-1", "other", "mq2")]
        assert rows("discovery", "groups", "--host", "dev-2") == [
            ("dev-2", "lan", "sending"),
            ("dev-2", "lan", "listening"),
        ]


def leave_one_waiting(nodes: ClusterStage, a: ClusterNode, b: ClusterNode) -> None:
    """A message at `a` is for a consumer at `b`, which is gone before it could take it."""
    Consumer(b, credit=0)
    nodes.run()
    nodes.silence(b)
    Producer(a).publish(b"waits")
    b.crash()


@pytest.mark.slow
def test_topology_shows_links_and_what_waits_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = ClusterStage()
    a, b = nodes.node("a", ["b"]), nodes.node("b", ["a"])
    nodes.run()
    nodes.wait(600)
    leave_one_waiting(nodes, a, b)
    nodes.run()

    def said(*words: str) -> str:
        capsys.readouterr()
        assert execute(["topology", *words, "--dev", "--directory", str(tmp_path)]) == 0
        return capsys.readouterr().out

    def noted(*words: str) -> str:
        assert execute(["topology", *words, "--dev", "--directory", str(tmp_path)]) == 0
        return capsys.readouterr().err

    with AdminStage(tmp_path, "dev-1", a):
        (row,) = json.loads(said("--json"))["rows"]
        shown = {name: row[name] for name in ("connection", "connector", "state", "depth", "bindings", "consumers")}
        assert shown == {
            "connection": "cluster", "connector": "amqp://b:5673", "state": "resting", "depth": 1, "bindings": 1,
            "consumers": 1,
        }  # fmt: skip
        assert row["why"] == "reset"
        assert "amqp://b:5673" in said()
        assert said("--dot").splitlines() == [
            "digraph cluster {",
            '  "b:5673";',
            '  "dev-1";',
            '  "dev-1" -> "b:5673" [label="resting, 1 wait", style=dashed];',
            "}",
        ]
        picture = said("--svg", "-")
        assert picture == said("--svg", "-")
        assert ">1: 1 wait</text>" in picture
        assert f"wrote {tmp_path / 'picture.svg'}" in noted("--svg", str(tmp_path / "picture.svg"))
        assert (tmp_path / "picture.svg").read_text() == picture


def linked_pair() -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    nodes = ClusterStage()
    a, b = nodes.node("a", ["b"]), nodes.node("b", ["a"])
    nodes.run()
    nodes.wait(600)
    return nodes, a, b


class PairStage(AdminStage):
    """A node whose neighbours move with it."""

    def _answer(self, session: int, row: dict[str, Any]) -> dict[str, Any]:
        stage = self.stage
        assert isinstance(stage, ClusterNode)
        request = stage.ask(row["op"], session, **row["args"])
        for _ in range(20):
            if request in stage.replies:
                break
            stage.cluster.wait(50)
        reply = stage.replies[request]
        return {"error": reply.error} if reply.error else {"result": reply.result}


@pytest.mark.slow
def test_status_shows_links_and_what_waits_for_other_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, a, b = linked_pair()
    words = ["status", "--dev", "--directory", str(tmp_path)]
    with PairStage(tmp_path, "dev-1", a):
        assert execute([*words, "--json"]) == Exit.DONE
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert (row["links_up"], row["forwarding"], row["lag_ms"]) == ("1/1", 0, 0)
        leave_one_waiting(nodes, a, b)
        nodes.wait(1_500)
        assert execute([*words, "--json"]) == Exit.DONE
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert (row["links_up"], row["forwarding"], row["lag_ms"]) == ("0/1", 1, 1_500)
        (link,) = row["links"]
        assert (link["node"], link["depth"], link["lag_ms"]) == ("b", 1, 1_500)
        assert link["state"] in ("resting", "dialling")
        assert execute(words) == Exit.DONE
        assert capsys.readouterr().out.splitlines()[1].split()[-4:-1] == ["0/1", "1", "1500"]


@pytest.mark.slow
def test_a_node_is_forgotten_by_its_name_and_need_not_answer_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = ClusterStage()
    a, b = nodes.node("dev-1", ["dev-2"], identity=ID_1), nodes.node("dev-2", ["dev-1"], identity=ID_2)
    nodes.run()
    nodes.wait(600)

    def forget(node: str, code: int) -> tuple[list[dict[str, Any]], str]:
        words = ["cluster", "forget", node, "--yes", "--json", "--dev", "--directory", str(tmp_path)]
        assert execute(words) == code, capsys.readouterr().err
        said = capsys.readouterr()
        return json.loads(said.out)["rows"] if said.out else [], said.err

    (tmp_path / "dev-2").mkdir()
    (tmp_path / "dev-2" / "broker.toml").touch()
    with PairStage(tmp_path, "dev-1", a):
        rows, said = forget("dev-2", Exit.DEGRADED)
        assert rows == []
        assert f"node {ID_2['node_id']} is connected: stop it before it is forgotten" in said
        leave_one_waiting(nodes, a, b)
        nodes.wait(1_500)
        assert "no broker knows of a node mq7 (nodes: dev-1, dev-2)" in forget("mq7", Exit.USAGE)[1]
        rows, said = forget("dev-2", Exit.DONE)
    assert [(row["host"], row["node_id"], row["messages"]) for row in rows] == [("dev-1", ID_2["node_id"], 1)]
    assert said == ""


def test_canaries_are_shown_by_link_and_the_exit_code_says_whether_all_arrived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, a, b = linked_pair()
    words = ["cluster", "canary", "--dev", "--directory", str(tmp_path), "--timeout", "0.5"]
    with PairStage(tmp_path, "dev-1", a):
        assert execute([*words, "--json"]) == Exit.DONE
        document = json.loads(capsys.readouterr().out)
        (row,) = document["rows"]
        assert (document["schema"], document["is_whole"]) == ("mqctl.cluster-canary/1", True)
        assert (row["host"], row["node"], row["state"], row["why"]) == ("dev-1", "b", "confirmed", None)
        assert row["round_trip_ms"] >= 0
        b.is_disk_held = True
        assert execute(words) == Exit.DEGRADED
        shown = capsys.readouterr().out
        assert "timeout" in shown
        assert "it was not accepted in time" in shown


@pytest.mark.slow
def test_whoever_watches_health_hears_of_links_that_take_no_messages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, a, b = linked_pair()
    words = ["health", "--json", "--dev", "--directory", str(tmp_path)]
    with PairStage(tmp_path, "dev-1", a):
        assert execute([*words, "--until-healthy", "--timeout", "1"]) == Exit.DONE
        capsys.readouterr()
        b.crash()
        nodes.run()
        assert execute([*words, "--until-healthy", "--timeout", "1", "--interval", "0.1"]) == Exit.RUNNING
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert (row["health"], row["failing"]) == ("degraded", ["links"])
        assert row["why"].startswith("link to b (amqp://b:5673): failed: the link is ")
        assert execute(words) == Exit.DONE, "who only looks sends nothing"


@pytest.mark.slow
def test_a_rollout_ends_well_only_where_links_between_its_nodes_take_messages(tmp_path: Path) -> None:
    nodes, a, b = linked_pair()
    sleeps: list[float] = []
    world = replace(real_world(), monotonic_s=lambda: sum(sleeps), sleep_s=sleeps.append)
    with PairStage(tmp_path, "dev-1", a):
        one = Node("dev-1", "default", socket=str(tmp_path / "dev-1" / "admin.sock"))
        verification.check_links(world, [one], {node_id_of("a"), node_id_of("b")})
        assert sleeps == []
        b.crash()
        nodes.run()
        verification.check_links(world, [one], {node_id_of("a")})
        assert sleeps == [], "b is none of the nodes of this run"
        with pytest.raises(CommandError, match="not every link") as caught:
            verification.check_links(world, [one], {node_id_of("a"), node_id_of("b")})
        assert "mqctl topology" in str(caught.value.attempt)
        assert len(sleeps) == 60


@pytest.mark.slow
def test_groups_of_a_cluster_and_the_nodes_that_own_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = ClusterStage()
    a, b = (
        nodes.node(name, [other], options={"grouping_handler": {"type": type_}})
        for name, other, type_ in (("a", "b", "LOCAL"), ("b", "a", "REMOTE"))
    )
    nodes.run()
    nodes.wait(600)
    Consumer(b)
    nodes.run()
    producer = Producer(b)
    for group in ("customer-12", "customer-7"):
        producer.publish(b"m", properties=Properties(group_id=group))
        nodes.run()

    def rows(*words: str) -> list[tuple[str, str, str, str, bool]]:
        capsys.readouterr()
        assert execute(["group", "list", *words, "--json", "--dev", "--directory", str(tmp_path)]) == 0
        document = json.loads(capsys.readouterr().out)
        return [(row["host"], row["queue"], row["group"], row["node"], row["decides"]) for row in document["rows"]]

    with AdminStage(tmp_path, "dev-1", a), AdminStage(tmp_path, "dev-2", b):
        known = [("dev-1", "orders", "customer-7", "b", True), ("dev-1", "orders", "customer-12", "b", True)]
        assert rows() == rows("--queue", "orders") == known
        assert rows("--queue", "other") == []
        assert rows("--all", "--host", "dev-2")[0] == ("dev-2", "orders", "customer-7", "b", False)
        assert execute(["group", "list", "--dev", "--directory", str(tmp_path)]) == 0
        assert "customer-12" in capsys.readouterr().out


def test_a_picture_needs_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["topology", "--svg", "-", "--dev", "--directory", str(tmp_path)]) == 2
    assert "there is no node" in capsys.readouterr().err
    assert execute(["topology", "--svg", "-", "--dot"]) == 2
    assert "--dot and --svg are two pictures" in capsys.readouterr().err
