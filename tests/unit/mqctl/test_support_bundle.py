"""A support bundle for which there is no room leaves nothing that is in the way of the next one."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mqctl.commands.look.support_bundle import _write
from mqctl.errors import CommandError


@contextmanager
def no_room_for_more_than(size_bytes: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_part_of_it_does_not_stay(tmp_path: Path) -> None:
    path, files = tmp_path / "bundle.tar.gz", {"log": os.urandom(100_000)}
    with (
        no_room_for_more_than(5_000),
        pytest.raises(CommandError, match=r"bundle\.tar\.gz cannot be made: File too large"),
    ):
        _write(path, files)
    assert not path.exists()
    _write(path, files)
    with pytest.raises(CommandError, match="File exists"):
        _write(path, files)
    assert path.stat().st_size > 100_000
