"""Work that a fork does: what comes of it, and what is said where nothing does."""

from __future__ import annotations

import errno
import os
import signal
import sys

import pytest
from mqbroker.app.forked_work import _answer, apart
from mqbroker.base.errors import MqError


def test_the_result_is_found_out_by_another_process_that_is_gone_then() -> None:
    found, size = apart(lambda: (os.getpid(), "x" * 200_000))  # more than a pipe holds
    assert found != os.getpid()
    assert len(size) == 200_000
    with pytest.raises(ChildProcessError):
        os.waitpid(found, 0)


def test_what_is_imported_there_stays_there() -> None:
    name = "this"  # of the standard library, which nothing imports
    assert name not in sys.modules
    assert apart(lambda: bool(__import__(name)))
    assert name not in sys.modules


def test_no_file_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    apart(lambda: 1)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_work_that_raises_is_told_with_its_trace(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MqError, match="ended with 1; start again"):
        apart(lambda: 1 // 0)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_process_that_is_killed_is_told() -> None:
    with pytest.raises(MqError, match=f"ended with -{signal.SIGKILL.value};"):
        apart(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_where_no_process_may_begin_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", refused)
    with pytest.raises(MqError, match="Resource temporarily unavailable; raise TasksMax"):
        apart(lambda: 1)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_who_asked_and_was_killed_is_told_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    child = os.fork()
    if not child:
        _answer(lambda: 1, writing)
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert capfd.readouterr().err == ""
