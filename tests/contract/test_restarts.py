"""Whatever restarts a broker says so to it before: else one with `[scale-down]` hands over all that it has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from mqbroker.admin.arguments import checked
from mqbroker.admin.operations import OPERATIONS

ROOT = Path(__file__).resolve().parents[2]
SERVICE = ROOT / "roles" / "broker" / "tasks" / "service.yml"
RESTART = re.compile(r"^\s*\w+: restarted$|systemctl.{0,9}\brestart\b(?! mqbroker@INSTANCE, which)", re.MULTILINE)


def steps() -> list[dict[str, Any]]:
    """What is done with the unit of a broker, in its order."""
    (block,) = [task["block"] for task in yaml.safe_load(SERVICE.read_text()) if "block" in task]
    return list(block)


def test_a_restart_by_the_role_is_announced_by_an_operation_that_there_is() -> None:
    names = [next(key for key in step if "." in key) for step in steps()]
    (said,) = [step for step in steps() if "restart-begins" in str(step)]
    assert steps().index(said) < names.index("ansible.builtin.systemd_service")
    assert said["when"] == "__broker_node.needs == 'restart'"
    *_, operation, argument = said["ansible.builtin.command"]["argv"]
    name, _, value = argument.partition("=")
    assert checked(operation, OPERATIONS[operation].arguments, {name: int(value)}) == {"within_s": 300}


def test_nothing_else_restarts_a_broker() -> None:
    folders = (ROOT / "roles", ROOT / "playbooks", ROOT / "cli" / "src")
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".yml", ".py", ".j2")]
    found = [str(path.relative_to(ROOT)) for path in files if RESTART.search(path.read_text())]
    assert found == ["roles/broker/vars/main.yml"]
