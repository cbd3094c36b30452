"""A paramiko connection through any number of jump hosts, and the shell on it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from typing import Any

import paramiko

from mqctl.errors import LoginRefused, NotBegun, Unreachable, UsageError
from mqctl.ssh.auth import Strategy
from mqctl.ssh.hostkeys import HostKeyPolicy, HostKeyRefused, read
from mqctl.ssh.settings import Hop
from mqctl.ssh.shell import EXIT_WAIT_S_MAX, NO_ANSWER, OUTPUT_BYTES_MAX, CommandResult, Trial
from mqctl.ssh.variables import Access, Become
from mqctl.ssh.wire import Wire

SESSIONS_MAX = 8  # sshd allows ten on a connection (MaxSessions)
SESSION_WAIT_S_MAX = 120
NOT_NEGOTIATED = "No existing session"  # paramiko, where a server has not begun one in time
BROKEN = (paramiko.SSHException, OSError, EOFError)  # what paramiko raises of a connection
FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}
PREFERENCES = {name: getattr(paramiko.Transport, f"_preferred_{name}") for name in
               ("ciphers", "kex", "macs", "keys", "pubkeys")}  # fmt: skip


class ProxyProcess:
    """A ProxyCommand: a shell command whose standard input and output are the connection."""

    def __init__(self, command: str) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            self._child = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
            )

    def close(self) -> None:
        """End the process of the ProxyCommand."""
        self.socket.close()
        self._child.terminate()
        try:
            self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


class SshConnection:
    """A logged-in SSH connection to one hop."""

    def __init__(self, access: Access, hop: Hop, before: SshConnection | None) -> None:
        self.access = access
        self.hop = hop
        self._proxy: ProxyProcess | None = None
        self._wire: Wire | None = None
        self._is_silent = False
        self._sessions = threading.BoundedSemaphore(SESSIONS_MAX)
        self._client = paramiko.SSHClient()
        try:
            self._connect(before)
        except BaseException:
            self.close()
            raise

    def _connect(self, before: SshConnection | None) -> None:
        hop, timeout_s = self.hop, self.access.timeout_s
        known = read(hop)
        policy = HostKeyPolicy(hop, known)
        strategy = Strategy(hop, self.access.password, self.access.passphrase, policy, timeout_s)
        name, port = (hop.known_as, 22) if hop.known_as else (hop.host, hop.port)
        if hop.host_keys != "no":
            for key in known.keys:
                self._client.get_host_keys().add(hop.known_hosts_name, key.get_name(), key)
        self._client.set_missing_host_key_policy(policy)
        try:
            self._wire = Wire(self._socket(before), timeout_s)
            self._client.connect(
                name,
                port,
                username=hop.user,
                sock=self._wire,  # type: ignore[arg-type]
                timeout=timeout_s,
                banner_timeout=2 * timeout_s,  # so that `timeout` ends it, which is told apart from another end
                auth_timeout=3 * timeout_s,  # a host may have to ask a directory that is slow; OpenSSH has no limit
                channel_timeout=timeout_s,
                compress=hop.is_compressed,
                disabled_algorithms=disabled_algorithms(hop),
                auth_strategy=strategy,
                transport_factory=self._transport,
            )
        except BROKEN as fault:
            raise self._unreachable(fault, strategy) from fault
        transport = self._client.get_transport()
        if transport is not None and hop.keepalive_s:
            transport.set_keepalive(hop.keepalive_s)

    def _transport(self, sock: Any, **options: Any) -> paramiko.Transport:
        transport = paramiko.Transport(sock, **options)
        transport.handshake_timeout = 2 * self.access.timeout_s
        return transport

    def _socket(self, before: SshConnection | None) -> Any:
        hop = self.hop
        if before is not None:
            return before.forward(hop.host, hop.port)
        if hop.proxy_command:
            self._proxy = ProxyProcess(hop.proxy_command)
            return self._proxy.socket
        return dial(hop, self.access.timeout_s)

    def forward(self, host: str, port: int) -> paramiko.Channel:
        """A channel to a server that this one can reach."""
        transport = self._client.get_transport()
        if transport is None:
            raise paramiko.SSHException(f"the connection to {self.hop} is gone")
        try:
            return transport.open_channel("direct-tcpip", (host, port), ("127.0.0.1", 0), timeout=self.access.timeout_s)
        except paramiko.ChannelException as fault:
            raise paramiko.SSHException(f"{self.hop} cannot reach {host}:{port}: {fault.text}") from fault
        except BROKEN as fault:
            if self._is_stuck:
                raise paramiko.SSHException(f"{self.hop} does not answer") from fault
            if self.is_broken:
                raise paramiko.SSHException(f"the connection to {self.hop} is gone") from fault
            self._ask(transport)
            raise paramiko.SSHException(f"{self.hop} has not reached {host}:{port} in time") from fault

    def _ask(self, transport: paramiko.Transport) -> None:
        """Whether it answers at all: the host behind it may be what is silent."""
        try:
            self._session(transport).close()
        except paramiko.ChannelException:
            return  # that is an answer
        except paramiko.SSHException as fault:
            raise paramiko.SSHException(f"{self.hop} does not answer") from fault

    def channel(self, command: str) -> paramiko.Channel:
        """Start a command line in the user's shell on the host. Whoever called gives the channel to `release`.

        Raises NotBegun: nothing is written to a command before this has returned.
        """
        if not self._sessions.acquire(timeout=SESSION_WAIT_S_MAX):
            raise NotBegun(self.access.name, f"{SESSIONS_MAX} commands run there already")
        try:
            return self._open(command)
        except BROKEN as fault:
            self._sessions.release()
            lost = self.lost(fault)
            raise NotBegun(lost.host, lost.why, lost.attempt) from fault

    def _open(self, command: str) -> paramiko.Channel:
        transport = self._client.get_transport()
        if transport is None or not transport.is_active():
            raise paramiko.SSHException("the connection is gone")
        channel = self._session(transport)
        channel.settimeout(self.access.timeout_s)
        self._execute(channel, command)
        return channel

    def _session(self, transport: paramiko.Transport) -> paramiko.Channel:
        try:
            return transport.open_session(timeout=self.access.timeout_s)
        except paramiko.ChannelException:
            raise  # that is an answer
        except paramiko.SSHException as fault:
            if self.is_broken:
                raise
            self._is_silent = True
            raise paramiko.SSHException(NO_ANSWER) from fault

    def _execute(self, channel: paramiko.Channel, command: str) -> None:
        """What the server says of a command, paramiko itself waits for without a limit."""
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            self._is_silent = True
            with contextlib.suppress(*BROKEN):
                channel.close()

        limit = threading.Timer(self.access.timeout_s, give_up)
        limit.daemon = True
        try:
            limit.start()
        except RuntimeError as fault:  # there are no more threads
            raise paramiko.SSHException(f"mqctl: {fault}") from fault
        try:
            channel.exec_command(command)
        except BROKEN as fault:
            if is_late.is_set():
                raise paramiko.SSHException(NO_ANSWER) from fault
            raise
        finally:
            limit.cancel()

    def release(self, channel: paramiko.Channel) -> None:
        """Close a channel and let the next command run."""
        try:
            # Where the server hears nothing of its end, it does not hear of anything else either.
            with contextlib.suppress(*BROKEN):
                channel.close()
        finally:
            self._sessions.release()

    @property
    def is_alive(self) -> bool:
        """Whether the connection still stands, and its server answers."""
        return not self._is_silent and not self.is_broken

    @property
    def is_broken(self) -> bool:
        """Whether it is known that nothing comes over it any more: of a silent one it is not."""
        transport = self._client.get_transport()
        return self._is_stuck or transport is None or not transport.is_active()

    @property
    def _is_stuck(self) -> bool:
        return self._wire is not None and self._wire.is_stuck

    def close(self) -> None:
        """Close the connection, and the proxy that it goes through."""
        with contextlib.suppress(Exception):
            self._client.close()
        if self._proxy is not None:
            self._proxy.close()

    def lost(self, fault: BaseException) -> Unreachable:
        """What is told of a connection that was logged in."""
        why = NO_ANSWER if self._is_stuck else describe(fault)
        return Unreachable(self.access.name, f"{self.hop}: {why}", f"ssh {self.hop.host}")

    def _unreachable(self, fault: Exception, strategy: Strategy) -> Unreachable:
        hop, name = self.hop, self.access.name
        attempt = f"ansible -m ping -i INVENTORY {name}"
        if isinstance(fault, HostKeyRefused):
            return LoginRefused(name, str(fault), "ssh to it once and compare the fingerprint")
        if isinstance(fault, paramiko.BadHostKeyException):
            return LoginRefused(
                name,
                f"the host key of {hop} has changed to {fault.key.fingerprint}",
                f"if that is right: ssh-keygen -R '{hop.known_hosts_name}'",
            )
        if self._is_stuck:
            return Unreachable(name, f"{hop}: {NO_ANSWER}", attempt)
        if isinstance(fault, paramiko.AuthenticationException):
            return LoginRefused(name, f"{hop} lets nobody in: {login_report(fault, strategy)}", attempt)
        return Unreachable(name, f"{hop}: {describe(fault)}", attempt)


def login_report(fault: paramiko.AuthenticationException, strategy: Strategy) -> str:
    """What was offered and what else the server would take. Never a secret: only kinds and counts."""
    result = getattr(fault, "result", [])
    kinds: dict[str, int] = {}
    allowed: set[str] = set()
    for one in result:
        kind = {"InMemoryPrivateKey": "key"}.get(type(one.source).__name__, "password")
        kinds[kind] = kinds.get(kind, 0) + 1
        allowed |= set(getattr(one.result, "allowed_types", []))
    tried = " and ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in kinds.items()) or "nothing"
    report = f"{tried} offered"
    other = sorted(allowed - {"publickey", "password", "keyboard-interactive"})
    if other:
        report += f", the server also takes {' '.join(other)}, which mqctl does not speak"
    return "; ".join([report, *strategy.notes])


def describe(fault: BaseException) -> str:
    """A sentence for an error of the network."""
    if isinstance(fault, TimeoutError) or str(fault) == NOT_NEGOTIATED:
        return NO_ANSWER
    if isinstance(fault, EOFError):
        return "the connection broke"
    if isinstance(fault, socket.gaierror):
        return "the name is not known"
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror.lower()
    return str(fault) or type(fault).__name__


def disabled_algorithms(hop: Hop) -> dict[str, list[str]]:
    """paramiko's algorithms that OpenSSH would not use here; an empty remainder is an error that names the option."""
    disabled = {}
    for name, allowed in hop.algorithms:
        ours = PREFERENCES[name]
        off = [one for one in ours if one not in allowed]
        if len(off) == len(ours):
            raise UsageError(f"{hop}: none of {','.join(allowed)} (SSH option {name}) is known to mqctl")
        disabled[name] = off
    return disabled


