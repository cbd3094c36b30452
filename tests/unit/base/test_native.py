"""The mark of a native build, in whichever build these tests run on."""

from __future__ import annotations

import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from mqbroker.base import native
from mqbroker.node.broker import broker


def test_the_mark_says_what_the_core_was_loaded_from() -> None:
    is_compiled = str(broker.__file__).endswith(tuple(EXTENSION_SUFFIXES))
    answer = "yes" if is_compiled else "no"
    assert (is_compiled, answer) == (native.IS_NATIVE, native.NATIVE)


def test_the_wheel_compiles_the_mark_too_and_lists_modules_that_exist() -> None:
    project = Path(__file__).resolve().parents[3] / "broker"
    listed = native_modules(project)
    assert "base/native" in listed
    assert "node/broker/broker" in listed
    assert [name for name in listed if not (project / "src/mqbroker" / f"{name}.py").is_file()] == []
    assert len(listed) == len(set(listed))


def native_modules(project: Path) -> list[str]:
    settings = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    modules: list[str] = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    return modules
