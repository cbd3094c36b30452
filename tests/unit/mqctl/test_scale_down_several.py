"""Several hosts that leave by one command: who is there for each of them, and whose messages go where."""

from __future__ import annotations

import pytest
from mqctl.errors import UsageError
from mqctl.inventory import Host, InventoryCluster
from mqctl.scaledown.leaving_host import leavers_of

CLUSTER = InventoryCluster("main", tuple(Host(f"mq{number}", "main", {}, {}) for number in (1, 2, 3, 4)))


def test_each_finds_those_that_stay_and_nobody_that_has_left() -> None:
    first, second = leavers_of(CLUSTER, ["mq3", "mq2"], is_forced=False)
    assert [one.host for one in first.nodes] == ["mq3"]
    assert [one.host for one in first.heirs] == [one.host for one in second.heirs] == ["mq1", "mq4"]
    # Until it has left the other one is a node of the cluster, which has to answer and to forget.
    assert [one.host for one in first.others] == ["mq1", "mq2", "mq4"]
    assert [one.host for one in second.others] == ["mq1", "mq4"]
    assert (first.later, second.later) == (("mq2",), ())
    assert first.command == second.command == "mqctl scale-down mq3 mq2"


def test_one_alone_is_as_it_was() -> None:
    (one,) = leavers_of(CLUSTER, ["mq3"], is_forced=True)
    assert (one.command, one.again) == ("mqctl scale-down mq3", "mqctl scale-down mq3 --resume --force")
    assert [each.host for each in one.heirs] == [each.host for each in one.others] == ["mq1", "mq2", "mq4"]


@pytest.mark.parametrize(
    ("names", "why"), [(["mq2", "mq2"], "mq2 is named twice"), (["mq2", "mq9"], "mq9 is not a host")]
)
def test_who_is_no_host_or_named_twice_does_not_leave(names: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        leavers_of(CLUSTER, names, is_forced=False)
