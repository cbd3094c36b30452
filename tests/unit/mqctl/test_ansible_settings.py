"""When Ansible is asked for its settings: only where there may be some, as it starts for half a second."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from mqctl import ansible_cli

HOSTS = "all: {hosts: {mq1: {}}}"


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of somebody who has set nothing, in a folder with an inventory."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "hosts.yml").write_text(HOSTS)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(ansible_cli, "SETTINGS_FILES", ("ansible.cfg", "~/.ansible.cfg", str(tmp_path / "etc.cfg")))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    return {**kept, "HOME": str(tmp_path), "ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}


def test_nothing_is_set(environ: dict[str, str]) -> None:
    assert not ansible_cli.may_have_settings(environ)


@pytest.mark.parametrize("place", ["work/ansible.cfg", ".ansible.cfg", "etc.cfg"])
def test_a_file_may_say_something(environ: dict[str, str], tmp_path: Path, place: str) -> None:
    (tmp_path / place).write_text("")
    assert ansible_cli.may_have_settings(environ)


@pytest.mark.parametrize("name", ["ANSIBLE_CONFIG", "ANSIBLE_SSH_ARGS", "ANSIBLE_TIMEOUT", "ANSIBLE_HOME"])
def test_a_variable_may_say_something(environ: dict[str, str], name: str) -> None:
    assert ansible_cli.may_have_settings({**environ, name: "30"})


def asked_itself(environ: Mapping[str, str]) -> list[object]:
    """What Ansible says of the ssh plugin there."""
    command = [ansible_cli.program("ansible-config"), "dump", "--only-changed", "-t", "connection", "ssh"]
    asked = [*command, "--format", "json"]
    done = subprocess.run(asked, env=dict(environ), capture_output=True, check=True, timeout=120)
    return [part for part in json.loads(done.stdout) if part.get("ssh")]


@pytest.mark.slow
def test_ansible_says_the_same(environ: dict[str, str], tmp_path: Path) -> None:
    assert asked_itself(environ) == []
    assert ansible_cli.read_all([Path("hosts.yml")], (), environ)[1] == {}
    (tmp_path / ".ansible.cfg").write_text("[defaults]\ntimeout = 33\n")
    assert asked_itself(environ) != []
    assert ansible_cli.read_all([Path("hosts.yml")], (), environ)[1]["timeout"] == 33
