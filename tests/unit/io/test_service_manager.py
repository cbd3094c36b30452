"""sd_notify over a socket of the test's own."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mqbroker.io import service_manager
from mqbroker.io.service_manager import Notifier, StopDelay, Watchdog

from tests.support.broker_process import NotifySocket
from tests.support.patience import PATIENCE_S


@pytest.fixture
def told(tmp_path: Path) -> Iterator[NotifySocket]:
    end = NotifySocket(tmp_path / "n")
    yield end
    end.close()


def test_messages_in_order(told: NotifySocket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(told.path)})
    notifier.status("recovering")
    notifier.ready("running")
    notifier.reloading(5_000_000)
    notifier.stopping("stopping")
    notifier.close()
    assert told.drain() == [
        "STATUS=recovering",
        "READY=1",
        "STATUS=running",
        "RELOADING=1",
        "MONOTONIC_USEC=5000",
        "STOPPING=1",
        "STATUS=stopping",
    ]


def test_abstract_sockets() -> None:
    name = f"mq-notify-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(f"\0{name}")
        end.settimeout(PATIENCE_S)
        notifier = Notifier({"NOTIFY_SOCKET": f"@{name}"})
        notifier.ready("running")
        assert end.recv(4096) == b"READY=1\nSTATUS=running"
        notifier.close()


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    Notifier({}).ready("running")
    gone = Notifier({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    gone.ready("running")
    gone.close()


def test_a_manager_that_does_not_read_never_blocks(told: NotifySocket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(told.path)})
    for number in range(5000):
        notifier.status(str(number))
    notifier.close()
    assert 0 < len(told.drain()) < 5000


def test_more_time_is_asked_for_until_the_work_is_done(told: NotifySocket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_manager, "EXTEND_EVERY_S", 0.01)
    notifier = Notifier({"NOTIFY_SOCKET": str(told.path)})
    with notifier.more_time("recovering"):
        assert told.wait_for("EXTEND_TIMEOUT_USEC=60000000", PATIENCE_S, count=3)
    told.forget()
    assert not told.wait_for("EXTEND_TIMEOUT_USEC=60000000", 0.1)
    notifier.close()


@pytest.mark.parametrize(
    ("environment", "expected_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_watchdog_time(environment: dict[str, str], expected_s: float | None) -> None:
    assert Notifier(environment).watchdog_s == expected_s


def test_the_watchdog_is_fed_only_while_healthy(told: NotifySocket, run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        notifier = Notifier({"NOTIFY_SOCKET": str(told.path), "WATCHDOG_USEC": "30000"})
        healthy = [True]
        watchdog = Watchdog(asyncio.get_running_loop(), notifier, lambda: healthy[0])
        watchdog.start()
        await asyncio.sleep(0.1)
        assert told.drain().count("WATCHDOG=1") >= 3
        healthy[0] = False
        told.forget()
        await asyncio.sleep(0.1)
        assert told.drain() == []
        watchdog.stop()
        notifier.close()

    run(scenario())


def test_what_comes_behind_a_stop_that_waited_has_its_time_too(told: NotifySocket, run: Callable[[Any], Any]) -> None:
    async def scenario() -> None:
        notifier = Notifier({"NOTIFY_SOCKET": str(told.path)})
        delay = StopDelay(asyncio.get_running_loop(), notifier)
        delay.stop(600_000)
        assert told.drain() == [], "nobody waits, so the unit's own time holds"
        delay.start()
        told.forget()
        delay.stop(600_000)
        delay.stop()
        assert told.drain() == ["EXTEND_TIMEOUT_USEC=660000000"]
        notifier.close()

    run(scenario())
