"""What an inventory implies: rows, meetings, DOT."""

from __future__ import annotations

from typing import Any

from mqbroker.config.inventory.inventory import host_variables
from mqctl import graph

GROUP = {"name": "lan", "group_address": "231.7.7.7", "group_port": 9876}


def rows(cluster: str = "main", host: str = "mq1", **changes: Any) -> list[dict[str, Any]]:
    variables = {
        "mq_cluster_name": cluster,
        "mq_cluster_secret": "long enough for a secret",
        "mq_cluster_interface": "eth1",
        "mq_allow_plaintext": True,
        "mq_connectors": [{"name": "cluster", "port": 5673}],
        "mq_broadcast_groups": [{**GROUP, "connector_ref": "cluster"}],
        "mq_discovery_groups": [GROUP],
        **changes,
    }
    return list(graph.rows_of(cluster, host, "192.0.2.11", host_variables(variables)))


def test_everything_of_an_instance() -> None:
    found = [(row["what"], row["name"], row["place"], row["on"]) for row in rows()]
    assert found == [
        ("listener", "clients", "5672", "eth1"),
        ("listener", "cluster", "5673", "eth1"),
        ("metrics", "metrics", "9672", "127.0.0.1"),
        ("connector", "cluster", "5673", "eth1"),
        ("broadcast-group", "lan", "231.7.7.7:9876", "eth1"),
        ("discovery-group", "lan", "231.7.7.7:9876", "eth1"),
    ]
    assert [row["connector"] for row in rows()] == [None] * 4 + ["cluster", None]


def test_ports_of_a_second_instance_are_shifted() -> None:
    found = rows(mq_instances=[{"name": "default"}, {"name": "b", "port_offset": 100}], mq_metrics_port=0)
    assert [row["place"] for row in found if row["instance"] == "b" and row["what"] in ("listener", "connector")] == [
        "5772", "5773", "5773",
    ]  # fmt: skip
    assert not [row for row in found if row["what"] == "metrics"]


def test_what_a_thing_is_bound_to() -> None:
    own = rows(
        mq_cluster_interface=None,
        mq_local_bind_address="198.51.100.11",
        mq_discovery_groups=[{**GROUP, "local_bind_address": ""}],
    )
    assert [row["on"] for row in own if row["what"] != "metrics"] == ["198.51.100.11"] * 4 + ["routes of the host"]
    nowhere = rows(mq_cluster_interface=None)
    assert {row["on"] for row in nowhere} == {"127.0.0.1"}


def test_nodes_meet_at_groups() -> None:
    listening = rows(host="mq2", mq_broadcast_groups=[], mq_instances=[{"name": "a"}])
    assert graph.meetings([*rows(), *listening]) == [
        {"cluster": "main", "place": "231.7.7.7:9876", "names": ["lan"], "senders": ["mq1"],
         "receivers": ["mq1", "mq2/a"]},
    ]  # fmt: skip


def test_dot_has_clusters_and_places() -> None:
    text = graph.dot([*rows(), *rows("west", "mq9", mq_broadcast_groups=[])])
    assert text.startswith("graph inventory {\n")
    assert text.endswith("}\n")
    assert '  subgraph cluster_1 {\n    label="west";' in text
    assert '  "main mq1" -- "231.7.7.7:9876" [dir=both, label="eth1"];' in text
    assert '  "west mq9" -- "231.7.7.7:9876" [dir=back, label="eth1"];' in text
    assert text.count("{") == text.count("}")


def test_groups_without_multicast_meet_where_their_kind_does() -> None:
    gossip = {"name": "talk", "discovery": "gossip", "local_bind_port": 7800, "peers": ["mq1:7800", "mq2:7800"]}
    found = rows(
        mq_instances=[{"name": "b", "port_offset": 100}],
        mq_broadcast_groups=[{**gossip, "connector_ref": "cluster"}],
        mq_discovery_groups=[
            gossip,
            {"name": "share", "discovery": "file", "directory": "/srv/nodes"},
            {"name": "names", "discovery": "dns", "names": ["mq.example.org:5673", "_mq._tcp.example.org"]},
        ],
    )
    groups = [(row["name"], row["place"], row["on"]) for row in found if row["what"] in (graph.SENDS, graph.HEARS)]
    assert groups == [
        ("talk", "mq1:7800, mq2:7800", "eth1:7900"),
        ("talk", "mq1:7800, mq2:7800", "eth1:7900"),
        ("share", "/srv/nodes", ""),
        ("names", "mq.example.org:5673, _mq._tcp.example.org", ""),
    ]
    assert [one["place"] for one in graph.meetings(found)] == [groups[0][1], groups[2][1], groups[3][1]]


def test_cluster_connections_say_where_first_nodes_come_from() -> None:
    connection = {"name": "all", "connector_ref": "cluster"}
    by_group = rows(mq_cluster_connections=[{**connection, "discovery_group_ref": "lan"}])
    assert [(row["place"], row["on"], row["connector"]) for row in by_group if row["what"] == graph.LINKS] == [
        ("lan", "eth1:5673", "cluster")
    ]
    assert "dir=forward" not in graph.dot(by_group)


def test_dot_leads_from_each_node_to_those_of_its_list() -> None:
    listed = {
        "mq_broadcast_groups": [], "mq_discovery_groups": [],
        "mq_connectors": [
            {"name": "cluster", "port": 5673},
            {"name": "one", "host": "mq1", "port": 5673},
            {"name": "far", "host": "mq9.example.org", "port": 5673},
        ],
        "mq_cluster_connections": [
            {"name": "all", "connector_ref": "cluster", "static_connectors": ["one", "far"]}
        ],
    }  # fmt: skip
    lines = graph.dot([*rows(**listed), *rows(host="mq2", **listed)]).splitlines()
    assert [line.strip() for line in lines if "dir=forward" in line] == [
        '"main mq1" -- "mq9.example.org:5673" [dir=forward, label="all"];',
        '"main mq2" -- "main mq1" [dir=forward, label="all"];',
        '"main mq2" -- "mq9.example.org:5673" [dir=forward, label="all"];',
    ]
