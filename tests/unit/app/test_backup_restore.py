"""A backup back in a data directory: what was there is put aside, and the node goes on beyond all that it had."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mqbroker.app.backup import reading
from mqbroker.app.backup.folder import BackupFolder
from mqbroker.app.backup.manifest import BackupManifest, CopiedFile
from mqbroker.app.backup.restoring import (
    BOOT_JUMP,
    ID_JUMP,
    KeptBackup,
    RestoredDirectory,
    RestoreReceipt,
    receipt_rows,
)
from mqbroker.app.backup.transfer import copy
from mqbroker.app.main import main
from mqbroker.base.errors import ConfigFault, StorageFault
from mqbroker.config.declarations.options import defaults
from mqbroker.core.cluster import cordon, scale_down
from mqbroker.core.paging.recorded_messages import delivered_at_least
from mqbroker.core.queue.queue import QueueKind
from mqbroker.io.disk.disk import Disk
from mqbroker.io.disk.journal_directory import JournalDirectory
from mqbroker.io.files import identity
from mqbroker.journal.plan import Journal
from mqbroker.journal.recovered import Recovered
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

OPTIONS = replace(defaults().journal, journal_file_size_bytes=1 << 20)
MACHINE = identity.machine_id()
ORDERS = 1
NOBODY = 65534
KIND = QueueKind(name="orders", address="orders")


def place(directory: Path) -> JournalDirectory:
    owner = identity.load(directory)
    assert owner is not None
    return JournalDirectory(directory / "journal", owner.node_id_bytes, OPTIONS)


def write(directory: Path, first: int, count: int, also: Callable[[Journal], object] = id) -> None:
    """A start, a queue with a consumer and so many messages, and what `also` adds; then the process is killed."""
    journal_directory = place(directory)
    recovered = journal_directory.load()
    journal = Journal(OPTIONS, recovered)
    journal.declare(ORDERS, KIND.encoded())
    journal.consumed(ORDERS)
    for number in range(first, first + count):
        run = single(build_message(b"%d" % number, durable=True))
        journal.store(number, 1, [ORDERS], run.block(0, 1))
    also(journal)
    faults: list[StorageFault] = []
    disk = Disk(journal_directory, recovered, lambda done: None, faults.append)
    append = journal.take(sync=True)
    assert append is not None
    disk.submit(append)
    assert disk.close()
    assert faults == []


class StoppedNode:
    """The source of a backup of a directory in which nothing runs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def manifest(self) -> BackupManifest:
        owner, found = identity.load(self._directory), place(self._directory).look()
        assert owner is not None
        files = []
        for use in found.segments:
            path = place(self._directory).path_of(use.number)
            size_bytes = path.stat().st_size
            name = f"journal/{path.name}"
            files.append(CopiedFile(name, size_bytes, size_bytes, reading.checksum_of(path)))
        made = "2026-11-27T10:15:00+00:00"
        return BackupManifest(
            "mq1-1", "mq1", owner.node_id, made, "1.0", found.boot, 0, found.last_position, tuple(files)
        )

    def content(self, file: CopiedFile) -> Iterator[bytes]:
        return reading.pieces(self._directory / file.name, file.used_bytes)

    def end(self) -> None:
        """Nothing is held."""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    identity.init(tmp_path / "node", MACHINE)
    write(tmp_path / "node", 1, 3)
    return tmp_path / "node"


@pytest.fixture
def kept(node: Path, tmp_path: Path) -> KeptBackup:
    return backed_up(node, tmp_path)


def backed_up(node: Path, tmp_path: Path) -> KeptBackup:
    folder = BackupFolder(tmp_path / "kept")
    with folder.locked():
        copy(StoppedNode(node), folder)
    (found,) = folder.backups()
    return KeptBackup(folder, found)


def restore(
    kept: KeptBackup, directory: Path, *, keeps_node_id: bool = False, as_another: bool = False
) -> RestoreReceipt:
    target = RestoredDirectory(directory, OPTIONS, keeps_node_id=keeps_node_id, as_another=as_another)
    try:
        receipt, _ = copy(kept, target)
    finally:
        target.close()
    assert isinstance(receipt, RestoreReceipt)
    return receipt


def started(directory: Path) -> Recovered:
    """What the next start finds, which has to be let in."""
    identity.check(directory, MACHINE)
    return place(directory).load()


def node_id(directory: Path) -> str:
    found = identity.load(directory)
    assert found is not None
    return found.node_id


