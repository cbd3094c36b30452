"""One version everywhere: the collection, the broker, the command line."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import mqbroker
import mqctl
import yaml

ROOT = Path(__file__).resolve().parents[2]
COLLECTION: str = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]


def test_the_version_is_one_of_semantic_versioning() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", COLLECTION)


def test_packages_say_the_same() -> None:
    assert (mqbroker.__version__, mqctl.__version__) == (COLLECTION, COLLECTION)


def test_distributions_are_built_with_the_same() -> None:
    for folder in ("broker", "cli"):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))
        declared = project["project"].get("version")
        assert declared is None or declared == COLLECTION, folder
        if declared is None:
            assert "version" in project["project"]["dynamic"], folder
    for name in ("mqbroker", "mqctl"):
        assert metadata.version(name) == COLLECTION


def test_the_command_line_takes_the_broker_of_its_own_version() -> None:
    project = tomllib.loads((ROOT / "cli" / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [entry for entry in project["project"]["dependencies"] if entry.startswith("mqbroker")]
    assert wanted in ([f"mqbroker=={COLLECTION}"], ["mqbroker"])
