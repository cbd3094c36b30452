"""Identities and users through the real `mqbroker`, in directories of the test."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils import command, identity, node
from ansible_collections.mqops.cluster.plugins.module_utils.command import CommandFault
from ansible_collections.mqops.cluster.plugins.module_utils.users import Found, remove_others, set_user

pytestmark = pytest.mark.slow  # each test starts programs

MQBROKER = str(Path(sys.executable).parent / "mqbroker")
APP: dict[str, Any] = {"name": "app", "password": "correct horse battery", "roles": ["client"]}


def test_an_identity_is_made_once(tmp_path: Path) -> None:
    assert identity.read("a", str(tmp_path), MQBROKER) is None
    assert identity.make("a", str(tmp_path), MQBROKER)
    assert not identity.make("a", str(tmp_path), MQBROKER)
    found = identity.read("a", str(tmp_path), MQBROKER)
    assert found is not None
    assert found["instance"] == "a"
    assert found["matches"]
    assert found["data_directory"] == str(tmp_path / "a")


def test_a_copied_directory_is_read_and_refused(tmp_path: Path) -> None:
    identity.make("a", str(tmp_path), MQBROKER)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = identity.read("b", str(tmp_path), MQBROKER)
    assert copy is not None
    assert not copy["matches"]
    assert str(tmp_path / "a") in copy["mismatches"][0]
    with pytest.raises(CommandFault, match=r"identity adopt.*identity new"):
        identity.make("b", str(tmp_path), MQBROKER)


def one(place: str, node_id: str) -> dict[str, Any]:
    return {"place": place, "node_id": node_id}


def test_duplicates_of_our_own_ids_only() -> None:
    own = [one("mq1/a", "x"), one("mq1/b", "y")]
    peers = [*own, one("mq2/a", "x"), one("mq3/a", "z"), one("mq4/a", "z")]
    assert identity.duplicates(own, peers) == {"x": ["mq1/a", "mq2/a"]}
    assert identity.duplicates(own, own) == {}
    assert identity.duplicates([one("mq1/a", "x"), one("mq1/b", "x")], []) == {"x": ["mq1/a", "mq1/b"]}
    said = identity.sentence({"x": ["mq1/a", "mq2/a"]})
    assert said.startswith("mq1/a, mq2/a share the node id x. Where these are two names of one host, remove one")
    assert "otherwise a data directory was copied" in said
    assert "mqbroker identity new" in said


def test_users_are_set_once_and_a_check_writes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    same, changed = Found("app", False), Found("app", True)
    assert set_user(str(file), APP, is_check=True, executable=MQBROKER) == changed
    assert not file.exists()
    assert set_user(str(file), APP, executable=MQBROKER) == changed
    text = file.read_text()
    assert APP["password"] not in text
    assert set_user(str(file), APP, executable=MQBROKER) == same
    assert set_user(str(file), APP, is_check=True, executable=MQBROKER) == same
    assert file.read_text() == text
    other = {**APP, "password": "another horse"}
    assert set_user(str(file), other, executable=MQBROKER) == changed
    assert set_user(str(file), {**other, "roles": ["client", "ops"]}, executable=MQBROKER) == changed
    assert json.loads(file.read_text())["users"]["app"]["roles"] == ["client", "ops"]


def test_others_are_removed_and_a_check_only_says_whom(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    # A name that logins prepare (RFC 4013), and one that a command line could take for an option.
    names = [set_user(str(file), {**APP, "name": name}, executable=MQBROKER).name for name in ("\u2168", "-bob", "app")]
    assert names == ["IX", "-bob", "app"]
    text = file.read_text()
    assert remove_others(str(file), ["IX", "app"], is_check=True, executable=MQBROKER) == ["-bob"]
    assert file.read_text() == text
    assert remove_others(str(file), ["IX", "app"], executable=MQBROKER) == ["-bob"]
    assert set(json.loads(file.read_text())["users"]) == {"IX", "app"}
    assert remove_others(str(file), ["IX", "app"], executable=MQBROKER) == []
    assert remove_others(str(tmp_path / "none.json"), ["app"], is_check=True, executable=MQBROKER) == []
    file.write_text("{}")
    with pytest.raises(CommandFault, match="is not a file of users"):
        remove_others(str(file), ["app"], executable=MQBROKER)


def test_a_file_that_cannot_be_read_is_replaced_and_kept_beside(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    file.write_text("{")
    assert set_user(str(file), APP, is_check=True, executable=MQBROKER) == Found("app", True, True)
    assert file.read_text() == "{"
    assert set_user(str(file), APP, executable=MQBROKER) == Found("app", True, True)
    assert (tmp_path / "users.json.damaged").read_text() == "{"
    assert remove_others(str(file), ["app"], executable=MQBROKER) == []
    assert set_user(str(file), APP, executable=MQBROKER) == Found("app", False)


def test_a_check_without_a_release_says_that_all_would_change(tmp_path: Path) -> None:
    file, missing = str(tmp_path / "users.json"), str(tmp_path / "mqbroker")
    assert set_user(file, APP, is_check=True, executable=missing).is_changed
    assert remove_others(file, ["app"], is_check=True, executable=missing) == []
    with pytest.raises(CommandFault, match="roll out a release first"):
        set_user(file, APP, executable=missing)


def test_a_check_of_a_release_that_is_not_installed_asks_the_current_one(tmp_path: Path) -> None:
    missing = str(tmp_path / "mqbroker")
    assert command.chosen(missing, is_check=True) == command.EXECUTABLE
    assert command.chosen(missing, is_check=False) == missing
    assert command.chosen(MQBROKER, is_check=True) == MQBROKER


def test_a_refused_password_names_the_user_and_not_the_password(tmp_path: Path) -> None:
    with pytest.raises(CommandFault, match=r"user app: .*well-known") as raised:
        set_user(str(tmp_path / "users.json"), {**APP, "password": "changeme"}, executable=MQBROKER)
    assert "changeme" not in str(raised.value)


def test_a_program_that_does_not_do_what_it_should(tmp_path: Path) -> None:
    with pytest.raises(CommandFault, match="cannot be run"):
        command.run([], str(tmp_path))
    with pytest.raises(CommandFault, match="did not end within 1 s"):
        command.run(["20"], "/bin/sleep", time_s=1)
    with pytest.raises(CommandFault, match="the answer is not JSON: hello"):
        command.run(["hello"], "/bin/echo").json()


def test_a_node_that_does_not_run_gives_no_answer() -> None:
    assert node.status("no-such-instance", MQBROKER) is None
    assert node.wait("no-such-instance", 0.3, MQBROKER) is None
    with pytest.raises(CommandFault):
        node.status("default", "/nonexistent/mqbroker")
