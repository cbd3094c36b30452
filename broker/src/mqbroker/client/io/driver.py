"""Carries out what the machine wants, in asyncio: transports, TLS, the clock, and answers as futures.

Inputs of one turn of the loop make one step, so what many tasks ask for leaves in one write. Belongs to the loop in
which it was made and is used there only. Invariant: a token's future is set at most once; who cancelled is not told.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar, cast

from mqbroker.base.time import At
from mqbroker.client import effects, inputs
from mqbroker.client.errors import ClientError
from mqbroker.client.machine import Machine
from mqbroker.client.uri import Endpoint
from mqbroker.wire.run import Run

T = TypeVar("T")
LOG = logging.getLogger("mqbroker.client")
ENTROPY_BYTES = 32
WRITE_HIGH_BYTES, WRITE_LOW_BYTES = 1 << 20, 256 << 10
LINGER_S = 5.0  # how long a transport that was closed may take to send what was written


class Owner(Protocol):
    """A sender or receiver of the application, told what concerns it."""

    def gone(self, error: ClientError) -> None: ...
    def arrived(self, epoch: int, run: Run, delivery_id: int, is_settled: bool) -> None: ...
    def interrupted(self) -> None: ...
    def restored(self, address: str) -> None: ...
    def at_end(self) -> None: ...
    def outcomes(self, sendings: list[inputs.Sending], failure: Callable[[], ClientError] | None) -> None: ...


class Transport(asyncio.Protocol):
    """One TCP connection, by the number of the attempt that made it."""

    def __init__(self, driver: Driver, attempt: int) -> None:
        self._driver = driver
        self._attempt = attempt

    def data_received(self, data: bytes) -> None:
        self._driver.put(inputs.Received(self._attempt, data))

    def pause_writing(self) -> None:
        self._driver.put(inputs.Blocked(self._attempt, True))

    def resume_writing(self) -> None:
        self._driver.put(inputs.Blocked(self._attempt, False))

    def connection_lost(self, error: Exception | None) -> None:
        why = f"{type(error).__name__}: {error}" if error is not None else "the broker closed the transport"
        self._driver.forget(self._attempt)
        self._driver.put(inputs.Lost(self._attempt, why))


class Driver:
    """See the module's docstring. `told` gets lines for the log."""

    def __init__(self, machine: Machine, context: Callable[[], ssl.SSLContext], told: Callable[[str], None]) -> None:
        self.machine = machine
        self.loop = asyncio.get_running_loop()
        self.owners: dict[int, Owner] = {}
        self.is_up = False
        self.has_certificate = False
        self.fault: Callable[[], ClientError] | None = None  # ours, after which nothing goes on
        self._context = context
        self._told = told
        self._inputs: list[inputs.Input] = []
        self._asked: set[asyncio.Future[Any]] = set()
        self._is_scheduled = False
        self._dialling: tuple[int, asyncio.Task[None]] | None = None
        self._transport: tuple[int, asyncio.Transport] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._handles = 0
        self.call_timeout_s = machine.settings.call_timeout_ms / 1000
        self._patience_ms = machine.settings.call_failover_timeout_ms
        self._away: asyncio.Future[None] = self.loop.create_future()  # set when it was away for too long
        self._away_timer: asyncio.TimerHandle | None = None

    # -- inputs --------------------------------------------------------------------------------------------------------

    def put(self, item: inputs.Input) -> None:
        """An input for the next step."""
        self._inputs.append(item)
        if self.fault is not None and isinstance(item, inputs.Post):
            item.sending.token[0].outcomes([item.sending], self.fault)
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._turn)

    def ask(self, make: Callable[[asyncio.Future[Any]], inputs.Input]) -> asyncio.Future[Any]:
        """Put a request whose answer is the future's."""
        future: asyncio.Future[Any] = self.loop.create_future()
        if self.fault is not None:
            future.set_exception(self.fault())
            return future
        self._asked.add(future)
        future.add_done_callback(self._asked.discard)
        self.put(make(future))
        return future

    def roll_back(self, txn: inputs.Txn) -> None:
        """Have a transaction rolled back, and wait for nothing."""
        if self.fault is None:
            self.put(inputs.Finish(txn, False, self.loop.create_future()))

    def disown(self, begun: asyncio.Future[Any]) -> None:
        """Nobody has the transaction that was asked for: it must not stay open."""
        if begun.done() and not begun.cancelled() and begun.exception() is None:
            self.roll_back(begun.result())  # else it is rolled back when the answer comes

    async def patient(self, work: Awaitable[T]) -> T:
        """Its result. Raises TimeoutError when the connection is away for longer than calls may wait."""
        if self._patience_ms < 0:
            return await work
        task = asyncio.ensure_future(work)
        try:
            both: set[asyncio.Future[Any]] = {task, self._away}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            if not task.done():
                task.cancel()
        raise TimeoutError(f"the connection was away for longer than call-failover-timeout ({self._patience_ms} ms)")

    async def patient_open(
        self, handle: int, make: Callable[[asyncio.Future[Any]], inputs.Input], *, is_closed: bool = True
    ) -> Any:
        """The answer to the request that opens a sender or receiver; one that nobody waits for must not come to be.
        Without `is_closed` its durable subscription lives on, which may have been there before.
        """
        try:
            return await self.patient(self.ask(make))
        except (TimeoutError, asyncio.CancelledError):
            self.put(inputs.CloseEnd(handle, is_closed, self.loop.create_future()))
            raise

    def _watch_patience(self, is_up: bool) -> None:
        if is_up and self._away_timer is not None:
            self._away_timer.cancel()
            self._away_timer = None
        if is_up and self._away.done():
            self._away = self.loop.create_future()
        if not is_up and self._patience_ms >= 0 and self._away_timer is None:
            self._away_timer = self.loop.call_later(self._patience_ms / 1000, self._lose_patience)

    def _lose_patience(self) -> None:
        if not self._away.done():
            self._away.set_result(None)

    def new_handle(self, owner: Owner) -> int:
        """A handle for a sender or receiver; 0 is the machine's own."""
        self._handles += 1
        self.owners[self._handles] = owner
        return self._handles

    def _turn(self) -> None:
        self._is_scheduled = False
        given, self._inputs = self._inputs, []
        at = At(time.monotonic_ns(), time.time_ns() // 1_000_000)
        try:
            batch = self.machine.step(given, at)
            for effect in batch.effects:
                _HANDLERS[type(effect)](self, effect)
        except Exception as error:  # the edge: whoever waits must not wait for ever
            self._break(error, given)
            return
        if (batch.more or self._inputs) and not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._turn)
        self._set_timer(batch.wake_at_ns, at.monotonic_ns)

    def _break(self, error: Exception, given: list[inputs.Input]) -> None:
        """A fault of ours: everybody is told, and nothing goes on."""
        LOG.error("internal fault of the client", exc_info=error)

        def fault() -> ClientError:
            return ClientError(f"internal fault of the client, please report it: {type(error).__name__}: {error}")

        self.fault = fault
        self._is_scheduled = True  # no turn follows
        posted = [item.sending for item in (*given, *self._inputs) if isinstance(item, inputs.Post)]
        for sending in dict.fromkeys((*self.machine.outstanding(), *posted)):
            sending.token[0].outcomes([sending], fault)
        for owner in list(self.owners.values()):
            owner.gone(fault())
        for future in [each for each in self._asked if not each.done()]:
            future.set_exception(fault())
        self._hang_up(effects.HangUp(self._transport[0] if self._transport is not None else -1))

    def _set_timer(self, wake_at_ns: int | None, now_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wake_at_ns is not None:
            self._timer = self.loop.call_later(max(wake_at_ns - now_ns, 0) / 1e9, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._is_scheduled:
            self._turn()

    # -- transports ----------------------------------------------------------------------------------------------------

    def _dial(self, effect: effects.Dial) -> None:
        self._stop_dialling()
        self._dialling = effect.attempt, self.loop.create_task(self._make(effect.attempt, effect.endpoint))

    async def _make(self, attempt: int, endpoint: Endpoint) -> None:
        try:
            context = self._context() if endpoint.has_tls else None
            made, _ = await self.loop.create_connection(
                lambda: Transport(self, attempt), endpoint.host, endpoint.port, ssl=context,
                server_hostname=endpoint.host if endpoint.has_tls else None,
            )  # fmt: skip
        except ssl.SSLCertVerificationError as error:
            why = f"its certificate is not trusted ({error.verify_message}); name its authority by tls-ca-file"
            self.put(inputs.DialFailed(attempt, why))
        except OSError as error:  # ssl.SSLError is one as well
            why = error.strerror or str(error) or type(error).__name__
            self.put(inputs.DialFailed(attempt, f"{why}; check that a broker listens there"))
        except UnicodeError as error:  # a name that cannot be asked for: a label of 64 characters, say
            self.put(inputs.DialFailed(attempt, str(error)))
        else:
            transport = made
            transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)
            self._transport = attempt, transport
            is_private = endpoint.has_tls or _is_loopback(transport.get_extra_info("peername"))
            has_certificate = endpoint.has_tls and self.has_certificate
            self.put(inputs.Dialled(attempt, os.urandom(ENTROPY_BYTES), is_private, has_certificate))

    def forget(self, attempt: int) -> None:
        """That transport is gone, and nothing more is written to it."""
        if self._transport is not None and self._transport[0] == attempt:
            self._transport = None

    def _stop_dialling(self) -> None:
        if self._dialling is not None:
            self._dialling[1].cancel()
            self._dialling = None

    def _write(self, effect: effects.Write) -> None:
        if self._transport is not None and self._transport[0] == effect.attempt:
            chunks = effect.chunks
            self._transport[1].write(chunks[0] if len(chunks) == 1 else b"".join(chunks))

    def _pause_reading(self, effect: effects.PauseReading) -> None:
        if self._transport is not None and self._transport[0] == effect.attempt:
            transport = self._transport[1]
            if effect.is_paused:
                transport.pause_reading()
            else:
                transport.resume_reading()

    def _derive(self, effect: effects.Derive) -> None:
        def work() -> bytes:
            return hashlib.pbkdf2_hmac(effect.hash_name, effect.password, effect.salt, effect.iterations)

        def told(done: asyncio.Future[bytes]) -> None:
            if done.cancelled():
                return
            error = done.exception()  # of a library that refuses so short a salt, say
            if error is None:
                self.put(inputs.Derived(effect.attempt, done.result()))
            else:
                self.put(inputs.Lost(effect.attempt, f"the login's key cannot be derived: {error}"))

        self.loop.run_in_executor(None, work).add_done_callback(told)

    def _hang_up(self, effect: effects.HangUp) -> None:
        if self.is_up:
            self._watch_patience(is_up=False)
        self.is_up = False
        if self._dialling is not None and self._dialling[0] == effect.attempt:
            self._stop_dialling()
        if self._transport is not None and self._transport[0] == effect.attempt:
            transport = self._transport[1]
            self._transport = None
            if transport.get_write_buffer_size():  # of who does not read it would never be rid
                self.loop.call_later(LINGER_S, transport.abort)
            transport.close()

    # -- answers -------------------------------------------------------------------------------------------------------

    def _answer(self, effect: effects.Answer) -> None:
        future = cast("asyncio.Future[Any]", effect.token)
        if not future.done():
            future.set_result(effect.value)
        elif future.cancelled() and isinstance(effect.value, inputs.Txn):
            self.roll_back(effect.value)

    def _failure(self, effect: effects.Failure) -> None:
        future = cast("asyncio.Future[Any]", effect.token)
        if not future.done():
            future.set_exception(effect.error)

    def _outcomes(self, effect: effects.Outcomes) -> None:
        owner: Owner = effect.sendings[0].token[0]
        owner.outcomes(effect.sendings, effect.failure)

    def _arrived(self, effect: effects.Arrived) -> None:
        owner = self.owners.get(effect.handle)
        if owner is not None:
            owner.arrived(effect.epoch, effect.run, effect.delivery_id, effect.is_settled)

    def _interrupted(self, effect: effects.Interrupted) -> None:
        owner = self.owners.get(effect.handle)
        if owner is not None:
            owner.interrupted()

    def _restored(self, effect: effects.Restored) -> None:
        owner = self.owners.get(effect.handle)
        if owner is not None:
            owner.restored(effect.address)

    def _at_end(self, effect: effects.AtEnd) -> None:
        owner = self.owners.get(effect.handle)
        if owner is not None:
            owner.at_end()

    def _gone(self, effect: effects.Gone) -> None:
        owner = self.owners.pop(effect.handle, None)
        if owner is not None:
            owner.gone(effect.error)

    def _tell(self, effect: effects.Told) -> None:
        self.is_up = effect.is_up
        if self.is_up:
            self._watch_patience(is_up=True)
        self._told(effect.text)


def _is_loopback(peer: Any) -> bool:
    try:
        return ipaddress.ip_address(peer[0]).is_loopback
    except (TypeError, ValueError, IndexError):
        return False


_HANDLERS: dict[type, Callable[[Driver, Any], None]] = {
    effects.Dial: Driver._dial,
    effects.Write: Driver._write,
    effects.PauseReading: Driver._pause_reading,
    effects.Derive: Driver._derive,
    effects.HangUp: Driver._hang_up,
    effects.Answer: Driver._answer,
    effects.Failure: Driver._failure,
    effects.Outcomes: Driver._outcomes,
    effects.Arrived: Driver._arrived,
    effects.Interrupted: Driver._interrupted,
    effects.Restored: Driver._restored,
    effects.AtEnd: Driver._at_end,
    effects.Gone: Driver._gone,
    effects.Told: Driver._tell,
}
