"""The role `uninstall`, of a whole host and of one of its instances. Real Ansible.

The places of the host are folders of the test, to which a copy of the role leads; `systemctl` says what it is told to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.rack_site import ROOT
from tests.system.mqctl.test_plain_playbooks import ANSIBLE

pytestmark = pytest.mark.system

OWN = ("/var/lib/mq", "/etc/mq", "/opt/mq", "/run/mq", "/etc/systemd/system")
FILES = (
    *(f"/var/lib/mq/{name}/identity.json" for name in ("blue", "green")),
    *(f"/etc/mq/{name}/broker.toml" for name in ("blue", "green")),
    *(f"/run/mq/{name}/loaded/release" for name in ("blue", "green")),
    *(f"/etc/systemd/system/mqbroker@{name}.service.d/stop-timeout.conf" for name in ("blue", "green")),
    "/etc/systemd/system/mqbroker@.service", "/opt/mq/current/bin/mqbroker", "/var/lib/mq-operation-links.json",
)  # fmt: skip
# Whose the host is, is asked of the host itself, and of another test.
HELD = """---
- name: Go on
  ansible.builtin.meta: noop
"""
# Units that are asked for by name, or all.
SYSTEMCTL = """#!/bin/sh
case "$*" in
*list-units*"mqbroker@*"*) cat "{place}/units";;
*list-units*blue*) grep blue "{place}/units"; true;;
*list-units*) exit 1;;
show*) echo LoadState=loaded; echo ActiveState=active; echo UnitFileState=enabled;;
is-enabled*) echo enabled;;
*) echo "$*" >>"{place}/acts";;
esac
"""


class Room:
    """Where the places of a host are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = folder / "host"
        for name in FILES:
            self.file(name).parent.mkdir(parents=True, exist_ok=True)
            self.file(name).touch()
        self.systemd_says(blue="inactive dead", green="inactive dead")
        program = folder / "bin/systemctl"
        program.parent.mkdir()
        program.write_text(SYSTEMCTL.format(place=folder))
        program.chmod(0o755)
        for source in (ROOT / "roles/uninstall").rglob("*.yml"):
            text = source.read_text()
            for own in OWN:
                text = text.replace(own, f"{self.place}{own}")
            target = folder / "roles/uninstall" / source.relative_to(ROOT / "roles/uninstall")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(HELD if source.name == "held.yml" else text)

    def file(self, name: str) -> Path:
        return self.place / name.removeprefix("/")

    def systemd_says(self, **states: str) -> None:
        rows = (f"mqbroker@{name}.service loaded {state} x\n" for name, state in states.items())
        (self.folder / "units").write_text("".join(rows))

    def play(self, *instances: str, code: int = 0, archive: str = "scale-down-1") -> str:
        """Without an archive the data is deleted."""
        given = {"uninstall_archive": archive, "uninstall_instances": list(instances), "uninstall_data": not archive}
        variables = {**given, "ansible_python_interpreter": sys.executable}
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables,
                "roles": ["uninstall"]}  # fmt: skip
        (self.folder / "play.yml").write_text(yaml.safe_dump([play]))
        environ = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev"),
        }
        done = subprocess.run(
            [ANSIBLE, "-i", "localhost,", "play.yml"], cwd=self.folder, env=environ, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    @property
    def acts(self) -> list[str]:
        file = self.folder / "acts"
        return [one for one in file.read_text().splitlines() if "daemon-reload" not in one] if file.exists() else []

    @property
    def left(self) -> set[str]:
        """Files, by their usual places."""
        files = (one for one in self.place.rglob("*") if one.is_file())
        return {f"/{one.relative_to(self.place)}" for one in files}


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_of_an_instance_only_what_is_its_own_goes(room: Room) -> None:
    """While another one runs; and a second time nothing does, as after a run that was killed."""
    room.systemd_says(blue="inactive dead", green="active running")
    room.play("blue")
    moved = "/var/lib/mq/.archive/scale-down-1/blue/identity.json"
    assert room.left == {moved, *(one for one in FILES if "blue" not in one)}
    assert not [one for one in room.place.rglob("*blue*") if ".archive" not in str(one)], "no empty folder either"
    assert room.acts
    assert not [one for one in room.acts if "green" in one or "blue" not in one]
    room.systemd_says(green="active running")
    assert "changed=0" in room.play("blue")


def test_whose_broker_runs_keeps_its_data(room: Room) -> None:
    room.systemd_says(blue="active running", green="inactive dead")
    assert "mqbroker@blue.service: runs, so nobody has looked into its journal" in room.play("blue", code=2)
    assert room.left == set(FILES)
    assert room.acts == []


def test_without_an_instance_all_of_the_host_goes(room: Room) -> None:
    room.systemd_says(blue="inactive dead", green="active running")
    assert "mqbroker@green.service: runs" in room.play(code=2)
    room.systemd_says(blue="inactive dead", green="failed failed")
    room.play()
    names = ("blue", "green")
    assert room.left == {f"/var/lib/mq/.archive/scale-down-1/{name}/identity.json" for name in names}
    assert [any(name in one for one in room.acts) for name in names] == [True, True]


def test_data_of_an_instance_is_deleted_alone(room: Room) -> None:
    room.play("blue", archive="")
    assert room.left == {one for one in FILES if "blue" not in one}


@pytest.mark.parametrize("name", ["", "..", "blue*", "blue/..", "Blue", "blue,green"])
def test_what_is_no_name_of_an_instance_takes_nothing(room: Room, name: str) -> None:
    """An empty one would be of the directories themselves, and a pattern of others as well."""
    assert "which is no name of an instance; nothing was removed" in room.play("blue", name, code=2, archive="")
    assert room.left == set(FILES)
    assert room.acts == []
