"""`mqctl backup` through a real sshd and on dev brokers: what is there comes back, and errors name the place."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_host import serve
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.system

MQCTL = [sys.executable, "-m", "mqctl.main", "backup"]
DEV = ("--dev", "--directory", ".")
BODY = "a secret of the body"


class Host:
    """`dev-1` runs and has messages; `dev-2` does not run and is empty."""

    def __init__(self, folder: Path) -> None:
        self.place = folder
        self.full, self.other = (BrokerProcess(folder / name) for name in ("dev-1", "dev-2"))
        self.other.prepare()
        self.full.start()
        self.send(300)
        # Where `mqctl dev` looks for it, too.
        (folder / "dev-1" / "admin.sock").symlink_to(self.full.admin_socket)
        self.server = serve(folder, {"name": "dev-1"}, {"name": "dev-2", "port_offset": 100})

    def send(self, count: int) -> None:
        messages = [{"body": BODY, "durable": True}] * count
        assert self.full.admin("send", address="orders", messages=messages) == {"accepted": count}

    def names(self) -> list[str]:
        found = (path.relative_to(self.full.data_directory) for path in self.full.data_directory.rglob("*"))
        return sorted(map(str, found))

    def close(self) -> None:
        self.server.close()
        self.full.close()
        self.other.close()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    made = Host(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    yield made
    made.close()


def run(*words: str, code: int = 0) -> tuple[bytes, str]:
    done = subprocess.run([*MQCTL, *words], capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, (done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout, done.stderr.decode()


def rows(*words: str, code: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(*words, "-o", "json", code=code)[0])["rows"]
    return found


@pytest.mark.one_day_in_three(0)
def test_a_backup_goes_to_the_control_node_and_back_to_its_node_or_another(host: Host) -> None:
    (first,) = rows("create", "kept", "--host", "mq1/dev-1")
    assert (first["host"], first["instance"], first["messages"]) == ("mq1", "dev-1", 300)
    host.send(100)
    out, err = run("create", "kept", "-o", "json", code=3)
    (made,) = json.loads(out)["rows"]
    assert re.search(r"mq1/dev-1: reads what it has on disk\ncopied from mq1/dev-1: 1 of 1 file, \d+ bytes\n", err)
    assert "mq1/dev-2: " in err
    assert "no broker answers" in err
    assert [row["messages"] for row in rows("list", "kept")] == [300, 400]
    refused = run("restore", "kept", first["id"], "--host", "mq1/dev-1", "--yes", code=1)[1]
    assert "uses this data directory" in refused
    host.full.stop()
    (row,) = rows("restore", "kept", first["id"], "--host", "mq1/dev-1", "--yes")
    assert (row["queue"], row["in_backup"], row["restored"], row["balances"]) == ("orders", 300, 300, True)
    host.full.start()
    assert host.full.admin("queue-show", name="orders")["message_count"] == 300
    assert [path.name for path in host.full.data_directory.glob("before-restore-*")] == ["before-restore-1"]
    words = ("restore", "kept", made["id"], "--host", "mq1/dev-2", "-y", "-o", "json")
    assert "--as-another-node gives its messages" in run(*words, code=1)[1]
    assert "exclude each other" in run(*words, "--as-another-node", "--keep-node-id", code=2)[1]
    theirs = json.loads(run(*words, "--as-another-node")[0])
    assert theirs["node_id"] != theirs["from_node_id"]
    host.other.start()
    assert host.other.admin("queue-show", name="orders")["message_count"] == 400
    (pruned,) = rows("prune", "kept", "--keep", "1")
    assert pruned["pruned"] == [first["id"]]
    assert [row["good"] for row in rows("verify", "kept")] == [True]


@pytest.mark.one_day_in_three(2)
def test_folders_of_hosts_and_of_dev_brokers(host: Host) -> None:
    place = str(host.place / "there")
    (made,) = rows("create", place, "--on-hosts", "--host", "mq1/dev-1")
    assert [row["id"] for row in rows("list", place, "--on-hosts")] == [made["id"]]
    assert [row["host"] for row in rows("verify", place, "--on-hosts")] == ["mq1"]
    (again,) = rows("create", place, "--host", "dev-1", *DEV)
    assert again["copied_bytes"] == 0
    host.full.stop()
    (row,) = rows("restore", place, again["id"], "--host", "dev-1", *DEV, "--on-hosts", "--yes")
    assert row["balances"]


@pytest.mark.one_day_in_three(1)
def test_what_is_damaged_is_exit_code_3_and_named_and_changes_nothing(host: Host) -> None:
    (made,) = rows("create", "kept", "--host", "mq1/dev-1")
    (file,) = (host.place / "kept" / "files").iterdir()
    content = bytearray(file.read_bytes())
    content[content.index(BODY.encode())] ^= 1
    file.write_bytes(content)
    (row,) = rows("verify", "kept", code=3)
    assert (row["id"], row["good"]) == (made["id"], False)
    assert file.name in row["why"]
    host.full.stop()
    before = host.names()
    words = ("restore", "kept", made["id"], "--host", "mq1/dev-1")
    assert "changed while it was copied" in run(*words, "-y", code=1)[1]
    assert host.names() == before
    assert "there is no such backup" in run("restore", "kept", "mq1-x", "--host", "mq1/dev-1", "-y", code=1)[1]
    assert "is no folder of backups" in run("list", "nowhere", code=1)[1]
    assert "--yes" in run(*words, code=2)[1]
