"""Floods of legal frames from another process: others have their answers in between, and memory stays bounded.

What a bystander waits for is counted in processor time of the broker, from its message to the answer, as the machine
may have more to do: the mean of some, as a share of that where nobody is in the way. They are not durable, since the
broker is at the flood while the disk is at work, for whomever.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from mqbroker.wire.performatives import Attach, Source, Target

from tests.sim.days import TODAY, share_of_today
from tests.support import frames
from tests.support.broker_process import BrokerProcess, brokers_in
from tests.support.flooder import SHAPES
from tests.support.floods import CONNECTIONS, FLOODS
from tests.support.processor import loop_ns
from tests.system.bad_input.peer import Bystander, Peer

ROOT = Path(__file__).parents[3]
MESSAGES = 50  # of the bystander at least, beside each flood in each of its ways,
USED_NS = 60_000_000  # and as many as take so long
# A step that others had before the message, those that take it in and answer it with a turn of the flood in each, and
# reading what fifty send. Without turns it is a hundred and more.
SHARE_MAX = 60.0
GROWN_BYTES_MAX = 128 << 20
TEMPORARY = 20_000
PATIENT = {"idle-timeout-ms": 600_000}  # of a bystander that says nothing while others log in


class FloodProcess:
    """The flooder (tests/support/flooder.py)."""

    def __init__(self, broker: BrokerProcess) -> None:
        command = [sys.executable, "-m", "tests.support.flooder", "--eager"]
        self._process = subprocess.Popen(
            [*command, "--port", str(broker.port), "--user", broker.user],
            env={**os.environ, "MQLOAD_PASSWORD": broker.password}, cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def turn_to(self, flood: str) -> dict[str, Any]:
        """It is at this flood from now on; what it sent of the one before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{flood}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the flooder has ended"
        said: dict[str, Any] = json.loads(line)
        return said


@contextlib.contextmanager
def going_first() -> Iterator[None]:
    """This thread has a processor as soon as it can go on, where that may be had (as root).

    While the bystander waits for one the broker is at the flood, and that is not what its message waits for.
    """
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def wait_ns(broker: BrokerProcess, bystander: Bystander) -> float:
    """Processor time of the broker from a message of the bystander to its answer: the mean of some in a row.

    They take a while together, because the kernel counts what is running in steps of its tick.
    """
    count, begun_ns, used_ns = 0, loop_ns(broker.pid), 0
    with going_first():
        while count < MESSAGES or used_ns < USED_NS:
            bystander.work()
            count += 1
            used_ns = loop_ns(broker.pid) - begun_ns
    return used_ns / count


@pytest.fixture(scope="module")
def flooded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, FloodProcess, float]]:
    """A broker, who floods it, and what a bystander's message takes by itself, in ns."""
    with brokers_in(tmp_path_factory.mktemp("floods")) as make:
        settings = {"flooded": {"max-size-messages": 20_000, "address-full-policy": "DROP"}}
        broker = make(options={"address-settings": settings}, listener=PATIENT)
        broker.start()
        with Bystander(broker, durable=False) as bystander:
            alone = wait_ns(broker, bystander)
        with FloodProcess(broker) as flooder:
            yield broker, flooder, alone


# What fifty have sent when they are gone takes a while to be worked off, so these stand for the others (all are counted
# in tests/unit/node/test_flood_work.py, each day all of them).
BY_MANY = ("begin, end", "durable messages, a link for every fifty", "open, close")


def share_of_floods(today: int | None = TODAY) -> list[str]:
    """Of each kind a third each day, so that no day is without a flood by many."""
    others = [name for name in (*FLOODS, *CONNECTIONS) if name not in BY_MANY]
    return [*share_of_today(BY_MANY, today), *share_of_today(others, today)]


def test_each_day_has_a_flood_by_many_and_three_days_have_all() -> None:
    days = [share_of_floods(today) for today in range(3)]
    assert all(set(BY_MANY) & set(names) for names in days)
    assert (
        sorted(name for names in days for name in names)
        == sorted([*FLOODS, *CONNECTIONS])
        == sorted(share_of_floods(None))
    )


@pytest.mark.parametrize("name", share_of_floods())
def test_a_bystander_is_answered_in_between(flooded: tuple[BrokerProcess, FloodProcess, float], name: str) -> None:
    broker, flooder, alone_ns = flooded
    before, shares = broker.rss_bytes(), {}
    with Bystander(broker, durable=False) as bystander:
        for shape in (each for each in SHAPES if SHAPES[each].count == 1 or name in BY_MANY):
            flooder.turn_to(f"{shape} {name}")
            shares[shape] = wait_ns(broker, bystander) / alone_ns
            said = flooder.turn_to("")
            assert said["sent_bytes"] > 0
            assert not said["lost"], "no flood that the broker puts up with"
        grown = broker.rss_bytes() - before
        broker.wait_for_connections(1)
        bystander.work()
    print(f"{name}: {', '.join(f'{shape} {share:.1f}' for shape, share in shares.items())}; {grown >> 20} MiB more")
    assert max(shares.values()) < SHARE_MAX
    assert grown < GROWN_BYTES_MAX


def temporary(handle: int) -> bytes:
    """An attach that makes a temporary queue."""
    attach = Attach(name=f"t{handle}", handle=handle, role=True, source=Source(dynamic=True), target=Target())
    return frames.frame(attach)


@pytest.mark.one_day_in_three(0)
def test_a_bystander_is_answered_while_a_connection_with_very_many_temporary_queues_ends(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    bounded = ("queues-per-connection-max", "addresses-per-connection-max", "links-per-session-max")
    limits = dict.fromkeys(bounded, TEMPORARY + 1000)
    broker = make_broker(options={"limits": limits}, listener=PATIENT)
    broker.start()
    with Bystander(broker, durable=False) as bystander, Peer(broker) as peer:
        alone_ns = wait_ns(broker, bystander)
        peer.login()
        for start in range(0, TEMPORARY, 1000):
            peer.send(b"".join(map(temporary, range(1 + start, 1 + start + 1000))))
            peer.said.clear()
            peer.wait_for(Attach, 1000)
        peer.said.clear()
        assert queues_of(broker) == TEMPORARY
        peer.send(frames.close())
        waits, left = [], [TEMPORARY]
        with going_first():
            while left[-1]:
                before_ns = loop_ns(broker.pid)
                bystander.work()
                waits.append(loop_ns(broker.pid) - before_ns)
                left.append(queues_of(broker))
        mean_ns = statistics.mean(waits)
        print(f"{len(waits)} answers meanwhile, {mean_ns / alone_ns:.1f} times as long")
        assert left[1] > TEMPORARY // 2
        assert left == sorted(left, reverse=True)
        assert mean_ns < SHARE_MAX * alone_ns
        broker.wait_for_connections(1)
        bystander.work()


def queues_of(broker: BrokerProcess) -> int:
    """Temporary ones: all but the bystander's."""
    return int(broker.admin("status")["queues"]) - 1
