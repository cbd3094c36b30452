"""Clusters out of what ansible-inventory says."""

from __future__ import annotations

from typing import Any

import pytest
from mqctl.errors import UsageError
from mqctl.inventory import choose, clusters_of


def listing(**hosts: dict[str, Any]) -> dict[str, Any]:
    names = list(hosts)
    return {"_meta": {"hostvars": hosts}, "all": {"children": ["ungrouped", "b"]}, "b": {"hosts": names}}


def test_hosts_with_the_same_name_of_a_cluster_are_one() -> None:
    found = clusters_of(
        listing(mq2={"mq_cluster_name": "a"}, mq1={"mq_cluster_name": "a"}, x={"mq_cluster_name": "b"}, web={}), {}
    )
    assert [(one.name, [host.name for host in one.hosts]) for one in found] == [("a", ["mq2", "mq1"]), ("b", ["x"])]


def test_instances() -> None:
    (cluster,) = clusters_of(
        listing(mq1={"mq_cluster_name": "a"}, mq2={"mq_cluster_name": "a", "mq_instances": [{"name": "x"}]}), {}
    )
    assert [host.instances for host in cluster.hosts] == [["default"], ["x"]]


def test_which_cluster() -> None:
    found = clusters_of(listing(mq1={"mq_cluster_name": "a"}, mq2={"mq_cluster_name": "b"}), {})
    assert choose(found, "b").name == "b"
    with pytest.raises(UsageError, match="several clusters: a, b"):
        choose(found, "")
    with pytest.raises(UsageError, match="--cluster c"):
        choose(found, "c")
    with pytest.raises(UsageError, match="mq_cluster_name"):
        choose([], "")


def test_variables_are_not_shown() -> None:
    (cluster,) = clusters_of(listing(mq1={"mq_cluster_name": "a", "mq_cluster_secret": "canary"}), {})
    assert "canary" not in repr(cluster)
