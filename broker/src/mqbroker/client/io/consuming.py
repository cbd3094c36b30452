"""Working on messages as they come, on so many at a time: what `Receiver.consume` does.

A message is taken only when somebody is there to work on it, so the others stay where another consumer finds them, but
for those that the credit brings ahead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Final

from mqbroker.client.errors import Closed, UnreadableMessage, UriFault
from mqbroker.client.io.driver import LOG

if TYPE_CHECKING:
    from mqbroker.client.io import blocking
    from mqbroker.client.io.receiver import ReceivedMessage, Receiver

CONCURRENCY_MAX: Final = 1000


def checked_concurrency(concurrency: int) -> int:
    """The same. Raises UriFault for what is no number of workers."""
    if not isinstance(concurrency, int) or not 1 <= concurrency <= CONCURRENCY_MAX:
        raise UriFault(f"concurrency {concurrency!r}: from 1 to {CONCURRENCY_MAX} messages at a time are possible")
    return concurrency


async def consume(
    receiver: Receiver, handler: Callable[[ReceivedMessage], Awaitable[object]], concurrency: int
) -> None:
    """Have a handler take each message of a receiver until that ends; `Receiver.consume` says the terms."""
    workers = [asyncio.ensure_future(_work(receiver, handler)) for _ in range(checked_concurrency(concurrency))]
    try:
        await asyncio.wait(workers)  # what ends the receiver is told when all are done with what they have
    finally:
        for each in workers:
            each.cancel()
        outcomes = await asyncio.gather(*workers, return_exceptions=True)
    for error in outcomes:
        if error is not None:
            raise error


async def _work(receiver: Receiver, handler: Callable[[ReceivedMessage], Awaitable[object]]) -> None:
    while True:
        try:
            message = await receiver.receive()
        except Closed:
            return
        except UnreadableMessage as unreadable:
            LOG.error("a message is rejected that cannot be read: %s", unreadable)
            await unreadable.message.reject(unreadable.why)
            continue
        try:
            async with message:
                await _handled(handler, message)
        except Exception:  # the application's, which ends no more than its message
            LOG.exception("a handler failed with a message of %r", receiver.address)


async def _handled(handler: Callable[[ReceivedMessage], Awaitable[object]], message: ReceivedMessage) -> None:
    try:
        await handler(message)
    except asyncio.CancelledError as error:
        worker = asyncio.current_task()
        if worker is not None and worker.cancelling():
            raise
        raise _Stopped("the handler was cancelled, or what it waited for was") from error  # by nobody who means us


class _Stopped(Exception):
    """A handler ended as only who cancels its worker can end it, and nobody did."""


def consume_in_threads(
    receiver: blocking.Receiver, handler: Callable[[blocking.ReceivedMessage], object], concurrency: int
) -> None:
    """The same for threads. They cannot be cancelled, so who is interrupted waits until they are done."""
    with ThreadPoolExecutor(checked_concurrency(concurrency), "mqbroker-consumer") as threads:
        workers = [threads.submit(_work_in_thread, receiver, handler) for _ in range(concurrency)]
        try:
            wait(workers, return_when=FIRST_EXCEPTION)
            for ended in (each for each in workers if each.done()):
                ended.result()  # one that leaves, by `SystemExit` say, ends the work of all
        except BaseException:
            receiver.close()
            raise


def _work_in_thread(receiver: blocking.Receiver, handler: Callable[[blocking.ReceivedMessage], object]) -> None:
    while True:
        try:
            message = receiver.receive()
        except Closed:
            return
        except UnreadableMessage as unreadable:
            LOG.error("a message is rejected that cannot be read: %s", unreadable)
            unreadable.message.reject(unreadable.why)
            continue
        try:
            with message:
                handler(message)
        except Exception:  # the application's, which ends no more than its message
            LOG.exception("a handler failed with a message of %r", receiver.address)
