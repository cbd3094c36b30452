"""Who hears whom, out of reports: cells, findings and the drawing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils.multicast_matrix import (
    GroupMatrix,
    ProbeOrder,
    drawn,
    findings_of,
    groups_of,
    named,
    places_of,
)

HOSTS = ("mq1", "mq2", "mq3", "mq4")
ROW = {"name": "lan", "group_address": "231.7.7.7", "group_port": 9876}
PLACES = places_of([{**ROW, "connector_ref": "cluster"}], [ROW], "eth1", "")
WANTED = ProbeOrder(dict.fromkeys(HOSTS, PLACES))
Pairs = Iterable[tuple[str, str]]


def report(host: str, hears: Iterable[str], **changes: Any) -> dict[str, Any]:
    """One host that is well. `send` and `listen` change a side, further names the place, `node_ids` the host."""
    side = {"pin": f"198.51.100.{host[2:]}", "card": "eth1", "route": None, "trouble": ""}
    node_ids = changes.pop("node_ids", {"default": f"id-of-{host}"})
    place = {
        "group": "lan", "address": "231.7.7.7", "port": 9876, "rank": 0,
        "send": side | changes.pop("send", {}), "listen": side | changes.pop("listen", {}),
        "heard": {one: {"eth1": 8} for one in hears}, "direct": dict.fromkeys(HOSTS, 3), "echoed": {},
        "foreign": [], "announced": [], "other_runs": 0, "forged": 0, "unknown": 0, **changes,
    }  # fmt: skip
    return {"host": host, "addresses": [side["pin"]], "node_ids": node_ids, "places": [place]}


def reports(missed: Pairs = (), **changes: dict[str, Any]) -> dict[str, Any]:
    """All hosts, but for pairs of sender and receiver that are missed. `changes`: host -> as in `report`."""
    lost = set(missed)
    return {
        host: report(host, [one for one in HOSTS if one != host and (one, host) not in lost], **changes.get(host, {}))
        for host in HOSTS
    }


def judged(found: dict[str, Any], wanted: ProbeOrder = WANTED) -> tuple[GroupMatrix, list[tuple[str, str, str]]]:
    (group,) = groups = groups_of(wanted, found)
    said = findings_of(wanted, found, groups)
    assert all(one["check"] == "multicast" for one in said)
    return group, [(one["host"], one["level"], one["message"]) for one in said]


def test_all_is_well() -> None:
    group, said = judged(reports())
    assert said == []
    assert group.cells["mq1"] == {"mq1": "itself", "mq2": "ok", "mq3": "ok", "mq4": "ok"}
    assert group.as_row()["senders"] == group.as_row()["receivers"] == list(HOSTS)


def pairs_with(host: str, *, sends: bool = False, hears: bool = False) -> list[tuple[str, str]]:
    others = [one for one in HOSTS if one != host]
    return [(host, one) for one in others if sends] + [(one, host) for one in others if hears]


EVERYTHING = [(one, other) for one in HOSTS for other in HOSTS if one != other]
SILENT: list[tuple[list[tuple[str, str]], dict[str, str]]] = [
    (pairs_with("mq3", sends=True, hears=True), {"mq3": "neither hears the others nor is heard by them over eth1"}),
    (pairs_with("mq3", sends=True), {"mq3": "is heard by nobody over eth1, and hears others"}),
    (pairs_with("mq3", hears=True), {"mq3": "hears nobody on eth1, and is heard by others"}),
    ([("mq1", "mq2")], {"mq2": "mq1 is not heard on eth1 (one way only: mq1 does hear it)"}),
    ([("mq1", "mq2"), ("mq2", "mq1")], {"mq1": "mq2 is not heard on eth1;", "mq2": "mq1 is not heard on eth1;"}),
    (EVERYTHING, dict.fromkeys(HOSTS, "is not heard on eth1")),
]


@pytest.mark.parametrize(("missed", "told"), SILENT, ids=[" ".join(told) for _, told in SILENT])
def test_silence_is_told_where_its_cause_is(missed: list[tuple[str, str]], told: dict[str, str]) -> None:
    group, said = judged(reports(missed))
    assert {(one, other) for one in HOSTS for other in HOSTS if group.cells[one][other] == "missed"} == set(missed)
    assert sorted(host for host, _, _ in said) == sorted(told)
    for host, level, text in said:
        assert level == "error"
        assert told[host] in text
        assert "unicast passes, so multicast alone is lost" in text
        assert "snoops IGMP" in text


def test_unicast_tells_a_filter_from_a_cable() -> None:
    missed = pairs_with("mq3", sends=True, hears=True)
    alone = {host: {"direct": {}} for host in HOSTS}
    _, said = judged(reports(missed, **alone))
    assert "unicast does not pass either: check cable, VLAN" in said[0][2]
    _, said = judged(reports(missed, mq3={"direct": {"mq1": 1}}, mq1={"direct": {}}))
    assert "check packet filters, and IGMP snooping" in said[0][2]


@pytest.mark.parametrize(
    ("side", "text"),
    [
        ({"trouble": "card-down"}, "eth1 is down or has no carrier"),
        ({"trouble": "no-card", "card": "eth9"}, "there is no network card eth9"),
        ({"trouble": "card-without-address"}, "eth1 has no IPv4 address"),
        ({"trouble": "no-address", "pin": "192.0.2.9"}, "has the address 192.0.2.9"),
        ({"trouble": "loopback", "pin": "127.0.0.1"}, "bound to 127.0.0.1, which no other host hears"),
        ({"trouble": "no-route"}, "the host has no route for it"),
        ({"trouble": "not sent: Operation not permitted"}, "not sent: Operation not permitted"),
    ],
)
def test_what_is_wrong_on_a_host_explains_its_pairs(side: dict[str, str], text: str) -> None:
    missed = pairs_with("mq2", sends=True, hears=True)
    _, ((host, level, message),) = judged(reports(missed, mq2={"send": side, "listen": side}))
    assert (host, level) == ("mq2", "error")
    assert message.startswith("231.7.7.7:9876: ")
    assert text in message


def test_what_is_not_pinned_is_warned_of_before_it_fails() -> None:
    route = {"route": {"card": "eth0", "is_default": True}, "pin": "", "card": "eth0"}
    _, said = judged(reports(mq1={"send": route}))
    ((host, level, text),) = said
    assert (host, level) == ("mq1", "warning")
    assert text.startswith(
        "231.7.7.7:9876: nothing pins it to a network card, so it leaves by eth0 as the default route"
    )
    assert "set mq_cluster_interface" in text


def test_probes_on_the_wrong_card() -> None:
    elsewhere = {"mq2": {"eth1": 8}, "mq3": {"eth0": 8}, "mq4": {"eth0": 1, "eth1": 8}}
    group, said = judged(reports(mq1={"heard": elsewhere}))
    assert [group.cells[one]["mq1"] for one in HOSTS] == ["itself", "ok", "elsewhere", "ok"]
    (_, first, error), (_, second, warning) = said
    assert (first, second) == ("error", "warning")
    assert "mq3 is heard on eth0 instead of eth1; cards are in one network or swapped" in error
    assert "mq4 is heard on eth0 as well as on eth1" in warning


def test_hosts_that_are_not_reached_are_neither_deaf_nor_mute() -> None:
    found = reports()
    del found["mq4"]
    found["mq1"]["places"][0]["echoed"] = {"mq4": 3}
    found["mq1"]["places"][0]["heard"].pop("mq4")
    group, said = judged(found)
    assert said == []
    # It heard mq1, for it answered, and nobody knows whether it heard mq2.
    assert [group.cells[one]["mq4"] for one in HOSTS] == ["ok", "unknown", "unknown", "itself"]
    assert group.cells["mq4"]["mq1"] == "unknown"
    assert group.cells["mq4"]["mq2"] == "ok"


def test_foreign_clusters_and_what_else_is_odd() -> None:
    foreign = [{"cluster": "west", "source": f"198.51.100.{number}"} for number in range(60, 66)]
    odd = {"foreign": foreign, "forged": 1, "other_runs": 2, "unknown": 3}
    _, said = judged(reports(mq2=odd))
    assert [(host, level) for host, level, _ in said] == [("mq2", "warning")] * 4
    texts = [text for _, _, text in said]
    assert "cluster west is on it as well (198.51.100.60, 198.51.100.61, 198.51.100.62 and 3 more)" in texts[0]


def test_brokers_of_another_cluster_are_known_by_their_addresses() -> None:
    announced = [{"source": "198.51.100.1", "node": "a", "node_id": "id-of-mq1"},
                 {"source": "198.51.100.66", "node": "b", "node_id": "x"}]  # fmt: skip
    found = reports(mq2={"announced": announced})
    _, ((host, level, text),) = judged(found)
    assert (host, level) == ("mq2", "warning")
    assert "brokers announce themselves from 198.51.100.66" in text
    # Where not all hosts of the cluster were looked at, the address may be one of theirs.
    assert judged(found, ProbeOrder(WANTED.hosts, is_whole=False))[1] == []


def test_node_ids_that_occur_twice() -> None:
    announced = [{"source": "198.51.100.66", "node": "b", "node_id": "id-of-mq1"}]
    _, said = judged(reports(mq3={"node_ids": {"a": "id-of-mq2"}}, mq2={"announced": announced}))
    errors = [(host, text) for host, level, text in said if level == "error"]
    assert [host for host, _ in errors] == ["mq3", "mq1"]
    assert "instance a has the node id id-of-mq2 of mq2/default" in errors[0][1]
    assert "id-of-mq1 of instance default is also announced by 198.51.100.66" in errors[1][1]


def test_a_host_that_is_seen_twice_is_told_so_and_needs_no_other_identity() -> None:
    found = reports()
    found["mq3"] = {**found["mq3"], "addresses": found["mq2"]["addresses"], "node_ids": found["mq2"]["node_ids"]}
    _, said = judged(found)
    texts = [text for host, level, text in said if level == "error" and host == "mq3"]
    assert any("mq3 and mq2 are one host" in text and "remove one of these names" in text for text in texts)
    assert not any("identity new" in text for _, _, text in said)


def test_places_of_the_inventory() -> None:
    other = {**ROW, "name": "wan", "local_bind_address": "192.0.2.7", "time_to_live": 3}
    places = places_of([ROW, other], [{**ROW, "local_bind_address": ""}], "", "198.51.100.11")
    assert [(one["group"], one["rank"]) for one in places] == [("lan", 0), ("wan", 1)]
    assert places[0]["send"] == {"address": "198.51.100.11", "interface": ""}
    assert places[0]["listen"] == {"address": "", "interface": ""}
    assert places[1]["send"] == {"address": "192.0.2.7", "interface": ""}
    assert "listen" not in places[1]
    assert places[1]["ttl"] == 3
    assert places_of([ROW], [], "", "")[0]["send"]["address"] == "127.0.0.1"
    assert places_of([ROW], [], "eth1", "")[0]["send"] == {"address": "", "interface": "eth1"}


def test_groups_without_multicast_have_no_place() -> None:
    others = [
        {"name": "talk", "discovery": "gossip", "local_bind_port": 7800, "peers": ["mq1:7800"]},
        {"name": "share", "discovery": "file", "directory": "/srv/nodes"},
        {"name": "names", "discovery": "dns", "names": ["mq.example.org:5673"]},
    ]
    assert places_of(others[:2], others, "eth1", "") == []
    assert places_of([*others[:2], {**ROW, "discovery": "udp"}], [*others, ROW], "eth1", "") == PLACES


def test_the_matrix_is_drawn() -> None:
    found = reports([("mq1", "mq2")])
    del found["mq4"]
    group, _ = judged(found)
    assert drawn(group) == [
        "231.7.7.7:9876 lan: rows send, columns hear",
        "        1 2 3 4",
        "1  mq1  · ✗ ✓ ?",
        "2  mq2  ✓ · ✓ ?",
        "3  mq3  ✓ ✓ · ?",
        "4  mq4  ✓ ✓ ✓ ·",
        "✓ heard, ✗ not heard, ? host not reached, · itself",
    ]
    assert drawn(group, is_ascii=True)[2] == "1  mq1  . x + ?"
    assert all(line.isascii() for line in drawn(group, is_ascii=True))


def test_hosts_that_only_hear_have_a_row_that_says_so() -> None:
    wanted = ProbeOrder({"mq1": PLACES, "mq2": places_of([], [ROW], "eth1", "")})
    found = {"mq1": report("mq1", []), "mq2": report("mq2", ["mq1"])}
    found["mq2"]["places"][0]["send"] = None
    group, said = judged(found, wanted)
    assert drawn(group)[1:4] == ["        1 2", "1  mq1  · ✓", "2  mq2  hears only"]
    assert said == []


def test_long_lists_of_hosts_are_cut() -> None:
    assert named(["a"]) == "a"
    assert named(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
