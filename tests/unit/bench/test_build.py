"""Which build of our broker is measured, and how the output says so."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest
from mqbroker.base.native import IS_NATIVE

from bench import build, run
from bench.faults import BenchFault
from bench.peers import mqops


def test_the_broker_itself_is_asked_which_build_it_is() -> None:
    assert build.said() is IS_NATIVE


def test_a_native_build_comes_before_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/checkout")
    build.use(tmp_path)
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), "/checkout"]
    monkeypatch.delenv("PYTHONPATH")
    build.use(tmp_path)
    assert os.environ["PYTHONPATH"] == str(tmp_path)


@pytest.mark.parametrize(
    ("is_native", "said"),
    [
        (True, "mqops was a native build, run by Python 3.11.2 /usr/bin/python3"),
        (False, "mqops was Python, not a native build, run by Python 3.11.2 /usr/bin/python3"),
    ],
)
def test_the_output_says_which_build_it_was(is_native: bool, said: str) -> None:
    assert run.build_line(is_native, "3.11.2 /usr/bin/python3") == said


def test_another_python_runs_the_broker_with_the_packages_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqops, "_programs", mqops.python().parent)
    before = build.python()
    build.use_python(Path(sys.base_prefix) / "bin" / "python3", tmp_path)
    assert build.said() is IS_NATIVE
    assert build.python() == f"{platform.python_version()} {tmp_path / 'python' / 'bin' / 'python'}"
    assert build.python() != before


def test_what_is_no_python_of_this_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchFault, match="/nowhere/python: No such file"):
        build.use_python(Path("/nowhere/python"), tmp_path)
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho 2.7\n")
    other.chmod(0o755)
    with pytest.raises(BenchFault, match=r"--python: .* is Python 2\.7, and the broker's packages here are for 3\."):
        build.use_python(other, tmp_path)


@pytest.mark.slow
def test_a_start_finds_bytecode_as_that_of_an_installed_package_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")
    build.keep_bytecode(tmp_path)
    made = {path.parent.name for path in tmp_path.rglob("*.pyc")}
    assert {"config", "pydantic", "asyncio"} <= made
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ


def test_our_broker_is_no_peer_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--peer", "mqops"]) == run.USAGE
    assert "leave mqops out" in capsys.readouterr().err


def test_native_without_our_broker_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--native", "--no-ours", "--peer", "artemis-2.44.0"]) == run.USAGE
    assert "--no-ours leaves it out" in capsys.readouterr().err
