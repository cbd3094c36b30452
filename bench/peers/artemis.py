"""Artemis, by version, from Maven Central by its coordinate, set up as somebody who wants speed would.

Settings: heap 2 GiB, journal ASYNCIO (libaio) on the same disk as ours with the buffer timeout that its own tool finds
for this disk, datasync on, one AMQP acceptor on loopback with tcpNoDelay and large socket buffers, no duplicate
detection (it parses every message's properties), messages up to 200 KiB kept out of files of their own, no web console,
a full address holds producers back (it pages where a row says so), users checked. A fall-back to a slower journal is
an error, not a slower figure.
"""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path
from xml.etree import ElementTree

from bench.faults import BenchFault
from bench.peers import cache
from bench.peers.peer import CLUSTER, CLUSTER_USER, LEAVE_TIMEOUT_S, PAGE_BYTES, PAGED_FROM_BYTES, Member, Peer

ARTIFACT = "apache-artemis"
CREATE_TIMEOUT_S = 120
GLOBAL_SIZE_MAX_BYTES = 1 << 30
LARGE_SIZE_MIN_BYTES = 200 << 10  # a message above it may become a file; ours gets the same
AIO_CODE = "AMQ221012"  # "Using AIO Journal"
CORE = "{urn:activemq:core}"
ACCEPTOR = (
    "tcp://127.0.0.1:{port}?protocols=AMQP;useEpoll=true;tcpNoDelay=true;tcpSendBufferSize=1048576;"
    "tcpReceiveBufferSize=1048576;amqpCredits=2000;amqpLowCredits=1000;amqpMinLargeMessageSize={large_size_min};"
    "amqpDuplicateDetection=false"
)
CONNECTOR = (
    "tcp://127.0.0.1:{port}?useEpoll=true;tcpNoDelay=true;tcpSendBufferSize=1048576;tcpReceiveBufferSize=1048576"
)
CLUSTER_ACCEPTOR = CONNECTOR + ";protocols=CORE"
# In the order of its schema.
CLUSTER_OPTIONS = (
    ("connector-ref", "node-{place}"),
    ("retry-interval", "500"),
    ("use-duplicate-detection", "true"),
    ("message-load-balancing", "ON_DEMAND"),
    ("max-hops", "1"),
)
PAGING = (
    ("address-full-policy", "PAGE"),
    ("max-size-bytes", str(PAGED_FROM_BYTES)),
    ("page-size-bytes", str(PAGE_BYTES)),
)


