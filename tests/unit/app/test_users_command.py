"""`mqbroker users`: passwords come on standard input, verifiers are stored, changes are reported honestly."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mqbroker.app import exits
from mqbroker.app.main import main
from mqbroker.base.errors import ConfigFault
from mqbroker.config.users import password_matches
from mqbroker.io.files import users_file


def users(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command in this process, which is fast, with streams of its own."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["users", *words])
    return subprocess.CompletedProcess(words, code, out.getvalue().encode(), err.getvalue().encode())


def put(file: Path, password: str, *words: str, name: str = "app") -> str:
    done = users("set", name, "--stdin", "--file", str(file), *words, stdin=password.encode())
    assert (done.returncode, done.stderr) == (exits.DONE, b"")
    return done.stdout.decode().strip()


def test_set_reports_changes_honestly(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    assert put(file, "canary-1\n") == "changed"
    before = file.read_bytes()
    assert put(file, "canary-1") == "unchanged"
    assert put(file, "canary-1\r\n") == "unchanged"
    assert file.read_bytes() == before
    assert put(file, "canary-2") == "changed"
    assert put(file, "canary-2", "--role", "audit", "--role", "client") == "changed"
    assert put(file, "canary-2", "--role", "client", "--role", "audit") == "unchanged"
    verifier = users_file.read(file)["app"]
    assert verifier.roles == ("audit", "client")
    assert password_matches(verifier, "canary-2")
    assert not password_matches(verifier, "canary-1")
    assert b"canary" not in file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_verifier_of_an_older_release_is_completed_once(tmp_path: Path) -> None:
    """It keeps its salt: an application that logs in with SHA-256 meanwhile goes on."""
    file = tmp_path / "users.json"
    put(file, "canary-1")
    raw = json.loads(file.read_text())
    keys = raw["users"]["app"].pop("sha512")
    file.write_text(json.dumps(raw))
    assert put(file, "canary-1", "--check") == "changed"
    assert put(file, "canary-1") == "changed"
    assert json.loads(file.read_text())["users"]["app"]["sha512"] == keys
    assert put(file, "canary-1") == "unchanged"


def test_check_changes_nothing_even_where_nothing_is_yet(tmp_path: Path) -> None:
    file = tmp_path / "none" / "users.json"
    assert put(file, "canary-1", "--check") == "changed"
    assert not file.parent.exists()
    file.parent.mkdir()
    put(file, "canary-1")
    assert put(file, "canary-1", "--check") == "unchanged"
    assert put(file, "canary-2", "--check") == "changed"
    assert password_matches(users_file.read(file)["app"], "canary-1")


def test_list_and_remove(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    put(file, "canary-1", name="b")
    put(file, "canary-1", "--role", "cluster", name="a")
    assert users("list", "--file", str(file)).stdout == b"a\tcluster\nb\tclient\n"
    rows = json.loads(users("list", "--json", "--file", str(file)).stdout)["users"]
    assert rows == [{"name": "a", "roles": ["cluster"]}, {"name": "b", "roles": ["client"]}]
    assert users("remove", "a", "--check", "--file", str(file)).stdout == b"changed\n"
    assert users("remove", "a", "--file", str(file)).stdout == b"changed\n"
    assert users("remove", "a", "--file", str(file)).stdout == b"unchanged\n"
    assert list(users_file.read(file)) == ["b"]


@pytest.mark.parametrize(
    "password", [b"", b"\n", b"CHANGE ME!!", b"canary\nline", b"\xff\xfe", b"x" * 9000, b"x" * 2000], ids=range(7)
)
def test_bad_passwords_are_refused_without_showing_them(tmp_path: Path, password: bytes) -> None:
    done = users("set", "app", "--stdin", "--file", str(tmp_path / "users.json"), stdin=password)
    assert done.returncode == exits.FAILED
    assert done.stderr.startswith(b"mqbroker: password: ")
    assert b"canary" not in done.stderr
    assert b"Traceback" not in done.stderr
    assert not (tmp_path / "users.json").exists()


@pytest.mark.parametrize("words", [["", "--stdin"], ["a\nb", "--stdin"], ["app", "--stdin", "--role", "Admin"]])
def test_bad_names_and_roles_are_refused(tmp_path: Path, words: list[str]) -> None:
    done = users("set", *words, "--file", str(tmp_path / "users.json"), stdin=b"canary-1")
    assert done.returncode == exits.FAILED
    assert b"canary" not in done.stderr


@pytest.mark.slow
def test_setters_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    command = [sys.executable, "-m", "mqbroker.app.main", "users", "set", "--stdin", "--file", str(file)]

    def set_one(number: int) -> bytes:
        words = [*command, f"user{number}"]
        return subprocess.run(words, input=b"canary-1", capture_output=True, timeout=60, check=True).stdout

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(set_one, range(8))) == [b"changed\n"] * 8
    assert sorted(users_file.read(file)) == [f"user{number}" for number in range(8)]


@pytest.mark.option("node.users-file")
def test_file_is_where_the_options_say(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(f'[node]\nusers-file = "{tmp_path}/here.json"\n')
    assert users("set", "app", "--stdin", "--config", str(config), stdin=b"canary-1").returncode == exits.DONE
    assert list(users_file.read(tmp_path / "here.json")) == ["app"]


def test_damaged_file_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    file.write_text("{")
    done = users("set", "app", "--stdin", "--file", str(file), stdin=b"canary-1")
    assert done.returncode == exits.FAILED
    assert str(file).encode() in done.stderr
    assert file.read_text() == "{"


def test_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = users("set", "app", "--stdin", "--file", str(tmp_path / "none" / "users.json"), stdin=b"canary-1")
    assert done.returncode == exits.FAILED
    assert b"the directory must exist" in done.stderr


def test_overlong_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    with file.open("wb") as stream:
        stream.truncate(users_file.FILE_BYTES_MAX + 1)
    with pytest.raises(ConfigFault, match="larger than"):
        users_file.read(file)


@pytest.mark.system
def test_root_leaves_the_file_to_the_owner_of_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    os.chown(directory, 12345, 12346)
    put(directory / "users.json", "canary-1")
    for name in ("users.json", "users.json.lock"):
        state = (directory / name).stat()
        assert (state.st_uid, state.st_gid) == (12345, 12346)


DAMAGED = {"no JSON": "{", "another form": '{"format": 9}', "no text": "\xff\xfe", "nothing": ""}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_file_that_cannot_be_read_is_set_aside_where_that_is_asked_for(tmp_path: Path, what: str) -> None:
    file = tmp_path / "users.json"
    file.write_text(DAMAGED[what], encoding="latin-1")
    plain = users("set", "app", "--stdin", "--file", str(file), stdin=b"canary-1")
    assert plain.returncode == exits.FAILED
    look = users("set", "app", "--stdin", "--set-aside", "--check", "--json", "--file", str(file), stdin=b"canary-1")
    assert json.loads(look.stdout)["changed"]
    assert json.loads(look.stdout)["damaged"]
    assert file.read_text(encoding="latin-1") == DAMAGED[what]
    done = users("set", "app", "--stdin", "--set-aside", "--file", str(file), stdin=b"canary-1")
    assert (done.returncode, done.stdout) == (exits.DONE, b"changed\n")
    assert f"it is {file}.damaged now" in done.stderr.decode()
    assert (tmp_path / "users.json.damaged").read_text(encoding="latin-1") == DAMAGED[what]
    assert set(users_file.read(file)) == {"app"}
    assert put(file, "canary-1", "--set-aside") == "unchanged"


def test_each_file_that_is_set_aside_keeps_its_own_name(tmp_path: Path) -> None:
    file = tmp_path / "users.json"
    for text in ("first", "second"):
        file.write_text(text)
        assert users("set", "app", "--stdin", "--set-aside", "--file", str(file), stdin=b"canary-1").returncode == 0
    file.unlink()
    file.mkdir()
    assert users("set", "app", "--stdin", "--set-aside", "--file", str(file), stdin=b"canary-1").returncode == 0
    assert (tmp_path / "users.json.damaged").read_text() == "first"
    assert (tmp_path / "users.json.damaged.2").read_text() == "second"
    assert (tmp_path / "users.json.damaged.3").is_dir()
    assert set(users_file.read(file)) == {"app"}
