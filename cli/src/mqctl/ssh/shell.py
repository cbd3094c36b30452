"""A shell on a host: run a command to its end, or open a stream to one. The same for SSH and for the control node.

Every wait has a limit and every output a size: a host that misbehaves costs a row in a table, not the command.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mqctl.errors import CommandError, NotBegun, Unreachable
from mqctl.ssh.variables import Become

OUTPUT_BYTES_MAX = 32 * 2**20
PASSWORD = "MQCTL_SUDO"  # the variable that holds it in the remote shell, and the prompt that asks for it
BROKE_OFF = -1  # the exit code of a command that nothing is known of: its connection ended before it did
NO_ANSWER = "no answer in time"  # what is said of a host that is silent
EXIT_WAIT_S_MAX = 5.0  # from the end of the output of a command to its own
TRIAL_S_MAX = 30.0  # that sudo may take to say what it makes of a password
TRIAL_WAIT_S_MAX = 2 * TRIAL_S_MAX  # for what others try
AGAIN_S = 60.0  # from the refusal of a password that has worked to one more try: a host that starts knows it late
UNHEARD_MAX = 3  # tries one after the other of which nothing was heard: each may count as one with a wrong password
UNHEARD_S = 600.0  # the rest after so many, twice that after the next one, and so on


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended: its exit code, and the bytes that it wrote."""

    code: int
    out: bytes
    err: bytes

    @property
    def complaint(self) -> str:
        """The last line that it said on standard error, for our own message."""
        lines = [one for one in self.err.decode(errors="replace").splitlines() if one.strip()]
        return lines[-1].strip() if lines else f"exit code {self.code}"