def dial(hop: Hop, timeout_s: float) -> socket.socket:
    """A TCP connection to the first address of the host that answers."""
    last: OSError = OSError("the name has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(
        hop.host, hop.port, FAMILIES.get(hop.address_family, socket.AF_UNSPEC), socket.SOCK_STREAM
    ):
        one = socket.socket(family, kind, protocol)
        try:
            one.settimeout(timeout_s)
            if hop.bind_address:
                one.bind((hop.bind_address, 0))
            one.connect(address)
        except OSError as fault:
            one.close()
            last = fault
        else:
            return one
    raise last


class SshStream:
    """A running command on a channel."""

    def __init__(self, connection: SshConnection, channel: paramiko.Channel) -> None:
        self._connection = connection
        self._channel = channel
        self._is_closed = False
        self.sendall = channel.sendall
        self.recv = channel.recv
        self.settimeout = channel.settimeout

    def close(self) -> None:
        """End of input and of output."""
        if not self._is_closed:
            self._is_closed = True
            self._connection.release(self._channel)

    def end_input(self) -> None:
        """Nothing more is written to the command's standard input."""
        self._channel.shutdown_write()

    def exit_code(self) -> int:
        """The exit code of the command; -1 where it does not end in EXIT_WAIT_S_MAX."""
        return self._channel.recv_exit_status() if self._channel.status_event.wait(EXIT_WAIT_S_MAX) else -1

    def complaint(self) -> str:
        """The last line on standard error, once output has ended."""
        code = self.exit_code()
        errors = bytearray()
        while self._channel.recv_stderr_ready() and len(errors) < 65536:
            errors += self._channel.recv_stderr(65536)
        return CommandResult(code, b"", bytes(errors)).complaint


