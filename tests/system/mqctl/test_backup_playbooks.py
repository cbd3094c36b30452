"""The playbooks of backups without mqctl: a broker that runs is copied, and gets its backup again. Real Ansible.

The host is a room on this machine (tests/support/ansible_lines), where `mqbroker` is the test's own; `systemctl` says
what it is told to.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mqctl.remote import operation as noting

from tests.support.broker_process import BrokerProcess
from tests.system.mqctl.test_plain_playbooks import Site, site

__all__ = ["site"]
pytestmark = pytest.mark.system

PROGRAM = f"""#!{sys.executable}
import sys
sys.path[:0] = {sys.path!r}
from mqbroker.app.main import main
words = [{{notes!r}} if word == {noting.PLACE!r} else word for word in sys.argv[1:]]
if "away" in words:
    sys.exit("mqbroker: no broker answers")
if "--instance" in words:
    at = words.index("--instance")
    words[at : at + 2] = ["--config", "{{config}}"]
sys.exit(main(words))
"""
RUNS = "mqbroker@default.service loaded active running x"


class Room(Site):
    """The host mq1, its broker, and a folder of backups."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.broker = BrokerProcess(folder / "broker")
        self.broker.start()
        self.kept = folder / "kept"
        self.notes = folder / "lib"
        self.notes.mkdir()
        self.program(
            "mqbroker",
            PROGRAM.format(config=str(self.broker.config_file), notes=str(self.notes / Path(noting.PLACE).name)),
        )
        self.systemd_says(RUNS)

    def program(self, name: str, text: str) -> Path:
        place = self.folder / "bin" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
        place.chmod(0o755)
        return place

    def systemd_says(self, text: str) -> None:
        self.program("systemctl", f"#!/bin/sh\necho '{text}'\n")

    def send(self, count: int) -> None:
        messages = [{"body": "text", "durable": True}] * count
        assert self.broker.admin("send", address="orders", messages=messages) == {"accepted": count}

    def run(self, playbook: str, *more: str, code: int = 0, **variables: Any) -> str:
        given = {"mq_backup_folder": str(self.kept), "__mq_program": str(self.folder / "bin" / "mqbroker"), **variables}
        words = ("-e", json.dumps(given))
        done: subprocess.CompletedProcess[str] = self.play(
            f"mqops.cluster.{playbook}", {"mq1": {"line_lib": str(self.notes)}}, *words, *more
        )
        assert done.returncode == code, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    @property
    def note(self) -> tuple[int, bool, str]:
        """The operation of the host: its number, whether it holds it, and what it is."""
        found = noting.look(str(self.notes / Path(noting.PLACE).name))
        return (found["number"], found["is_held"], found["what"]) if found else (0, False, "")


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Room]:
    made = Room(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin:/usr/sbin:/sbin")
    yield made
    made.broker.close()


@pytest.mark.one_day_in_three(1)
def test_a_broker_is_copied_and_gets_its_backup_again(room: Room) -> None:
    room.send(30)
    assert ": 30 messages, " in room.run("backup")
    room.send(20)
    instances = [{"name": "away"}, {"name": "default"}]
    told = room.run("backup", code=2, mq_backup_keep=1, __mq_instances=instances)
    (made,) = re.findall(r"([\w-]+): 50 messages, \d+ bytes, of which \d+ were", told)
    assert "no broker answers" in told
    assert [path.stem for path in (room.kept / "backups").iterdir()] == [made], "the one before it went all the same"
    room.send(5)
    words = {"mq_restore": "mq1", "mq_restore_instance": "default", "mq_restore_backup": made}
    assert f"the broker runs: {RUNS}; stop it first, systemctl stop mqbroker@default" in room.run(
        "restore", code=2, **words
    )
    assert room.note == (0, False, ""), "a copy is no operation, and what is refused before has begun none"
    room.systemd_says("mqbroker@default.service loaded inactive dead x")
    assert "there is no such backup" in room.run("restore", code=2, **{**words, "mq_restore_backup": "mq1-x"})
    assert room.note == (0, False, ""), "nor has a backup that is not there"
    assert "that of the backup, or is linked with it: it runs" in room.run(
        "restore", code=2, mq_restore_keep_node_id="true", **words
    )
    assert room.note == (0, False, ""), "nor has one for a second node of an id that is there"
    assert "uses this data directory" in room.run("restore", code=2, **words)
    room.broker.stop()
    room.run("restore", "--check", mq_restore_keep_node_id="true", **words)
    assert list(room.broker.data_directory.glob("before-restore-*")) == []
    assert room.note == (1, True, "a restore of mq1/default"), "what fails on the way stays held"
    assert "put aside: " in room.run("restore", mq_resume="true", **words)
    assert room.note == (2, False, "a restore of mq1/default")
    room.broker.start()
    assert room.broker.admin("queue-show", name="orders")["message_count"] == 50


def test_what_is_not_said_is_asked_for_before_any_host_is_looked_at(site: Site) -> None:
    for playbook, words, why in (
        ("backup", (), "mq_backup_folder has to name a folder of the hosts"),
        ("backup", ("-e", "mq_backup_folder=/kept mq_backup_keep=0"), "mq_backup_keep is 0, and has to be a"),
        ("restore", ("-e", "mq_restore=mq1"), "mq_restore_backup the id of a backup"),
        (
            "restore", ("-e", "mq_restore=mq2 mq_restore_backup=a mq_backup_folder=/kept", "--limit", "mq1"),
            "mq_restore has to name a host of a cluster that this run is for",
        ),
    ):  # fmt: skip
        done = site.play(f"mqops.cluster.{playbook}", {"mq1": {}, "mq2": {}}, *words)
        assert done.returncode != 0
        assert why in " ".join(done.stdout.split()), done.stdout
    assert site.reached == set()
