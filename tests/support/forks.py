"""Brokers and mqctl as forks of a process which has imported all that they need: a start costs a test no imports.

    process = BROKERS.start(["run", "--config", path], environment, Surroundings(log))
    process.poll(), process.wait(1), process.send_signal(signal.SIGTERM)
    done = run_mqctl(["plan", "--json"], environment, folder, network, timeout_s=60)

A fork runs the real `main` in a process of its own. It has the arguments, environment, working directory, umask,
limits, network and output that are asked for, no file that is open elsewhere, the dispositions of signals of a fresh
Python, and it ends as a Python ends, but for taking apart what was imported. As with Popen, it is there as a zombie
until it was waited for, and outlives the tests where nobody ends it. What it does not have of its own is a command
line, a seed of hashes, and what Python and the loader read in the environment when they begin. What the program imports
late or prepares while it is idle is there as well; tests of that, and of the start itself, execute theirs.

The process with the imports of a program is started at the first need and ends with the tests. It is the parent of the
forks and has no thread but one; it is asked through a socket, a datagram for each question and each answer.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from tests.support import ansible_forks

ROOT = Path(__file__).resolve().parents[2]
# What the broker leaves to a fork of its own, to a thread while it is idle, and to who asks first.
LATE = ("mqbroker.config.declarations.clustering", "mqbroker.config.file.load", "mqbroker.io.requests.exposition")
QUESTION_BYTES_MAX = 200_000
CLONE_NEWNET = 0x40000000  # of linux/sched.h
LIBC = ctypes.CDLL(None, use_errno=True)
STANDARD = 3  # input, output, errors
# What Python and the loader take out of the environment before any of our code runs.
BEFORE_MAIN = ("PYTHON", "LD_", "LC_", "LANG")
LIMITS = tuple(sorted(value for name, value in vars(resource).items() if name.startswith("RLIMIT_")))


@dataclass(frozen=True)
class Surroundings:
    """What a process has about it: errors go where its output goes, network and folder are ours where none is said.

    It reads nothing where no input is given.
    """

    output: IO[bytes]
    errors: IO[bytes] | None = None
    network: Path | None = None
    cwd: Path | None = None
    input: IO[bytes] | None = None


class ForkedProcess:
    """As much of a Popen as tests use."""

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
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
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
    """The process with the imports of a program, as seen by the tests of this process."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._asking = threading.Lock()  # tests start several at a time
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, words: Sequence[str], environment: Mapping[str, str], around: Surroundings) -> ForkedProcess:
        """A process of the program, with the umask and limits of this one."""
        assert may_be_forked(environment)
        with self._asking:
            if self._channel is None:
                self._channel = self._begin()
        umask = os.umask(0)
        os.umask(umask)
        limits = [resource.getrlimit(each) for each in LIMITS]
        question = {
            "words": list(words), "environment": dict(environment), "network": str(around.network or ""),
            "cwd": str(around.cwd or os.getcwd()), "umask": umask, "limits": limits,
        }  # fmt: skip
        errors = around.errors or around.output
        with open(os.devnull, "rb") as nothing:
            files = ((around.input or nothing).fileno(), around.output.fileno(), errors.fileno())
            return ForkedProcess(self, self.ask(question, files))

    def ask(self, question: Mapping[str, Any], files: tuple[int, ...] = ()) -> int:
        assert self._channel is not None
        with self._asking:
            socket.send_fds(self._channel, [json.dumps(question).encode()], files)
            answer = self._channel.recv(QUESTION_BYTES_MAX)
        assert answer, f"the process that {self._program} is forked off is gone"
        return int(answer)

    def close(self) -> None:
        """The end of the process with the imports: what it and its forks have computed is ours then."""
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait()
            self._channel = self._process = None

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.support.forks", self._program, str(theirs.fileno())]
            command += [ansible_forks.PROGRAMS.folder()] if self._program == "mqctl" else []
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=BEGAN_WITH, pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        return ours


BROKERS = Forks("mqbroker")
MQCTL = Forks("mqctl")
BEGAN_WITH = dict(os.environ)


def close() -> None:
    """The end of all of them."""
    BROKERS.close()
    MQCTL.close()
    ansible_forks.PROGRAMS.close()


def run_mqctl(
    words: Sequence[str], environment: Mapping[str, str], cwd: Path, network: Path | None = None, *, timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """As `run_mqctl_on_bytes`, with nothing to read; what it said as texts."""
    done = run_mqctl_on_bytes(words, environment, cwd, network, timeout_s=timeout_s)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def run_mqctl_on_bytes(
    words: Sequence[str],
    environment: Mapping[str, str],
    cwd: Path,
    network: Path | None = None,
    *,
    stdin: bytes = b"",
    timeout_s: float,
) -> subprocess.CompletedProcess[bytes]:
    """Run it to its end, and until nobody holds its output any more, as `subprocess.run` does; it is killed at a
    timeout."""
    pipes = [os.pipe(), os.pipe()]
    with (
        ThreadPoolExecutor(len(pipes)) as pool,
        tempfile.TemporaryFile() as given,
        os.fdopen(pipes[0][1], "wb") as output,
        os.fdopen(pipes[1][1], "wb") as errors,
    ):
        given.write(stdin)
        given.seek(0)
        said = [pool.submit(_read, source) for source, _ in pipes]
        try:
            process = MQCTL.start(words, environment, Surroundings(output, errors, network, cwd, given))
        finally:
            output.close()
            errors.close()
        try:
            code = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        what = [one.result(timeout_s) for one in said]
    return subprocess.CompletedProcess(["mqctl", *words], code, *what)


def _read(source: int) -> bytes:
    with os.fdopen(source, "rb") as file:
        return file.read()


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


def imported(program: str) -> ModuleType:
    """The module with the `main` of the program, once all is imported that it may need."""
    if program == "mqbroker":
        for name in ("uvloop", "mqbroker.app.commands.run", *LATE):
            importlib.import_module(name)
        importlib.import_module("mqbroker.core.selector.grammar").prepare()
        return importlib.import_module("mqbroker.app.main")
    command_line = importlib.import_module("mqctl.main")
    for name in command_line.COMMANDS.values():
        importlib.import_module(f"mqctl.commands.{name}")
    return command_line


if __name__ == "__main__":
    command_line = imported(sys.argv[1])
    for folder in sys.argv[3:]:
        ansible_forks.put_before(importlib.import_module("mqctl.ansible_cli"), folder)
    assert threading.active_count() == 1
    # Who looks through it would have a copy of it all, and so would who takes it apart at the end.
    gc.collect()
    gc.freeze()
    sys.argv = [str(command_line.__file__), *serve(socket.socket(fileno=int(sys.argv[2])))]
    sys.exit(command_line.main())
