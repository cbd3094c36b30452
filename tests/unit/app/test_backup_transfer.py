"""A backup on its way whose other end falls silent: its connection stands, and nobody is there any more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest
from mqbroker.app import exits
from mqbroker.app.backup import transfer
from mqbroker.app.backup.restoring import KeptBackup
from mqbroker.app.main import main
from mqbroker.io.files.data_lock import DataLock

from tests.unit.app.test_backup_restore import kept, node

__all__ = ["kept", "node"]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Iterator[BinaryIO]:
    """What is written here comes on standard input, which has no end."""
    monkeypatch.setattr(transfer, "SILENCE_S", 0.05)
    come, sent = os.pipe()
    with os.fdopen(come, "rb") as source, os.fdopen(sent, "wb", buffering=0) as target:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=source))
        yield target


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_node_is_not_locked_for_long_by_a_control_node_that_lost_its_power(
    kept: KeptBackup, node: Path, sent: BinaryIO, capsys: pytest.CaptureFixture[str], *, is_begun: bool
) -> None:
    if is_begun:
        sent.write(kept.manifest().text() + b"a part of it")
    assert main(["backup", "take", "--data-directory", str(node)]) == exits.FAILED
    assert "on its way: nothing came for 0.05 s; nothing was changed\n" in capsys.readouterr().err
    DataLock(node).release()


def test_nor_by_one_that_says_no_word(
    kept: KeptBackup, node: Path, tmp_path: Path, sent: BinaryIO, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / "kept"), "mq1-1", "--wait-for-word", "--data-directory", str(node)]
    assert main(["backup", "restore", *words]) == exits.FAILED
    said = capsys.readouterr()
    assert said.out == '{"ready": true}\n'
    assert "on its way: nothing came for 0.05 s; nothing was changed\n" in said.err
    DataLock(node).release()


def test_what_comes_in_time_counts(
    kept: KeptBackup, node: Path, tmp_path: Path, sent: BinaryIO, capsys: pytest.CaptureFixture[str]
) -> None:
    sent.write(b'{"end": true}\n')
    words = [str(tmp_path / "kept"), "mq1-1", "--wait-for-word", "--data-directory", str(node)]
    assert main(["backup", "restore", *words]) == exits.DONE
    assert '"balances": true' in capsys.readouterr().out
