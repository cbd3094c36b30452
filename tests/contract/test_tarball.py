"""What users install as the collection is the collection: nothing of the rest of the repository, and all of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GALAXY = Path(sys.executable).parent / "ansible-galaxy"

NAME = r"[a-z][a-z0-9_]*"
ALLOWED = re.compile(
    rf"""
      MANIFEST\.json | FILES\.json | README\.md | LICENSE | CHANGELOG\.rst
    | meta/runtime\.yml
    | changelogs/(config\.yaml | changelog\.yaml | fragments/[0-9]{{4}}-[a-z0-9-]+\.yml)
    | playbooks/((vars|tasks)/)?{NAME}\.yml | playbooks/vars/{NAME}\.json
    | plugins/(action | filter | lookup | modules | module_utils)/{NAME}\.py
    | roles/{NAME}/(defaults | handlers | meta | tasks | vars)/{NAME}\.yml
    | roles/{NAME}/templates/[a-z@.-]+\.j2
    | roles/{NAME}/README\.md
    """,
    re.VERBOSE,
)
COLLECTION_FOLDERS = ("changelogs", "meta", "playbooks", "plugins", "roles")


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tarball")
    command = [str(GALAXY), "collection", "build", "--output-path", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = folder.glob("mqops-cluster-*.tar.gz")
    return made


@pytest.fixture(scope="module")
def members(tarball: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(tarball) as archive:
        return {one.name: one for one in archive.getmembers() if not one.isdir()}


@pytest.mark.slow
def test_holds_what_is_allowed_only(members: dict[str, tarfile.TarInfo]) -> None:
    assert [name for name in members if not ALLOWED.fullmatch(name)] == []


def test_holds_plain_files_only(members: dict[str, tarfile.TarInfo]) -> None:
    assert [name for name, member in members.items() if not member.isreg()] == []


def test_holds_all_of_the_collection(members: dict[str, tarfile.TarInfo]) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "-z", *COLLECTION_FOLDERS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    wanted = {name for name in tracked.stdout.split("\0") if name and (ROOT / name).exists()}
    assert sorted(wanted - set(members)) == []
    assert {"README.md", "LICENSE", "meta/runtime.yml"} <= set(members)


def test_manifest_names_the_version_of_galaxy_yml(tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        stream = archive.extractfile("MANIFEST.json")
        assert stream is not None
        manifest = json.load(stream)["collection_info"]
    declared = re.search(r"^version: (\S+)$", (ROOT / "galaxy.yml").read_text(), re.MULTILINE)
    assert declared is not None
    assert (manifest["namespace"], manifest["name"], manifest["version"]) == ("mqops", "cluster", declared[1])
    assert tarball.name == f"mqops-cluster-{declared[1]}.tar.gz"
