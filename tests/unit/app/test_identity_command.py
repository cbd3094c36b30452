"""Identity of a data directory: made once, bound to machine and path, copies refused with both remedies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mqbroker.app import exits
from mqbroker.app.main import main
from mqbroker.base.errors import ConfigFault, StorageFault
from mqbroker.io.files import identity
from mqbroker.io.files.data_lock import DataLock
from mqbroker.io.files.identity import IdentityMismatch

HERE = "0123456789abcdef0123456789abcdef"
ELSEWHERE = "fedcba9876543210fedcba9876543210"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with an identity and one file in its journal."""
    directory = tmp_path / "data"
    identity.init(directory, HERE)
    (directory / "journal").mkdir()
    (directory / "journal" / "journal-0000000001.mqj").write_bytes(b"messages")
    return directory


def copied(data: Path) -> Path:
    copy = data.with_name("copy")
    shutil.copytree(data, copy)
    return copy


def test_init_makes_one_and_then_leaves_it(tmp_path: Path) -> None:
    made, is_new = identity.init(tmp_path, HERE)
    assert is_new
    assert uuid.UUID(made.node_id).version == 4
    assert made.node_id_bytes == uuid.UUID(made.node_id).bytes
    assert (made.machine_id, made.data_directory) == (HERE, str(tmp_path))
    assert (made.device, made.inode) == (tmp_path.stat().st_dev, tmp_path.stat().st_ino)
    assert identity.init(tmp_path, HERE) == (made, False)
    assert identity.check(tmp_path, HERE) == made
    assert (tmp_path / "identity.json").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["identity.json"]


@pytest.mark.slow
def test_two_inits_at_once_agree(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mqbroker.app.main", "identity", "init", "--json"]
    command += ["--data-directory", str(tmp_path / "data")]
    with ThreadPoolExecutor(4) as pool:
        runs = list(
            pool.map(lambda _: subprocess.run(command, capture_output=True, timeout=60, check=True).stdout, range(4))
        )
    rows = [json.loads(run) for run in runs]
    assert len({row["node_id"] for row in rows}) == 1
    assert sum(row["changed"] for row in rows) == 1


def test_directory_without_identity_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigFault, match=r"identity init.*not mounted"):
        identity.check(tmp_path, HERE)


def test_journal_without_identity_gets_none_silently(data: Path) -> None:
    (data / "identity.json").unlink()
    with pytest.raises(StorageFault, match="identity new"):
        identity.init(data, HERE)
    identity.new(data, HERE)
    assert (data / "journal.copied-from-unknown" / "journal-0000000001.mqj").read_bytes() == b"messages"


@pytest.mark.parametrize("action", [identity.check, identity.init])
def test_a_copy_at_another_path_is_refused_with_both_remedies(data: Path, action: object) -> None:
    with pytest.raises(IdentityMismatch, match=r"identity adopt.*identity new"):
        action(copied(data), HERE)  # type: ignore[operator]


def test_a_copy_on_another_machine_is_refused(data: Path) -> None:
    with pytest.raises(IdentityMismatch, match=ELSEWHERE):
        identity.check(data, ELSEWHERE)


def test_another_device_is_no_mismatch(data: Path) -> None:
    raw = json.loads((data / "identity.json").read_text())
    (data / "identity.json").write_text(json.dumps({**raw, "device": 1, "inode": 2}))
    assert identity.check(data, HERE).device == 1


def test_adopt_keeps_node_and_messages(data: Path) -> None:
    before = identity.check(data, HERE)
    after, changed = identity.adopt(data, ELSEWHERE)
    assert changed
    assert (after.node_id, after.created) == (before.node_id, before.created)
    assert identity.check(data, ELSEWHERE) == after
    assert identity.adopt(data, ELSEWHERE) == (after, False)
    assert (data / "journal" / "journal-0000000001.mqj").exists()


def test_new_sets_the_copied_journal_aside(data: Path) -> None:
    original = identity.check(data, HERE)
    copy = copied(data)
    made, aside = identity.new(copy, HERE)
    assert made.node_id != original.node_id
    assert aside == copy / f"journal.copied-from-{original.node_id[:8]}"
    assert (aside / "journal-0000000001.mqj").read_bytes() == b"messages"
    assert not (copy / "journal").exists()
    assert identity.check(copy, HERE) == made
    assert identity.check(data, HERE) == original


