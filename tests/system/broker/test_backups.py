"""`mqbroker backup` of a real broker that goes on meanwhile: what is copied is one position, whole, and read again."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mqbroker.client as mq
import pytest
from mqbroker.app.admin_requests import LocalAdmin
from mqbroker.app.backup import transfer
from mqbroker.app.backup.folder import BackupFolder
from mqbroker.app.backup.running import RunningNode, Throttle
from mqbroker.app.commands import backup as commands
from mqbroker.app.main import main
from mqbroker.base.errors import ConfigFault
from mqbroker.client import sync

from tests.support.broker_process import COMMAND, BrokerFailed, BrokerProcess
from tests.support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.system

Make = Callable[..., BrokerProcess]
OPTIONS = {
    "journal": {"journal-file-size-bytes": 1 << 20, "journal-pool-files": 8},
    "limits": {"large-message-in-memory-max-size-bytes": 0},
}
LARGE_BYTES = 400_000


@pytest.fixture
def node(make_broker: Make) -> BrokerProcess:
    made = make_broker(options=OPTIONS)
    made.start()
    return made


def uri(broker: BrokerProcess) -> str:
    return f"amqp://{broker.user}:{broker.password}@{broker.host}:{broker.port}"


def send(broker: BrokerProcess, count: int, address: str = "orders") -> None:
    messages = [{"body": "x" * 1000, "durable": True}] * 100
    for _ in range(count // 100):
        assert broker.admin("send", address=address, messages=messages) == {"accepted": 100}


def send_large(broker: BrokerProcess, count: int) -> None:
    with sync.connect(uri(broker)) as client, client.sender("large") as sender:
        for _ in range(count):
            sender.send(mq.Message(os.urandom(LARGE_BYTES), durable=True))


def backup(broker: BrokerProcess, action: str, *words: str) -> dict[str, Any]:
    where = ("--config", str(broker.config_file)) if action == "create" else ()
    found: dict[str, Any] = json.loads(broker.command("backup", action, *words, *where, "--json"))
    return found


def data_files(broker: BrokerProcess) -> set[str]:
    return {path.name for path in broker.data_directory.rglob("*") if path.suffix in (".mqj", ".msg")}


def session_with(broker: BrokerProcess) -> LocalAdmin:
    return LocalAdmin(argparse.Namespace(command="test", config=broker.config_file, socket=None, instance="default"))


@pytest.mark.one_day_in_three(0)
def test_a_backup_of_a_busy_broker_is_of_one_position_and_whole(node: BrokerProcess, tmp_path: Path) -> None:
    send(node, 2000)
    send_large(node, 5)
    is_over = threading.Event()

    def busy() -> None:
        """Journal files come and go while they are copied, and so do those of large messages."""
        while not is_over.is_set():
            send(node, 1000, "busy")
            send_large(node, 1)
            node.admin("queue-purge", name="busy")
            node.admin("queue-purge", name="large")

    thread = threading.Thread(target=busy)
    thread.start()
    try:
        made = [backup(node, "create", str(tmp_path / "kept"), "--bytes-per-second", str(4 << 20)) for _ in range(3)]
    finally:
        is_over.set()
        thread.join(PATIENCE_S)
    for each in made:
        queues = {queue["name"]: queue["messages"] for queue in each["queues"]}
        assert queues["orders"] == 2000
        assert queues.get("busy", 0) <= 1000  # any number: a purge is settled piece by piece
        assert queues.get("large", 0) <= 6
    assert len({each["position"] for each in made}) == 3
    found = backup(node, "verify", str(tmp_path / "kept"))["backups"]
    assert [row["good"] for row in found] == [True, True, True]
    assert "backup-let-go" not in node.log


class Counted(Throttle):
    """Of what was read, how much the throttle was told of."""

    read_bytes = 0

    def passed(self, size_bytes: int) -> None:
        super().passed(size_bytes)
        Counted.read_bytes += size_bytes


def test_nothing_of_a_backup_on_the_host_is_read_beside_the_throttle(
    node: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For its checksums, to copy it, and twice when it is there. The broker has the processor first."""
    send(node, 1000)
    nice: list[int] = []
    monkeypatch.setattr(commands, "Throttle", Counted)
    monkeypatch.setattr(os, "nice", nice.append)
    words = ["backup", "create", str(tmp_path / "kept"), "--config", str(node.config_file)]
    assert main([*words, "--bytes-per-second", str(1 << 40)]) == 0
    (made,) = BackupFolder(tmp_path / "kept").backups()
    assert Counted.read_bytes == 4 * made.used_bytes
    assert nice == [10]


