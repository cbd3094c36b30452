"""Builds of the image that do not come to an end, against a mirror of our own on the loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import wait_until

from .conftest import ENTRY, Rack

pytestmark = pytest.mark.system

IMAGES = Path("/var/lib/mqops-rack/images")
# A recipe that nobody has in the cache.
BUILD = f"""
import sys
sys.path.insert(0, {str(ENTRY.parent)!r})
from mqrack import image, prerequisites
prerequisites.ensure()
image.PACKAGES = ("made-up-for-this-test-{os.getpid()}",)
image.ensure()
"""


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[socket.socket]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


def build(server: socket.socket, folder: Path) -> subprocess.Popen[str]:
    sources = folder / "given.list"
    sources.write_text(f"deb http://127.0.0.1:{server.getsockname()[1]}/debian bookworm main\n")
    environment = {**os.environ, "RACK_APT_SOURCES": str(sources)}
    return subprocess.Popen([sys.executable, "-c", BUILD], env=environment, stderr=subprocess.PIPE, text=True)


def processes_with(text: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if text in words:
            found.append(words)
    return found


def test_a_killed_build_ends_with_all_it_started_and_destroy_clears_its_folder(
    mirror: socket.socket, tmp_path: Path, unique: str
) -> None:
    with build(mirror, tmp_path) as building:
        connection, _ = mirror.accept()
        (partial,) = IMAGES.glob("partial-*")
        assert processes_with(str(partial)) != []
        building.kill()
        building.wait()
    connection.close()
    wait_until(lambda: not processes_with(str(partial)), f"processes with {partial} end")
    Rack(f"{unique}-i")("destroy")
    assert not partial.exists()


def test_a_failed_build_says_why_and_caches_nothing(mirror: socket.socket, tmp_path: Path) -> None:
    before = {path.name for path in IMAGES.iterdir() if path.is_dir()}
    with build(mirror, tmp_path) as building:
        mirror.close()
        _, said = building.communicate(timeout=100)
    assert building.returncode == 1
    assert "the image could not be built; the whole log is" in said
    assert {path.name for path in IMAGES.iterdir() if path.is_dir()} == before
