"""What an inventory implies: rows, meetings, DOT."""

from __future__ import annotations

from typing import Any

from mqbroker.config.inventory import host_variables
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
