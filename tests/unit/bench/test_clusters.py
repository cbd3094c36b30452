"""Clusters under test: what each node is told, where the load goes, and which figures come of it."""

import tomllib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import load, peers
from bench.faults import BenchFault
from bench.measure import figures, move_figures
from bench.peers.artemis import CORE, configure
from bench.peers.classic import Classic
from bench.peers.cluster import Cluster
from bench.peers.mqops import clustered, node_name
from bench.peers.peer import PAGE_BYTES, PAGED_FROM_BYTES, Member, Peer
from bench.rounds import Plan, Record, asked_of
from bench.rows import CLUSTER_WARM_UP, DEPARTURES, ROWS, WARM_UP, Choice, Row
from tests.unit.bench.test_facts import BROKER_XML

MEMBER = Member(1, (7001, 7002, 7003), "a<secret>")
CLUSTER_ROWS = [row for row in ROWS if row.nodes > 1]


def test_a_node_of_ours_lists_all_others_and_moves_messages_at_once() -> None:
    found = tomllib.loads(clustered(MEMBER))
    (listener,) = found["listeners"]
    assert (listener["kind"], listener["port"], listener["local-bind-address"]) == ("cluster", 7002, "127.0.0.1")
    ports = {each["name"]: each["port"] for each in found["connectors"]}
    (connection,) = found["cluster-connections"]
    assert ports[connection["connector-ref"]] == 7002
    assert [ports[name] for name in connection["static-connectors"]] == [7001, 7003]
    assert found["address-settings"] == [{"match": "#", "redistribution-delay": 0}]
    assert MEMBER.secret not in clustered(MEMBER)


def test_a_node_of_artemis_has_the_same() -> None:
    root = ElementTree.fromstring(configure(BROKER_XML, 12345, MEMBER))
    texts = {each.attrib["name"]: each.text or "" for each in root.iter(f"{CORE}connector")}
    (connection,) = root.iter(f"{CORE}cluster-connection")
    own = texts[connection.findtext(f"{CORE}connector-ref") or ""]
    others = [texts[each.text or ""] for each in connection.iterfind(f"{CORE}static-connectors/{CORE}connector-ref")]
    assert own.startswith("tcp://127.0.0.1:7002?")
    assert [text.partition("?")[0] for text in others] == ["tcp://127.0.0.1:7001", "tcp://127.0.0.1:7003"]
    assert all("tcpNoDelay=true" in text for text in texts.values())
    assert connection.findtext(f"{CORE}message-load-balancing") == "ON_DEMAND"
    assert root.findtext(f".//{CORE}cluster-password") == "a<secret>"
    assert [each.text for each in root.iter(f"{CORE}redistribution-delay")] == ["0"]
    acceptors = {each.attrib["name"]: each.text or "" for each in root.iter(f"{CORE}acceptor")}
    assert acceptors["cluster"].startswith("tcp://127.0.0.1:7002?")
    assert acceptors["amqp"].startswith("tcp://127.0.0.1:12345?protocols=AMQP;")


def test_alone_artemis_has_no_cluster() -> None:
    assert "cluster" not in configure(BROKER_XML, 12345)


def test_nodes_have_places_ports_a_secret_and_one_password(tmp_path: Path) -> None:
    cluster = peers.make("mqops", tmp_path, 3)
    assert isinstance(cluster, Cluster)
    members = [node.member for node in cluster.nodes]
    assert all(member is not None and member.ports == members[0].ports for member in members if members[0] is not None)
    assert [member.place for member in members if member is not None] == [0, 1, 2]
    assert len({node.port for node in cluster.nodes} | {*(members[0].ports if members[0] else ())}) == 6
    assert {node.password for node in cluster.nodes} == {cluster.password}
    assert len({node.directory for node in cluster.nodes}) == 3
    alone = peers.make("mqops", tmp_path / "alone")
    assert isinstance(alone, Peer)
    assert alone.nodes == (alone,)
    assert alone.member is None


@pytest.mark.parametrize("row", [*CLUSTER_ROWS, *CLUSTER_WARM_UP], ids=lambda row: row.name)
def test_consumers_are_at_nodes_that_are_there_and_slow_kinds_are_skipped(row: Row) -> None:
    assert row.receive_at
    assert {row.send_at, *row.receive_at} <= set(range(row.nodes))
    receiving = load.receive_arguments(row, "q")
    assert receiving[receiving.index("--connections") + 1] == str(len(row.receive_at))
    assert {"classic", "rabbitmq"} <= set(dict(row.skips))


