"""Bundles built for real, from the checkout's broker and a dependency made here: no index is asked."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mqctl.bundle.manifest import read, release_of

MQCTL = [sys.executable, "-m", "mqctl.main"]
ROOT = Path(__file__).resolve().parents[3]


def mqctl(*words: str | Path, umask: int = 0o022, code: int = 0) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    done = subprocess.run(
        [*MQCTL, *map(str, words)], cwd=ROOT, env=environ, umask=umask, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel of one dependency and a lock that pins it."""
    folder = tmp_path_factory.mktemp("wheels")
    source = tmp_path_factory.mktemp("source")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "tinydep"\nversion = "1.2"\n'
    )
    (source / "tinydep").mkdir()
    (source / "tinydep/__init__.py").write_text("")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--wheel-dir", folder, source], check=True, timeout=120)
    (wheel,) = folder.glob("*.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (folder / "deps.lock").write_text(f"tinydep==1.2 --hash=sha256:{digest}\n")
    return folder


def content(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.one_day_in_three(0)
def test_two_builds_are_bit_identical(wheels: Path, tmp_path: Path) -> None:
    built = []
    for number, umask in enumerate((0o022, 0o077)):
        out = tmp_path / str(number)
        done = mqctl(
            "bundle", "build", "--wheels", wheels, "--lock", wheels / "deps.lock", "--output", out, umask=umask
        )
        built.append(Path(done.stdout.strip()))
    first, second = map(content, built)
    assert first == second
    assert {Path(name).name for name in first} >= {
        "manifest.json",
        "requirements.lock",
        "tinydep-1.2-py2.py3-none-any.whl",
    }
    assert len(first) == 4
    assert [one.name for one in (tmp_path / "0").iterdir()] == [built[0].name]


def test_the_bundle_installs_without_an_index_and_show_checks_it(wheels: Path, tmp_path: Path) -> None:
    mqctl("bundle", "build", "--wheels", wheels, "--lock", wheels / "deps.lock", "--output", tmp_path)
    (folder,) = tmp_path.iterdir()
    document = json.loads(mqctl("bundle", "show", folder, "--json").stdout)
    assert document["release"] == release_of(read(folder))
    assert document["release"].startswith(f"{document['version']}-")
    target = tmp_path / "installed"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--require-hashes", "--no-deps"]
    command += ["--find-links", folder / "wheels", "--target", target, "-r", folder / "requirements.lock"]
    subprocess.run(command, check=True, timeout=120)
    assert (target / "mqbroker/__init__.py").exists()
    assert (target / "tinydep/__init__.py").exists()
    with (folder / "wheels/tinydep-1.2-py2.py3-none-any.whl").open("ab") as file:
        file.write(b"x")
    done = mqctl("bundle", "show", folder, code=1)
    assert "wheels/tinydep-1.2-py2.py3-none-any.whl is not what the manifest says" in done.stderr
    assert done.stderr.endswith("try: mqctl bundle build\n")


def test_a_wheel_that_does_not_match_its_hash_stops_the_build(wheels: Path, tmp_path: Path) -> None:
    lock = tmp_path / "bad.lock"
    lock.write_text(f"tinydep==1.2 --hash=sha256:{'0' * 64}\n")
    done = mqctl("bundle", "build", "--wheels", wheels, "--lock", lock, "--output", tmp_path / "out", code=1)
    assert "fetching dependencies failed" in done.stderr
    assert "hash" in done.stderr.lower()
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.one_day_in_three(2)
def test_a_second_build_replaces_the_first(wheels: Path, tmp_path: Path) -> None:
    for _ in range(2):
        mqctl("bundle", "build", "--wheels", wheels, "--lock", wheels / "deps.lock", "--output", tmp_path)
        (folder,) = tmp_path.iterdir()
        (folder / "stray").write_text("of the first build")
    assert len(list(tmp_path.iterdir())) == 1
    mqctl("bundle", "build", "--wheels", wheels, "--lock", wheels / "deps.lock", "--output", tmp_path)
    assert not (folder / "stray").exists()
