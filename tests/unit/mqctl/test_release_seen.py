"""Which release a host has: only one that is whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mqctl.plan.plan import Account, Seen, WantedHost, diff_host
from mqctl.remote import release_files
from mqctl.remote.observe import RELEASE_FILES, is_whole, link_of

NAME = "0.1.0-0123abcd"


@pytest.fixture
def current(tmp_path: Path) -> Path:
    place = tmp_path / "releases" / NAME
    for name in RELEASE_FILES:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(json.dumps({"release": NAME}))
    (tmp_path / "current").symlink_to(f"releases/{NAME}")
    return tmp_path / "current"


def test_a_whole_release(current: Path) -> None:
    assert is_whole(str(current.resolve()))


@pytest.mark.parametrize("lost", RELEASE_FILES)
def test_a_release_that_lost_something_is_none(current: Path, lost: str) -> None:
    (current / lost).unlink()
    assert not is_whole(str(current.resolve()))


def test_a_link_to_a_python_that_is_gone_is_no_python(current: Path) -> None:
    (current / "bin" / "python").unlink()
    (current / "bin" / "python").symlink_to("/usr/bin/python3.0")
    assert not is_whole(str(current.resolve()))


@pytest.mark.parametrize("manifest", ["", "[]", '{"release": "0.1.0-another1"}'])
def test_a_folder_with_another_release_in_it(current: Path, manifest: str) -> None:
    (current / "bundle" / "manifest.json").write_text(manifest)
    assert not is_whole(str(current.resolve()))


def test_a_link_to_nothing_and_no_link(current: Path, tmp_path: Path) -> None:
    (tmp_path / "astray").symlink_to("releases/gone")
    assert not is_whole(str(tmp_path / "astray"))
    assert not is_whole(str(tmp_path / "nothing"))


def test_the_role_looks_for_the_same_files() -> None:
    assert release_files.FILES == RELEASE_FILES


def test_a_link_to_a_folder_of_the_same_name_elsewhere_is_another_release(current: Path, tmp_path: Path) -> None:
    assert link_of(str(current)) == NAME
    assert link_of(str(tmp_path / "nothing")) is None
    wanted = WantedHost(NAME, {})

    def lines() -> list[tuple[str, str, str, str]]:
        seen = Seen(link_of(str(current)), Account(990), releases={NAME: True})
        return [(one.what, one.action, one.before, one.after) for one in diff_host("mq1", wanted, seen)]

    assert lines() == []
    for elsewhere in (f"/tmp/{NAME}", f"../{NAME}", f"/opt/mq/releases/{NAME}"):
        current.unlink()
        current.symlink_to(elsewhere)
        assert lines() == [("release", "change", elsewhere, NAME)]
