"""RabbitMQ as Debian packages it, with its plugin for AMQP 1.0. The packages are unpacked into the cache and not
installed: no service, no user, no file of the system. Each instance is a node of its own with its own cookie, its own
name server (epmd) and all its ports on loopback.

Settings: Debian's defaults (classic queues, durable because clients ask for it: in others durable messages are accepted
before they are on disk), memory for messages as high as the
heaps of the others, users checked on login. The plugin names queues `/queue/<name>` and declares them at the attach.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from bench.faults import BenchFault
from bench.peers import cache
from bench.peers.peer import POLL_S, START_TIMEOUT_S, STOP_TIMEOUT_S, Peer, accepts, free_port

PACKAGE = "rabbitmq-server"
PLUGIN = "rabbitmq_amqp1_0"
FETCH_TIMEOUT_S = 600
MEMORY_BYTES = 2 << 30
CONFIG = """\
listeners.tcp.clients = 127.0.0.1:{port}
tcp_listen_options.backlog = 1024
tcp_listen_options.nodelay = true
default_user = {user}
default_pass = {password}
vm_memory_high_watermark.absolute = {memory}
disk_free_limit.absolute = 1GB
"""


def distribution(version: str) -> Path:
    """The unpacked packages; the version that Debian has here must begin with this one."""
    home = cache.unpacked(cache.directory() / PACKAGE, _fetch)
    found = server(home).name.rpartition("-")[2]
    if not f"{found}.".startswith(f"{version}."):
        raise BenchFault(f"Debian's RabbitMQ is {found} here, not {version}: say --peer rabbitmq-{found}")
    if not list(server(home).glob(f"plugins/{PLUGIN}-*")):
        raise BenchFault(
            f"RabbitMQ {found} has no plugin {PLUGIN}, which the benchmark needs: that of Debian 12 has it"
        )
    return home


def server(home: Path) -> Path:
    """The server's own folder, whose name ends with its version."""
    found = sorted(home.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*"))
    if not found:
        raise BenchFault(f"there is no RabbitMQ in {home}: remove that directory and run again")
    return found[-1]


def _fetch(place: Path) -> Path:
    """apt verifies what it downloads against the signed lists of the distribution."""
    packages = [PACKAGE, *erlang_packages(_run(["apt-cache", "depends", "--recurse", "--important", PACKAGE], place))]
    _run(["apt-get", "download", "-q", *packages], place)
    home = place / "home"
    for archive in sorted(place.glob("*.deb")):
        _run(["dpkg-deb", "-x", str(archive), str(home)], place)
    return home


def erlang_packages(depends: str) -> list[str]:
    """Erlang's packages in what `apt-cache depends --recurse` prints: names at the beginnings of lines. Pure."""
    names = {line.strip() for line in depends.splitlines() if line[:1].isalpha()}
    return sorted(name for name in names if name.startswith("erlang-") and "hipe" not in name)


def _run(command: list[str], place: Path) -> str:
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise BenchFault(f"{command[0]} is missing: RabbitMQ is taken from Debian's packages") from None
    if done.returncode != 0:
        raise BenchFault(f"{' '.join(command[:2])} for RabbitMQ failed: {done.stderr.strip()}\nis apt-get update done?")
    return done.stdout


class Rabbitmq(Peer):
    """One RabbitMQ node of the given version."""

    kind = "rabbitmq"
    load_options = ("--durable-queue",)

    def __init__(self, version: str, directory: Path) -> None:
        super().__init__(f"rabbitmq-{version}", directory)
        self.version = version
        self.epmd_port, self.distribution_port = free_port(), free_port()
        self._epmd: subprocess.Popen[bytes] | None = None

    def address(self, queue: str) -> str:
        """The form that declares the queue."""
        return f"/queue/{queue}"

    def prepare(self) -> None:
        """Configuration; data, logs and cookie come at the first start."""
        distribution(self.version)
        config = self.directory / "rabbitmq.conf"
        config.touch(mode=0o600)
        config.write_text(CONFIG.format(port=self.port, user=self.user, password=self.password, memory=MEMORY_BYTES))
        (self.directory / "enabled_plugins").write_text(f"[{PLUGIN}].\n")

    def command(self) -> list[str]:
        """Its own script, which replaces itself by the Erlang machine where it believes to be under systemd."""
        return [str(server(distribution(self.version)) / "sbin" / "rabbitmq-server")]

    def environment(self) -> dict[str, str]:
        """Everything in the instance's directory; Erlang from the cache."""
        erlang = distribution(self.version) / "usr" / "lib" / "erlang"
        binaries = next(iter(erlang.glob("erts-*"))) / "bin"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        return inherited | {
            "PATH": f"{self._tools(binaries)}:{os.environ.get('PATH', os.defpath)}",
            "ROOTDIR": str(erlang),
            "BINDIR": str(binaries),
            "EMU": "beam",
            "PROGNAME": "erl",
            "HOME": str(self.directory),
            "RUNNING_UNDER_SYSTEMD": "true",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONF_ENV_FILE": str(self.directory / "no-environment-file"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "no-advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "data"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
        }

    def _tools(self, binaries: Path) -> Path:
        """A directory for the PATH: the packages' own `erl` insists on /usr/lib/erlang."""
        tools = self.directory / "tools"
        tools.mkdir(exist_ok=True)
        link = tools / "erl"
        if not link.exists():
            link.symlink_to(binaries / "erlexec")
        return tools

    def launch(self) -> None:
        """The name server first: one that Erlang starts by itself would outlive it."""
        with self.log.open("ab") as log:
            self._epmd = subprocess.Popen(
                [f"{self.environment()['BINDIR']}/epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not accepts(self.epmd_port):
            if self._epmd.poll() is not None or time.monotonic() > deadline:
                raise BenchFault(f"{self.name}: its name server epmd does not start\n{self.log_end()}")
            time.sleep(POLL_S)
        super().launch()

    def after_start(self) -> None:
        """The pid must be the Erlang machine's, or CPU would be wrong."""
        executable = Path(f"/proc/{self.pid}/exe").resolve().name
        if executable != "beam.smp":
            raise BenchFault(f"{self.name}: process {self.pid} is {executable}, not the Erlang machine")

    def stop(self) -> None:
        """The node, then its name server."""
        super().stop()
        epmd, self._epmd = self._epmd, None
        if epmd is not None:
            epmd.terminate()
            epmd.wait(STOP_TIMEOUT_S)
