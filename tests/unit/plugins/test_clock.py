"""The offset of clocks, from readings through a connection."""

from __future__ import annotations

from ansible_collections.mqops.cluster.plugins.module_utils.clock import Reading, best


def test_the_fastest_answer_says_most() -> None:
    slow, fast = Reading(100.0, 102.0, 104.0), Reading(200.0, 200.5, 200.1)
    assert best([slow, fast]) is fast
    assert (fast.offset_ms, fast.uncertainty_ms) == (450.0, 50.0)


def test_a_clock_that_is_right_is_within_the_uncertainty() -> None:
    for host_s in (100.0, 101.3, 104.0):
        reading = Reading(100.0, host_s, 104.0)
        assert abs(reading.offset_ms) <= reading.uncertainty_ms == 2000.0


def test_a_clock_behind_has_a_negative_offset() -> None:
    assert Reading(100.0, 90.0, 100.0).offset_ms == -10_000.0
