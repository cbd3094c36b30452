"""A process that says what it must not: `python -m bench.attacker`, started by `load`; password in MQLOAD_PASSWORD.

It connects at a steady rate, each time with the next case of the list, waits for the specified answer and connects
anew. One line of JSON says `ready` once each case had its answer; it goes on until its standard input ends, and a last
line says how many were refused. Its addresses of loopback are not those of the load, whose logins are not to wait for
failed ones. It runs when nobody else wants to (SCHED_IDLE), because on a network an attacker brings a processor of its
own: at the lowest niceness it would still keep a core for its slice while a broker that was just woken waits.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support import bad_input, frames

HOST = "127.0.0.1"
SOURCE, FAILING_SOURCE = "127.0.0.2", "127.0.0.3"
AT_ONCE = 100
ANSWER_S_MAX = 15.0  # a failed login is told after five seconds at most
LATE_S = 0.1
READ_SIZE = 65536
END: tuple[bytes, ...] = ()
# Performatives that are waited for, by their descriptors.
MECHANISMS, OUTCOME, FLOW = b"\0\x53\x40", b"\0\x53\x44", b"\0\x53\x13"


@dataclass(frozen=True, slots=True)
class Case:
    """What is said first, what is waited for, what is wrong then, and what the answer must be: END is a close."""

    name: str
    standing: bytes
    awaited: bytes
    data: bytes
    answer: tuple[bytes, ...]  # one of these
    source: str = SOURCE


def cases(user: str, password: str) -> list[Case]:
    """All of them, those of each stage after those of the stage before. Pure."""
    login = frames.plain(user, password)
    session = login + frames.opened(bad_input.FRAME_SIZE_MAX) + frames.begun() + frames.sender(bad_input.ADDRESS)
    found = [Case(f"greeting: {name}", b"", b"", data, END) for name, data in bad_input.GREETINGS.items()]
    found += [
        Case(f"before login: {name}", frames.SASL_HEADER, MECHANISMS, data, END)
        for name, data in bad_input.BEFORE.items()
    ]
    found += [
        Case(f"login: {name}", b"", b"", frames.plain(*said), END, FAILING_SOURCE)
        for name, said in {"wrong": (user, "x"), "empty": (user, ""), "unknown user": ("nobody", "x")}.items()
    ]
    found += [
        Case(f"before open: {name}", login, OUTCOME, frames.AMQP_HEADER + data, _any(conditions))
        for name, (data, conditions) in bad_input.BEFORE_OPEN.items()
    ]
    told = bad_input.AFTER | {name: (data, condition) for name, (data, (_, condition)) in bad_input.SMALLER.items()}
    found += [
        Case(f"open: {name}", session, FLOW, data, (condition.encode(),))
        for name, (data, condition) in (told | bad_input.SELECTORS).items()
    ]
    return found


def _any(conditions: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(condition.encode() for condition in conditions)


class Attack:
    """Goes through the cases again and again. The first that is not refused as specified ends it."""

    def __init__(self, port: int, per_second: int, chosen: list[Case]) -> None:
        self.port = port
        self.interval_s = 1 / per_second
        self.chosen = chosen
        self.refused = 0
        self.failure = ""
        self.stopped = asyncio.Event()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._under_way: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """One whole turn, then `ready`, then until it is stopped; the rate is that of what was refused since."""
        await self._send(self.chosen)
        await self._finish()
        found: dict[str, Any] = {"mode": "attack", "count": len(self.chosen)}
        if not self.failure:
            print(json.dumps({"ready": True}), flush=True)
            ready_s, before = time.monotonic(), self.refused
            await self._send(self._until_stopped())
            found["per_second"] = (self.refused - before) / max(time.monotonic() - ready_s, self.interval_s)
            await self._give_up()
        print(json.dumps(found | {"refused": self.refused, "failure": self.failure}), flush=True)

    def _until_stopped(self) -> Iterator[Case]:
        return itertools.takewhile(lambda _: not self.stopped.is_set(), itertools.cycle(self.chosen))

    async def _send(self, cases: Iterable[Case]) -> None:
        """At the rate, evenly: what comes late is made up for at twice the rate, and not at all beyond LATE_S."""
        due_s = time.monotonic()
        for case in cases:
            await self._room.acquire()
            task = asyncio.create_task(self._one(case))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            due_s = max(due_s + self.interval_s, time.monotonic() - LATE_S)
            await asyncio.sleep(max(due_s - time.monotonic(), self.interval_s / 2))
            if self.failure:
                return

    async def _finish(self) -> None:
        await asyncio.gather(*self._under_way)

    async def _give_up(self) -> None:
        """Of what is under way, all had their answer once: failed logins would have it waited for for seconds."""
        under_way = list(self._under_way)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _one(self, case: Case) -> None:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                said = await _converse(case, self.port)
        except TimeoutError:
            self.failure = self.failure or f"{case.name}: no answer within {ANSWER_S_MAX} s"
        except OSError as error:
            self.failure = self.failure or f"{case.name}: {error}"
        else:
            if case.answer and not any(each in said for each in case.answer):
                self.failure = self.failure or f"{case.name}: the answer was {said[-200:]!r}"
            else:
                self.refused += 1
        finally:
            self._room.release()


async def _converse(case: Case, port: int) -> bytes:
    """Everything that the broker said, until it was enough."""
    reader, writer = await asyncio.open_connection(HOST, port, local_addr=(case.source, 0))
    try:
        said = b""
        if case.awaited:
            writer.write(case.standing)
            said = await _read(reader, said, (case.awaited,))
            if case.awaited not in said:
                raise ConnectionError(f"closed before its turn: {said[-200:]!r}")
        writer.write(case.data)
        return await _read(reader, said, case.answer)
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader, said: bytes, wanted: tuple[bytes, ...]) -> bytes:
    """Until one of these has come, or the end."""
    while not any(each in said for each in wanted):
        try:
            more = await reader.read(READ_SIZE)
        except ConnectionResetError:
            break
        if not more:
            break
        said += more
    return said


async def _attack(attack: Attack) -> None:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(sys.stdin.fileno())  # its end can be read for ever
        attack.stopped.set()

    loop.add_reader(sys.stdin.fileno(), stop)
    await attack.run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack until standard input ends; the exit code."""
    parser = argparse.ArgumentParser(prog="bench.attacker", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", required=True)
    parser.add_argument("--rate", type=int, required=True, help="connections per second, each with one bad input")
    parser.add_argument("--only", default="", help="cases with this text in their names, to see what they cost")
    options = parser.parse_args(arguments)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    found = cases(options.user, os.environ["MQLOAD_PASSWORD"])
    attack = Attack(options.port, options.rate, [case for case in found if options.only in case.name])
    asyncio.run(_attack(attack))
    return 1 if attack.failure else 0


if __name__ == "__main__":
    sys.exit(main())
