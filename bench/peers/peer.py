"""A broker under test: a directory of its own, a port on loopback, a user, one process. Subclasses say how."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.faults import BenchFault

STOP_TIMEOUT_S = 30
START_TIMEOUT_S = 60
LEAVE_TIMEOUT_S = 600
# Where addresses page: with so much in memory, and in pages of this size.
PAGED_FROM_BYTES = 1 << 20
PAGE_BYTES = 1 << 18
POLL_S = 0.002
LOG_LINES_SHOWN = 15
USER = "bench"
CLUSTER = "bench"
CLUSTER_USER = "bench-cluster"


def free_port() -> int:
    """A TCP port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def accepts(port: int) -> bool:
    """Whether somebody listens on this port of loopback."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Member:
    """What a node knows of its cluster: its own place, the ports by which nodes reach each other, the secret,
    whether it hands over what it has to the node of the next place when it leaves, and whether its addresses page."""

    place: int
    ports: tuple[int, ...]
    secret: str
    leaves: bool = False
    pages: bool = False

    @property
    def heir(self) -> int:
        """The place of the node that gets what this one has."""
        return (self.place + 1) % len(self.ports)

    @property
    def port(self) -> int:
        """On which the others reach this node."""
        return self.ports[self.place]

    @property
    def others(self) -> list[int]:
        """Places of the other nodes."""
        return [place for place in range(len(self.ports)) if place != self.place]


class Peer(ABC):
    """`prepare` makes the instance (never measured), `launch` starts the process, `stop` ends it by its pid."""

    kind: ClassVar[str]
    load_options: ClassVar[tuple[str, ...]] = ()  # what the load generator is told of this kind

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.port = free_port()
        self.user = USER
        self.password = secrets.token_hex(12)
        self.log = directory / "broker.log"
        self.member: Member | None = None  # of a cluster
        self.is_narrow = False  # whether its bounds are those that bad input is made for; ours only
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def nodes(self) -> tuple[Peer, ...]:
        """This one; a cluster has more."""
        return (self,)

    @abstractmethod
    def prepare(self) -> None:
        """Make configuration, user and directories."""

    @abstractmethod
    def command(self) -> list[str]:
        """What starts the broker in the foreground, as one process that keeps its pid."""

    def environment(self) -> dict[str, str]:
        """Of the broker's process."""
        return dict(os.environ)

    def after_start(self) -> None:  # noqa: B027 - an offer to subclasses, not a duty
        """Check that the broker runs as it was configured."""

    def address(self, queue: str) -> str:
        """What a client calls the queue of this name."""
        return queue

    @property
    def is_running(self) -> bool:
        """Whether it was started and neither stopped nor has left."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        if self._process is None:
            raise BenchFault(f"{self.name} is not running")
        return self._process.pid

    def launch(self) -> None:
        """Start and wait until the port accepts connections."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env=self.environment(),
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not accepts(self.port):
            if self._process.poll() is not None:
                raise BenchFault(f"{self.name} ended at start with status {self._process.returncode}\n{self.log_end()}")
            if time.monotonic() > deadline:
                raise BenchFault(f"{self.name} does not listen after {START_TIMEOUT_S} s\n{self.log_end()}")
            time.sleep(POLL_S)

    def leave(self) -> None:
        """Return when the node of the next place has all messages of this one. A kind that cannot has no such row."""
        raise BenchFault(f"{self.name} cannot hand its messages to another node")

    def kill(self) -> None:
        """End the process as a crash does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """End the process: asked first, killed when it does not listen. Harmless when there is none."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)

    def log_end(self) -> str:
        """The last lines of the broker's log, for error messages."""
        if not self.log.exists():
            return "it logged nothing"
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join([f"end of {self.log}:", *(f"  {line}" for line in lines)])
