"""Drives the pure core: all inputs of one loop turn make one call of `step`, and its Batch is carried out in order.

Owns the inputs that wait, the one timer and the end of the process. Invariants: `step` is never entered twice; the
append of a Batch is handed over before its effects; after a failure nothing more is carried out, so nothing unsynced
is ever acknowledged. Source: docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from mqbroker.base.errors import StorageFault
from mqbroker.base.time import NS_PER_MS, At
from mqbroker.io.loop.busy_poll import BusyPoll
from mqbroker.io.loop.log import Log
from mqbroker.journal.append import Append
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.effects import Halt
from mqbroker.node.values.inputs import BytesReceived, Input, UnsyncedBytes

EXIT_HARD_STOP: Final = 1
EXIT_BUG: Final = 70  # EX_SOFTWARE of sysexits(3)
EXIT_STORAGE: Final = 74  # EX_IOERR

# What one turn gathers before the core sees it. libuv reads a fast connection up to 32 times in a turn.
GATHERED_BYTES_MAX: Final = 1 << 20
# And while the journal is written, which the last so many steps tell: more would be one group for the disk and one
# answer, and client, loop and disk would wait for each other in turn. Of pieces each has one under way.
GATHERED_DURABLE_BYTES_MAX: Final = 128 << 10
# And of a connection that was paused, so that nobody read it for a while: what the kernel has of it by now
# may be megabytes, which take a millisecond to be read, and all but a part of them would only wait here.
GATHERED_BEHIND_BYTES_MAX: Final = 128 << 10
DURABLE_STEPS: Final = 16
# An inline commit stops the loop for one sync, which is worth it where little came: two changes of threads cost more
# than the sync of a good disk. A read this large is a part of more, and the rest had better be read during the sync;
# where a step has more to do, those who wait for the next one would wait for the disk as well.
BURST_READ_BYTES: Final = 32 << 10
# After so many turns that brought one read of the same connection each, its next one is not made to wait for others:
# who sends one message at a time, and nobody else does, is answered without another round of the loop.
LONE_READS: Final = 16

# Each step asks for them: a native build finds the attribute of a module at each call, and these names once.
_monotonic_ns: Final = time.monotonic_ns
_time_ns: Final = time.time_ns
_get_ident: Final = threading.get_ident


class Core(Protocol):
    """The pure node, as the loop sees it: inputs in, a Batch out."""

    def step(self, inputs: list[Input], at: At) -> Batch: ...


class AppendQueue(Protocol):
    """What the loop needs of the disk thread."""

    @property
    def pending_bytes(self) -> int: ...

    def submit(self, append: Append) -> None: ...

    def try_inline(self, append: Append) -> bool: ...


Handlers = Mapping[type[Any], Callable[[Any], None]]


class NodeLoop:
    """Made in the loop's thread. `post` and `post_received` are for that thread, the others for any."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, log: Log, disk_pending_bytes_max: int, busy_poll_us: int = 0
    ) -> None:
        self._loop = loop
        self._busy_poll = BusyPoll(loop, busy_poll_us)
        self._log = log
        self._pending_bytes_max = disk_pending_bytes_max
        self._core: Core | None = None
        self._disk: AppendQueue | None = None
        self._handlers: Handlers = {}
        self._inputs: list[Input] = []
        self._gathered_bytes = 0
        self._durable_steps = 0  # so many are left until the journal counts as idle
        self._is_burst = False  # among what is gathered
        self._is_scheduled = False
        self._lone_conn = -1
        self._lone_reads = 0  # so many turns in a row brought one read, of this connection
        self._is_committed = False  # by this very turn, inline: `Synced` is among the inputs
        self._is_disk_full = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ns = 0
        self._wake_at_ns: int | None = None
        self._is_ended = False
        self._own_thread = threading.get_ident()
        self.steps_total = 0
        self.steps_ns_total = 0  # in the core and in carrying out what it decided
        self.last_step_ns = 0
        self.received_bytes_total = 0
        self.sent_bytes_total = 0
        self.ended: asyncio.Future[int] = loop.create_future()

    def start(self, core: Core, disk: AppendQueue, handlers: Handlers) -> None:
        """Begin to turn. What was posted before is in the first step; `handlers` carry out effects by their type."""
        self._core = core
        self._disk = disk
        self._handlers = {**handlers, Halt: self._halt}
        self._schedule()

    def post(self, item: Input) -> None:
        self._inputs.append(item)
        if not self._is_scheduled:
            self._schedule()

    def post_received(self, conn: int, data: bytes, is_behind: bool = False) -> None:
        """What a connection sent; `is_behind`: it was paused before, so that nobody read it for a while."""
        size_bytes = len(data)
        if conn == self._lone_conn and not self._inputs and not self._is_scheduled:
            self._lone_reads += 1
        else:
            self._lone_conn, self._lone_reads = conn, 0
        self._inputs.append(BytesReceived(conn, data))
        self._gathered_bytes += size_bytes
        self.received_bytes_total += size_bytes
        if size_bytes >= BURST_READ_BYTES:
            self._is_burst = True
        elif self._lone_reads > LONE_READS:
            self._turn()
            return
        gathered_bytes_max = GATHERED_DURABLE_BYTES_MAX if self._durable_steps else GATHERED_BYTES_MAX
        if self._gathered_bytes >= (GATHERED_BEHIND_BYTES_MAX if is_behind else gathered_bytes_max):
            self._turn()
        elif not self._is_scheduled:
            self._schedule()

    def post_from_thread(self, item: Input) -> None:
        if _get_ident() == self._own_thread:
            # An inline commit reports from the loop's own thread, within a turn that will look: waking the loop through
            # its pipe would cost two system calls.
            self._inputs.append(item)
            return
        try:
            self._loop.call_soon_threadsafe(self.post, item)
        except RuntimeError:
            # The loop is closed: the process ends and nobody needs this completion any more.
            return

    def storage_failed(self, fault: StorageFault) -> None:
        """From any thread: the disk can't be trusted. Nothing unsynced may be acknowledged, so the node ends."""
        try:
            self._loop.call_soon_threadsafe(self._end_by_fault, EXIT_STORAGE, "storage-failed", str(fault))
        except RuntimeError:
            return

    def end(self, code: int) -> None:
        """Stop turning. Later inputs are dropped; `ended` tells whoever runs the loop."""
        self._is_ended = True
        self._inputs.clear()
        if self._timer is not None:
            self._timer.cancel()
        if not self.ended.done():
            self.ended.set_result(code)

    def bug(self, error: BaseException) -> None:
        """An exception that nobody expected: our own fault, so its traceback belongs in the log."""
        trace = "".join(traceback.format_exception(error))
        self._end_by_fault(EXIT_BUG, "bug", trace)

    def _end_by_fault(self, code: int, event: str, why: str) -> None:
        if self._is_ended:
            return
        self._log.error(event, why=why, exit_code=code)
        self.end(code)

    def _schedule(self) -> None:
        # call_soon puts the turn behind the reads that the selector has already reported: they all get into one step.
        if self._core is not None:
            self._is_scheduled = True
            self._loop.call_soon(self._scheduled_turn)

    def _scheduled_turn(self) -> None:
        self._is_scheduled = False
        self._turn()

    def _turn(self) -> None:
        planned = self._step()
        if planned is not None and self._is_committed:
            # What was synced in this turn is answered in it. Another round of the loop would look at all sockets first.
            planned = self._step()
        self._is_committed = False
        if planned is not None:
            batch, at_ns = planned
            self._plan_next(batch, at_ns)
            if not self._is_scheduled and not self._has_disk_work():
                self._busy_poll.turn_ends()

    def _has_disk_work(self) -> bool:
        """The disk thread wants the interpreter, which a loop that never waits keeps from it some 5 ms each time."""
        return self._disk is not None and self._disk.pending_bytes > 0

    def _step(self) -> tuple[Batch, int] | None:
        """One call of the core, carried out; the Batch and its time in ns, or None: the node has ended."""
        if self._core is None or self._disk is None:
            return None  # what comes before the start waits for it
        inputs, self._inputs = self._inputs, []
        is_burst, self._is_burst = self._is_burst, False
        self._gathered_bytes = 0
        if self._is_ended:
            return None
        # Asked once: the disk thread makes it less at any time, and what is decided by it is what the core is told.
        pending_bytes = self._disk.pending_bytes
        if self._is_disk_full or pending_bytes > self._pending_bytes_max:
            self._watch_disk(inputs, pending_bytes)
        at = At(_monotonic_ns(), _time_ns() // NS_PER_MS)
        self._busy_poll.turn_begins(at.monotonic_ns)
        try:
            batch = self._core.step(inputs, at)
            self._carry_out(batch, is_burst)
        except StorageFault as fault:
            self._end_by_fault(EXIT_STORAGE, "storage-failed", str(fault))
            return None
        except Exception as error:
            self.bug(error)
            return None
        self.steps_total += 1
        self.last_step_ns = _monotonic_ns() - at.monotonic_ns
        self.steps_ns_total += self.last_step_ns
        return None if self._is_ended else (batch, at.monotonic_ns)

    def _watch_disk(self, inputs: list[Input], pending_bytes: int) -> None:
        """Tell the core when the disk falls behind and when it has caught up by half: in between nothing changes."""
        if not self._is_disk_full or pending_bytes <= self._pending_bytes_max // 2:
            self._is_disk_full = not self._is_disk_full
            inputs.append(UnsyncedBytes(pending_bytes))

    def _carry_out(self, batch: Batch, is_burst: bool) -> None:
        if batch.append is not None:
            self._hand_over(batch.append, is_burst or batch.more)
            self._durable_steps = DURABLE_STEPS
        elif self._durable_steps:
            self._durable_steps -= 1
        handlers = self._handlers
        for effect in batch.effects:
            handlers[type(effect)](effect)
        for notice in batch.notices:
            self._log.emit(notice)

    def _hand_over(self, append: Append, is_burst: bool) -> None:
        assert self._disk is not None
        if append.sync and not is_burst and not self._is_committed and self._disk.try_inline(append):
            self._is_committed = True
        else:
            self._disk.submit(append)

    def _halt(self, effect: Halt) -> None:
        self.end(effect.code)

    def _plan_next(self, batch: Batch, now_ns: int) -> None:
        self._wake_at_ns = batch.wake_at_ns
        if batch.more or self._inputs:
            if not self._is_scheduled:
                self._schedule()
        elif batch.wake_at_ns is not None and (self._timer is None or batch.wake_at_ns < self._timer_at_ns):
            self._set_timer(batch.wake_at_ns, now_ns)

    def _set_timer(self, wake_at_ns: int, now_ns: int) -> None:
        # A timer that is due earlier than needed is left alone: it costs one look when it fires, while a new one for
        # each step would cost more on every message.
        if self._timer is not None:
            self._timer.cancel()
        # Rounded up to whole ms because uvloop rounds to the nearest, and a turn that comes early would spin until it
        # is due.
        delay_ms = max(0, math.ceil((wake_at_ns - now_ns) / NS_PER_MS))
        self._timer_at_ns = wake_at_ns
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        wake_at_ns = self._wake_at_ns
        if self._is_ended or wake_at_ns is None:
            return
        now_ns = time.monotonic_ns()
        if now_ns >= wake_at_ns:
            if not self._is_scheduled:
                self._schedule()
        else:
            self._set_timer(wake_at_ns, now_ns)
