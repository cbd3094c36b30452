"""What is said of hosts that were asked for links."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.filter.link_faults import LOST, link_faults

AWAY: dict[str, Any] = {"item": "mq3", "reached": False, "answer": {}, "why": "timed out"}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"item": "mq1", "reached": True, "answer": {"links": [{}]}}, []),
        ({"item": "mq1", "reached": True, "answer": {"failed": True, "msg": "sudo: no"}}, ["mq1: sudo: no"]),
        ({"item": {"host": "mq2"}, "reached": True, "answer": {"failed": True}}, ["mq2: it gave no reason"]),
        ({"item": {"host": "mq2"}, "reached": True, "answer": {"failed": True, "msg": ""}}, ["mq2: it gave no reason"]),
        (AWAY, [f"mq3: {LOST}: timed out"]),
        ({"item": "mq4", "skipped": True}, []),
    ],
)
def test_each_host_where_something_is_wrong_is_told_once(result: dict[str, Any], said: list[str]) -> None:
    assert link_faults([result]) == said


def test_not_to_be_reached_may_be_no_fault() -> None:
    failed: dict[str, Any] = {"item": "mq1", "answer": {"failed": True, "msg": "no"}}
    assert link_faults([AWAY, failed], False) == ["mq1: no"]
    assert link_faults(None) == []
