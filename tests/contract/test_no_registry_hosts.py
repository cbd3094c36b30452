"""No tracked file names the host of a package registry: where packages come from is the matter of whoever installs.

Lock files carry hashes, so that it does not matter which mirror serves them, and no address.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

# Joined here, for this file is tracked, too.
HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"), ("pythonhosted", "org"), ("pypi", "python", "org"), ("deb", "debian", "org"),
        ("security", "debian", "org"), ("snapshot", "debian", "org"), ("archive", "ubuntu", "com"),
        ("repo1", "maven", "org"), ("repo", "maven", "apache", "org"), ("npmjs", "org"), ("npmjs", "com"),
        ("yarnpkg", "com"), ("proxy", "golang", "org"), ("sum", "golang", "org"), ("crates", "io"), ("docker", "io"),
        ("quay", "io"), ("ghcr", "io"), ("galaxy", "ansible", "com"), ("rubygems", "org"), ("conda", "anaconda", "org"),
    )
)  # fmt: skip
NAMED = re.compile("|".join(rf"(?<![\w-]){re.escape(host)}(?![\w-])" for host in HOSTS), re.IGNORECASE)


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_tracked_file_names_a_registry() -> None:
    found = []
    for path in tracked():
        text = path.read_bytes().decode("utf-8", errors="replace").lower()
        if not any(host in text for host in HOSTS):
            continue
        found += [f"{path.relative_to(ROOT)}: {match.group()}" for match in NAMED.finditer(text)]
    assert found == []


def test_a_registry_would_be_found() -> None:
    assert NAMED.search(f"https://{HOSTS[0]}/simple")
    assert NAMED.search(f"deb http://{HOSTS[3]}/debian bookworm main")
    assert NAMED.search(f"files.{HOSTS[1]}")
    assert not NAMED.search(f"my{HOSTS[0]}anisation")


LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_lock_files_have_hashes_and_no_addresses(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--index-url|--extra-index-url|--find-links|--trusted-host)\b", text, re.MULTILINE)
    joined = text.replace("\\\n", " ")
    entries = [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(entries) >= 3
    for entry in entries:
        assert re.match(r"[A-Za-z0-9][\w.-]*(\[[\w,-]+\])?==[^\s;]+", entry), entry[:80]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry[:80]


def test_every_distribution_has_a_lock_file() -> None:
    assert {"broker.lock", "cli.lock", "dev.lock"} <= {lock.name for lock in LOCKS}


def test_foreign_clients_are_pinned_to_their_bytes() -> None:
    folder = ROOT / "tests" / "foreign"
    lock = json.loads((folder / "rhea" / "package-lock.json").read_text(encoding="utf-8"))
    packages = [row for name, row in lock["packages"].items() if name]
    assert packages
    assert all(row["integrity"].startswith("sha512-") and "resolved" not in row for row in packages)
    jars = (folder / "jms" / "jars.sha256").read_text(encoding="utf-8").splitlines()
    assert [line for line in jars if not re.fullmatch(r"[0-9a-f]{64}  [\w.-]+\.jar", line)] == []
    assert any("qpid-jms-client-" in line for line in jars)
    assert " h1:" in (folder / "go_amqp" / "go.sum").read_text(encoding="utf-8")
