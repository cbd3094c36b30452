"""Connections by host.

Invariant: a jump host is connected to once, however many hosts lie behind it (its sshd refuses many logins at a time).
A connection that broke is no way to its host any more: who asks for it again has another one, if the host is there.
A host that is not is dialled again after a rest only (rests.py): who asks meanwhile hears what the last attempt met.
A jump host has a rest of its own, which is the same for all hosts behind it.
"""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from mqctl.errors import Unreachable, UsageError
from mqctl.ssh.client import SshConnection, SshShell
from mqctl.ssh.local import LocalShell
from mqctl.ssh.rests import Rest
from mqctl.ssh.settings import Hop, hop_of, jump_arguments, parse
from mqctl.ssh.shell import Shell
from mqctl.ssh.variables import Access

JUMPS_MAX = 8
SILENT_MAX = 256  # connections that are kept though something newer has taken their place


def effective_settings(access: Access, arguments: Sequence[str]) -> Hop:
    """Ask OpenSSH what a command line means, all configuration files read."""
    command = [access.program, "-G", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise UsageError(f"{access.program} is not installed here", "apt install openssh-client") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(access.name, f"{access.program} -G did not end within 20 s") from None
    if done.returncode != 0:
        complaint = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise UsageError(f"{access.name}: ssh refuses its options: {complaint[0]}", "look at ansible_ssh_common_args")
    return hop_of(access.name, parse(done.stdout))


class SshConnector:
    """Opens shells over SSH, one connection for each host and each jump host."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        # paramiko logs tracebacks of what reaches us as an exception anyway.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, ...], threading.Lock] = {}
        self._shells: dict[str, SshShell | LocalShell] = {}
        self._silent: list[SshShell | LocalShell | SshConnection] = []
        self._rests: dict[tuple[str, ...], Rest] = {}
        self._jumps: dict[tuple[str, ...], SshConnection] = {}
        self._jumps_before: dict[str, set[tuple[str, ...]]] = {}  # of each host

    def shell(self, access: Access) -> Shell:
        """The shell of a host, opened where there is none yet (world.py:ShellConnector)."""
        with self._lock_of(("host", access.name)):
            kept = self._shells.get(access.name)
            if kept is None:
                kept = self._shells[access.name] = self._open(access)
            elif not kept.is_alive:
                self._leave(kept)
                kept = self._shells[access.name] = self._open_again(access, kept)
            return kept

    def _open_again(self, access: Access, kept: Shell) -> SshShell | LocalShell:
        """Of a host that had a shell before. Who asks for the first time looks once or twice, and by hand."""
        own = ("host", access.name)
        for key in (own, *self._jumps_before[access.name]):
            self._check_rest(key, access)  # before OpenSSH is asked twice for each look
        hop, before = self._way(access)
        fresh = SshShell(self._dial(own, access, hop, before), access.become)
        fresh.trial = kept.trial
        return fresh

    def _open(self, access: Access) -> SshShell | LocalShell:
        if access.is_local:
            return LocalShell(access.name, access.become)
        hop, before = self._way(access)
        return SshShell(SshConnection(access, hop, before), access.become)

    def _way(self, access: Access) -> tuple[Hop, SshConnection | None]:
        """What OpenSSH knows of a host, and the connection to the last jump host before it."""
        self._jumps_before.setdefault(access.name, set())
        hop = effective_settings(access, access.arguments)
        return hop, self._jump(access, hop, access.arguments, 0)

    def _dial(self, key: tuple[str, ...], access: Access, hop: Hop, before: SshConnection | None) -> SshConnection:
        """A connection, or what the last attempt under `key` met, where its rest is not over."""
        rest = self._check_rest(key, access)
        try:
            made = SshConnection(access, hop, before)
        except Unreachable as fault:
            self._rests[key] = Rest.after(fault, rest, self._monotonic_s())
            raise
        self._rests.pop(key, None)
        return made

    def _check_rest(self, key: tuple[str, ...], access: Access) -> Rest | None:
        rest = self._rests.get(key)
        if rest is not None:
            rest.check(self._monotonic_s(), access.name)
        return rest

    def _jump(self, access: Access, hop: Hop, arguments: Sequence[str], depth: int) -> SshConnection | None:
        through = jump_arguments(hop, arguments)
        if through is None:
            return None
        if depth == JUMPS_MAX:
            raise UsageError(f"{access.name}: more than {JUMPS_MAX} jump hosts (ProxyJump {hop.proxy_jump})")
        key = ("jump host", access.program, *through)
        self._jumps_before[access.name].add(key)
        jump_access = Access(access.name, program=access.program, arguments=tuple(through), timeout_s=access.timeout_s)
        next_hop = effective_settings(jump_access, through)
        before = self._jump(access, next_hop, through, depth + 1)
        with self._lock_of(key):
            connection = self._jumps.get(key)
            if connection is None or not connection.is_alive:
                if connection is not None:
                    self._leave(connection)
                connection = self._jumps[key] = self._dial(key, jump_access, next_hop, before)
            return connection

    def _leave(self, way: SshShell | LocalShell | SshConnection) -> None:
        """Nothing new is begun there. What waits for a server that is slow alone may still come to its end."""
        if way.is_broken:
            way.close()  # a ProxyCommand may still run
            return
        with self._lock:
            self._silent = [one for one in self._silent if one is not way]
            self._silent.append(way)
            too_many = self._silent.pop(0) if len(self._silent) > SILENT_MAX else None
        if too_many is not None:
            too_many.close()

    def _lock_of(self, key: tuple[str, ...]) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(key, threading.Lock())

    def close(self) -> None:
        """Close all shells, and the connections to jump hosts."""
        for way in (*self._shells.values(), *self._jumps.values(), *self._silent):
            way.close()
        self._silent.clear()
        self._shells.clear()
        self._jumps.clear()