def test_warm_up_takes_all_paths_of_the_rows_against_peers() -> None:
    def paths(rows: tuple[Row, ...]) -> set[tuple[bool, bool, tuple[int, ...]]]:
        return {(row.durable, row.moves, row.receive_at) for row in rows if "artemis" not in dict(row.skips)}

    assert paths(CLUSTER_WARM_UP) == paths(tuple(CLUSTER_ROWS))


@pytest.mark.parametrize(
    "row", [*WARM_UP, *CLUSTER_WARM_UP, *(departure.load for departure in DEPARTURES)], ids=lambda row: row.name
)
def test_only_a_peer_may_bring_messages_out_of_order_while_it_is_warmed_or_after_a_node_left(row: Row) -> None:
    def may(name: str, asked: Row) -> bool:
        return "--any-order" in load.receive_arguments(asked, "q")

    assert not may(peers.OURS, asked_of(peers.OURS, row))
    assert may("artemis-1", asked_of("artemis-1", row)) is (row.nodes > 1)
    assert not may("artemis-1", row), "what is measured keeps its order"


def test_what_counts_in_a_cluster_is_what_the_consumer_has() -> None:
    row = Row("r", "r", 1000, 1024, durable=True, nodes=2, receive_at=(1,))
    outcome = load.Outcome({"per_second": 900.0}, {"per_second": 800.0})
    assert figures(row, outcome, used_s=0.1) == {"rate": 800.0, "cpu_us": 100.0}


def test_moving_is_timed_from_the_attached_consumer_to_the_last_message() -> None:
    row = Row("r", "r", 1000, 1024, moves=True, nodes=2, receive_at=(1,))
    found = move_figures(row, {"attached_ns": 1_000_000_000, "last_ns": 3_000_000_000}, used_s=0.1)
    assert found == {"move_s": 2.0, "rate": 500.0, "cpu_us": 100.0}


def test_a_cluster_that_does_not_start_lacks_the_rows_of_clusters_only() -> None:
    record = Record()
    with record.tolerant(["cluster-1KiB", "redistribution"], "artemis-1", lambda text: None):
        raise BenchFault("no link")
    assert record.lacks("cluster-1KiB", "artemis-1")
    assert record.lacks("redistribution", "artemis-1")
    assert not record.lacks("latency", "artemis-1")
    plan = Plan(("artemis-1",), Choice(tuple(CLUSTER_ROWS)), rounds=1, warm=False)
    assert record.results(plan) == []


def test_a_node_of_artemis_hands_over_what_it_has_only_where_it_leaves() -> None:
    leaver = ElementTree.fromstring(configure(BROKER_XML, 12345, replace(MEMBER, leaves=True)))
    policy = leaver.find(f".//{CORE}ha-policy/{CORE}primary-only/{CORE}scale-down/{CORE}connectors")
    assert policy is not None
    assert [each.text for each in policy] == ["node-2"]
    assert "ha-policy" not in configure(BROKER_XML, 12345, MEMBER)


def test_addresses_page_where_a_row_says_so() -> None:
    wanted = {
        "address-full-policy": "PAGE",
        "max-size-bytes": str(PAGED_FROM_BYTES),
        "page-size-bytes": str(PAGE_BYTES),
    }
    for pages in (False, True):
        member = replace(MEMBER, pages=pages)
        for setting in ElementTree.fromstring(configure(BROKER_XML, 12345, member)).iter(f"{CORE}address-setting"):
            found = {name: setting.findtext(f"{CORE}{name}") for name in wanted}
            assert (found == wanted) == pages
        (setting,) = tomllib.loads(clustered(member))["address-settings"]
        assert (setting.get("max-size-bytes") == PAGED_FROM_BYTES) == pages


def test_nodes_of_ours_have_names_of_their_own(tmp_path: Path) -> None:
    assert [node_name(place) for place in range(2)] == ["bench-0", "bench-1"]
    with pytest.raises(BenchFault, match="cannot hand"):
        Classic("5.18.3", tmp_path).leave()
