"""Which node a person means."""

from __future__ import annotations

import pytest
from mqctl.brokers.node_names import node_id_of
from mqctl.errors import UsageError

from tests.support.cluster_stage import node_id_of as id_of


def test_names_of_nodes_that_do_not_come_back() -> None:
    one, other, third = (id_of(name) for name in "abc")
    names = {one: "mq1", other: "mq1-b", third: "mq1"}
    assert node_id_of("mq1/b", names) == node_id_of("mq1-b", names) == other
    assert node_id_of(third.upper(), names) == third
    with pytest.raises(UsageError, match="several nodes are called mq1"):
        node_id_of("mq1", names)
