"""Our own broker, started as a host's unit starts it: `mqbroker run --config broker.toml`, with its defaults.

Differences from the defaults: the port, the places, as much memory for messages as the peers have, and the same size
from which on they may become files. Where bad input is sent, also the bounds of frames and messages that its cases are
made for.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mqctl.admin import AdminClient, SocketStream

from bench.faults import BenchFault
from bench.peers.artemis import GLOBAL_SIZE_MAX_BYTES, LARGE_SIZE_MIN_BYTES
from bench.peers.peer import CLUSTER, LEAVE_TIMEOUT_S, PAGE_BYTES, PAGED_FROM_BYTES, Member, Peer
from tests.support.bad_input import FRAME_SIZE_MAX, MESSAGE_SIZE_MAX

COMMAND_TIMEOUT_S = 60
ASK_TIME_S = 0.02
CONFIG = """\
[node]
name = "{name}"
data-directory = "{data}"
admin-socket = "{socket}"

[[listeners]]
name = "clients"
local-bind-address = "127.0.0.1"
port = {port}
{narrow_listener}
[limits]
{narrow_limits}global-max-size-bytes = {global_size_max}
amqp-min-large-message-size-bytes = {large_size_min}
"""

CLUSTER_TABLES = """
[[listeners]]
name = "cluster"
kind = "cluster"
local-bind-address = "127.0.0.1"
port = {port}

[[cluster-connections]]
name = "{name}"
connector-ref = "node-{place}"
static-connectors = {others}

[[address-settings]]
match = "#"
redistribution-delay = 0
{pages}"""
PAGES = f"""\
address-full-policy = "PAGE"
max-size-bytes = {PAGED_FROM_BYTES}
page-size-bytes = {PAGE_BYTES}
"""
CONNECTOR = """
[[connectors]]
name = "node-{place}"
host = "127.0.0.1"
port = {port}
"""


def clustered(member: Member) -> str:
    """What a node of a cluster has in addition: links to all others, and messages go where consumers are. Pure."""
    connectors = [CONNECTOR.format(place=place, port=port) for place, port in enumerate(member.ports)]
    others = json.dumps([f"node-{place}" for place in member.others])
    cluster = CLUSTER_TABLES.format(
        name=CLUSTER, place=member.place, port=member.port, others=others, pages=PAGES if member.pages else ""
    )
    return "".join([*connectors, cluster])


def node_name(place: int) -> str:
    """What the node of this place is called. Pure."""
    return f"bench-{place}"


_programs = Path(sys.executable).parent


def use(programs: Path) -> None:
    """From now on `mqbroker` and `python` of this folder run our broker, not those that run the benchmark."""
    global _programs
    _programs = programs


def python() -> Path:
    """What runs our broker."""
    return _programs / "python"


def executable() -> Path:
    """`mqbroker` of the environment that runs the benchmark, unless another was chosen."""
    found = _programs / "mqbroker"
    if not found.exists():
        raise BenchFault(f"there is no {found}: run `make setup` first")
    return found


class Mqops(Peer):
    """One mqbroker instance from this checkout."""

    kind = "mqops"

    def __init__(self, directory: Path) -> None:
        super().__init__("mqops", directory)
        self.config = directory / "broker.toml"
        # A Unix socket's path may have 107 bytes only, which a deep checkout exceeds.
        self._sockets = Path(tempfile.mkdtemp(prefix="mqops-bench-"))
        self._admin_socket = self._sockets / "admin.sock"

    def prepare(self) -> None:
        """Configuration, identity and one user."""
        text = CONFIG.format(
            name=node_name(self.member.place if self.member else 0),
            data=self.directory / "data",
            socket=self._admin_socket,
            port=self.port,
            narrow_listener=f"max-frame-size-bytes = {FRAME_SIZE_MAX}\n" if self.is_narrow else "",
            narrow_limits=f"max-message-size-bytes = {MESSAGE_SIZE_MAX}\n" if self.is_narrow else "",
            global_size_max=GLOBAL_SIZE_MAX_BYTES,
            large_size_min=LARGE_SIZE_MIN_BYTES,
        )
        self.config.write_text(text if self.member is None else text + clustered(self.member))
        (self.directory / "data").mkdir()
        if self.member is not None:
            self._mqbroker(["secret", "set", "--stdin", "--config", str(self.config)], self.member.secret)
        self._mqbroker(["config", "check", str(self.config)])
        self._mqbroker(["identity", "init", "--config", str(self.config)])
        self._mqbroker(["users", "set", self.user, "--stdin", "--config", str(self.config)], self.password)

    def _mqbroker(self, arguments: list[str], stdin: str = "") -> None:
        done = subprocess.run(
            [str(executable()), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise BenchFault(f"mqbroker {' '.join(arguments)} failed: {(done.stderr or done.stdout).strip()}")

    def command(self) -> list[str]:
        """In the foreground, one process."""
        return [str(executable()), "run", "--config", str(self.config)]

    def leave(self) -> None:
        """By command; it goes on running, without clients and without messages, and its receipt has to balance."""
        assert self.member is not None
        with AdminClient(self.name, SocketStream(str(self._admin_socket))) as admin:
            admin.call("scale-down", node=node_name(self.member.heir))
            deadline = time.monotonic() + LEAVE_TIMEOUT_S
            while (said := admin.call("scale-down-show"))["state"] != "moved" or not said["receipt"]["balances"]:
                if said["state"] == "failed" or time.monotonic() > deadline:
                    raise BenchFault(f"{self.name} cannot leave: {said}\n{self.log_end()}")
                time.sleep(ASK_TIME_S)

    def stop(self) -> None:
        """As any peer, and without a trace in the temporary directory."""
        super().stop()
        shutil.rmtree(self._sockets, ignore_errors=True)
