"""Brokers of this release and of the one before in one cluster, and each with the journal that the other has written.

A cluster is upgraded host by host, so both are in it for as long as that takes, and it may go back. Source:
docs/adr/0029-upgrade.md.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils import release_trial
from ansible_collections.mqops.cluster.plugins.module_utils.loaded import Places
from mqbroker.client import sync
from mqbroker.io.files import identity
from mqbroker.journal.format import FORMAT_VERSION, READ_VERSIONS

from tests.support.broker_process import COMMAND, BrokerFailed, BrokerProcess
from tests.support.cluster_load import Load
from tests.support.cluster_processes import Make, Nodes, bodies, knows, linked, wait_for
from tests.support.last_release import broker_environment, unpacked_wheel
from tests.support.patience import PATIENCE_S
from tests.unit.journal.disk_image import NODE_ID
from tests.unit.journal.test_samples import SAMPLES

pytestmark = pytest.mark.system

OLD, NEW = "the release before", "this one"
COUNT = 60


class MixedNodes(Nodes):
    """Nodes of which each is told the release that it runs."""

    def __init__(self, make: Make, *releases: str, **rules: Any) -> None:
        said = {name.replace("_", "-"): value for name, value in rules.items()}
        super().__init__(make, len(releases), settings={"#": {"redistribution-delay": 0, **said}})
        for broker, release in zip(self.brokers, releases, strict=True):
            be(broker, release)

    def all_linked(self) -> None:
        names = [f"mq{number}" for number in range(len(self.brokers))]
        for broker, own in zip(self.brokers, names, strict=True):
            linked(broker, *(name for name in names if name != own))


def be(broker: BrokerProcess, release: str) -> None:
    """What the broker runs from its next start on."""
    broker.environment = broker_environment() if release == OLD else {}


def move(nodes: MixedNodes, number: int, release: str) -> None:
    """What an upgrade or a rollback does to one host: the other program, the same data."""
    broker = nodes.brokers[number]
    assert broker.stop() == 0, broker.log
    be(broker, release)
    broker.start()
    nodes.all_linked()
    assert runs(broker) == release


def runs(broker: BrokerProcess) -> str:
    """Which release the process is of, by the files that it has its modules from."""
    with open(f"/proc/{broker.pid}/environ", "rb") as file:
        return OLD if str(unpacked_wheel()).encode() in file.read() else NEW


def uri_of(broker: BrokerProcess) -> str:
    return f"amqp://{broker.user}:{broker.password}@{broker.host}:{broker.port}"


def publish(broker: BrokerProcess, texts: Sequence[str], address: str) -> None:
    messages = [{"body": text, "durable": True} for text in texts]
    assert broker.admin("send", address=address, messages=messages) == {"accepted": len(texts)}


def waiting_in(found: dict[str, Any]) -> int:
    """Messages in all queues, of what the operation `queues` says."""
    return sum(row["message_count"] for row in found["queues"])


def all_read(broker: BrokerProcess, *formats: int) -> None:
    """When it knows that all nodes of the cluster read these formats of journal files, and no other."""
    what = f"all nodes read formats {formats}"
    wait_for(broker, what, lambda found: found["journal_formats"] == list(formats))


def reject(broker: BrokerProcess, address: str) -> None:
    """A message that is sent there becomes a dead letter."""
    broker.admin("queue-create", name=address)
    publish(broker, [address], address)
    with sync.connect(uri_of(broker), allow_plain=True) as connection:
        (message,) = connection.receiver(address).receive_many(1, timeout=PATIENCE_S)
        message.reject()
    own = f"DLQ.{address}"
    wait_for(broker, "it is there", lambda found: own in [row["name"] for row in found["queues"]], "queues")


def left(broker: BrokerProcess) -> int:
    return waiting_in(broker.admin("queues"))


def numbered(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@pytest.mark.parametrize("releases", [(OLD, NEW), (NEW, OLD)])
def test_messages_reach_a_queue_at_a_node_of_the_other_release(make_broker: Make, releases: tuple[str, str]) -> None:
    nodes = MixedNodes(make_broker, *releases)
    one, two = nodes.start()
    nodes.all_linked()
    assert [runs(one), runs(two)] == list(releases)
    two.admin("queue-create", name="news-of-two", address="news", routing_type="multicast")
    knows(one, 1, 0)
    publish(one, numbered(COUNT), "news")
    assert bodies(two, COUNT, "news-of-two") == numbered(COUNT)
    wait_for(one, "nothing waits", lambda found: [row["depth"] for row in found["links"]] == [0])


def test_dead_letters_of_each_release_go_to_queues_of_their_own_origin_as_far_as_it_knows_them(
    make_broker: Make,
) -> None:
    """The release before is not told of queues for one origin: it would send them all of its dead letters."""
    nodes = MixedNodes(make_broker, OLD, NEW, dead_letter_address="dead", auto_create_dead_letter_resources=True)
    old, new = nodes.start()
    nodes.all_linked()
    reject(new, "ours")
    knows(old, 1, 0)
    reject(old, "theirs")
    assert [bodies(old, 1, "DLQ.theirs"), bodies(new, 1, "DLQ.ours")] == [["theirs"], ["ours"]]
    assert old.admin("cluster-canary", timeout_ms=int(PATIENCE_S * 1000) // 4)["is_whole"]
    assert bodies(new, 1, "DLQ.ours") == ["ours"]


@pytest.mark.parametrize("releases", [(OLD, NEW), (NEW, OLD)])
def test_messages_that_nobody_reads_here_go_to_a_consumer_at_the_other_release(
    make_broker: Make, releases: tuple[str, str]
) -> None:
    nodes = MixedNodes(make_broker, *releases)
    one, two = nodes.start()
    nodes.all_linked()
    publish(one, numbered(COUNT), "orders")
    found = []
    with sync.connect(uri_of(two), allow_plain=True) as connection:
        receiver = connection.receiver("orders")
        while len(found) < COUNT and (messages := receiver.receive_many(COUNT, timeout=PATIENCE_S)):
            for message in messages:
                found.append(str(message.body))
                message.accept()
        assert found == numbered(COUNT)
        # What comes again has come by the time in which a message crosses each link, and all links in both directions.
        for broker in (one, two):
            assert broker.admin("cluster-canary", timeout_ms=int(PATIENCE_S * 1000) // 4)["is_whole"]
        assert receiver.receive_many(1, timeout=0.5) == []
    assert left(one) == 0


@pytest.fixture
def load(make_broker: Make) -> Iterator[tuple[MixedNodes, Load]]:
    nodes = MixedNodes(make_broker, OLD, OLD, OLD)
    one, two, three = nodes.start()
    nodes.all_linked()
    producers = {"mq0": uri_of(one), "mq1": uri_of(two)}
    traffic = Load("orders", producers, {"mq1": uri_of(two), "mq2": uri_of(three)}, answers_at_stop=False)
    traffic.begin()
    try:
        yield nodes, traffic
    finally:
        traffic.end()


def test_an_upgrade_and_a_way_back_host_by_host_lose_and_double_nothing(load: tuple[MixedNodes, Load]) -> None:
    nodes, traffic = load
    for number in (0, 1, 2):
        move(nodes, number, NEW)
        for broker in nodes.brokers[: number + 1]:
            all_read(broker, *(READ_VERSIONS if number == 2 else (FORMAT_VERSION,)))
    for number in (2, 0, 1):
        move(nodes, number, OLD)
        if number != 1:
            all_read(nodes.brokers[1], FORMAT_VERSION)
    move(nodes, 1, NEW)
    assert [runs(broker) for broker in nodes.brokers] == [OLD, NEW, OLD]
    traffic.stop_sending(PATIENCE_S)
    for broker in nodes.brokers:
        wait_for(broker, "all is consumed", lambda found: waiting_in(found) == 0, "queues")
    assert traffic.verdict(left=0) == []
    assert min(traffic.counts["accepted"].values()) > COUNT
    assert min(traffic.counts["received"].values()) > 0


def test_each_release_reads_what_the_other_has_written(make_broker: Make) -> None:
    broker = make_broker(environment=broker_environment())
    broker.start()
    sent: list[str] = []
    for release in (NEW, OLD, NEW):
        texts = [f"{release} {number}" for number in range(COUNT // 3)]
        publish(broker, texts, "orders")
        sent += texts
        broker.kill()
        be(broker, release)
        broker.start()
        assert bodies(broker, len(sent), "orders") == sent


class WayBack:
    """The trial of the release before with the data of one broker, which has its admin socket elsewhere."""

    def __init__(self, folder: Path, broker: BrokerProcess) -> None:
        self._name, self._options = broker.data_directory.name, broker.config_file.read_text()
        self._places = Places(current=str(folder / "current"), data=str(broker.data_directory.parent))
        program = folder / "releases" / OLD / "bin/mqbroker"
        program.parent.mkdir(parents=True)
        program.write_text(f"""#!/bin/sh
