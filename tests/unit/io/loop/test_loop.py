"""Turns of the loop: what gets into one step, when the next comes, and how a node ends."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from mqbroker.base.errors import StorageFault
from mqbroker.base.notice import Level, Notice
from mqbroker.io.loop import loop as loop_module
from mqbroker.io.loop.log import Log, LogShape
from mqbroker.io.loop.loop import BURST_READ_BYTES, NodeLoop
from mqbroker.journal.append import Append
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import Halt, Send
from mqbroker.node.values.inputs import (
    BytesReceived,
    Closed,
    ConnectionAccepted,
    Done,
    Input,
    Stop,
    Synced,
    UnsyncedBytes,
)

from tests.support.patience import PATIENCE_S
from tests.unit.io.conftest import PENDING_BYTES_MAX, CountingDisk, ScriptedCore, bench, until

MS = 1_000_000
Runner = Callable[[Any], Any]


def test_all_reads_of_a_turn_make_one_step(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            clients = [await made.client() for _ in range(10)]
            await until(lambda: len(core.of(ConnectionAccepted)) == 10)
            steps_before = len(core.steps)
            for _, writer in clients:
                writer.write(b"x")
            # The loop is held until the kernel has all ten, so that one look of the selector reports them.
            await asyncio.sleep(0)
            time.sleep(0.05)
            await until(lambda: len(core.of(BytesReceived)) == 10)
            assert len([step for step in core.steps[steps_before:] if step]) == 1

    run(scenario())


def test_a_turn_is_bounded_in_bytes(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            await until(lambda: len(core.steps) == 1)
            for _ in range(3):
                made.node.post_received(1, bytes(loop_module.GATHERED_BYTES_MAX // 2 + 1))
            # The second of them was over the bound: the step ran inside the call, before the loop turned.
            assert [len(step) for step in core.steps] == [0, 2]
            await until(lambda: len(core.steps) == 3)
            made.node.post_received(1, bytes(loop_module.GATHERED_BYTES_MAX))
            assert [len(step) for step in core.steps] == [0, 2, 1, 1]
            await asyncio.sleep(0.02)
            assert len(core.steps) == 4, "and none without inputs follows"

    run(scenario())


def test_while_the_journal_is_written_turns_are_smaller(run: Runner) -> None:
    async def scenario() -> None:
        append = Append(1, 1, [b"entry"], 5, sync=True)
        core = ScriptedCore(lambda _: Batch(append=append if len(core.steps) == 2 else None))
        async with bench(core) as made:
            await until(lambda: len(core.steps) == 1)

            def runs_within(size_bytes: int) -> bool:
                before = len(core.steps)
                made.node.post_received(1, bytes(size_bytes))
                return len(core.steps) > before

            small, large = loop_module.GATHERED_DURABLE_BYTES_MAX, loop_module.GATHERED_BYTES_MAX
            assert not runs_within(small)
            assert runs_within(large)  # the step that appends
            for _ in range(loop_module.DURABLE_STEPS):
                assert runs_within(small)
            assert not runs_within(small), "so many steps without an append: the journal is idle"

    run(scenario())


def test_who_is_alone_is_not_made_to_wait_for_others(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            await until(lambda: len(core.steps) == 1)

            async def runs_within(conn: int, size_bytes: int = 1) -> bool:
                steps, reads = len(core.steps), len(core.of(BytesReceived))
                made.node.post_received(conn, bytes(size_bytes))
                is_done = len(core.steps) > steps
                await until(lambda: len(core.of(BytesReceived)) > reads)
                return is_done

            assert [await runs_within(1) for _ in range(loop_module.LONE_READS + 3)][-3:] == [False, True, True]
            assert not await runs_within(1, BURST_READ_BYTES), "there may be more of it"
            assert await runs_within(1)
            assert not await runs_within(2)
            assert not await runs_within(1), "there are two now"
            for _ in range(loop_module.LONE_READS):
                await runs_within(1)
            made.node.post(Synced(1))
            assert not await runs_within(1), "what came before is in the same step"
            assert len(core.steps[-1]) == 2

    run(scenario())


def test_what_comes_before_the_start_is_in_the_first_step(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        node = NodeLoop(asyncio.get_running_loop(), Log(io.StringIO(), LogShape.PLAIN), PENDING_BYTES_MAX)
        node.post_received(1, bytes(loop_module.GATHERED_BYTES_MAX))
        node.post(Synced(1))
        node.start(core, CountingDisk(), {})
        await until(lambda: core.steps)
        assert [len(step) for step in core.steps] == [2]
        node.end(0)

    run(scenario())


def test_more_calls_again_and_takes_new_inputs_along(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore(lambda inputs: Batch(more=len(core.steps) < 4))
        async with bench(core) as made:
            made.node.post(Synced(1))
            await until(lambda: len(core.steps) >= 4)
            await asyncio.sleep(0.02)
            assert [len(step) for step in core.steps] == [1, 0, 0, 0]

    run(scenario())


def test_the_timer_wakes_at_the_time_and_not_before(run: Runner) -> None:
    async def scenario() -> None:
        wakes = [30 * MS, 60 * MS, None]
        due: list[int] = []

        def react(inputs: list[Input]) -> Batch:
            wake = wakes[min(len(core.steps), len(wakes)) - 1]
            due.append(core.times[-1].monotonic_ns + wake if wake is not None else 0)
            return Batch(wake_at_ns=due[-1] or None)

        core = ScriptedCore(react)
        async with bench(core):
            await until(lambda: len(core.steps) >= 3)
            await asyncio.sleep(0.05)
            assert len(core.steps) == 3
            for number in (1, 2):
                assert core.times[number].monotonic_ns >= due[number - 1]

    run(scenario())


@pytest.mark.slow
def test_an_earlier_wake_replaces_a_later_one_and_a_later_one_costs_no_step(run: Runner) -> None:
    async def scenario() -> None:
        start_ns = time.monotonic_ns()
        plan = {0: 10_000 * MS, 1: 300 * MS, 2: 600 * MS}

        def react(inputs: list[Input]) -> Batch:
            number = len(core.steps) - 1
            if number == 1:
                # The third step moves the wake from 300 ms to 600 ms: the old timer must not make a step.
                made.node.post(Synced(2))
            return Batch(wake_at_ns=start_ns + plan[number] if number in plan else None)

        core = ScriptedCore(react)
        async with bench(core) as made:
            await until(lambda: len(core.steps) == 1)
            made.node.post(Synced(1))
            await until(lambda: len(core.steps) == 4)
            assert [len(step) for step in core.steps[1:3]] == [1, 1]
            assert core.times[3].monotonic_ns >= start_ns + 600 * MS

    run(scenario())


def test_the_append_is_handed_over_before_effects(run: Runner) -> None:
    async def scenario() -> None:
        order: list[str] = []
        core = ScriptedCore(lambda inputs: Batch(append=append, effects=[Send(1, [b"x"])]) if inputs else Batch())
        append = Append(7, 1, [b"record"], 6, True)
        async with bench(core) as made:

            def send(effect: Send) -> None:
                order.append(f"send {effect.conn}, handed over {[item.position for item in made.disk.submitted]}")

            made.node.start(core, made.disk, {Send: send})
            made.node.post(Synced(6))
            await until(lambda: order)
            assert order == ["send 1, handed over [7]"]

    run(scenario())


@pytest.mark.parametrize(("read_bytes", "is_inline"), [(BURST_READ_BYTES - 1, True), (BURST_READ_BYTES, False)])
def test_a_part_of_a_burst_is_never_committed_inline(run: Runner, read_bytes: int, is_inline: bool) -> None:
    """The rest of it is read while the disk thread writes."""

    async def scenario() -> None:
        append = Append(7, 1, [b"record"], 6, True)
        core = ScriptedCore(lambda inputs: Batch(append=append) if inputs else Batch())
        async with bench(core) as made:
            made.disk.takes_inline = True
            made.node.post_received(1, b"x")
            made.node.post_received(2, bytes(read_bytes))
            await until(lambda: made.disk.inlined or made.disk.submitted)
            assert bool(made.disk.inlined) is is_inline
            made.disk.inlined.clear()
            made.node.post_received(1, b"x")
            await until(lambda: made.disk.inlined)

    run(scenario())


@pytest.mark.parametrize("more", [False, True])
def test_a_step_that_has_more_to_do_is_not_committed_inline(run: Runner, more: bool) -> None:
    """Somebody waits for the next one, who may want nothing of the disk."""

    async def scenario() -> None:
        append = Append(7, 1, [b"record"], 6, True)
        core = ScriptedCore(lambda inputs: Batch(append=append, more=more) if inputs else Batch())
        async with bench(core) as made:
            made.disk.takes_inline = True
            made.node.post_received(1, b"x")
            await until(lambda: made.disk.inlined or made.disk.submitted)
            assert bool(made.disk.inlined) is not more

    run(scenario())


@pytest.mark.option("journal.disk-pending-bytes-max")
def test_a_disk_that_falls_behind_is_told_once_and_its_recovery_once(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            for pending_bytes in (PENDING_BYTES_MAX, 1001, 2000, 501, 500, 10):
                made.disk.pending_bytes = pending_bytes
                made.node.post(Synced(pending_bytes))
                await until(lambda: not made.node._inputs)
            await until(lambda: len(core.of(Synced)) == 6)
            assert core.of(UnsyncedBytes) == [UnsyncedBytes(1001), UnsyncedBytes(500)]

    run(scenario())


class HastyDisk(CountingDisk):
    """Its thread has synced some more whenever somebody looks."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name == "pending_bytes":
            self.pending_bytes = max(0, value - 300)
        return value


