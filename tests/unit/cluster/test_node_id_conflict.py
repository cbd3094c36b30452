"""Which of two processes with one node id goes on: both say the same, whoever asks."""

from __future__ import annotations

import itertools

from mqbroker.cluster.node_id_conflict import ProcessStart, yields

STARTS = [ProcessStart(at_ms, boot_id) for at_ms in (0, 1, 2, 1_700_000_000_000) for boot_id in ("a" * 32, "b" * 32)]


def test_of_two_starts_exactly_one_yields_and_none_to_itself() -> None:
    for one, other in itertools.product(STARTS, STARTS):
        assert yields(one, other) + yields(other, one) == (one != other)


def test_the_later_one_yields() -> None:
    early, late = ProcessStart(1000, "f" * 32), ProcessStart(1001, "0" * 32)
    assert (yields(early, late), yields(late, early)) == (False, True)


def test_who_does_not_say_when_it_was_started_stays() -> None:
    assert yields(ProcessStart(1, "0" * 32), ProcessStart(0, "f" * 32))
