"""A folder goes into an archive and comes out of it, readable by all and nowhere else."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils import tree


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    source = tmp_path / "bundle"
    (source / "wheels").mkdir(parents=True, mode=0o700)
    (source / "wheels/a.whl").write_bytes(b"\0wheel")
    (source / "manifest.json").write_text("{}")
    os.chmod(source / "manifest.json", 0o600)
    with (tmp_path / "archive").open("wb") as archive:
        tree.pack(str(source), archive)
    tree.unpack(str(tmp_path / "archive"), str(tmp_path / "opt/there"))
    tree.unpack(str(tmp_path / "archive"), str(tmp_path / "opt/there"))
    found = {
        str(path.relative_to(tmp_path / "opt/there")): stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "opt/there").rglob("*")
    }
    assert found == {"manifest.json": 0o644, "wheels": 0o755, "wheels/a.whl": 0o644}
    assert (tmp_path / "opt/there/wheels/a.whl").read_bytes() == b"\0wheel"


@pytest.mark.parametrize("name", ["/etc/a", "../a", "a/../../b"])
def test_nothing_is_unpacked_elsewhere(tmp_path: Path, name: str) -> None:
    entry = tarfile.TarInfo(name)
    with tarfile.open(tmp_path / "archive", "w") as tar:
        tar.addfile(entry, io.BytesIO())
    with pytest.raises(tree.TreeFault, match="is not unpacked"):
        tree.unpack(str(tmp_path / "archive"), str(tmp_path / "there"))


def test_links_are_not_unpacked(tmp_path: Path) -> None:
    entry = tarfile.TarInfo("link")
    entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(tmp_path / "archive", "w") as tar:
        tar.addfile(entry)
    with pytest.raises(tree.TreeFault, match="is not unpacked"):
        tree.unpack(str(tmp_path / "archive"), str(tmp_path / "there"))
    assert not (tmp_path / "there").exists()