export PYTHONPATH={unpacked_wheel()}
[ "$1" != admin ] || exec {shlex.join(COMMAND)} admin --socket {broker.admin_socket} "$4"
exec {shlex.join(COMMAND)} "$@"
""")
        program.chmod(0o755)

    def faults(self) -> list[str]:
        found: list[str] = release_trial.faults(OLD, {self._name: self._options}, self._places)
        return found


def test_a_queue_that_drains_keeps_from_the_way_back_for_as_long_as_it_does(make_broker: Make, tmp_path: Path) -> None:
    """The release before does not start with one. What files of the journal say of one that is over it passes over."""
    nodes = MixedNodes(make_broker, NEW, NEW)
    source = nodes.start()[0]
    nodes.all_linked()
    publish(source, numbered(COUNT), "orders")
    back = WayBack(tmp_path, source)
    assert back.faults() == []
    source.admin("cordon")
    assert ["would let clients in" in one for one in back.faults()] == [True]
    source.admin("uncordon")
    source.admin("drain-queue", queue="orders", node="mq1")
    assert ["queue orders of data does" in one for one in back.faults()] == [True]
    assert source.stop() == 0
    assert ["whose broker does not answer, orders does" in one for one in back.faults()] == [True]
    be(source, OLD)
    with pytest.raises(BrokerFailed):
        source.start()
    assert "drains_as" in source.log
    be(source, NEW)
    source.start()
    nodes.all_linked()
    source.admin("drain-cancel", queue="orders")
    wait_for(source, "it serves again", lambda found: found["drains"] == [], "drain-show")
    assert back.faults() == []
    assert source.stop() == 0
    assert back.faults() == []
    be(source, OLD)
    source.start()
    assert left(source) + left(nodes.brokers[1]) == COUNT


def test_a_broker_that_does_not_answer_and_a_damaged_journal_keep_nobody_from_the_way_back(
    make_broker: Make, tmp_path: Path
) -> None:
    """A release that hangs, or ends at each start, is left; and what damage gives up is said by options."""
    broker = make_broker()
    broker.start()
    publish(broker, [f"message {number}" for number in range(COUNT)], "orders")
    back = WayBack(tmp_path, broker)
    broker.admin_socket.unlink()  # it still has the lock
    assert back.faults() == []
    broker.kill()
    file = min((broker.data_directory / "journal").glob("journal-*.mqj"))
    text = bytearray(file.read_bytes())
    text[text.index(b"message 9")] ^= 1
    file.write_bytes(text)
    assert back.faults() == []
    broker.options["journal"] = {"journal-on-damage": "truncate"}
    broker.write_config()
    be(broker, OLD)
    broker.start()
    assert left(broker) < COUNT


WRITTEN = """
try:
    from mqbroker.core.queue.kinds import OPTIONAL
    from mqbroker.journal.records import RecordKind
