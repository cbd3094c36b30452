"""The control node itself, for hosts with ansible_connection=local."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import tempfile
from typing import IO

from mqctl.errors import CommandError, NotBegun, Unreachable
from mqctl.ssh.shell import EXIT_WAIT_S_MAX, CommandResult, Trial
from mqctl.ssh.variables import Become


class LocalStream:
    """A child process whose standard input and output are one end of a socket pair.

    It is in a process group of its own: as on any other host, Ctrl-C is for mqctl alone, which lets it come to its end.
    The terminal stays its own, by which sudo knows who has given a password.
    """

    def __init__(self, command: str, prefix: bytes) -> None:
        self._socket, theirs = socket.socketpair()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 -- lives as long as the stream
        with theirs:
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", command], stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._errors,
                process_group=0,
            )  # fmt: skip
        self.settimeout = self._socket.settimeout
        self.sendall = self._socket.sendall
        self.recv = self._socket.recv
        try:
            if prefix:
                self.sendall(prefix)
        except OSError:
            self.close()
            raise

    def end_input(self) -> None:
        """Nothing more is written to the command's standard input."""
        self._socket.shutdown(socket.SHUT_WR)

    def exit_code(self) -> int:
        """The exit code of the command; -1 where it does not end in EXIT_WAIT_S_MAX."""
        try:
            return self._child.wait(timeout=EXIT_WAIT_S_MAX)
        except subprocess.TimeoutExpired:
            return -1

    def complaint(self) -> str:
        """The last line on standard error."""
        code = self.exit_code()  # before the seek: the child writes through the same open file
        self._errors.seek(0)
        return CommandResult(code, b"", self._errors.read(65536)).complaint

    def close(self) -> None:
        """End of input; the child is given a moment, then ended."""
        self._socket.close()
        try:
            self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._errors.close()


class LocalShell:
    """Runs commands on this machine, as the shell of a host does."""

    def __init__(self, name: str, become: Become) -> None:
        self.name = name
        self.become = become
        self.tried: CommandResult | None = None
        self.trial = Trial()
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.is_alive = True
        self.is_broken = False

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        """Run a command and wait for its end (shell.py:Shell)."""
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command], input=stdin, capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise CommandError(f"{self.name}: no answer within {timeout_s:g} s") from None
        except OSError as fault:  # such as: there are no more processes
            raise NotBegun(self.name, f"mqctl: {fault.strerror}") from fault
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def open_plain(self, command: str, prefix: bytes) -> LocalStream:
        """Begin a command, and give back the stream to talk with it (shell.py:Shell)."""
        try:
            return LocalStream(command, prefix)
        except OSError as fault:
            raise Unreachable(self.name, f"a command did not read what it needs: {fault.strerror}") from fault

    def close(self) -> None:
        """A local shell holds nothing, so nothing is closed."""