def test_the_same_node_goes_on_beyond_all_that_it_had(kept: KeptBackup, node: Path) -> None:
    before = place(node).look()
    write(node, 4, 5)
    was = node_id(node)
    receipt = restore(kept, node)
    assert receipt.balances
    assert [(row["in_backup"], row["restored"]) for row in receipt.queues] == [(3, 3)]
    found = started(node)
    assert node_id(node) == was == receipt.node_id == receipt.from_node_id
    assert found.boot == receipt.boot == before.boot + 1 + BOOT_JUMP
    assert found.next_id == receipt.next_id == before.next_id + 5 + ID_JUMP
    assert delivered_at_least(found, ORDERS) == 1, "a consumer may have seen them"
    assert receipt.aside is not None
    assert sum(run.count for run in JournalDirectory(
        Path(receipt.aside) / "journal", identity.bound(was, node, MACHINE).node_id_bytes, OPTIONS
    ).look().runs) == 8  # fmt: skip
    assert not (node / "restoring").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for others")
@pytest.mark.parametrize("is_same", [True, False])
def test_what_root_restores_belongs_to_the_brokers_own_user(
    kept: KeptBackup, node: Path, tmp_path: Path, is_same: bool
) -> None:
    directory = node if is_same else tmp_path / "other"
    identity.init(directory, MACHINE)
    for path in (directory, *directory.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    assert restore(kept, directory, as_another=not is_same).balances
    found = {str(path.relative_to(directory)): path.stat().st_uid for path in directory.rglob("*")}
    assert set(found.values()) == {NOBODY}, found


def test_again_and_again_nothing_is_overwritten(kept: KeptBackup, node: Path) -> None:
    asides = {restore(kept, node).aside for _ in range(3)}
    assert sorted(Path(str(aside)).name for aside in asides) == [f"before-restore-{number}" for number in (1, 2, 3)]
    assert sum(run.count for run in started(node).runs) == 3


def test_another_node_gets_the_messages_under_its_own_id(kept: KeptBackup, node: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    identity.init(other, MACHINE)
    was = node_id(other)
    receipt = restore(kept, other, as_another=True)
    assert (receipt.node_id, receipt.from_node_id) == (was, node_id(node))
    assert receipt.balances
    assert sum(run.count for run in started(other).runs) == 3


def test_a_backup_of_another_node_is_taken_only_where_that_is_said(kept: KeptBackup, tmp_path: Path) -> None:
    """A slip in the name of a host: what that one has stays where it is."""
    other, new = tmp_path / "other", tmp_path / "new"
    identity.init(other, MACHINE)
    write(other, 1, 7)
    new.mkdir()
    for directory in (other, new):
        before = sorted(path.name for path in directory.rglob("*"))
        with pytest.raises(ConfigFault, match="--as-another-node gives its messages to the node here"):
            restore(kept, directory)
        assert sorted(path.name for path in directory.rglob("*")) == before
    assert sum(run.count for run in started(other).runs) == 7


def test_a_directory_without_identity_gets_one_of_its_own_or_that_of_the_backup(
    kept: KeptBackup, node: Path, tmp_path: Path
) -> None:
    for name, keeps_node_id in (("new", False), ("successor", True)):
        directory = tmp_path / name
        directory.mkdir()
        receipt = restore(kept, directory, keeps_node_id=keeps_node_id, as_another=not keeps_node_id)
        assert receipt.aside is None
        assert (node_id(directory) == node_id(node)) is keeps_node_id
        assert sum(run.count for run in started(directory).runs) == 3


@pytest.mark.parametrize("has_nothing_aside", [False, True])
@pytest.mark.parametrize("move", range(5))
def test_a_restore_that_was_cut_off_lets_no_broker_start_and_can_be_repeated(
    kept: KeptBackup, node: Path, monkeypatch: pytest.MonkeyPatch, move: int, has_nothing_aside: bool
) -> None:
    """Killed at each of its moves. Nobody makes a new node of what is left, and the node is still itself."""
    was, before = node_id(node), place(node).look()
    with monkeypatch.context() as patch:
        dies_at(patch, node, move)
        with pytest.raises(Killed):
            restore(kept, node)
    for starts in (identity.check, identity.init):
        with pytest.raises(ConfigFault, match="a restore was cut off here"):
            starts(node, MACHINE)
    if has_nothing_aside:
        (node / "before-restore-7").mkdir()  # of a second try that was cut off before it moved anything
    receipt = restore(kept, node)
    assert receipt.node_id == was == node_id(node)
    assert receipt.boot >= before.boot + BOOT_JUMP
    assert sum(run.count for run in started(node).runs) == 3


class Killed(Exception):
    """Stands for a kill: nothing of the program comes after it but what it does at each of its ends."""


def dies_at(patch: pytest.MonkeyPatch, node: Path, move: int) -> None:
    """What is renamed in or out of the data directory counts, and that rename does not happen."""
    rename, put_back, moves = Path.rename, identity.write, iter(range(100))

    def moved(source: Path, target: Path) -> Path:
        if node in (source.parent, Path(target).parent) and next(moves) == move:
            raise Killed
        return rename(source, target)

    def written(directory: Path, found: identity.NodeIdentity) -> None:
        if move >= next(moves):
            raise Killed
        put_back(directory, found)

    patch.setattr(Path, "rename", moved)
    patch.setattr(identity, "write", written)


def test_a_second_restore_goes_on_beyond_the_first_one(kept: KeptBackup, node: Path) -> None:
    first = restore(kept, node)
    write(node, first.next_id, 2)
    second = restore(kept, node)
    assert second.boot > first.boot + 1
    assert second.next_id > first.next_id + 2
    third = restore(kept, node)  # at once: only the receipt and what is put aside know of the second
    assert (third.boot, third.next_id) > (second.boot, second.next_id)


def test_a_directory_that_was_copied_is_refused_unless_the_original_is_gone(kept: KeptBackup, node: Path) -> None:
    owner = identity.load(node)
    assert owner is not None
    identity.write(node, replace(owner, machine_id="f" * 32))
    before = place(node).look().last_position
    with pytest.raises(identity.IdentityMismatch):
        restore(kept, node)
    assert place(node).look().last_position == before
    assert restore(kept, node, keeps_node_id=True).balances
    assert sum(run.count for run in started(node).runs) == 3


def test_a_backup_that_was_changed_leaves_all_as_it_was(kept: KeptBackup, node: Path, tmp_path: Path) -> None:
    (file,) = (tmp_path / "kept" / "files").iterdir()
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)
    before = sorted(path.name for path in node.rglob("*"))
    with pytest.raises(ConfigFault, match="changed while it was copied"):
        restore(kept, node)
    assert sorted(path.name for path in node.rglob("*")) == before


def test_a_receipt_names_each_difference() -> None:
    queue = reading.QueueContents
    before = (queue("a", "a", 2, "2:3:5"), queue("b", "b", 1, "1:1:1"), queue("c", "c", 1, "1:1:1"))
    after = (queue("a", "a", 2, "2:3:5"), queue("b", "b", 1, "1:2:4"), queue("d", "d", 1, "1:1:1"))
    rows = list(receipt_rows(before, after))
    assert [(row["queue"], row["balances"]) for row in rows] == [("a", True), ("b", False), ("c", False), ("d", False)]


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """`mqbroker backup restore`: its exit code, and what it says."""
    code = main(["backup", "restore", *words])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def options_file(node: Path, tmp_path: Path) -> Path:
    """The options of a node of a cluster."""
    file = tmp_path / "etc" / "broker.toml"
    file.parent.mkdir()
    file.write_text(f"""
node = {{ name = "mq1", data-directory = "{node}" }}
[[broadcast-groups]]
name = "all"
group-address = "231.7.7.7"
group-port = 9876
connector-ref = "own"
[[connectors]]
name = "own"
host = "192.0.2.1"
port = 5672
""")
    return file


def test_the_receipt_names_what_no_backup_has(
    kept: KeptBackup, node: Path, tmp_path: Path, options_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / "kept"), "mq1-1", "--config", str(options_file), "--json"]
    (node / "cluster-secret").write_text("x" * 32)
    assert json.loads(command(capsys, *words)[1])["notes"] == []
    shutil.rmtree(node)
    code, _, err = command(capsys, *words)
    assert code == 1
    assert f"{node}: is not there: make it for the broker's own user (install -d -o mq -g mq -m 0700 {node})" in err
    node.mkdir()
    notes = json.loads(command(capsys, *words, "--keep-node-id")[1])["notes"]
    assert [note.partition(";")[0] for note in notes] == [
        f"there is no {node}/cluster-secret: the broker does not start without it",
        f"there is no {node}/users.json: nobody can log in with a password",
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for others")
def test_root_gives_nothing_to_itself_that_a_broker_with_another_user_is_to_read(
    kept: KeptBackup, node: Path, tmp_path: Path, options_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.chown(options_file.parent, 0, NOBODY)
    words = [str(tmp_path / "kept"), "mq1-1", "--config", str(options_file)]
    before = sorted(node.rglob("*"))
    code, _, err = command(capsys, *words)
    assert code == 1
    assert f"{node}: belongs to root, and the broker with the options in {options_file.parent} runs as another" in err
    assert sorted(node.rglob("*")) == before
    os.chown(node, NOBODY, NOBODY)
    assert command(capsys, *words)[0] == 0


@pytest.mark.parametrize("is_same", [True, False])
def test_a_file_that_changes_while_all_is_copied_is_in_the_way(
    kept: KeptBackup, node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, is_same: bool,
) -> None:  # fmt: skip
    """Somebody gives up the operation that this one is."""
    note, before, take = tmp_path / "note", node_id(node), RestoredDirectory.take
    note.write_text("1")

    def took(target: RestoredDirectory, file: CopiedFile, content: Iterable[bytes]) -> None:
        take(target, file, content)
        note.write_text("1" if is_same else "2")

    monkeypatch.setattr(RestoredDirectory, "take", took)
    words = (str(tmp_path / "kept"), "mq1-1", "--data-directory", str(node), "--while-same", str(note))
    code, _, err = command(capsys, *words)
    assert code == (0 if is_same else 1)
    assert (f"{note}: has changed since the restore began; nothing was changed\n" in err) is not is_same
    assert (node / "restored.json").exists() is is_same
    assert node_id(node) == before


def said_of_the_node(name: str) -> Callable[[Journal], object]:
    return lambda journal: journal.duplicates.add(name, 1, b'{"since_ms": 1}', 1)


def test_a_cordon_comes_back_with_its_node_alone_and_is_told(node: Path, tmp_path: Path) -> None:
    write(node, 4, 1, said_of_the_node(cordon.NAME))
    kept = backed_up(node, tmp_path)
    (note,) = restore(kept, node).notes
    assert "is so again: mqctl undrain" in note
    assert cordon.NAME in started(node).duplicates
    other = tmp_path / "other"
    identity.init(other, MACHINE)
    receipt = restore(kept, other, as_another=True)
    assert receipt.balances
    assert receipt.notes == ()
    assert cordon.NAME not in started(other).duplicates


def leaves(journal: Journal) -> None:
    said_of_the_node(scale_down.NAME)(journal)


def drains(journal: Journal) -> None:
    journal.declare(7, replace(
        KIND, name="drained", connection="c", forwards_to="x", route=("drained@x",), drains_as="$.sf.c.x.1"
    ).encoded())  # fmt: skip


@pytest.mark.parametrize("also", [leaves, drains])
def test_a_node_that_was_leaving_goes_on_with_that_and_nobody_else_does(
    node: Path, tmp_path: Path, also: Callable[[Journal], object]
) -> None:
    write(node, 4, 1, also)
    kept = backed_up(node, tmp_path)
    other = tmp_path / "other"
    identity.init(other, MACHINE)
    with pytest.raises(ConfigFault, match="made while its node was leaving"):
        restore(kept, other, as_another=True)
    assert not (other / "journal").exists()
    (note,) = restore(kept, node).notes
    assert "mqctl scale-down --cancel" in note


def test_another_node_knows_the_ids_by_which_clients_send_once_more(node: Path, tmp_path: Path) -> None:
    def sent_with_ids(journal: Journal) -> None:
        for number, duplicate_id in enumerate((b"first", b"second"), 1):
            journal.duplicates.add("orders", number, duplicate_id, 1)

    write(node, 4, 1, sent_with_ids)
    other = tmp_path / "other"
    identity.init(other, MACHINE)
    assert restore(backed_up(node, tmp_path), other, as_another=True).balances
    known = started(other).duplicates["orders"]
    assert [(each.number, each.duplicate_id) for each in known] == [(1, b"first"), (2, b"second")]


@pytest.mark.parametrize("waiting", [0, 2])
def test_what_waits_for_the_node_that_gets_the_backup_is_not_left_to_wait_for_ever(
    node: Path, tmp_path: Path, waiting: int
) -> None:
    other = tmp_path / "other"
    identity.init(other, MACHINE)

    def forwards(journal: Journal) -> None:
        target = node_id(other)
        journal.declare(7, replace(
            KIND, name=f"$.sf.c.{target}.1", routing="forward", connection="c", forwards_to=target, route=("orders@x",)
        ).encoded())  # fmt: skip
        for number in range(50, 50 + waiting):
            journal.store(number, 1, [7], single(build_message(b"waits", durable=True)).block(0, 1))

    write(node, 4, 1, forwards)
    kept = backed_up(node, tmp_path)
    if waiting:
        with pytest.raises(ConfigFault, match="has 2 messages of address orders that wait for the node here"):
            restore(kept, other, as_another=True)
        assert not (other / "journal").exists()
        return
    assert restore(kept, other, as_another=True).balances
    assert [attributes["name"] for attributes in started(other).queues.values()] == ["orders"]
