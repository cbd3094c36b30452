"""How often a node tells of itself after its start, and when."""

from __future__ import annotations

import pytest
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.self_telling import SelfTelling

from tests.unit.cluster.options import connection


@pytest.mark.option("cluster-connections.notification-interval", "cluster-connections.notification-attempts")
@pytest.mark.parametrize(
    ("interval_ms", "attempts", "expected_ms"),
    [(1000, 2, [1000, 2000]), (300, 3, [300, 600, 900]), (1000, 0, []), (700, 1, [700])],
)
def test_when_it_tells(interval_ms: int, attempts: int, expected_ms: list[int]) -> None:
    options = connection(notification_interval=interval_ms, notification_attempts=attempts)
    telling = SelfTelling(options, 0)
    told_ms = [at_ms for at_ms in range(0, 5000, 100) if telling.due(at_ms * NS_PER_MS)]
    assert told_ms == expected_ms
    assert telling.next_due_ns == 0


def test_it_says_when_it_is_due() -> None:
    telling = SelfTelling(connection(), 7)
    assert telling.next_due_ns == 7 + 1000 * NS_PER_MS
    assert not telling.due(telling.next_due_ns - 1)