class SshShell:
    """Runs commands on a host over one SSH connection."""

    def __init__(self, connection: SshConnection, become: Become) -> None:
        self.name = connection.access.name
        self.become = become
        self.tried: CommandResult | None = None
        self.trial = Trial()
        self.user = connection.hop.user
        self._connection = connection

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        """Run a command and wait for its end (shell.py:Shell)."""
        channel = self._connection.channel(command)
        deadline = time.monotonic() + timeout_s
        err = bytearray()
        errors = threading.Thread(target=_drain, args=(channel, err), daemon=True)
        writer = threading.Thread(target=_write, args=(channel, stdin), daemon=True)
        try:
            try:
                errors.start()
                writer.start()  # last: where one does not start, nothing was written
            except RuntimeError as fault:  # there are no more threads
                raise NotBegun(self.name, f"mqctl: {fault}") from fault
            out = self._collect(channel, deadline, timeout_s)
            errors.join(5)
            return CommandResult(channel.recv_exit_status(), out, bytes(err))
        finally:
            self._connection.release(channel)
            if writer.is_alive():
                writer.join(5)

    def _collect(self, channel: paramiko.Channel, deadline: float, timeout_s: float) -> bytes:
        """What a command writes, until it has ended."""
        out = bytearray()
        try:
            while True:
                channel.settimeout(max(0.01, deadline - time.monotonic()))
                chunk = channel.recv(65536)
                if not chunk:
                    break
                out += chunk
                if len(out) > OUTPUT_BYTES_MAX:
                    raise Unreachable(self.name, f"a command said more than {OUTPUT_BYTES_MAX} bytes")
            if not channel.status_event.wait(max(0.01, deadline - time.monotonic())):
                raise TimeoutError
        except TimeoutError:
            raise Unreachable(self.name, f"no answer within {timeout_s:g} s") from None
        return bytes(out)

    def open_plain(self, command: str, prefix: bytes) -> SshStream:
        """Begin a command, and give back the stream to talk with it (shell.py:Shell)."""
        stream = SshStream(self._connection, self._connection.channel(command))
        try:
            stream.sendall(prefix)
        except BROKEN as fault:
            stream.close()
            raise self._connection.lost(fault) from fault
        return stream

    @property
    def is_alive(self) -> bool:
        """Whether its connection still stands, and its server answers."""
        return self._connection.is_alive

    @property
    def is_broken(self) -> bool:
        """Whether nothing that runs over its connection comes to an end."""
        return self._connection.is_broken

    def close(self) -> None:
        """Close the connection to the host."""
        self._connection.close()


def _write(channel: paramiko.Channel, data: bytes) -> None:
    # A command may end before it has read everything; its exit code says what that meant.
    with contextlib.suppress(*BROKEN):
        channel.sendall(data)
        channel.shutdown_write()


def _drain(channel: paramiko.Channel, into: bytearray) -> None:
    with contextlib.suppress(*BROKEN):
        while len(into) < OUTPUT_BYTES_MAX:
            chunk = channel.recv_stderr(65536)
            if not chunk:
                return
            into += chunk
