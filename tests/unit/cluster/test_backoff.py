"""Delays between attempts, and when there is none left."""

from __future__ import annotations

import pytest
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.backoff import Backoff

from tests.unit.cluster.options import connection


def delays_ms(backoff: Backoff, count: int) -> list[int]:
    """Before each of so many attempts, all in vain."""
    found = []
    for _ in range(count):
        found.append(backoff.delay_ns // NS_PER_MS)
        backoff = backoff.failed()
    return found


@pytest.mark.option("cluster-connections.retry-interval")
@pytest.mark.option("cluster-connections.retry-interval-multiplier")
@pytest.mark.option("cluster-connections.max-retry-interval")
@pytest.mark.parametrize(
    ("changes", "first", "again"),
    [
        ({}, [0, 500, 500, 500], [500, 500, 500, 500]),
        ({"retry_interval": 100}, [0, 100, 100, 100], [100, 100, 100, 100]),
        ({"retry_interval_multiplier": 2.0}, [0, 500, 1000, 2000], [500, 1000, 2000, 2000]),
        ({"retry_interval_multiplier": 1.5}, [0, 500, 750, 1125], [500, 750, 1125, 1687]),
        ({"retry_interval_multiplier": 3.0, "max_retry_interval": 4000}, [0, 500, 1500, 4000], [500, 1500, 4000, 4000]),
        ({"retry_interval": 3000}, [0, 2000, 2000, 2000], [2000, 2000, 2000, 2000]),
    ],
)
def test_delays(changes: dict[str, float], first: list[int], again: list[int]) -> None:
    backoff = Backoff.of(connection(**changes))
    assert delays_ms(backoff, 4) == first
    assert delays_ms(backoff.connected(), 4) == again


def test_delays_stay_at_their_bound_however_often_it_fails() -> None:
    backoff = Backoff(1, 100.0, 2000, -1, -1, failures=10**9)
    assert (backoff.delay_ns, backoff.is_exhausted) == (2000 * NS_PER_MS, False)


@pytest.mark.option("cluster-connections.initial-connect-attempts", "cluster-connections.reconnect-attempts")
@pytest.mark.parametrize(
    ("attempts", "left"), [(-1, [True] * 5), (0, [False] * 5), (3, [True, True, True, False, False])]
)
def test_attempts_are_bounded_before_the_first_link_and_after_it(attempts: int, left: list[bool]) -> None:
    initial = Backoff.of(connection(initial_connect_attempts=attempts))
    again = Backoff.of(connection(reconnect_attempts=attempts)).failed().connected()
    for backoff in (initial, again):
        found = []
        for _ in range(5):
            found.append(not backoff.is_exhausted)
            backoff = backoff.failed()
        assert found == left


def test_a_link_that_stood_makes_counting_begin_anew() -> None:
    backoff = Backoff.of(connection(reconnect_attempts=2)).connected().failed()
    assert not backoff.is_exhausted
    assert backoff.failed().is_exhausted
    assert not backoff.failed().connected().is_exhausted
    assert backoff.connected() == backoff.connected().failed().connected()