def test_what_a_disk_syncs_while_it_is_asked_does_not_part_the_loop_and_the_core(run: Runner) -> None:
    """The loop took it for full, and had told the core of fewer bytes than that takes."""

    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            disk = HastyDisk()
            disk.pending_bytes = PENDING_BYTES_MAX + 1
            made.node.start(core, disk, {})
            await until(lambda: core.of(UnsyncedBytes))
            assert core.of(UnsyncedBytes)[0] == UnsyncedBytes(PENDING_BYTES_MAX + 1)

    run(scenario())


def test_completions_of_threads_arrive(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            threads = [threading.Thread(target=made.node.post_from_thread, args=(Done(n),)) for n in range(10)]
            for thread in threads:
                thread.start()
            await until(lambda: len(core.of(Done)) == 10)
            for thread in threads:
                thread.join()

    run(scenario())


def test_notices_are_logged(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore(lambda inputs: Batch(notices=[Notice(Level.INFO, "queue-created", {"queue": "a b"})]))
        async with bench(core) as made:
            await until(lambda: "queue-created" in made.log_text.getvalue())
            assert 'queue="a b"' in made.log_text.getvalue()

    run(scenario())


def test_an_exception_in_the_core_ends_the_node_with_70_and_nothing_is_sent_any_more(run: Runner) -> None:
    async def scenario() -> None:
        def react(inputs: list[Input]) -> Batch:
            if any(isinstance(item, BytesReceived) for item in inputs):
                raise KeyError("wrong")
            return Batch()

        core = ScriptedCore(react)
        async with bench(core) as made:
            reader, writer = await made.client()
            writer.write(b"x")
            assert await made.node.ended == 70
            steps = len(core.steps)
            made.node.post(Stop())
            made.connections.abort_all("the node failed")
            assert await asyncio.wait_for(_rest(reader), PATIENCE_S) == b""
            assert len(core.steps) == steps
            assert "bug" in made.log_text.getvalue()
            assert "KeyError" in made.log_text.getvalue()
            writer.close()

    run(scenario())


def test_an_effect_that_nobody_carries_out_is_a_bug(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore(lambda inputs: Batch(effects=[object()]))  # type: ignore[list-item]
        async with bench(core) as made:
            assert await made.node.ended == 70

    run(scenario())


def test_a_failed_disk_ends_the_node_with_74(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        async with bench(core) as made:
            fault = StorageFault("journal-0000000001.mqj", 512, "Input/output error", "replace the disk")
            thread = threading.Thread(target=made.node.storage_failed, args=(fault,))
            thread.start()
            assert await made.node.ended == 74
            thread.join()
            assert "journal-0000000001.mqj at byte 512" in made.log_text.getvalue()

    run(scenario())


def test_halt_ends_with_its_code(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore(lambda inputs: Batch(effects=[Halt(3)] if Stop() in inputs else []))
        async with bench(core) as made:
            made.node.post(Stop())
            assert await made.node.ended == 3
            made.node.post(Closed(1, "later"))
            await asyncio.sleep(0.02)
            assert core.of(Closed) == []

    run(scenario())


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_the_loop_looks_for_what_comes_next_but_for_what_the_disk_thread_has_to_do(run: Runner) -> None:
    async def scenario() -> None:
        core = ScriptedCore()
        loop = asyncio.get_running_loop()
        node = NodeLoop(loop, Log(io.StringIO(), LogShape.PLAIN), PENDING_BYTES_MAX, busy_poll_us=20_000)
        disk = CountingDisk()
        node.start(core, disk, {})
        looks: list[bool] = []
        looked = node._busy_poll._look

        def look() -> None:
            looks.append(True)
            looked()

        with patch.object(node._busy_poll, "_look", look):
            for is_busy in (False, True):
                disk.pending_bytes = 1 if is_busy else 0
                await asyncio.sleep(0.1)
                looks.clear()
                for number in range(60):
                    steps = len(core.steps)
                    node.post(Done(number))
                    while len(core.steps) == steps:
                        await asyncio.sleep(0)
                assert bool(looks) is not is_busy
        node.end(0)

    run(scenario())


@pytest.mark.slow
def test_steps_of_which_one_wants_the_next_are_no_pauses(run: Runner) -> None:
    class Long:
        """Each input takes ten steps."""

        left = 0

        def step(self, inputs: list[Input], at: object) -> Batch:
            self.left = 9 * len(inputs) or max(self.left - 1, 0)
            return Batch(more=self.left > 0)

    async def scenario() -> None:
        loop, core = asyncio.get_running_loop(), Long()
        node = NodeLoop(loop, Log(io.StringIO(), LogShape.PLAIN), PENDING_BYTES_MAX, busy_poll_us=2_000)
        looks: list[bool] = []
        with patch.object(node._busy_poll, "_look", lambda: looks.append(True)):
            node.start(core, CountingDisk(), {})
            for number in range(20):
                node.post(Done(number))
                await asyncio.sleep(0.02)
        assert looks == []
        node.end(0)

    run(scenario())
