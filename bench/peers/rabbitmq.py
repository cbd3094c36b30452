"""RabbitMQ as Debian packages it: 3 of the release that runs here, with its plugin for AMQP 1.0, or 4 of Debian 13,
which speaks that by itself. The packages are unpacked into the cache and not installed: no service, no user, no file of
the system. Each instance is a node of its own with its own cookie, its own name server (epmd) and all its ports on
loopback.

Settings: Debian's defaults (classic queues, durable because clients ask for it: in others durable messages are accepted
before they are on disk), memory for messages as high as the
heaps of the others, users checked on login. Both take `/queue/<name>` for a queue and declare it at the attach.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from bench.faults import BenchFault
from bench.peers import cache
from bench.peers.debian import Packages, wrap
from bench.peers.peer import POLL_S, START_TIMEOUT_S, STOP_TIMEOUT_S, Peer, accepts, free_port

PACKAGE = "rabbitmq-server"
PLUGIN = "rabbitmq_amqp1_0"
# From this version on AMQP 1.0 needs no plugin, and the packages are those of another Debian than 12.
NATIVE_MAJOR = 4
NATIVE_RELEASE = "trixie"
WRAPPED = "wrapped"
# Alarms of the system are programs beside the Erlang machine, and nobody here asks for them.
MACHINE_ARGUMENTS = (
    "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1}"
    " -os_mon start_memsup false -os_mon start_cpu_sup false -os_mon start_disksup false"
)
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


def is_native(version: str) -> bool:
    """Whether it speaks AMQP 1.0 without a plugin."""
    major = re.match(r"\d+", version)
    return major is not None and int(major.group()) >= NATIVE_MAJOR


def distribution(version: str) -> Path:
    """The unpacked packages; the version that Debian has must begin with this one."""
    if is_native(version):
        home = cache.unpacked(cache.directory() / f"{PACKAGE}-{NATIVE_RELEASE}", _fetch_native)
    else:
        home = cache.unpacked(cache.directory() / PACKAGE, _fetch)
    found = server(home).name.rpartition("-")[2]
    if not f"{found}.".startswith(f"{version}."):
        raise BenchFault(f"Debian's RabbitMQ is {found} here, not {version}: say --peer rabbitmq-{found}")
    if not is_native(version) and not list(server(home).glob(f"plugins/{PLUGIN}-*")):
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
    """Erlang's packages and its own; libraries are the system's."""
    packages = Packages(place)
    return packages.unpack([PACKAGE, *erlang(packages.needed(PACKAGE))])


def _fetch_native(place: Path) -> Path:
    """With the libraries that they were made for."""
    packages = Packages(place, NATIVE_RELEASE)
    machine = erlang(packages.needed(PACKAGE))
    libraries = [name for name in packages.needed(*machine) if name.startswith(("lib", "zlib"))]
    return packages.unpack([PACKAGE, *machine, *libraries])


def erlang(packages: Iterable[str]) -> list[str]:
    """Those of Erlang among the packages that it needs. Pure."""
    return [name for name in packages if name.startswith("erlang-") and "hipe" not in name]


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
        (self.directory / "enabled_plugins").write_text("[].\n" if is_native(self.version) else f"[{PLUGIN}].\n")

    def command(self) -> list[str]:
        """Its own script, which replaces itself by the Erlang machine where it believes to be under systemd."""
        return [str(server(distribution(self.version)) / "sbin" / "rabbitmq-server")]

    def environment(self) -> dict[str, str]:
        """Everything in the instance's directory; Erlang from the cache."""
        erlang = distribution(self.version) / "usr" / "lib" / "erlang"
        binaries = self._binaries(next(iter(erlang.glob("erts-*"))) / "bin")
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
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": MACHINE_ARGUMENTS,
            "RABBITMQ_CONF_ENV_FILE": str(self.directory / "no-environment-file"),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.directory / "no-advanced.config"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "data"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
        }

    def _binaries(self, found: Path) -> Path:
        """The Erlang machine's own, or scripts that run them by the loader that they were made for."""
        if not is_native(self.version):
            return found
        folder = self.directory / WRAPPED
        if not folder.exists():
            wrap(distribution(self.version), found, folder)
        return folder

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
        if executable.startswith("ld-linux-"):  # a loader that was called by name; what it runs is an argument
            words = Path(f"/proc/{self.pid}/cmdline").read_text().split("\0")
            executable = next((word for word in words if word.endswith("/beam.smp")), executable).rpartition("/")[2]
        if executable != "beam.smp":
            raise BenchFault(f"{self.name}: process {self.pid} is {executable}, not the Erlang machine")

    def stop(self) -> None:
        """The node, then its name server."""
        super().stop()
        epmd, self._epmd = self._epmd, None
        if epmd is not None:
            epmd.terminate()
            epmd.wait(STOP_TIMEOUT_S)
