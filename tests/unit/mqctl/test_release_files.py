"""Whether a release is what its manifest says: a real venv, and every way in which somebody may change it."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from mqctl.bundle.manifest import describe, parse_target
from mqctl.remote.release_files import FAULTS_MAX, ReleasePlace, _record_hash, faults

pytestmark = pytest.mark.slow  # pip installs something

PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
SITE = f"lib/{PYTHON}/site-packages"
WHEEL = "mqbroker-1.0-py3-none-any.whl"
FILES = {
    "mqbroker/__init__.py": "def main():\n    return 0\n",
    "mqbroker-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: mqbroker\nVersion: 1.0\n",
    "mqbroker-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "mqbroker-1.0.dist-info/entry_points.txt": "[console_scripts]\nmqbroker = mqbroker:main\n",
}


HERE = ReleasePlace(f"{sys.base_prefix}/bin", os.getuid())


def wheel(place: Path) -> None:
    """One that pip takes, with the hashes that pip itself has written when it was installed."""
    rows = [
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        f"{len(text)}"
        for name, text in FILES.items()
    ]
    with zipfile.ZipFile(place, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
        archive.writestr("mqbroker-1.0.dist-info/RECORD", "\n".join([*rows, "mqbroker-1.0.dist-info/RECORD,,", ""]))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the role does it: the bundle is copied, and pip installs it into a venv."""
    folder = tmp_path_factory.mktemp("releases") / "new"
    (folder / "bundle/wheels").mkdir(parents=True)
    wheel(folder / "bundle/wheels" / WHEEL)
    (folder / "bundle/requirements.lock").write_text("mqbroker==1.0\n")
    manifest = describe(folder / "bundle", "1.0", parse_target(PYTHON.removeprefix("python"), "manylinux_2_36_x86_64"))
    (folder / "bundle/manifest.json").write_text(manifest.to_json())
    place = folder.rename(folder.parent / manifest.release)
    venv = [f"{HERE.pythons}/{PYTHON}", "-m", "venv", "--without-pip", place]
    subprocess.run(venv, check=True, timeout=300, umask=0o022)
    command = [sys.executable, "-m", "pip", "--python", place, "install", "-q", "--no-index"]
    command += ["--find-links", "bundle/wheels"]
    # On a host nobody says where bytecode goes.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ = {**kept, "PIP_CONFIG_FILE": "/dev/null", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([*command, "mqbroker"], cwd=place, env=environ, check=True, timeout=300, umask=0o022)
    (place / "complete").write_text(f"{manifest.release}\n")
    return place


@pytest.fixture
def release(installed: Path, tmp_path: Path) -> Path:
    """A copy to be changed; links and modes stay."""
    place = tmp_path / installed.name
    shutil.copytree(installed, place, symlinks=True)
    return place


def test_what_was_just_installed_is_whole(installed: Path) -> None:
    assert faults(str(installed), HERE) == []


def test_bytecode_that_python_makes_later_is_no_fault(release: Path) -> None:
    shutil.rmtree(release / SITE / "mqbroker/__pycache__")
    (release / SITE / "mqbroker/__pycache__").mkdir()
    (release / SITE / "mqbroker/__pycache__/__init__.cpython-311.opt-1.pyc").write_bytes(b"")
    assert faults(str(release), HERE) == []


def put(path: str, text: str) -> Callable[[Path], None]:
    return lambda release: (release / path).write_text(text) and None


def add(path: str, text: str) -> Callable[[Path], None]:
    def act(release: Path) -> None:
        with (release / path).open("a") as file:
            file.write(text)

    return act


def drop(path: str) -> Callable[[Path], None]:
    return lambda release: (release / path).unlink()


def link(path: str, target: str) -> Callable[[Path], None]:
    def act(release: Path) -> None:
        (release / path).unlink()
        (release / path).symlink_to(target)

    return act


def forge(release: Path) -> None:
    """A file with its record: only the wheel knows how both were."""
    old, new = "return 0", "return 1"
    place, record = release / SITE / "mqbroker/__init__.py", release / SITE / "mqbroker-1.0.dist-info/RECORD"
    before = _record_hash(str(place))
    place.write_text(place.read_text().replace(old, new))
    record.write_text(record.read_text().replace(before, _record_hash(str(place))))


def move_away(release: Path) -> None:
    """The same files, in another place."""
    other = release.parent / "elsewhere"
    (release / SITE).rename(other)
    (release / SITE).symlink_to(other)


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a module": (add(f"{SITE}/mqbroker/__init__.py", "#"), f"{SITE}/mqbroker/__init__.py has changed"),
    "a module that is gone": (drop(f"{SITE}/mqbroker/__init__.py"), f"{SITE}/mqbroker/__init__.py is gone"),
    "a module that is a link": (
        link(f"{SITE}/mqbroker/__init__.py", "/dev/null"), f"{SITE}/mqbroker/__init__.py has changed",
    ),
    "a module and its record": (forge, f"{SITE}/mqbroker/__init__.py is not recorded as its wheel has it"),
    "a record": (
        drop(f"{SITE}/mqbroker-1.0.dist-info/RECORD"), f"{SITE}/mqbroker-1.0.dist-info/METADATA is not recorded",
    ),
    "the program": (put("bin/mqbroker", "#!/bin/sh\n"), "bin/mqbroker has changed"),
    "a module more": (put(f"{SITE}/sitecustomize.py", ""), f"{SITE}/sitecustomize.py does not belong there"),
    "a path more": (put(f"{SITE}/more.pth", "/tmp\n"), f"{SITE}/more.pth does not belong there"),
    "a program more": (put("bin/id", ""), "bin/id does not belong there"),
    "a wheel": (add(f"bundle/wheels/{WHEEL}", "#"), f"bundle/wheels/{WHEEL} is not what the manifest says"),
    "the lock": (drop("bundle/requirements.lock"), "bundle/requirements.lock is not what the manifest says"),
    "another manifest": (put("bundle/manifest.json", '{"release": "2"}'), "bundle/manifest.json is of 2"),
    "no manifest": (put("bundle/manifest.json", "[]"), "it cannot be read: "),
    "another Python": (link(f"bin/{PYTHON}", "/bin/true"), f"bin/python is not {HERE.pythons}/{PYTHON}"),
    "the packages of the system": (
        put("pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = true\n"), "pyvenv.cfg lets in",
    ),
    "another standard library": (
        put("pyvenv.cfg", "home = /elsewhere\ninclude-system-site-packages = false\n"), "pyvenv.cfg takes the standard",
    ),
    "a package more, by a link": (
        lambda release: (release / SITE / "more").symlink_to("/tmp"), f"{SITE}/more does not belong there",
    ),
    "all packages, by a link": (move_away, f"{SITE} is no folder"),
    "a folder that others may write to": (
        lambda release: (release / SITE / "mqbroker").chmod(0o777), f"{SITE}/mqbroker can be changed by others",
    ),
    "no marker": (drop("complete"), "complete is gone"),
    "a mode": (
        lambda release: (release / "bin/mqbroker").chmod(0o777), "bin/mqbroker can be changed by others",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_is_changed_is_named(release: Path, what: str) -> None:
    change, said = CHANGES[what]
    change(release)
    found = faults(str(release), HERE)
    assert any(one.startswith(said) for one in found), found


def test_an_owner_that_is_another_one(installed: Path) -> None:
    found = faults(str(installed), HERE._replace(owner=HERE.owner + 1))
    assert 0 < len(found) <= FAULTS_MAX
    assert all(one.endswith("can be changed by others") for one in found)
