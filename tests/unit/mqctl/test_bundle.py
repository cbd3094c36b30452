"""Manifests and targets of bundles."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from mqctl import __version__
from mqctl.bundle.build import lock_with_broker
from mqctl.bundle.find import bundle_folder
from mqctl.bundle.manifest import MANIFEST, damage, describe, folder_name, parse_target, read, read_whole, release_of
from mqctl.errors import CommandError, UsageError

TARGET = parse_target("3.11", "manylinux_2_36_x86_64")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "a-1-py3-none-any.whl").write_bytes(b"wheel")
    (tmp_path / "requirements.lock").write_text("a==1 --hash=sha256:0\n")
    (tmp_path / MANIFEST).write_text(describe(tmp_path, "0.1.0", TARGET).to_json())
    return tmp_path


def test_a_manifest_is_read_as_it_was_written(folder: Path) -> None:
    manifest = read(folder)
    assert manifest == describe(folder, "0.1.0", TARGET)
    assert manifest.release == release_of(manifest)
    assert re.fullmatch(r"0\.1\.0-[0-9a-f]{8}", manifest.release)
    assert (manifest.python, manifest.abi, manifest.machine, manifest.glibc) == ("3.11", "cp311", "x86_64", "2.36")
    assert damage(folder, manifest) == []


def test_bundles_for_other_hosts_are_other_releases(folder: Path) -> None:
    """Their locks may be the same: hashes of the wheels of all Pythons stand in it."""
    names = {
        describe(folder, "0.1.0", parse_target(python, platform)).release
        for python in ("3.11", "3.12", "3.13")
        for platform in ("manylinux_2_36_x86_64", "manylinux_2_36_aarch64", "manylinux_2_34_x86_64")
    }
    assert len(names) == 9
    before = describe(folder, "0.1.0", TARGET).release
    (folder / "wheels" / "one.whl").write_bytes(b"another wheel of the same name")
    assert describe(folder, "0.1.0", TARGET).release != before


def test_every_difference_to_the_manifest_is_found(folder: Path) -> None:
    (folder / "wheels" / "a-1-py3-none-any.whl").write_bytes(b"other")
    (folder / "wheels" / "b.whl").write_bytes(b"")
    (folder / "requirements.lock").unlink()
    assert damage(folder, read(folder)) == [
        "requirements.lock is missing",
        "wheels/a-1-py3-none-any.whl is not what the manifest says",
        "wheels/b.whl is not in the manifest",
    ]
    with pytest.raises(CommandError, match=r"is damaged: requirements\.lock is missing; wheels/a.*; wheels/b"):
        read_whole(folder)


@pytest.mark.parametrize("changed", [{"release": ""}, {"release": "../x"}, {"glibc": "2.35"}, {"version": "../x"}])
def test_a_manifest_that_was_changed_by_hand_is_none(folder: Path, changed: dict[str, str]) -> None:
    """Hosts know a release by its name, and make a folder of it."""
    said = json.loads((folder / MANIFEST).read_text()) | changed
    (folder / MANIFEST).write_text(json.dumps(said))
    with pytest.raises(CommandError, match="was changed: its release"):
        read(folder)
    named = replace(describe(folder, "../x", TARGET), files=())
    (folder / MANIFEST).write_text(replace(named, release=release_of(named)).to_json())
    with pytest.raises(CommandError, match="was changed: its release"):
        read(folder)


@pytest.mark.parametrize("content", ["", "{}", '{"schema": "mqops.bundle/9"}', '{"schema": "mqops.bundle/1"}', "[]"])
def test_what_is_no_manifest_is_refused(folder: Path, content: str) -> None:
    (folder / MANIFEST).write_text(content)
    with pytest.raises(CommandError, match="manifest"):
        read(folder)


def test_platform_tags_are_newest_first_with_their_old_names() -> None:
    tags = TARGET.platform_tags()
    assert tags[0] == "manylinux_2_36_x86_64"
    assert tags.index("manylinux_2_17_x86_64") + 1 == tags.index("manylinux2014_x86_64")
    assert tags[-1] == "linux_x86_64"


@pytest.mark.parametrize(("python", "platform"), [("3", "manylinux_2_36_x86_64"), ("3.11", "win_amd64")])
def test_targets_that_are_none(python: str, platform: str) -> None:
    with pytest.raises(UsageError):
        parse_target(python, platform)


def test_the_broker_stands_in_the_lock_by_hash() -> None:
    assert lock_with_broker("a==1 --hash=sha256:0\n", "0.1.0", "ff") == (
        "a==1 --hash=sha256:0\nmqbroker==0.1.0 \\\n    --hash=sha256:ff\n"
    )


def test_bundles_for_other_hosts_lie_beside_each_other(tmp_path: Path) -> None:
    targets = [("3.11", "manylinux_2_36_x86_64"), ("3.12", "manylinux_2_36_x86_64"), ("3.11", "manylinux_2_36_aarch64"),
               ("3.11", "manylinux_2_17_x86_64")]  # fmt: skip
    names = [folder_name(__version__, parse_target(*one)) for one in targets]
    assert len(set(names)) == len(names)
    assert names[0] == f"bundle-{__version__}-cp311-manylinux_2_36_x86_64"
    dist = tmp_path / "dist"
    (dist / f"bundle-{__version__}1-cp311-manylinux_2_36_x86_64").mkdir(parents=True)
    with pytest.raises(UsageError, match="there is no bundle of"):
        bundle_folder(None, tmp_path)
    (dist / names[0]).mkdir()
    assert bundle_folder(None, tmp_path) == dist / names[0]
    (dist / names[1]).mkdir()
    with pytest.raises(UsageError, match=f"{names[0]}, {names[1]}"):
        bundle_folder(None, tmp_path)
    assert bundle_folder(f"dist/{names[1]}", tmp_path) == dist / names[1]
