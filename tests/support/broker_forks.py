"""Brokers that are forks of a process which has imported all that they need: a start costs a test no imports.

    process = FORKS.start(["run", "--config", path], environment, log)
    process.poll(), process.wait(1), process.send_signal(signal.SIGTERM)

A fork runs the real `main` in a process of its own. It has the arguments, environment, working directory, umask,
limits, network and output that are asked for, no file that is open elsewhere, the dispositions of signals of a fresh
Python, and it ends as a Python ends. As with Popen, it is there as a zombie until it was waited for, and outlives the
tests where nobody ends it. What it does not have of its own is a command line, a seed of hashes, and what Python and
the loader read in the environment when they begin; tests of the start itself execute theirs.

The process with the imports is started at the first need and ends with the tests. It is the parent of the brokers and
has no thread but one; it is asked through a socket, a datagram for each question and each answer.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[2]
QUESTION_BYTES_MAX = 200_000
CLONE_NEWNET = 0x40000000  # of linux/sched.h
LIBC = ctypes.CDLL(None, use_errno=True)
STANDARD = 3  # input, output, errors
# What Python and the loader take out of the environment before any of our code runs.
BEFORE_MAIN = ("PYTHON", "LD_", "LC_", "LANG")
LIMITS = tuple(sorted(value for name, value in vars(resource).items() if name.startswith("RLIMIT_")))


class ForkedProcess:
    """As much of a Popen as tests of brokers use."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._forks = forks
        self._is_over = os.pidfd_open(pid)  # it was not waited for, so the number is still its own

    def poll(self) -> int | None:
        """The exit code, or minus the signal that ended it, once it has ended."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"broker {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._is_over, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            look = select.poll()
            look.register(self._is_over, select.POLLIN)
            if look.poll(None if timeout_s is None else timeout_s * 1000):
                self.returncode = self._forks.ask({"ended": self.pid})
                os.close(self._is_over)
        return self.returncode


class Forks:
    """The process with the imports, as seen by the tests of this process."""

    def __init__(self) -> None:
        self._asking = threading.Lock()  # tests start several brokers at a time
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self, words: list[str], environment: Mapping[str, str], log: IO[bytes], network: Path | None = None
    ) -> ForkedProcess:
        """A broker that says everything into `log`, with the working directory, umask and limits of this process."""
        assert may_be_forked(environment)
        with self._asking:
            if self._channel is None:
                self._channel = self._begin()
        umask = os.umask(0)
        os.umask(umask)
        limits = [resource.getrlimit(each) for each in LIMITS]
        question = {
            "words": words, "environment": dict(environment), "network": str(network or ""),
            "cwd": os.getcwd(), "umask": umask, "limits": limits,
        }  # fmt: skip
        with open(os.devnull, "rb") as nothing:
            return ForkedProcess(self, self.ask(question, (nothing.fileno(), log.fileno(), log.fileno())))

    def ask(self, question: Mapping[str, Any], files: tuple[int, ...] = ()) -> int:
        assert self._channel is not None
        with self._asking:
            socket.send_fds(self._channel, [json.dumps(question).encode()], files)
            answer = self._channel.recv(QUESTION_BYTES_MAX)
        assert answer, "the process that brokers are forked off is gone"
        return int(answer)

    def close(self) -> None:
        """The end of the process with the imports: what it and brokers have computed is ours then."""
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait()
            self._channel = self._process = None

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.support.broker_forks", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=BEGAN_WITH, pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        return ours


FORKS = Forks()
BEGAN_WITH = dict(os.environ)


def may_be_forked(environment: Mapping[str, str]) -> bool:
    """Whether Python would begin with it as it began here."""
    return all(
        environment.get(name) == BEGAN_WITH.get(name)
        for name in {*environment, *BEGAN_WITH}
        if name.startswith(BEFORE_MAIN)
    )


def serve(channel: socket.socket) -> list[str]:
    """Answer until the tests are over. Returns in each fork, with the words of its command line."""
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, and for brokers
    while True:
        said, files, _, _ = socket.recv_fds(channel, QUESTION_BYTES_MAX, STANDARD)
        if not said:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            os._exit(0)
        question = json.loads(said)
        if "ended" in question:
            _, status = os.waitpid(question["ended"], 0)
            answer = os.waitstatus_to_exitcode(status)
        elif answer := os.fork():
            for each in files:
                os.close(each)
        else:
            channel.detach()
            become(question, files, on_interrupt)
            words: list[str] = question["words"]
            return words
        channel.send(str(answer).encode())


def become(question: Mapping[str, Any], files: list[int], on_interrupt: Any) -> None:
    """Make of a fork what a process would be that was started as the question says."""
    for place, each in enumerate(files):
        os.dup2(each, place)
    os.closerange(STANDARD, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGINT, on_interrupt)
    os.environ.clear()
    os.environ.update(question["environment"])
    time.tzset()
    os.chdir(question["cwd"])
    os.umask(question["umask"])
    if question["network"]:
        enter(question["network"])
    for which, limit in zip(LIMITS, question["limits"], strict=True):
        if list(resource.getrlimit(which)) != limit:
            resource.setrlimit(which, tuple(limit))


def enter(network: str) -> None:
    """What `nsenter --net` does."""
    with open(network, "rb") as file:
        if LIBC.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), network)


if __name__ == "__main__":
    import uvloop  # noqa: F401
    from mqbroker.app import main as command_line
    from mqbroker.app.commands import run  # noqa: F401

    assert threading.active_count() == 1
    sys.argv = [command_line.__file__, *serve(socket.socket(fileno=int(sys.argv[1])))]
    sys.exit(command_line.main())
