"""A restore is an operation of its cluster: who is in its way, what is held after it, and who goes on with it.

Hosts are folders here with the real `mqbroker`, and the backup that they are given is a real one.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mqbroker.app.backup.folder import BackupFolder
from mqbroker.app.backup.transfer import copy
from mqbroker.io.files import identity
from mqbroker.io.files.data_lock import DataLock
from mqctl import operation
from mqctl.commands.repair import backup_restore
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.remote import operation as noting
from mqctl.ssh.local import LocalStream
from mqctl.ssh.shell import CommandResult
from mqctl.world import World

from tests.support.local_hosts import LocalHosts, local_inventory
from tests.unit.app.test_backup_restore import MACHINE, StoppedNode, write
from tests.unit.mqctl.test_scale_down_on_hosts import VARIABLES, HostShell, said, world

__all__ = ["world"]

INVENTORY = local_inventory("mq1", "mq2")
MQBROKER = f"""#!{sys.executable}
import sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from mqbroker.app.main import main
words = sys.argv[1:]
if "--instance" in words:
    at = words.index("--instance")
    words[at : at + 2] = ["--data-directory", str(Path(__file__).resolve().parents[1] / "mq" / words[at + 1])]
sys.exit(main(words))
"""
# It takes all that comes, and is killed as it is told that this is all.
KILLED = f"""#!{sys.executable}
import os, signal, sys
sys.stdin.readline()
print('{{"wanted": []}}', flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""
# A program that does something else at one place.
DIFFERS = "sys.exit(main(words))"
END_OF_DISK = """
from mqbroker.io.files import durable_files
replace = durable_files.replace
def full(file, content):
    if file.name == {name!r}:
        raise OSError(28, "No space left on device", str(file))
    replace(file, content)
durable_files.replace = full
sys.exit(main(words))
"""
DAMAGED = """
from mqbroker.app.backup import reading
from mqbroker.base.errors import ConfigFault
def contents_of(found):
    raise ConfigFault("journal", "cannot be read any more")
reading.contents_of = contents_of
sys.exit(main(words))
"""
UNBALANCED = """
from mqbroker.app.backup import restoring
rows_of = restoring.receipt_rows
restoring.receipt_rows = lambda *sides: (row | {"balances": False} for row in rows_of(*sides))
sys.exit(main(words))
"""
KILLED_BEHIND_RESULT = """
import os, signal
main(words)
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
END = b'"end"'
CLUSTER = InventoryCluster("main", tuple(Host(name, "main", VARIABLES, {}) for name in ("mq1", "mq2")))
MESSAGES = 5


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, world: World) -> Path:
    """A folder with a backup of the node of mq1, which has another message since."""
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    for name in ("mq1", "mq2"):
        program(name, MQBROKER)
        data(name).parent.mkdir()
        identity.init(data(name), MACHINE)
        write(data(name), 1, MESSAGES)
    folder = BackupFolder(tmp_path / "kept")
    with folder.locked():
        copy(StoppedNode(data("mq1")), folder)
    write(data("mq1"), MESSAGES + 1, 1)
    return tmp_path / "kept"


def program(name: str, text: str) -> None:
    place = HostShell.root / name / "bin" / "mqbroker"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)


def data(name: str) -> Path:
    return HostShell.root / name / "mq" / "default"


def files(name: str = "mq1") -> dict[str, bytes]:
    found = {str(path.relative_to(data(name))): path for path in data(name).rglob("*") if path.is_file()}
    return {place: path.read_bytes() for place, path in found.items() if "lock" not in place}


def noted() -> set[tuple[int, bool]]:
    """Number of the operation and whether it is held, the same on both hosts or not."""
    found = [noting.look(f"{HostShell.root}/{name}/{Path(noting.PLACE).name}") for name in ("mq1", "mq2")]
    return {(note["number"], note["is_held"]) if note else (0, False) for note in found}


def restore(world: World, **changes: Any) -> int:
    given = {"folder": "kept", "backup": "mq1-1", "host": "mq1", "yes": True, "json": True, **changes}
    return backup_restore.run(world, backup_restore.Options(**given))


def rows(world: World) -> list[dict[str, Any]]:
    assert isinstance(world.out, io.StringIO)
    return list(json.loads(world.out.getvalue())["rows"])


@pytest.mark.slow
@pytest.mark.parametrize("on_hosts", [False, True])
def test_a_restore_holds_the_cluster_and_gives_it_back(world: World, kept: Path, *, on_hosts: bool) -> None:
    before = files()
    # Where the folder is on the host, its name is one of the host, for which it is one of this machine here.
    assert restore(world, folder=str(kept), on_hosts=on_hosts) == Exit.DONE
    assert [(row["queue"], row["restored"], row["balances"]) for row in rows(world)] == [("orders", MESSAGES, True)]
    assert "mq1: all of it is there, and is read before it takes the place of what was" in said(world)
    assert noted() == {(1, False)}
    aside = {name.removeprefix("before-restore-1/"): held for name, held in files().items() if "before-" in name}
    assert aside == before


def test_another_operation_is_in_the_way_and_named(world: World) -> None:
    before = files()
    operation.begin(world, CLUSTER, "mqctl rollout")
    for is_resumed in (False, True):
        with pytest.raises(CommandError, match=r"operation 1 \(mqctl rollout, .* nothing was changed on any host"):
            restore(world, resume=is_resumed, yes=False)  # before anybody is asked
    assert (files(), noted()) == (before, {(1, True)})


class MeanwhileShell(HostShell):
    """Something happens before a command is opened, or where `marker` is about to be sent to one."""

    marker = b""
    happens: Callable[[], object] = staticmethod(lambda: None)

    def open_plain(self, command: str, prefix: bytes) -> LocalStream:
        if not self.marker:
            self.happens()
        stream = super().open_plain(command, prefix)
        send = stream.sendall

        def sendall(sent: bytes) -> None:
            if self.marker and self.marker in sent:
                self.happens()
            send(sent)

        stream.sendall = sendall
        return stream


class CopyingShell(HostShell):
    """Something happens while a restore on the host copies, before its first word is read."""

    happens: Callable[[], object] = staticmethod(lambda: None)

    def open_plain(self, command: str, prefix: bytes) -> LocalStream:
        stream = super().open_plain(command, prefix)
        receive, is_first = stream.recv, iter([True])

        def recv(size: int) -> bytes:
            if next(is_first, False):
                self.happens()
            return receive(size)

        stream.recv = recv
        return stream


def interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_one_on_the_host_that_was_given_up_while_it_copies_changes_nothing(
    world: World, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files()
    given_up = lambda: operation.give_up(world, CLUSTER.hosts, operation.look(world, CLUSTER.hosts)[0])  # noqa: E731
    monkeypatch.setattr(CopyingShell, "happens", staticmethod(given_up))
    world.connector = LocalHosts(CopyingShell)
    with pytest.raises(CommandError, match=r"mq1: operation 2 \(mqctl operation release, .*; nothing more is done"):
        restore(world, folder=str(kept), on_hosts=True)
    assert {name: held for name, held in files().items() if not name.startswith("restoring/")} == before
    assert noted() == {(2, False)}


@pytest.mark.slow
def test_ctrl_c_while_it_copies_on_the_host_changes_nothing(
    world: World, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files()
    monkeypatch.setattr(CopyingShell, "happens", staticmethod(interrupted))
    world.connector = LocalHosts(CopyingShell)
    with pytest.raises(KeyboardInterrupt):
        restore(world, folder=str(kept), on_hosts=True)
    assert "interrupted: mq1: nothing was changed" in said(world)
    assert {name: held for name, held in files().items() if not name.startswith("restoring/")} == before
    assert noted() == {(1, False)}


def test_a_host_that_cannot_be_asked_is_not_restored(world: World) -> None:
    """It would be the one host that is not held."""

    class Away(HostShell):
        def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
            if self.name == "mq1":
                raise CommandError("mq1: no answer within 30 s")
            return super().run_plain(command, stdin, timeout_s)

    before = files()
    world.connector = LocalHosts(Away)
    with pytest.raises(CommandError, match="mq1: no answer within 30 s; nothing was changed on any host"):
        restore(world)
    assert (files(), noted()) == (before, {(0, False)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("marker", "why"),
    [
        (b"", r"mq1: operation 2 has begun since, so nothing more is done for 1"),
        (b'"files"', r"mq1: operation 2 \(mqctl operation release, .* has been there since .*; nothing more is done"),
    ],
)
def test_one_that_was_given_up_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, marker: bytes, why: str
) -> None:
    """Before its step begins, or while that copies."""
    before = files()
    monkeypatch.setattr(MeanwhileShell, "marker", marker)
    found = lambda: operation.look(world, CLUSTER.hosts)[0]  # noqa: E731
    monkeypatch.setattr(
        MeanwhileShell, "happens", staticmethod(lambda: operation.give_up(world, CLUSTER.hosts, found()))
    )
    world.connector = LocalHosts(MeanwhileShell)
    with pytest.raises(CommandError, match=why):
        restore(world)
    assert (files(), noted()) == (before, {(2, False)})


@pytest.mark.slow
def test_one_that_was_cut_off_is_gone_on_with_for_the_same_node_only(world: World) -> None:
    operation.begin(world, CLUSTER, "mqctl backup restore elsewhere mq1-7 --host mq1")
    for changes in ({}, {"host": "mq2", "as_another_node": True, "resume": True}):
        with pytest.raises(CommandError, match=r"operation 1 \(mqctl backup restore elsewhere mq1-7 --host mq1, "):
            restore(world, **changes)
    assert noted() == {(1, True)}
    assert restore(world, resume=True) == Exit.DONE
    assert noted() == {(2, False)}


class Lost(HostShell):
    """From when it is to be given back on."""

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        if self.name == "mq1" and "give-back" in command:
            raise CommandError("mq1: no answer within 30 s")
        return super().run_plain(command, stdin, timeout_s)


@pytest.mark.slow
def test_a_host_that_is_lost_behind_the_receipt_is_to_be_given_back_and_not_restored_again(world: World) -> None:
    world.connector = LocalHosts(Lost)
    assert restore(world) == Exit.DEGRADED
    assert rows(world)[0]["balances"]
    assert "mq1: it stays held, as it could not be given back: " in said(world)
    assert "all of it is done, so mqctl operation release gives it back" in said(world)
    assert "--resume" not in said(world)
    assert noted() == {(1, True), (1, False)}


@pytest.mark.slow
def test_after_ctrl_c_behind_the_receipt_a_lost_host_is_not_to_be_restored_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostShell, "interrupts", END)
    world.connector = LocalHosts(Lost)
    with pytest.raises(KeyboardInterrupt):
        restore(world)
    assert "it is restored, and restored.json in its data directory is the receipt" in said(world)
    assert "all of it is done, so mqctl operation release gives it back" in said(world)
    assert "--resume" not in said(world)


@pytest.mark.slow
def test_a_lost_host_behind_a_receipt_that_does_not_balance_has_both_ways(world: World) -> None:
    program("mq1", MQBROKER.replace(DIFFERS, UNBALANCED))
    world.connector = LocalHosts(Lost)
    assert restore(world) == Exit.DEGRADED
    assert [row["balances"] for row in rows(world)] == [False]
    assert "mqctl operation release gives it back with what is there, " in said(world)
    again = "mqctl backup restore kept mq1-1 --host mq1 --resume restores again and puts aside what is there"
    assert again in said(world)


@pytest.mark.slow
def test_ctrl_c_while_it_copies_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files()
    monkeypatch.setattr(HostShell, "interrupts", b'"files"')
    with pytest.raises(KeyboardInterrupt):
        restore(world)
    assert "interrupted: mq1: nothing was changed" in said(world)
    assert (files(), noted()) == (before, {(1, False)})


@pytest.mark.slow
def test_ctrl_c_when_all_is_there_waits_for_its_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostShell, "interrupts", END)
    with pytest.raises(KeyboardInterrupt):
        restore(world)
    assert "interrupted: mq1: it is restored, and restored.json in its data directory is the receipt" in said(world)
    assert json.loads(files()["restored.json"])["backup"] == "mq1-1"
    assert noted() == {(1, False)}


@pytest.mark.slow
@pytest.mark.parametrize("interrupts", [b"", END])
def test_where_nobody_knows_what_became_of_it_the_cluster_stays_held(
    world: World, monkeypatch: pytest.MonkeyPatch, interrupts: bytes
) -> None:
    program("mq1", KILLED)
    monkeypatch.setattr(HostShell, "interrupts", interrupts)
    with pytest.raises(KeyboardInterrupt if interrupts else CommandError) as raised:
        restore(world)
    told = said(world) if interrupts else str(raised.value)
    assert "whether it is restored is not known" in told
    assert "the cluster stays held, mqctl backup restore kept mq1-1 --host mq1 --resume does it again" in told
    assert noted() == {(1, True)}
    monkeypatch.setattr(HostShell, "interrupts", b"")
    program("mq1", MQBROKER)
    assert restore(world, resume=True) == Exit.DONE
    assert noted() == {(2, False)}


@pytest.mark.slow
def test_what_goes_on_with_one_that_may_be_half_done_gives_nothing_back_without_a_receipt(world: World) -> None:
    """The first one may have been cut off among its moves, or still be at work."""
    program("mq1", KILLED)
    with pytest.raises(CommandError, match="whether it is restored is not known"):
        restore(world)
    program("mq1", MQBROKER)
    stays = "the cluster stays held, mqctl backup restore kept .* --resume does it again"
    with pytest.raises(CommandError, match=f"there is no such backup.*; {stays}"):
        restore(world, resume=True, backup="mq1-x")
    assert noted() == {(2, True)}
    works = DataLock(data("mq1"))
    with pytest.raises(CommandError, match=f"uses this data directory.*; {stays}"):
        restore(world, resume=True)
    works.release()
    assert noted() == {(3, True)}
    assert restore(world, resume=True) == Exit.DONE
    assert noted() == {(4, False)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["identity.json", "restored.json"])
def test_one_that_is_cut_off_among_its_moves_stays_held_and_is_done_again(world: World, name: str) -> None:
    program("mq1", MQBROKER.replace(DIFFERS, END_OF_DISK.format(name=name)))
    why = f"{name}: cannot be written: No space left on device; the restore is not finished, .*; the cluster stays held"
    with pytest.raises(CommandError, match=why):
        restore(world)
    assert noted() == {(1, True)}
    assert "restore-unfinished.json" in files(), "no broker starts"
    program("mq1", MQBROKER)
    assert restore(world, resume=True) == Exit.DONE
    assert noted() == {(2, False)}
    assert "restore-unfinished.json" not in files()


@pytest.mark.slow
def test_one_that_fails_before_its_moves_says_so_and_holds_nothing(world: World) -> None:
    program("mq1", MQBROKER.replace(DIFFERS, DAMAGED))
    before = files()
    with pytest.raises(CommandError, match=r"journal: cannot be read any more; nothing was changed$"):
        restore(world)
    assert (files(), noted()) == (before, {(1, False)})


@pytest.mark.slow
@pytest.mark.parametrize("on_hosts", [False, True])
def test_a_receipt_that_was_heard_counts_whatever_comes_after(world: World, kept: Path, *, on_hosts: bool) -> None:
    program("mq1", MQBROKER.replace(DIFFERS, KILLED_BEHIND_RESULT))
    assert restore(world, folder=str(kept), on_hosts=on_hosts) == Exit.DONE
    assert [row["balances"] for row in rows(world)] == [True]
    assert noted() == {(1, False)}


@pytest.mark.slow
def test_one_that_is_refused_holds_nothing(world: World) -> None:
    with pytest.raises(CommandError, match="there is no such backup"):
        restore(world, backup="mq1-2")
    assert noted() == {(1, False)}
