"""What messages really hold: whole buffers, until they are copied out or cut down."""

from __future__ import annotations

import pytest
from mqbroker.base.errors import Bug
from mqbroker.config.declarations.options import defaults
from mqbroker.core.queue import memory
from mqbroker.core.queue.large import LargeFiles
from mqbroker.core.queue.memory import SWEPT_MAX, Memory
from mqbroker.journal.plan import Journal
from mqbroker.journal.recovered import Recovered
from mqbroker.wire.run import Run, parse_run

from tests.support import frames


def memory_of(max_bytes: int) -> Memory:
    return Memory(max_bytes, LargeFiles(Journal(defaults().journal, Recovered())))


def run_of(count: int, size: int, padding: int = 0) -> Run:
    buffer = b"".join(frames.transfer(1000 + n, b"x" * size) for n in range(count)) + bytes(padding)
    parsed = parse_run(buffer, 0, len(buffer) - padding, count, 1 << 30)
    assert parsed is not None
    assert parsed.run.count == count
    return parsed.run


def test_a_run_that_fills_its_buffer_is_kept_as_it_is() -> None:
    held, run = memory_of(1 << 20), run_of(10, 100)
    buffer = run.buffer
    held.hold(run)
    assert run.buffer is buffer
    assert held.held_bytes == len(buffer)
    run.live = 10
    held.settle(run, 4)
    assert (held.held_bytes, held.unused_bytes) == (len(buffer), len(buffer) * 4 // 10)
    held.settle(run, 6)
    assert (held.held_bytes, run.held_bytes, held.unused_bytes) == (0, 0, 0)
    with pytest.raises(Bug, match="settled more often"):
        held.settle(run, 1)


def test_a_small_run_is_copied_out_of_a_large_buffer() -> None:
    held, run = memory_of(1 << 20), run_of(1, 100, padding=256 * 1024)
    payload = bytes(run.payload(0))
    held.hold(run)
    assert held.held_bytes == len(run.buffer) < 300
    assert run.payload(0) == payload


@pytest.mark.parametrize("held_bytes", [0, 874, 875, 999, 1000, 1001])
def test_credit_stops_before_the_limit_and_does_not_flap(held_bytes: int) -> None:
    held = memory_of(1000)
    held.held_bytes = held_bytes
    assert held.is_full == (held_bytes >= 1000)
    assert held.has_room == (held_bytes < 875)


def test_a_sweep_cuts_down_what_is_hardly_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SWEEP_MIN_BYTES", 10_000)
    held = memory_of(1 << 20)
    runs = [run_of(100, 200) for _ in range(3)]
    for number, run in enumerate(runs):
        run.first_id, run.live = 100 * number, 200
        held.hold(run)
    assert not held.is_sweep_due(), "however much there is, as long as it is used"
    for run, count in zip(runs, (198, 97, 170), strict=True):
        held.settle(run, count)
    assert held.is_sweep_due()
    before = held.held_bytes
    kept = bytes(runs[0].payload(7)), bytes(runs[0].payload(50)), bytes(runs[1].payload(99))
    # One has two messages left, one all that it ever had in one queue and three in another, one nothing but a few.
    # The second has less than three quarters to spare, so it is not asked for.
    found = held.next_swept()
    assert found == [runs[0], runs[2]]
    held.sweep(found, [(runs[0], 50, 1), (runs[0], 7, 1), (runs[1], 0, 100), (runs[1], 3, 3), (runs[2], 0, 30)])
    assert held.held_bytes < before
    assert held.held_bytes == sum(run.held_bytes for run in runs) == sum(len(run.buffer) for run in runs)
    assert [len(run.buffer) * 100 // before for run in runs] == [0, 33, 33]
    assert (bytes(runs[0].payload(7)), bytes(runs[0].payload(50)), bytes(runs[1].payload(99))) == kept
    assert not held.is_sweep_due(), "not again for the same"
    held.settle(runs[1], 103)
    held.settle(runs[2], 30)
    assert held.unused_bytes == 0


def test_a_round_of_sweeps_looks_at_some_runs_of_near_ids_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SWEEP_MIN_BYTES", 10_000)
    held = memory_of(1 << 24)
    runs = [run_of(10, 100) for _ in range(3 * SWEPT_MAX)]
    for number, run in enumerate(runs):
        run.first_id, run.live = 10 * number + (1 << 20) * (number >= SWEPT_MAX // 2), 10
        held.hold(run)
    for run in reversed(runs):
        held.settle(run, 9)
    pieces = []
    while held.is_sweep_due():
        pieces.append(held.next_swept())
        held.sweep(pieces[-1], [(run, 4, 1) for run in pieces[-1]])
    assert [run for piece in pieces for run in piece] == runs
    assert [len(piece) for piece in pieces] == [SWEPT_MAX // 2, SWEPT_MAX, SWEPT_MAX, SWEPT_MAX // 2]
    assert held.unused_bytes == 0
    assert held.held_bytes == sum(len(run.buffer) for run in runs)


def test_what_is_settled_before_its_turn_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SWEEP_MIN_BYTES", 100)
    held, runs = memory_of(1 << 20), [run_of(10, 100) for _ in range(2)]
    for number, run in enumerate(runs):
        run.first_id, run.live = number << 20, 10
        held.hold(run)
        held.settle(run, 9)
    assert held.next_swept() == runs[:1]
    held.settle(runs[1], 1)
    assert held.is_sweep_due()
    assert held.next_swept() == []
    held.settle(runs[0], 1)
    assert not held.is_sweep_due()
    assert held.held_bytes == held.unused_bytes == 0


def test_messages_in_several_queues_are_counted_once() -> None:
    held, run = memory_of(1 << 20), run_of(40, 100)
    run.live = 9
    held.hold(run)
    held.sweep([run], [(run, 0, 3), (run, 1, 3), (run, 2, 3)])
    assert run.size_bytes(0, 5) == len(run.buffer)