class Artemis(Peer):
    """One Artemis instance of the given version."""

    kind = "artemis"

    def __init__(self, version: str, directory: Path) -> None:
        super().__init__(f"artemis-{version}", directory)
        self.version = version
        self.instance = directory / "instance"

    def prepare(self) -> None:
        """Let Artemis's own tool create the instance and tune the journal, then set what it has no flag for."""
        home = cache.from_maven(ARTIFACT, self.version)
        # The tool wants a password as an argument, where others can see it: it gets another one than we use.
        command = [str(home / "bin" / "artemis"), "create", "--silent", "--aio", "--blocking", "--no-web"]
        command += ["--require-login", "--user", self.user, "--password", "replaced-below", "--host", "127.0.0.1"]
        command += ["--java-memory", "2G", "--global-max-size", str(GLOBAL_SIZE_MAX_BYTES), str(self.instance)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CREATE_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise BenchFault(f"artemis create failed: {done.stdout.strip()} {done.stderr.strip()}")
        etc = self.instance / "etc"
        (etc / "artemis-users.properties").write_text(f"{self.user} = {self.password}\n")
        xml = etc / "broker.xml"
        xml.write_text(configure(xml.read_text(), self.port, self.member))
        self._check_heap(etc / "artemis.profile")

    def _check_heap(self, profile: Path) -> None:
        if not re.search(r"-Xmx(2G|2048M)\b", profile.read_text()):
            raise BenchFault(f"{self.name}: no heap of 2 GiB in {profile}; did the option of artemis create change?")

    def command(self) -> list[str]:
        """The start script replaces itself by the JVM, so the pid is the broker's."""
        return [str(self.instance / "bin" / "artemis"), "run"]

    def leave(self) -> None:
        """It does so when it is stopped, and ends."""
        process, self._process = self._process, None
        if process is None:
            raise BenchFault(f"{self.name} is not running")
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BenchFault(f"{self.name} did not end within {LEAVE_TIMEOUT_S} s\n{self.log_end()}") from None

    def after_start(self) -> None:
        """Artemis falls back to another journal with a line in its log and no error."""
        if AIO_CODE not in self.log.read_text(errors="replace"):
            raise BenchFault(f"{self.name} does not say that its journal uses libaio\n{self.log_end()}")
        executable = Path(f"/proc/{self.pid}/exe").resolve().name
        if executable != "java":
            raise BenchFault(f"{self.name}: process {self.pid} is {executable}, not the JVM: CPU would be wrong")


def configure(broker_xml: str, port: int, member: Member | None = None) -> str:
    """`broker.xml` of `artemis create` with one acceptor, anycast by default, and never too full a disk. Pure."""
    ElementTree.register_namespace("", "urn:activemq:core")
    root = ElementTree.fromstring(broker_xml)
    core = root.find(f"{CORE}core")
    acceptors = root.find(f".//{CORE}acceptors")
    usage = root.find(f".//{CORE}max-disk-usage")
    if core is None or acceptors is None or usage is None:
        raise BenchFault("broker.xml of artemis create has no core, acceptors or max-disk-usage: a new layout?")
    usage.text = "99"
    acceptors.clear()
    ElementTree.SubElement(acceptors, f"{CORE}acceptor", {"name": "amqp"}).text = ACCEPTOR.format(
        port=port, large_size_min=LARGE_SIZE_MIN_BYTES
    )
    for setting in root.iter(f"{CORE}address-setting"):
        for name in ("default-address-routing-type", "default-queue-routing-type"):
            ElementTree.SubElement(setting, f"{CORE}{name}").text = "ANYCAST"
    if member is not None:
        _cluster(core, acceptors, member)
    return ElementTree.tostring(root, encoding="unicode")


def _cluster(core: ElementTree.Element, acceptors: ElementTree.Element, member: Member) -> None:
    """Links over its own protocol, to all others by a list; queues move at once, and stay when nobody uses them."""

    def add(parent: ElementTree.Element, tag: str, text: str = "", **attributes: str) -> ElementTree.Element:
        child = ElementTree.SubElement(parent, f"{CORE}{tag}", attributes)
        child.text = text or None
        return child

    add(acceptors, "acceptor", CLUSTER_ACCEPTOR.format(port=member.port), name="cluster")
    add(core, "cluster-user", CLUSTER_USER)
    add(core, "cluster-password", member.secret)
    connectors = add(core, "connectors")
    for place, port in enumerate(member.ports):
        add(connectors, "connector", CONNECTOR.format(port=port), name=f"node-{place}")
    connection = add(add(core, "cluster-connections"), "cluster-connection", name=CLUSTER)
    for tag, text in CLUSTER_OPTIONS:
        add(connection, tag, text.format(place=member.place))
    static = add(connection, "static-connectors")
    for place in member.others:
        add(static, "connector-ref", f"node-{place}")
    if member.leaves:
        policy = add(add(add(core, "ha-policy"), "primary-only"), "scale-down")
        add(add(policy, "connectors"), "connector-ref", f"node-{member.heir}")
    paging = PAGING if member.pages else ()
    for setting in core.iter(f"{CORE}address-setting"):
        for tag, text in (("redistribution-delay", "0"), ("auto-delete-queues", "false"), *paging):
            for old in setting.findall(f"{CORE}{tag}"):
                setting.remove(old)
            add(setting, tag, text)
