"""Facts of a host, taken from the one that the tests run on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.mqops.cluster.plugins.module_utils import host

from tests.support.patience import PATIENCE_S

DEBIAN = """\
PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
# a comment=with an equals sign
VERSION_ID="12"
ID=debian
"""


def run(argv: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout


def test_os_release(tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text(DEBIAN)
    assert host.os_release(str(tmp_path / "os-release")) == {
        "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)", "VERSION_ID": "12", "ID": "debian",
    }  # fmt: skip
    assert host.os_release(str(tmp_path / "nothing")) == {}


def test_an_interpreter_describes_itself() -> None:
    found = host.python_of(run, sys.executable)
    assert found is not None
    assert found.version == "{}.{}".format(*sys.version_info)
    assert found.implementation == "CPython"
    assert found.has_venv
    assert host.python_of(run, "/bin/false") is None


def test_space_of_a_folder_that_is_not_made_yet(tmp_path: Path) -> None:
    assert host.free_bytes(str(tmp_path / "a/b/c")) > 0
    assert host.free_bytes("/proc/nothing") == 0


def test_cards_of_this_host_and_of_one_without_the_program() -> None:
    found = host.cards(run)
    assert found is not None
    assert "127.0.0.1" in found["lo"].addresses
    assert host.cards(lambda argv: (127, "")) is None


def test_everything_at_once(tmp_path: Path) -> None:
    facts = host.gather(run, sys.executable, [str(tmp_path)])
    assert facts.users["root"] == 0
    assert facts.is_clock_synchronised in (True, False, None)
    assert list(facts.disk_free_bytes) == [str(tmp_path)]


def test_the_id_of_a_machine_is_one_that_tells_it_from_others(tmp_path: Path) -> None:
    file = tmp_path / "machine-id"
    assert host.machine_id_in(str(file)) == ""
    for text, found in (("a" * 32 + "\n", "a" * 32), ("uninitialized\n", ""), ("0" * 32, ""), ("", ""), ("\xff", "")):
        file.write_text(text)
        assert host.machine_id_in(str(file)) == found
