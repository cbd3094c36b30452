"""Sends messages through one queue of a broker, receives them again, and says how long each took. For `mqctl perf`.

Runs with the Python of a release on the broker's own host, so the network between is not measured. A request of one
line of JSON comes on standard input, for it has a password. A message is timed from when it was due, not from when it
could be sent: a broker that stalls is charged for all that had to wait. Only messages of this run are received, by a
selector; what else is in the queue stays untouched.
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import sys
import time
import tomllib
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import mqbroker.client as mq

REST_S = 10.0  # what is waited for the last messages
CREDIT = 500
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
PROPERTY = "mqctl_perf"
NUMBER_BYTES = 8


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summary(seconds: Sequence[float]) -> dict[str, Any]:
    """Milliseconds: percentiles, the longest, and counts by upper bounds that double."""
    if not seconds:
        return {"count": 0, "histogram": []}
    ordered = sorted(one * 1000 for one in seconds)
    said: dict[str, Any] = {name: round(percentile(ordered, share), 3) for name, share in SHARES.items()}
    counts: dict[int, int] = {}
    for one in ordered:
        step = max(0, math.ceil(math.log2(max(one, 1e-9) / 0.0625)))
        counts[step] = counts.get(step, 0) + 1
    steps = range(min(counts), max(counts) + 1)
    histogram = [{"ms_max": 0.0625 * 2**step, "count": counts.get(step, 0)} for step in steps]
    return {"count": len(ordered), **said, "max": round(ordered[-1], 3), "histogram": histogram}


def listener_of(options_file: str) -> dict[str, Any]:
    """The first listener for clients in a broker.toml."""
    with open(options_file, "rb") as file:
        listeners = tomllib.load(file).get("listeners", [])
    for one in listeners:
        if one.get("kind", "client") == "client":
            return dict(one)
    sys.exit(f"{options_file} has no listener for clients")


def place_of(listener: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """URI and further arguments to connect with."""
    address = str(listener.get("local-bind-address", "127.0.0.1"))
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    host = f"[{address}]" if ":" in address else address
    if not listener.get("tls-certificate-file"):
        return f"amqp://{host}:{listener['port']}", {}
    # The certificate names the host as others know it; here it is the host itself that is asked.
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return f"amqps://{host}:{listener['port']}", {"tls": tls}


class Measurement:
    """One measurement. Times are of the monotonic clock, in seconds."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._request = request
        self._name = uuid.uuid4().hex
        self._due_s: list[float] = []
        self._accepted_s: list[float] = []
        self._received_s: list[float] = []
        self._seen: set[int] = set()
        self._first_fault = ""
        self._ended_s = 0.0

    async def measure(self, uri: str, more: dict[str, Any]) -> dict[str, Any]:
        """Send, receive, and say what came of it."""
        arguments = {"user": self._request["user"], "password": self._request["password"], **more}
        async with AsyncExitStack() as stack:
            sending = await stack.enter_async_context(mq.connect(uri, **arguments))
            receiving = await stack.enter_async_context(mq.connect(uri, **arguments))
            queue = self._request["queue"]
            selector = f"{PROPERTY} = '{self._name}'"
            receiver = await (
                receiving.receiver(queue, selector=selector, credit=CREDIT)
                if queue
                else receiving.temporary_queue(credit=CREDIT)
            )
            sender = await sending.sender(queue or receiver.address)
            started_s = time.monotonic()
            reading = asyncio.create_task(self._receive(receiver))
            await self._send(sender, started_s)
            sent_s = time.monotonic()
            try:
                async with asyncio.timeout(REST_S):
                    while len(self._seen) < len(self._accepted_s) and not reading.done():
                        await asyncio.sleep(0.01)
            except TimeoutError:
                pass  # what is missing is said below
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        return self._outcome(sent_s - started_s, max(self._ended_s - started_s, 1e-9))

    async def _send(self, sender: mq.Sender, started_s: float) -> None:
        request = self._request
        room = asyncio.Semaphore(request["in_flight"])
        padding = b"x" * max(0, request["size"] - NUMBER_BYTES)
        async with asyncio.TaskGroup() as group:
            for number in range(request["count"]):
                due_s = started_s + number / request["rate"] if request["rate"] else time.monotonic()
                if due_s > time.monotonic():
                    await asyncio.sleep(due_s - time.monotonic())
                await room.acquire()
                if time.monotonic() - started_s > request["seconds_max"] or self._first_fault:
                    return
                self._due_s.append(due_s)
                body = number.to_bytes(NUMBER_BYTES, "big") + padding
                message = mq.Message(body, durable=request["durable"], application_properties={PROPERTY: self._name})
                group.create_task(self._one(sender, message, due_s, room))

    async def _one(self, sender: mq.Sender, message: mq.Message, due_s: float, room: asyncio.Semaphore) -> None:
        try:
            await sender.send(message)
            self._accepted_s.append(time.monotonic() - due_s)
        except mq.ClientError as fault:
            self._first_fault = self._first_fault or f"{type(fault).__name__}: {fault}"
        finally:
            room.release()

    async def _receive(self, receiver: mq.Receiver) -> None:
        while True:
            for message in await receiver.receive_many(CREDIT):
                now_s = time.monotonic()
                number = int.from_bytes(bytes(message.body)[:NUMBER_BYTES], "big")
                if number not in self._seen:
                    self._seen.add(number)
                    self._received_s.append(now_s - self._due_s[number])
                self._ended_s = now_s
                await message.accept()

    def _outcome(self, sending_s: float, whole_s: float) -> dict[str, Any]:
        return {
            "sent": len(self._accepted_s),
            "received": len(self._received_s),
            "fault": self._first_fault,
            "sent_per_s": round(len(self._accepted_s) / max(sending_s, 1e-9), 1),
            "received_per_s": round(len(self._received_s) / whole_s, 1),
            "accepted_ms": summary(self._accepted_s),
            "received_ms": summary(self._received_s),
        }


def main() -> None:
    request = json.loads(sys.stdin.readline())
    uri, more = place_of(listener_of(request["options_file"]))
    try:
        measured = asyncio.run(Measurement(request).measure(uri, more))
    except mq.ClientError as fault:
        sys.exit(f"{type(fault).__name__}: {fault}")
    json.dump(measured, sys.stdout)


if __name__ == "__main__":
    main()
