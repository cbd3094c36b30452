"""`mqctl journal` through a real sshd and on dev brokers: what is there comes back, and what is refused says why.

The host has `mqbroker` at its usual place only in name: sshd puts the test's own in its stead, whose instances are
below the folder of the test; the same folder is one of `mqctl dev`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mqbroker.io.files.data_lock import DataLock
from mqctl.nodes import BROKER

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.broker_process import BrokerProcess
from support.ssh_server import SshServer

from tests.support.forks import run_mqctl_on_bytes
from tests.support.patience import PATIENCE_S

PROGRAM = """#!{python}
import sys
sys.path[:0] = {path!r}
from mqbroker.app.main import main
words = sys.argv[1:]
at = words.index("--instance")
words[at : at + 2] = ["--config", {place!r} + "/" + words[at + 1] + "/broker.toml"]
sys.exit(main(words))
"""
IN_PLACE = """#!/bin/sh
exec /bin/sh -c "$(printf %s "$SSH_ORIGINAL_COMMAND" | sed "s|^{usual}|{place}/mqbroker|")"
"""
COUNT = 300
DEV = ("--directory", ".")  # the same instances without a host between
LONG = "long" * 100_000


class Host:
    """A host with brokers that do not run: `dev-1` has messages, `dev-2` has no journal."""

    def __init__(self, folder: Path) -> None:
        self.place = folder
        for name, text in (("mqbroker", PROGRAM), ("in-place", IN_PLACE)):
            script = folder / name
            script.write_text(text.format(python=sys.executable, path=sys.path, place=str(folder), usual=BROKER))
            script.chmod(0o755)
        self.full, self.other = (BrokerProcess(folder / name) for name in ("dev-1", "dev-2"))
        self.other.prepare()
        with self.full as broker:
            body = {"body_base64": "/wA=", "durable": True}
            assert broker.admin("send", address="orders", messages=[body] * COUNT) == {"accepted": COUNT}
            assert broker.admin("send", address="orders", messages=[{"body": LONG, "durable": True}]) == {"accepted": 1}
            broker.stop()
        self.server = SshServer(folder / "sshd", f"ForceCommand {folder / 'in-place'}")
        variables = self.server.variables(mq_instances=[{"name": "dev-1"}, {"name": "dev-2", "port": 5673}])
        inventory = {"brokers": {"hosts": {"mq1": variables}, "vars": {"mq_cluster_name": "main"}}}
        (folder / "inventory.yml").write_text(json.dumps(inventory))

    @property
    def journal_file(self) -> Path:
        (file,) = (self.full.data_directory / "journal").glob("journal-*.mqj")
        return file

    def close(self) -> None:
        self.server.close()
        self.other.close()


@pytest.fixture(scope="module")
def whole_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    made = Host(tmp_path_factory.mktemp("host"))
    yield made
    made.close()


@pytest.fixture
def host(whole_host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    for name in ("journal", "large-messages"):
        shutil.rmtree(whole_host.other.data_directory / name, ignore_errors=True)
    monkeypatch.chdir(whole_host.place)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return whole_host


def run(*words: str, code: int = 0, stdin: bytes = b"") -> tuple[bytes, str]:
    done = run_mqctl_on_bytes(["journal", *words], os.environ, Path.cwd(), stdin=stdin, timeout_s=PATIENCE_S)
    assert done.returncode == code, (done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout, done.stderr.decode()


def document(*words: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*words, "-o", "json", code=code)[0])
    return found


def test_an_export_is_a_journal_again_on_another_node(host: Host) -> None:
    _, err = run("export", "--host", "mq1/dev-1", "backup")
    assert "301 messages exported from mq1/dev-1" in err
    file = host.place / "backup"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_size > len(LONG), "more than a chunk"
    (row,) = document("import", "--host", "mq1/dev-2", "backup")["rows"]
    assert (row["host"], row["instance"], row["messages"]) == ("mq1", "dev-2", 301)
    again, _ = run("export", "--dev", "--host", "dev-2", *DEV)
    # The first row names the node.
    assert again.splitlines()[1:] == file.read_bytes().splitlines()[1:]
    assert "has a journal already" in run("import", "--dev", "--host", "dev-2", "backup", *DEV, code=1)[1]
    assert run("export", "--dev", "--host", "dev-2", *DEV)[0] == again


def copied() -> bytes:
    """The journal of `dev-1` is that of `dev-2` too; the export that went between them."""
    export, _ = run("export", "--dev", "--host", "dev-1", *DEV)
    assert b",301" in run("import", "--dev", "--host", "dev-2", "-", "-o", "csv", *DEV, stdin=export)[0]
    return export


def test_info_of_all_nodes(host: Host) -> None:
    copied()
    found = document("info", "--dev", *DEV)
    assert found["is_whole"]
    assert [(row["host"], row["instance"], row["messages"], row["was_clean"]) for row in found["rows"]] == [
        ("dev-1", "default", 301, True), ("dev-2", "default", 301, True),
    ]  # fmt: skip
    for row in found["rows"]:
        assert [each["messages"] for each in row["contents"] if each["name"] == "orders"] == [301]
        assert row["queues"] == len(row["contents"])


def test_damage_is_exit_code_3_and_named_by_file_and_offset(host: Host) -> None:
    copied()
    file = host.journal_file
    whole = file.read_bytes()
    at = whole.index(b"orders")
    try:
        file.write_bytes(whole[:at] + b"O" + whole[at + 1 :])
        rows = document("check", code=3)["rows"]
        assert [(row["host"], row["instance"], row["good"], row["messages"]) for row in rows] == [
            ("mq1", "dev-1", False, None), ("mq1", "dev-2", True, 301),
        ]  # fmt: skip
        assert rows[0]["file"] == str(file)
        assert 64 <= rows[0]["offset"] < at
        assert "journal-on-damage" in rows[0]["remedy"]
        assert f"{file} at byte " in run("info", "--dev", "--host", "dev-1", *DEV, code=1)[1]
        assert f"{file} at byte " in run("export", "--dev", "--host", "dev-1", "damaged", *DEV, code=1)[1]
        assert not (host.place / "damaged").exists()
    finally:
        file.write_bytes(whole)
    assert [row["good"] for row in document("check", "--dev", *DEV)["rows"]] == [True, True]


def test_a_running_broker_is_left_alone(host: Host) -> None:
    copied()
    lock = DataLock(host.full.data_directory)
    try:
        big = b'{"type": "journal"}\n' * 500_000
        for words, stdin in ((["import", "-"], big), (["export", "refused"], b"")):
            _, err = run(*words, "--host", "mq1/dev-1", code=1, stdin=stdin)
            assert "mq1/dev-1: its broker runs" in err
            assert "try: on mq1: systemctl stop mqbroker@dev-1.service" in err
        assert not (host.place / "refused").exists()
        assert "try: mqctl dev down" in run("check", "--dev", "--host", "dev-1", *DEV, code=1)[1]
        assert "dev-1: its broker runs" in run("import", "--dev", "--host", "dev-1", "-", *DEV, code=1, stdin=big)[1]
        found = document("info", "--dev", *DEV, code=3)
        assert [row["host"] for row in found["rows"]] == ["dev-2"]
        assert not found["is_whole"]
    finally:
        lock.release()


def test_what_is_not_whole_leaves_nothing_behind(host: Host) -> None:
    export = run("export", "--dev", "--host", "dev-1", *DEV)[0]
    without_end = b"\n".join(export.splitlines()[:-1]) + b"\n"
    place = host.other.data_directory
    before = {path.name for path in place.iterdir()} | {"lock"}
    for stdin in (without_end, export[:-40], b""):
        assert "dev-2: " in run("import", "--dev", "--host", "dev-2", "-", *DEV, code=1, stdin=stdin)[1]
        assert {path.name for path in place.iterdir()} == before
    assert "has no journal: no broker has run" in run("info", "--dev", "--host", "dev-2", *DEV, code=1)[1]


def test_wrong_words(host: Host) -> None:
    assert "there are 2 nodes and no --host" in run("export", "--dev", *DEV, code=2)[1]
    assert "nowhere cannot be read" in run("import", "--dev", "--host", "dev-1", "nowhere", *DEV, code=2)[1]
    (host.place / "taken").write_text("mine")
    assert "taken cannot be made: File exists" in run("export", "--dev", "--host", "dev-1", "taken", *DEV, code=1)[1]
    assert (host.place / "taken").read_text() == "mine"
