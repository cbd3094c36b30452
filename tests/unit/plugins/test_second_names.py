"""What the collection itself says of two names for one host: for those who have no mqctl."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.filter.second_names import second_names
from mqbroker.config.inventory.hosts import WAYS, place_of

from tests.unit.config.inventory.test_hosts import APART, SAME


def host(name: str, cluster: str, own: dict[str, Any]) -> dict[str, Any]:
    """As `hostvars` has it, with much that is of no interest."""
    return {"inventory_hostname": name, "mq_cluster_name": cluster, "groups": {}, "ansible_version": {}, **own}


@pytest.mark.parametrize(("one", "own", "other", "others"), SAME)
@pytest.mark.parametrize("cluster", ["orders", "payments"])
def test_two_names_are_told_as_mqctl_tells_them(
    one: str, own: dict[str, Any], other: str, others: dict[str, Any], cluster: str
) -> None:
    known = [host(one, "orders", own), host(other, cluster, others), host("mq3", "orders", {})]
    said = second_names(known, [other])
    where = "" if cluster == "orders" else " of cluster orders"
    assert said.startswith(f"host {other}: ansible_host: leads to ")
    assert f"which is {one}{where} already" in said
    # Also where only the first of both is in the run, and not where neither is.
    assert second_names(known, [one]) == said
    assert second_names(known, ["mq3"]) == ""


@pytest.mark.parametrize(("own", "others"), APART)
def test_what_may_be_hosts_of_their_own(own: dict[str, Any], others: dict[str, Any]) -> None:
    assert second_names([host("mq1", "orders", own), host("mq2", "orders", others)], ["mq1", "mq2"]) == ""


def test_all_of_them_are_named_at_once() -> None:
    same = {"ansible_host": "192.0.2.11"}
    said = second_names([host(name, "orders", same) for name in ("mq1", "mq2", "mq3")], ["mq1"])
    assert [part.partition(":")[0] for part in said.split("; ") if part.startswith("host ")] == ["host mq2", "host mq3"]


def test_every_variable_that_makes_a_place_is_passed_on() -> None:
    """Ports, ways and old names: each one alone tells two hosts apart."""
    base = {"ansible_host": "192.0.2.11"}
    for name in (*WAYS, "ansible_port", "ansible_ssh_port"):
        own = base | {name: "2222"}
        assert place_of("mq2", own) != place_of("mq1", base)
        assert second_names([host("mq1", "orders", base), host("mq2", "orders", own)], ["mq1"]) == ""