def test_what_is_held_goes_when_the_copy_is_made(node: BrokerProcess, tmp_path: Path) -> None:
    send(node, 3000)
    send_large(node, 3)
    session = session_with(node)
    running = RunningNode(session, 60_000, Throttle(0))
    manifest = running.manifest()
    node.admin("queue-purge", name="orders")
    node.admin("queue-purge", name="large")
    send(node, 1000, "others")
    held = {Path(file.name).name for file in manifest.files}
    assert len(held) >= 6
    assert held <= data_files(node)
    folder = BackupFolder(tmp_path / "kept")
    with folder.locked():
        for file in folder.wanted(manifest):
            folder.take(file, running.content(file))
        running.end()
        assert folder.finish(manifest).messages == 3003
    session.close()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(held & data_files(node)) > 1:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    assert not any(name.endswith(".msg") for name in data_files(node))


def test_what_was_let_go_is_no_backup(node: BrokerProcess, tmp_path: Path) -> None:
    send(node, 3000)
    session = session_with(node)
    running = RunningNode(session, 300, Throttle(0))
    manifest = running.manifest()
    node.wait_for_log("backup-let-go")
    with pytest.raises(ConfigFault, match="held for as long as was asked for"):
        running.end()
    node.admin("queue-purge", name="orders")
    folder = BackupFolder(tmp_path / "kept")
    deadline_s = time.monotonic() + PATIENCE_S
    while len(data_files(node)) > 2:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    first = manifest.files[0]
    with folder.locked(), pytest.raises(ConfigFault, match="let go before they were read"):
        folder.take(first, running.content(first))
    session.close()
    assert folder.backups() == []


