"""Times in buckets."""

from __future__ import annotations

from mqbroker.base.histogram import Histogram


def test_a_bound_includes_itself_and_the_last_bucket_takes_the_rest() -> None:
    made = Histogram((0.001, 0.1))
    for took_s in (0.0005, 0.001, 0.05, 7.0):
        made.add(took_s)
    assert made.counts == [2, 1, 1]
    assert made.cumulated() == [2, 3, 4]
    assert round(made.sum_s, 4) == 7.0515


def test_nothing_happened_yet() -> None:
    assert Histogram((1.0,)).cumulated() == [0, 0]