def test_files_of_large_messages_go_with_their_journal(data: Path) -> None:
    """Beside another journal a start would delete them as files that nobody needs."""
    (data / "large-messages").mkdir()
    (data / "large-messages" / "7.msg").write_bytes(b"body")
    _, aside = identity.new(data, HERE, even_if_original=True)
    assert aside is not None
    bodies = data / aside.name.replace("journal", "large-messages")
    assert (bodies / "7.msg").read_bytes() == b"body"
    assert not (data / "large-messages").exists()


def test_new_on_an_original_asks_first(data: Path) -> None:
    with pytest.raises(ConfigFault, match="even-if-original"):
        identity.new(data, HERE)
    first, aside = identity.new(data, HERE, even_if_original=True)
    assert aside is not None
    (data / "journal").mkdir()
    assert identity.new(data, HERE, even_if_original=True)[1] is None
    assert first.node_id != identity.check(data, HERE).node_id


def test_journals_set_aside_never_overwrite_each_other(data: Path) -> None:
    name = f"journal.copied-from-{identity.check(data, HERE).node_id[:8]}"
    (data / name).mkdir()
    _, aside = identity.new(data, HERE, even_if_original=True)
    assert aside == data / f"{name}.2"


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"\xff", b'{"format": 1}', b'{"format": 1, "node_id": "x"}', b'{"format": 9}', b"[" * 100_000],
)
def test_damaged_identity_is_a_storage_fault(data: Path, content: bytes) -> None:
    (data / "identity.json").write_bytes(content)
    for action in (identity.check, identity.init, identity.adopt):
        with pytest.raises(StorageFault, match=r"identity\.json"):
            action(data, HERE)


def test_machine_id_is_read_or_unknown(tmp_path: Path) -> None:
    file = tmp_path / "machine-id"
    assert identity.machine_id(file) == identity.MACHINE_ID_UNKNOWN
    file.write_text("uninitialized\n")
    assert identity.machine_id(file) == identity.MACHINE_ID_UNKNOWN
    file.write_text(HERE + "\n")
    assert identity.machine_id(file) == HERE


@pytest.mark.option("node.data-directory")
def test_command_uses_the_directory_of_the_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(f'[node]\ndata-directory = "{tmp_path}/one"\n')
    assert main(["identity", "init", "--config", str(config)]) == exits.DONE
    assert capsys.readouterr().out.startswith("changed\n")
    assert main(["identity", "show", "--config", str(config), "--json"]) == exits.DONE
    assert json.loads(capsys.readouterr().out)["data_directory"] == f"{tmp_path}/one"


def test_commands_on_a_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert main(["identity", "init", "--data-directory", one]) == exits.DONE
    shutil.copytree(one, two)
    capsys.readouterr()
    assert main(["identity", "show", "--data-directory", two, "--json"]) == exits.IDENTITY
    assert json.loads(capsys.readouterr().out)["matches"] is False
    assert main(["identity", "init", "--data-directory", two]) == exits.IDENTITY
    assert "mqbroker identity adopt" in capsys.readouterr().err
    assert main(["identity", "new", "--data-directory", two]) == exits.DONE
    assert main(["identity", "show", "--data-directory", two]) == exits.DONE
    assert main(["identity", "adopt", "--data-directory", two]) == exits.DONE
    assert "unchanged" in capsys.readouterr().out


def test_show_without_identity_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["identity", "show", "--data-directory", str(tmp_path)]) == exits.FAILED
    assert "identity init" in capsys.readouterr().err


def test_identity_does_not_change_under_a_running_broker(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = DataLock(data)
    try:
        assert main(["identity", "new", "--even-if-original", "--data-directory", str(data)]) == exits.FAILED
        assert "uses this data directory" in capsys.readouterr().err
    finally:
        lock.release()
    assert (data / "journal").exists()


@pytest.mark.system
def test_root_leaves_files_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    os.chown(directory, 12345, 12346)
    identity.init(directory, HERE)
    state = (directory / "identity.json").stat()
    assert (state.st_uid, state.st_gid) == (12345, 12346)