except ImportError:
    from mqbroker.core.kinds import OPTIONAL
    from mqbroker.journal.records import Kind as RecordKind
print(*[name for name, _ in OPTIONAL], *[one.name for one in RecordKind])
"""


def test_what_the_release_before_does_not_read_in_a_journal_is_asked_for_before_a_way_back() -> None:
    """What comes to this needs a question in release_trial.py, and a word by which a release says that it reads it."""
    read, written = (
        set(subprocess.check_output([sys.executable, "-c", WRITTEN], env={**os.environ, **more}, text=True).split())
        for more in (broker_environment(), {})
    )
    assert "RUN" in read
    assert written - read == {"drains_as", "drain_ends"}


@pytest.mark.parametrize("version", READ_VERSIONS)
def test_the_release_before_refuses_a_format_that_it_does_not_read_and_names_it(version: int, tmp_path: Path) -> None:
    """Nobody writes format 2 before all nodes are known to read it, and a rollback asks what is there."""
    owner, _ = identity.init(tmp_path, identity.machine_id())
    (tmp_path / "identity.json").write_text(
        (tmp_path / "identity.json").read_text().replace(owner.node_id, str(uuid.UUID(bytes=NODE_ID)))
    )
    shutil.copytree(SAMPLES / f"format-{version}", tmp_path / "journal", ignore=shutil.ignore_patterns("expected.json"))
    command = [*COMMAND, "journal", "check", "--json", "--data-directory", str(tmp_path)]
    done = subprocess.run(
        command,
        env={**os.environ, **broker_environment()},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    found = json.loads(done.stdout)
    # The samples are of the journal alone: what stands in their queues no broker has written.
    assert done.returncode != 0
    assert ("it has format version 2, this release reads version 1" in found["why"]) == (version != FORMAT_VERSION), (
        found
    )