def test_only_what_is_new_is_copied_and_pruning_breaks_nothing(node: BrokerProcess, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    send(node, 3000)
    send_large(node, 2)
    first = backup(node, "create", kept)
    assert first["copied_bytes"] == first["used_bytes"]
    send(node, 1000)
    second = backup(node, "create", kept)
    assert first["used_bytes"] < second["used_bytes"]
    assert second["copied_bytes"] < 3 << 20, "the last file of before, and what came since"
    assert [row["id"] for row in backup(node, "list", kept)["backups"]] == [first["id"], second["id"]]
    found = backup(node, "prune", kept, "--keep", "1")
    assert found["pruned"] == [first["id"]]
    assert found["freed_bytes"] > 0
    (row,) = backup(node, "verify", kept)["backups"]
    assert (row["id"], row["good"], row["messages"]) == (second["id"], True, 4002)
    assert backup(node, "prune", kept, "--keep", "1") == {"schema": 1, "pruned": [], "freed_bytes": 0, "bad": []}


def test_a_file_that_is_damaged_is_found_and_copied_again(node: BrokerProcess, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    send(node, 3000)
    first = backup(node, "create", str(kept))
    damaged = max((kept / "files").iterdir(), key=lambda path: path.stat().st_blocks)
    content = bytearray(damaged.read_bytes())
    content[5000] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(BrokerFailed, match=f"exit code 1: .*{damaged.name} is not what was copied|{damaged.name}"):
        node.command("backup", "verify", str(kept), first["id"])
    assert backup(node, "create", str(kept))["copied_bytes"] > 0
    assert [row["good"] for row in backup(node, "verify", str(kept))["backups"]] == [True, True]


class Piped:
    """`send` and `receive`, each a process, with a pipe in both directions."""

    def __init__(self, broker: BrokerProcess, folder: Path, *words: str) -> None:
        to_target, to_source = os.pipe(), os.pipe()
        source = [*COMMAND, "backup", "send", "--config", str(broker.config_file), *words]
        self.source = subprocess.Popen(source, stdin=to_source[0], stdout=to_target[1], stderr=subprocess.PIPE)
        target = [*COMMAND, "backup", "receive", str(folder)]
        self.target = subprocess.Popen(target, stdin=to_target[0], stdout=to_source[1], stderr=subprocess.PIPE)
        for end in (*to_target, *to_source):
            os.close(end)

    def codes(self) -> tuple[int, int]:
        return self.source.wait(PATIENCE_S), self.target.wait(PATIENCE_S)

    def complaints(self) -> bytes:
        assert self.source.stderr is not None
        assert self.target.stderr is not None
        return self.source.stderr.read() + self.target.stderr.read()


def test_both_halves_on_two_machines(node: BrokerProcess, tmp_path: Path) -> None:
    send(node, 3000)
    send_large(node, 2)
    piped = Piped(node, tmp_path / "kept")
    assert piped.codes() == (0, 0), piped.complaints()
    (found,) = BackupFolder(tmp_path / "kept").backups()
    assert found.messages == 3002


@pytest.mark.one_day_in_three(2)
def test_a_source_that_is_killed_leaves_no_backup_and_nothing_held(node: BrokerProcess, tmp_path: Path) -> None:
    send(node, 3000)
    piped = Piped(node, tmp_path / "kept", "--bytes-per-second", "300000")
    wait_until(lambda: list((tmp_path / "kept" / "files").glob("*")), "something is copied")
    piped.source.kill()
    piped.codes()
    assert b"was cut off" in piped.complaints()
    assert BackupFolder(tmp_path / "kept").backups() == []
    made = backup(node, "create", str(tmp_path / "kept"))
    assert made["messages"] == 3000
    names = {path.name for path in (tmp_path / "kept" / "files").iterdir()}
    assert names == {file.sha256 for file in BackupFolder(tmp_path / "kept").get(made["id"]).files}


def test_a_broker_that_is_killed_in_the_middle_leaves_no_backup(node: BrokerProcess, tmp_path: Path) -> None:
    send(node, 3000)
    session = session_with(node)
    running = RunningNode(session, 60_000, Throttle(0))
    folder = BackupFolder(tmp_path / "kept")
    manifest = running.manifest()
    with folder.locked():
        for file in folder.wanted(manifest):
            folder.take(file, running.content(file))
        node.kill()
        with pytest.raises(ConfigFault, match="the broker is gone"):
            running.end()
    node.start()
    assert folder.backups() == []
    assert node.admin("queue-show", name="orders")["message_count"] == 3000


def test_two_at_once_are_refused_by_the_broker_and_by_the_folder(node: BrokerProcess, tmp_path: Path) -> None:
    send(node, 100)
    session = session_with(node)
    running = RunningNode(session, 60_000, Throttle(0))
    with pytest.raises(BrokerFailed, match="a backup is under way already"):
        backup(node, "create", str(tmp_path / "kept"))
    folder = BackupFolder(tmp_path / "kept")
    with folder.locked(), pytest.raises(BrokerFailed, match="another command writes there"):
        backup(node, "create", str(tmp_path / "kept"))
    with folder.locked():
        assert transfer.copy(running, folder)[0].messages == 100
    session.close()


def large_bodies(broker: BrokerProcess) -> list[bytes]:
    """What is in the queue of large messages; it stays there."""
    with sync.connect(uri(broker)) as client:
        return sorted(bytes(message.body) for message in client.browse("large"))


def test_large_messages_come_back_whole_to_their_node_and_to_another(
    node: BrokerProcess, make_broker: Make, tmp_path: Path
) -> None:
    kept = str(tmp_path / "kept")
    send(node, 100)
    send_large(node, 2)
    bodies = large_bodies(node)
    assert [len(body) for body in bodies] == [LARGE_BYTES, LARGE_BYTES]
    made = backup(node, "create", kept)
    node.admin("queue-purge", name="large")
    assert node.stop() == 0
    other = make_broker(options=OPTIONS)
    other.prepare()
    for broker in (node, other):
        words = ["--config", str(broker.config_file), "--json", *(["--as-another-node"] if broker is other else [])]
        receipt = json.loads(broker.command("backup", "restore", kept, made["id"], *words))
        assert receipt["balances"]
        broker.start()
        assert large_bodies(broker) == bodies
        assert broker.admin("queue-show", name="orders")["message_count"] == 100
