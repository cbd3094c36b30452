"""Generated files are what `make gen` would write now, and Ansible understands those of the role."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator  # type: ignore[import-untyped]
from mqbroker.config.declarations.declaration import OptionTable, option

ROOT = Path(__file__).resolve().parents[2]


def test_generated_files_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "gen" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=290, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def role_errors(**changes: Any) -> list[str]:
    """What Ansible says of the role's variables: its defaults with `changes`."""
    role = ROOT / "roles" / "broker"
    specs = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    values = yaml.safe_load((role / "defaults" / "main.yml").read_text()) | changes
    required = {name: "0123456789abcdef" for name, spec in specs.items() if spec.get("required") and name not in values}
    known = {name: value for name, value in (values | required).items() if name in specs}
    return list(ArgumentSpecValidator(specs).validate(known).error_messages)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, None),
        ({"broker_options": {"limits": {"link_credit": 5}, "journal": {"journal_sync": False}}}, None),
        ({"broker_options": {"limits": {"link_credt": 5}}}, "link_credt"),
        ({"broker_options": {"node": {"name": "x"}}}, "name"),
        ({"broker_options": {"limits": {"link_credit": "many"}}}, "link_credit"),
        ({"broker_options": {"journal": {"journal_on_damage": "ignore"}}}, "journal_on_damage"),
        ({"broker_listeners": [{"name": "a", "port": 1, "sasl_mechanisms": ["PLAIN"]}]}, None),
        ({"broker_listeners": [{"name": "a"}]}, "port"),
        ({"broker_listeners": [{"name": "a", "port": 1, "sasl_mechanisms": ["FOO"]}]}, "sasl_mechanisms"),
    ],
)
def test_argument_specs_take_the_declared_options_and_nothing_else(changes: dict[str, Any], error: str | None) -> None:
    found = role_errors(**changes)
    assert (found == []) if error is None else (len(found) == 1 and error in found[0])


class OneTable(OptionTable):
    """A table that only this test has."""

    name: str = option("x", "A text.")
    delay: int | None = option(None, "A time.", unit="ms")
    colours: list[Literal["red", "blue"]] = option([], "A list.")


def test_an_option_is_declared_once_and_rooms_have_it() -> None:
    sys.path.insert(0, str(ROOT / "gen"))
    slices = importlib.import_module("slices")
    fields = ["name: str", "delay: int | None  # ms", "colours: tuple[str, ...]"]
    assert [line.strip() for line in slices.class_text(OneTable, "One.").splitlines()[6:]] == fields
