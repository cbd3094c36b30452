"""A real `mqbroker run` on loopback, in a directory of its own: for tests that look at the broker from outside.

    with BrokerProcess(tmp_path) as broker:
        connect(broker.host, broker.port, broker.user, broker.password)
        broker.admin("status")
        broker.kill()
        broker.start()

Owns the process, its files and its notify socket; nothing of it is left after `close`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from mqbroker.config.users import DEFAULT_ROLES, SALT_BYTES, make_verifier
from mqbroker.io.files import identity, users_file

from tests.support.forks import BROKERS, ForkedProcess, Surroundings, may_be_forked
from tests.support.patience import PATIENCE_S

# Far above what it takes: tests may share two cores with a lot of others.
START_TIMEOUT_S = PATIENCE_S
STOP_TIMEOUT_S = PATIENCE_S
MATCHED = ("address-settings", "security-settings")
COMMAND = [sys.executable, "-m", "mqbroker.app.main"]
PORTS = range(16_000, 32_000)  # below those that the kernel gives to who connects (ip_local_port_range)


class BrokerFailed(AssertionError):
    """The broker did not do what the test needs; the message has its log."""


class NotifySocket:
    """The manager's end of sd_notify: a datagram socket that remembers what it was told."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def drain(self) -> list[str]:
        """Everything that was told so far."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.lines += self._socket.recv(65536).decode().splitlines()
        return self.lines

    def wait_for(self, line: str, timeout_s: float, count: int = 1) -> bool:
        """Whether `line` was told at least `count` times before the time was over."""
        deadline_s = time.monotonic() + timeout_s
        while self.drain().count(line) < count:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            select.select([self._socket], [], [], min(left_s, 0.05))
        return True

    def forget(self) -> None:
        self.drain()
        self.lines.clear()

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)


class BrokerProcess:
    """One broker. `options` adds to broker.toml, `{"limits": {"link-credit": 10}}`, and `listener` to its listener.

    `{"address-settings": {"orders.#": {…}}}` has the settings by their match, and so have security settings.
    Tables that may be repeated are lists. `tls` is what clients connect with; `within` are the words of a command that
    runs another; `network` is the namespace that it is in, if not that of the test; `arguments` are added to those of
    `mqbroker run`. It is a fork (tests/support/forks.py) unless the test says that it `is_executed`.
    """

    host = "127.0.0.1"
    user = "app"
    password = "app-password-1"

    def __init__(
        self,
        directory: Path,
        options: dict[str, Any] | None = None,
        listener: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        within: tuple[str, ...] = (),
        network: Path | None = None,
        arguments: tuple[str, ...] = (),
        is_executed: bool = False,
    ) -> None:
        self.directory = directory
        self.directory.mkdir(parents=True, exist_ok=True)
        # A path of a Unix socket has at most 107 bytes, which the directory of a test may already exceed.
        self._sockets = Path(tempfile.mkdtemp(prefix="mq-"))
        self.admin_socket = self._sockets / "admin.sock"
        self.notify = NotifySocket(self._sockets / "notify.sock")
        self.data_directory = directory / "data"
        self.config_file = directory / "broker.toml"
        self.log_file = directory / "broker.log"
        self.port = free_port()
        self.environment = environment or {}
        self.options = options or {}
        self.listener = listener or {}
        self.tls = tls
        self.within = within
        self.network = network
        self.arguments = arguments
        self.is_executed = is_executed
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._is_prepared = False

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    def prepare(self) -> None:
        """Write broker.toml, make the identity and the user."""
        self.write_config()
        if self._is_prepared:
            return
        # What `mqbroker identity init` and `mqbroker users set` do, without the second that each process would cost.
        identity.init(self.data_directory, identity.machine_id())
        self.set_user(self.user, self.password)
        self._is_prepared = True

    def write_config(self) -> None:
        node = {"name": "test", "data-directory": str(self.data_directory), "admin-socket": str(self.admin_socket)}
        listener = {"name": "clients", "port": self.port} | self.listener
        tables: dict[str, Any] = {**self.options, "node": node | self.options.get("node", {})}
        lines = []
        for table, values in tables.items():
            if isinstance(values, list):
                for row in values:
                    lines += [f"[[{table}]]", *_assignments(row)]
            elif table not in MATCHED:
                lines += [f"[{table}]", *_assignments(values)]
        for table in MATCHED:
            for match, said in tables.get(table, {}).items():
                lines += [f"[[{table}]]", *_assignments({"match": match, **said})]
        lines += ["[[listeners]]", *_assignments(listener)]
        self.config_file.write_text("\n".join(lines) + "\n")

    def set_user(self, name: str, password: str) -> None:
        file = self.data_directory / "users.json"
        with users_file.locked(file):
            known = users_file.read(file)
            verifier = make_verifier(password, os.urandom(SALT_BYTES), DEFAULT_ROLES)
            users_file.write(file, {**known, name: verifier})

    def command(self, *arguments: str, stdin: str = "") -> str:
        """Run another `mqbroker` command; what it printed. Raises BrokerFailed unless it exits with 0."""
        done = subprocess.run(
            [*COMMAND, *arguments], input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if done.returncode != 0:
            raise BrokerFailed(
                f"mqbroker {' '.join(arguments)}: exit code {done.returncode}: {done.stdout}{done.stderr}"
            )
        return done.stdout

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start and wait for READY."""
        self.launch()
        deadline_s = time.monotonic() + timeout_s
        while not self.notify.wait_for("READY=1", 0.05):
            assert self.process is not None
            if self.process.poll() is not None:
                raise BrokerFailed(f"exit code {self.process.returncode} before READY:\n{self.log}")
            if time.monotonic() > deadline_s:
                self.kill()
                raise BrokerFailed(f"not READY after {timeout_s} s:\n{self.log}")

    def launch(self) -> None:
        """Start without waiting."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        self.prepare()
        self.notify.forget()
        environment = {**os.environ, "NOTIFY_SOCKET": str(self.notify.path), **self.environment}
        with self.log_file.open("ab") as log:
            words = ["run", "--config", str(self.config_file), *self.arguments]
            if not self.is_executed and not self.within and may_be_forked(environment):
                self.process = BROKERS.start(words, environment, Surroundings(log, network=self.network))
                return
            there = ("nsenter", f"--net={self.network}", "--") if self.network else ()
            self.process = subprocess.Popen(
                [*there, *self.within, *COMMAND, *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            )  # fmt: skip

    def get(self, path: str, timeout_s: float = PATIENCE_S) -> tuple[int, str, str]:
        """Status, content type and body of `path` on the metrics port, which the options must name."""
        connection = http.client.HTTPConnection(self.host, self.options["metrics"]["port"], timeout=timeout_s)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.getheader("Content-Type", ""), response.read().decode()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """The exit code, once the process has ended."""
        assert self.process is not None
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BrokerFailed(f"still running after {timeout_s} s:\n{self.log}") from None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Graceful stop; the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def kill(self) -> None:
        """kill -9, as a crash of the process."""
        self.signal(signal.SIGKILL)
        self.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def admin(self, operation: str, /, **arguments: Any) -> Any:
        """The result of one admin request. Raises BrokerFailed with the error of the broker."""
        row = self.admin_row({"id": 1, "op": operation, "args": arguments})
        if "error" in row:
            raise BrokerFailed(f"{operation}: {row['error']}")
        return row["result"]

    def admin_row(self, row: dict[str, Any], timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """One request as it is, and its whole reply."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(timeout_s)
            sock.connect(str(self.admin_socket))
            sock.sendall(json.dumps(row).encode() + b"\n")
            with sock.makefile("rb") as lines:
                reply: dict[str, Any] = json.loads(lines.readline())
        return reply

    def connect(self, timeout_s: float = PATIENCE_S, server_name: str = "") -> socket.socket:
        """A connection to the listener: TCP, and TLS above it where the test gave a context; it asks for that name."""
        sock = socket.create_connection((self.host, self.port), timeout_s)
        return sock if self.tls is None else self.tls.wrap_socket(sock, server_hostname=server_name or self.host)

    def wait_for_log(self, text: str, timeout_s: float = PATIENCE_S, count: int = 1) -> None:
        deadline_s = time.monotonic() + timeout_s
        while self.log.count(text) < count:
            if time.monotonic() > deadline_s:
                raise BrokerFailed(f"{text!r} is not in the log after {timeout_s} s:\n{self.log}")
            time.sleep(0.02)

    def wait_for_connections(self, count: int, timeout_s: float = PATIENCE_S) -> None:
        """Until so many are left: the end of a connection reaches the broker some time after it reached the peer."""
        deadline_s = time.monotonic() + timeout_s
        while (found := self.admin("status")["connections"]) != count:
            if time.monotonic() > deadline_s:
                raise BrokerFailed(f"{found} connections instead of {count}\n{self.log}")
            time.sleep(0.01)

    def rss_bytes(self) -> int:
        """Resident memory of the process now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.notify.close()
        shutil.rmtree(self._sockets, ignore_errors=True)


@contextlib.contextmanager
def brokers_in(folder: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers that are not started yet, each with a directory of its own; at the end all of them are gone."""
    made: list[BrokerProcess] = []

    def make(**arguments: Any) -> BrokerProcess:
        made.append(BrokerProcess(folder / f"broker-{len(made)}", **arguments))
        return made[-1]

    try:
        yield make
    finally:
        for broker in made:
            broker.close()
    for broker in made:
        assert "Traceback" not in broker.log, broker.log


def free_port() -> int:
    """A port that nobody has, and that the kernel gives to no connection: a broker that is started again finds
    it free, whoever else opens connections meanwhile."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"100 ports of {PORTS} are in use")


def _assignments(values: dict[str, Any]) -> list[str]:
    # JSON's strings, numbers, booleans and arrays are TOML's as well.
    return [f"{key} = {json.dumps(value)}" for key, value in values.items()]
