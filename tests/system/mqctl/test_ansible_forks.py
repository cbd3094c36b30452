"""The `ansible-inventory` of the tests says what Ansible's own says, and leaves to that one what it cannot know."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from mqctl.ansible_cli import PLAIN

from tests.support.ansible_forks import BEGAN_WITH, NAME, PROGRAMS
from tests.support.ansible_question import OWN, SOCKET
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.system

TWICE = "all:\n  hosts:\n    mq1: {mq_port: 1, mq_port: 2}\n"
SAID: dict[str, tuple[str, int, str, str]] = {
    "an inventory": ("all:\n  hosts:\n    mq1: {mq_port: 1}\n", 0, "mq_port", ""),
    "a remark": (TWICE, 0, "mq_port", "duplicate mapping key"),
    "a complaint": ("all: [\n", 0, "_meta", "Unable to parse"),
}


def run(name: str, place: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    environ: Mapping[str, str] = {**BEGAN_WITH, **PLAIN, **environment}
    done = subprocess.run(
        [os.path.join(PROGRAMS.folder(), name), "-i", "inventory.yml", *words], cwd=place, env=environ,
        capture_output=True, text=True, timeout=PATIENCE_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("what", SAID)
def test_it_says_what_ansible_says(tmp_path: Path, what: str) -> None:
    text, code, data, remark = SAID[what]
    (tmp_path / "inventory.yml").write_text(text)
    forked, executed = (run(name, tmp_path, "--list") for name in (NAME, OWN))
    assert forked == executed
    assert forked[0] == code
    assert data in forked[1]
    assert remark in forked[2]


def test_a_code_that_is_not_0_is_its_code(tmp_path: Path) -> None:
    (tmp_path / "inventory.yml").write_text(SAID["an inventory"][0])
    forked, executed = (run(name, tmp_path, "--no-such-option") for name in (NAME, OWN))
    assert forked[0] == executed[0] != 0


def test_who_is_killed_before_it_asks_takes_the_answers_from_nobody_else(tmp_path: Path) -> None:
    (tmp_path / "inventory.yml").write_text(SAID["an inventory"][0])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        channel.connect(os.path.join(PROGRAMS.folder(), SOCKET))
    assert run(NAME, tmp_path, "--list") == run(OWN, tmp_path, "--list")


def test_settings_that_it_did_not_begin_with_are_taken_by_ansibles_own(tmp_path: Path) -> None:
    (tmp_path / "inventory.yml").write_text(TWICE)
    assert json.loads(run(NAME, tmp_path, "--list")[1])["_meta"]["hostvars"]["mq1"] == {"mq_port": 2}
    assert "mq_port" not in run(NAME, tmp_path, "--list", ANSIBLE_DUPLICATE_YAML_DICT_KEY="error")[1]
    (tmp_path / "ansible.cfg").write_text("[defaults]\nduplicate_dict_key = error\n")
    assert "mq_port" not in run(NAME, tmp_path, "--list")[1]