@dataclass(slots=True)
class Trial:
    """Of a password on a host, over whatever connections: one at a time, and `refused` is what sudo said against it.

    Each further try with a wrong one brings the account nearer to being locked, and so may one that nobody answers.
    `again_at_s`: when it is tried once more nevertheless, by the monotonic clock; None: never where it is refused, and
    by each new way where not. `has_worked`: since it was last refused. `unheard`: tries since sudo has said something.
    `doubted_by`: the way that had worked and on which sudo has complained of a command since.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    refused: CommandResult | None = None
    again_at_s: float | None = None
    has_worked: bool = False
    unheard: int = 0
    doubted_by: Shell | None = None


class PipeStream(Protocol):
    """Both ends of a running command, like a socket."""

    def sendall(self, data: bytes, /) -> None: ...
    def recv(self, size: int, /) -> bytes: ...
    def settimeout(self, seconds: float | None, /) -> None: ...
    def close(self) -> None: ...

    def complaint(self) -> str:
        """What the command said on standard error, once it has ended."""
        ...


class CommandStream(PipeStream, Protocol):
    """A command that ends by itself."""

    def end_input(self) -> None:
        """There is no more for it to read."""
        ...

    def exit_code(self) -> int:
        """How it ended, once its output has ended; -1 if nobody knows, because the way to it broke."""
        ...


class Shell(Protocol):
    """A way in. `tried`: what sudo said of the password for `become` on this way, while nothing makes it doubtful."""

    name: str
    become: Become
    user: str
    tried: CommandResult | None
    trial: Trial

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        """Run a command line of the remote shell as the user that is logged in."""
        ...

    def open_plain(self, command: str, prefix: bytes) -> CommandStream:
        """Start a command line of the remote shell; `prefix` is what it reads first."""
        ...

    def close(self) -> None: ...


def elevated(shell: Shell, command: Sequence[str]) -> tuple[str, bytes]:
    """A command line with the rights of `shell.become`, and what has to be written to it first.

    Who asks for a password by standard input takes what follows for the next try, so sudo never reads where a command
    does: `-n` asks for nothing, and `-A` asks a program, which is `printenv`; the remote shell reads the password into
    a variable that sudo does not pass on. Before, the password is tried once, with nothing behind it.
    """
    line = shlex.join(command)
    become = shell.become
    if not become.is_on or shell.user == become.user:
        return line, b""
    sudo = [become.program, "-H", "-u", become.user]
    if not become.password or shell.run_plain(shlex.join([*sudo, "-n", "true"]), b"", 30).code == 0:
        return f"{shlex.join([*sudo, '-n'])} -- {line}", b""
    password = become.password.encode() + b"\n"
    _try_password(shell, [become.program, "-u", become.user, "-k", "-S", "-p", "", "-v"], password)
    asking = f"SUDO_ASKPASS=$(command -v printenv) exec {shlex.join([*sudo, '-k', '-A', '-p', PASSWORD])} -- {line}"
    return shlex.join(["sh", "-c", f"IFS= read -r {PASSWORD}; export {PASSWORD}; {asking}"]), password


def _try_password(shell: Shell, command: Sequence[str], password: bytes) -> None:
    """Once for a way in, and on a host that refused it never again: a later shell takes over its trial (pool.py).

    A password that had worked there is tried once more after AGAIN_S, and one of which nothing was heard no sooner.
    """
    trial = shell.trial
    if not trial.lock.acquire(timeout=TRIAL_WAIT_S_MAX):
        raise Unreachable(shell.name, "another try of the password for sudo does not end")
    try:
        if _is_due(shell):
            _try_now(shell, command, password)
        refused, unheard, has_tried, when = trial.refused, trial.unheard, shell.tried is not None, _when(trial)
    finally:
        trial.lock.release()
    if unheard and (refused is not None or not has_tried):
        raise Unreachable(shell.name, f"nothing was heard of the password for sudo: {when}")
    if refused is not None:
        raise CommandError(
            f"{shell.name}: {shell.user} may not act as {shell.become.user}: {refused.complaint}",
            "correct ansible_become_password in the inventory; it was tried once",
        )


def _is_due(shell: Shell) -> bool:
    trial = shell.trial
    is_early = trial.again_at_s is not None and time.monotonic() < trial.again_at_s
    if is_early and (trial.refused is not None or trial.doubted_by is not shell):
        return False
    return shell.tried is None if trial.refused is None else trial.again_at_s is not None


def _try_now(shell: Shell, command: Sequence[str], password: bytes) -> None:
    """Nothing was heard of a try until it ends with an answer, however it may end; one that was not begun is none."""
    trial = shell.trial
    before = shell.tried, trial.again_at_s, trial.doubted_by
    shell.tried = None
    trial.doubted_by = None
    trial.unheard += 1
    trial.again_at_s = time.monotonic() + _rest_s(trial.unheard)
    try:
        result = shell.run_plain(shlex.join(command), password, TRIAL_S_MAX)
    except NotBegun:
        shell.tried, trial.again_at_s, trial.doubted_by = before
        trial.unheard -= 1
        raise
    if result.code == BROKE_OFF:
        raise Unreachable(shell.name, "nothing was heard of the password for sudo: what was to try it broke off")
    shell.tried = result
    _note(trial, result)


def _rest_s(unheard: int) -> float:
    """From a try of which nothing is heard to the next one."""
    return AGAIN_S if unheard < UNHEARD_MAX else UNHEARD_S * 2 ** (unheard - UNHEARD_MAX)


def _when(trial: Trial) -> str:
    times = "once" if trial.unheard == 1 else f"{trial.unheard} times"
    rest_s = max((trial.again_at_s or 0) - time.monotonic(), 1)
    return f"it was tried {times}, and is tried again in {rest_s:.0f} s"


def _note(trial: Trial, result: CommandResult) -> None:
    is_right = result.code == 0
    trial.unheard = 0
    trial.refused = None if is_right else result
    trial.again_at_s = time.monotonic() + AGAIN_S if trial.has_worked and not is_right else None
    trial.has_worked = is_right


def _doubt(shell: Shell) -> None:
    """Sudo complains of a command: the password may be wrong by now, and `-A` tries it three times.

    So it is tried once before the next command, and this way, which has worked, waits for no rest after tries of
    others that were not heard; they do. Where the lock is not to be had, another try is under way, whose rest holds.
    """
    trial = shell.trial
    has_lock = trial.lock.acquire(timeout=TRIAL_WAIT_S_MAX)
    try:
        was_right = shell.tried is not None and shell.tried.code == 0
        shell.tried = None
        if has_lock and was_right:
            trial.doubted_by = shell
    finally:
        if has_lock:
            trial.lock.release()


def run(shell: Shell, command: Sequence[str], stdin: bytes = b"", timeout_s: float = 30) -> CommandResult:
    """Run a command with rights, to its end."""
    line, prefix = elevated(shell, command)
    result = shell.run_plain(line, prefix + stdin, timeout_s)
    _check_rights(shell, result)
    return result


def open_stream(shell: Shell, command: Sequence[str]) -> CommandStream:
    """Start a command with rights and talk to it."""
    line, prefix = elevated(shell, command)
    stream = shell.open_plain(line, prefix)
    return _WithPassword(shell, stream) if prefix else stream


class _WithPassword:
    """A command for which sudo may refuse the password: then it is tried once before the next one, as by `run`."""

    def __init__(self, shell: Shell, stream: CommandStream) -> None:
        self._shell = shell
        self._stream = stream
        self.sendall = stream.sendall
        self.recv = stream.recv
        self.settimeout = stream.settimeout
        self.close = stream.close
        self.end_input = stream.end_input
        self.exit_code = stream.exit_code

    def complaint(self) -> str:
        """What the command said, or sudo instead of it."""
        said = self._stream.complaint()
        if said.startswith("sudo:"):
            _doubt(self._shell)
        return said


def _check_rights(shell: Shell, result: CommandResult) -> None:
    lines = result.err.decode(errors="replace").splitlines()
    if result.code == 1 and any(one.startswith("sudo:") for one in lines):
        _doubt(shell)
        raise CommandError(
            f"{shell.name}: {shell.user} may not act as {shell.become.user}: {result.complaint}",
            "set ansible_become_password in the inventory, or allow sudo without a password",
        )
