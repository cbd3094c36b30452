"""Folders and files of a host: made as wanted, left alone when right, replaced whole or not at all."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.mqops.cluster.plugins.filter.shared_node_ids import shared_node_ids
from ansible_collections.mqops.cluster.plugins.module_utils.files import (
    FileFault,
    Wanted,
    diff_of,
    differences,
    make,
)

USER, GROUP = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(os.getegid()).gr_name


def folder(path: Path, mode: int = 0o750) -> Wanted:
    return Wanted(str(path), USER, GROUP, mode)


def file(path: Path, content: str, mode: int = 0o640, try_by: tuple[str, ...] = ()) -> Wanted:
    return Wanted(str(path), USER, GROUP, mode, content.encode(), try_by)


def test_what_is_missing_is_made_and_then_right(tmp_path: Path) -> None:
    wanted = [folder(tmp_path / "a"), folder(tmp_path / "a/b", 0o700), file(tmp_path / "a/b/c", "text\n")]
    assert [differences(one) for one in wanted] == [["absent"]] * 3
    make(wanted)
    assert [differences(one) for one in wanted] == [[]] * 3
    assert [stat.S_IMODE(os.stat(one.path).st_mode) for one in wanted] == [0o750, 0o700, 0o640]
    assert sorted(os.listdir(tmp_path / "a/b")) == ["c"]


def test_every_difference_has_its_name(tmp_path: Path) -> None:
    here = file(tmp_path / "a", "one")
    make([here])
    assert differences(file(tmp_path / "a", "two", 0o600)) == ["content", "mode"]
    # In a check there may be no such user yet.
    assert differences(replace(here, owner="no-such-user", group="no-such-group")) == ["owner", "group"]
    with pytest.raises(FileFault, match="there is no user no-such-user"):
        make([replace(here, owner="no-such-user")])
    assert differences(here) == []


def test_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(FileFault, match="a is no file"):
        differences(file(tmp_path / "a", ""))
    with pytest.raises(FileFault, match="b is no folder"):
        differences(folder(tmp_path / "b"))


def test_content_that_is_refused_replaces_nothing(tmp_path: Path) -> None:
    make([file(tmp_path / "a", "good"), file(tmp_path / "b", "good")])
    is_good = ("grep", "-q", "good")
    new = [file(tmp_path / "a", "good too", try_by=is_good), file(tmp_path / "b", "bad", try_by=is_good)]
    with pytest.raises(FileFault, match=rf"{tmp_path}/b is refused by grep -q good"):
        make(new)
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["good", "good"]
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_what_a_killed_run_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / ".a.new").write_text("half")
    make([file(tmp_path / "a", "whole")])
    assert (tmp_path / "a").read_text() == "whole"
    assert os.listdir(tmp_path) == ["a"]


def test_a_difference_is_shown_and_a_secret_is_not(tmp_path: Path) -> None:
    make([file(tmp_path / "a", "before")])
    new = file(tmp_path / "a", "after")
    shown = diff_of(new, differences(new), is_secret=False)
    assert (shown["before"], shown["after"]) == ("before", "after")
    hidden = diff_of(new, differences(new), is_secret=True)
    assert {"before", "after"}.isdisjoint(str(value) for value in hidden.values())
    mode = file(tmp_path / "a", "before", 0o600)
    assert diff_of(mode, differences(mode), is_secret=False)["after"] == "mode changed\n"


def test_shared_ids_are_named_with_their_places() -> None:
    own, other = {"place": "mq1/a", "node_id": "x"}, {"place": "mq2/a", "node_id": "x"}
    assert shared_node_ids([own], [own]) == ""
    assert shared_node_ids([own], [own, other]).startswith("mq1/a, mq2/a share the node id x")


def test_a_file_that_something_else_writes_is_only_owned(tmp_path: Path) -> None:
    kept = Wanted(str(tmp_path / "users.json"), USER, GROUP, 0o600, is_kept=True)
    assert differences(kept) == []
    make([kept])
    assert os.listdir(tmp_path) == []
    (tmp_path / "users.json").write_text("{}")
    (tmp_path / "users.json").chmod(0o644)
    assert differences(kept) == ["mode"]
    make([kept])
    assert differences(kept) == []
    assert (tmp_path / "users.json").read_text() == "{}"


def test_whoever_may_write_beside_it_cannot_lead_it_elsewhere(tmp_path: Path) -> None:
    target = tmp_path / "shadow"
    target.write_text("secret")
    target.chmod(0o640)
    kept = Wanted(str(tmp_path / "users.json"), USER, GROUP, 0o600, is_kept=True)
    (tmp_path / "users.json").symlink_to(target)
    with pytest.raises(FileFault, match="is no file"):
        differences(kept)
    with pytest.raises(FileFault):
        make([kept])
    (tmp_path / "users.json").unlink()
    os.link(target, tmp_path / "users.json")
    with pytest.raises(FileFault, match="no file of its own"):
        make([kept])
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
