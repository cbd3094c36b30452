"""Brokers of a cluster on hosts of a rack: what they say of it, and waiting until it is whole.

    rack = RackHosts()
    cluster = RackCluster([RackBroker(rack, name) for name in ("mq1", "mq2")])
    cluster.whole_after_s(30)

Runs inside `rack enter`, with the rack's name in RACK_NAME. A broker is asked through its admin socket, which is
reached through the host's first process: that needs neither network nor a process for each question, so it may be
done while cables are out.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "molecule" / "rack"))

from mqrack import host as rack_host  # noqa: E402 - it is in no package that is installed
from mqrack import lifecycle  # noqa: E402 - as above
from mqrack.layout import Layout  # noqa: E402 - as above

ANSWER_S_MAX = 10.0
WAIT_S = 60.0
POLL_S = 0.1


class NoAnswer(Exception):
    """The broker, or its host, is away."""


class RackHosts:
    """The rack that the tests run in."""

    def __init__(self) -> None:
        self.layout = Layout(os.environ["RACK_NAME"])
        self.plan = lifecycle.load(self.layout)
        self.run_folder = self.layout.run

    def __call__(self, *words: str) -> str:
        """A command of the rack, which must do what it says."""
        command = [sys.executable, str(ROOT / "molecule/rack/rack"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def python(self, name: str, program: str, *arguments: str) -> str:
        """What a program prints that runs under a host's own Python, as root."""
        return self("exec", name, "--", "python3", "-c", program, *arguments)

    def init_of(self, name: str) -> int | None:
        """The process that is the first of a host; None if it is off."""
        return rack_host.find_init(self.layout, self.plan.host(name))


class RackBroker:
    """One broker: its host and its instance."""

    def __init__(self, rack: RackHosts, host: str, instance: str = "default") -> None:
        self.rack = rack
        self.host = host
        self.instance = instance
        self._init: int | None = None
        self._node_id = ""

    def address(self, card: str) -> str:
        """Of its host."""
        return self.rack.plan.host(self.host).card(card).address

    def ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """The result of one operation of the admin protocol. Raises NoAnswer."""
        try:
            return self._ask(operation, arguments)
        except OSError as error:
            self._init = None
            raise NoAnswer(f"{self.host}: {error}") from None

    def _ask(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        self._init = self._init or self.rack.init_of(self.host)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.settimeout(ANSWER_S_MAX)
            stream.connect(f"/proc/{self._init}/root/run/mq/{self.instance}/admin.sock")
            stream.sendall(json.dumps({"id": 1, "op": operation, "args": arguments}).encode() + b"\n")
            line = stream.makefile("rb").readline()
        if not line:
            raise ConnectionAbortedError("the broker closed the connection without an answer")
        answer = json.loads(line)
        assert answer.get("error") is None, answer
        found: dict[str, Any] = answer["result"]
        return found

    @property
    def node_id(self) -> str:
        """Which it keeps for good."""
        self._node_id = self._node_id or self.ask("topology")["node_id"]
        return self._node_id

    def depths(self) -> dict[str, int]:
        """Queues that are not empty, those for other nodes among them -> messages."""
        found = {row["name"]: row["message_count"] for row in self.ask("queues")["queues"]}
        found |= {f"to {row['connector']}": row["depth"] for row in self.ask("topology")["links"]}
        return {name: count for name, count in found.items() if count}


class RackCluster:
    """Brokers that belong together. `pairs` of hosts are linked with each other; all, where nothing is said."""

    def __init__(self, brokers: Sequence[RackBroker], pairs: Iterable[tuple[str, str]] = ()) -> None:
        self.brokers = {one.host: one for one in brokers}
        self.pairs = {frozenset(pair) for pair in pairs or combinations(self.brokers, 2)}

    def __getitem__(self, host: str) -> RackBroker:
        return self.brokers[host]

    def whole_after_s(self, within_s: float) -> float:
        """How long it took until each node knew all others, and had links to those that it should and to no others."""
        return wait(self.lack, within_s)

    def lack(self) -> str:
        """What is missing for the cluster to be whole; empty if nothing."""
        try:
            ids = {one.node_id for one in self.brokers.values()}
            found = (self._lack_of(one, ids) for one in self.brokers.values())
            return next((each for each in found if each), "")
        except NoAnswer as error:
            return str(error)

    def _lack_of(self, broker: RackBroker, ids: set[str]) -> str:
        topology = broker.ask("topology")
        members = {row["node_id"] for row in topology["members"]}
        links = {row["node_id"]: row["state"] for row in topology["links"]}
        wanted = {
            self.brokers[host].node_id for pair in self.pairs if broker.host in pair for host in pair - {broker.host}
        }
        if members != ids:
            return f"{broker.host} knows the members {sorted(members)} instead of {sorted(ids)}"
        if links != dict.fromkeys(wanted, "up"):
            return f"{broker.host} has the links {links} instead of those to {sorted(wanted)}"
        return ""

    def depths(self) -> dict[str, dict[str, int]]:
        """Hosts where anything is in queues -> what."""
        found = {host: one.depths() for host, one in self.brokers.items()}
        return {host: queues for host, queues in found.items() if queues}


def wait(lacks: Callable[[], str], within_s: float = WAIT_S) -> float:
    """Until there is nothing that lacks; the seconds that it took."""
    began_s = time.monotonic()
    while why := lacks():
        assert time.monotonic() - began_s < within_s, f"after {within_s:g} s: {why}"
        time.sleep(POLL_S)
    return time.monotonic() - began_s
