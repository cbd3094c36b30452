"""Work on many hosts at once.

Invariant: results come in the order of the items, one for each, and an error is a result like any other: one host
never hides the rest.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from mqctl.errors import CommandError

HOSTS_AT_ONCE = 20
SIGNAL_LATENCY_S = 0.2
WAITING_MAX = 1000  # values that nobody has taken yet; a host that says more has to wait

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


def on_each(
    items: Sequence[_Item], work: Callable[[_Item], _Value], done: Callable[[_Item], None] | None = None
) -> Iterator[tuple[_Item, _Value | CommandError]]:
    """Do `work` for all items, twenty at a time; (item, result or error) in the order of `items`.

    Ctrl-C does not wait for hosts that do not answer: what runs is left behind, what waits is dropped.
    """
    pool = ThreadPoolExecutor(min(HOSTS_AT_ONCE, max(1, len(items))))
    try:
        futures = [pool.submit(_settled, work, item, done) for item in items]
        for item, future in zip(items, futures, strict=True):
            while not future.done():
                # A signal may be taken by another thread: only a wait that ends lets this one see it.
                wait([future], timeout=SIGNAL_LATENCY_S)
            yield item, future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _settled(
    work: Callable[[_Item], _Value], item: _Item, done: Callable[[_Item], None] | None
) -> _Value | CommandError:
    try:
        return work(item)
    except CommandError as error:
        return error
    except Exception as fault:  # the edge of a thread: one host must not hide the rest
        return CommandError(f"{item}: {type(fault).__name__}: {fault}")
    finally:
        if done is not None:
            done(item)


def as_it_comes(
    items: Sequence[_Item], said: Callable[[_Item], Iterator[_Value]]
) -> Iterator[tuple[_Item, _Value | CommandError]]:
    """What all items say, in the order in which it comes; ends when the last has ended, for each may end by an error.

    `said` makes contact, twenty at a time, and its result is what is said from then on. Ctrl-C waits for nobody:
    the threads are left behind, and end with the process.
    """
    values: queue.Queue[tuple[_Item, _Value | CommandError | None]] = queue.Queue(WAITING_MAX)
    entrance = threading.BoundedSemaphore(HOSTS_AT_ONCE)
    for item in items:
        threading.Thread(target=_speak, args=(item, said, values, entrance), daemon=True).start()
    left = len(items)
    while left:
        try:
            # A signal may be taken by another thread: only a wait that ends lets this one see it.
            item, value = values.get(timeout=SIGNAL_LATENCY_S)
        except queue.Empty:
            continue
        if value is None:
            left -= 1
        else:
            yield item, value


def _speak(
    item: _Item,
    said: Callable[[_Item], Iterator[_Value]],
    values: queue.Queue[tuple[_Item, _Value | CommandError | None]],
    entrance: threading.BoundedSemaphore,
) -> None:
    try:
        with entrance:
            source = said(item)
        for value in source:
            values.put((item, value))
    except CommandError as error:
        values.put((item, error))
    except Exception as fault:  # the edge of a thread: one host must not hide the rest
        values.put((item, CommandError(f"{item}: {type(fault).__name__}: {fault}")))
    values.put((item, None))
