"""The hosts of the scenario, and playbooks run on them while the tests look."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner  # type: ignore[import-untyped]
import testinfra  # type: ignore[import-untyped]

RACK = os.environ["RACK"]
RUN_FOLDER = Path("/run/mqops-rack") / os.environ["RACK_NAME"]
INVENTORIES = (os.environ["RACK_INVENTORY"], str(Path(__file__).parents[1] / "inventory" / "brokers.yml"))
HOSTS = ("mq1", "mq2", "mq3")
# Every broker of the scenario, as (host, instance, what is added to its ports).
NODES = (("mq1", "default", 0), ("mq2", "default", 0), ("mq2", "second", 100), ("mq3", "default", 0))
PLAY_S_MAX = 1400
UNIT_PROPERTIES = (
    "InvocationID",
    "NRestarts",
    "ExecMainStatus",
    "ActiveState",
    "InactiveEnterTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
)


@dataclass
class Outcome:
    """What a playbook did: `changed` and `failed` are host -> names of tasks, with the reason for failed ones."""

    code: int
    output: str
    changed: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, list[str]] = field(default_factory=dict)
    unreachable: list[str] = field(default_factory=list)
    findings: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    def complaints(self) -> str:
        """Why tasks failed, in one text."""
        return " ".join(reason for reasons in self.failed.values() for reason in reasons)


Run = Callable[..., Outcome]


def run_play(folder: Path, name: str, arguments: Sequence[str], inventory: str | None, variables: Any) -> Outcome:
    """Run a playbook of the collection as `ansible-playbook mqops.cluster.NAME` does."""
    # A folder for each run: the runner would take what it finds in it from the one before.
    ended = ansible_runner.run(
        private_data_dir=tempfile.mkdtemp(dir=folder),
        suppress_env_files=True,
        playbook=f"mqops.cluster.{name}",
        inventory=[*INVENTORIES, *([inventory] if inventory else [])],
        extravars=variables,
        cmdline=shlex.join(arguments) or None,
        timeout=PLAY_S_MAX,
        quiet=True,
    )
    outcome = Outcome(ended.rc, ended.stdout.read())
    for event in ended.events:
        note(outcome, event)
    return outcome


def note(outcome: Outcome, event: dict[str, Any]) -> None:
    """Keep what one event says."""
    data = event.get("event_data", {})
    host, task, result = data.get("host", ""), data.get("task", ""), data.get("res") or {}
    kind = event["event"]
    if kind == "runner_on_ok" and result.get("changed"):
        outcome.changed.setdefault(host, []).append(task)
    if kind == "runner_on_failed" and not data.get("ignore_errors"):
        outcome.failed.setdefault(host, []).append(f"{task}: {result.get('msg', result)}")
    if kind == "runner_on_unreachable":
        outcome.unreachable.append(host)
    findings = result.get("ansible_facts", {}).get("preflight_findings") if kind == "runner_on_ok" else None
    if findings is not None:
        outcome.findings[host] = findings


def reach(name: str) -> Any:
    """A host for testinfra: over ssh, as root."""
    return testinfra.get_host(f"ssh://{name}?sudo=true", ssh_config=str(RUN_FOLDER / "ssh_config"))


def feed(name: str, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a host as root and give it a text: what is in the text is in no list of processes."""
    ssh = ["ssh", "-F", str(RUN_FOLDER / "ssh_config"), name, "sudo", *map(shlex.quote, command)]
    return subprocess.run(ssh, input=text, capture_output=True, text=True, timeout=60, check=False)


def log_in(name: str, address: str, port: int, password: str, user: str = "app") -> int:
    """Log in to a broker from one of the hosts; the outcome code of SASL: 0 if the user may, 1 if not."""
    task = json.dumps({"address": address, "port": port, "user": user, "password": password})
    text = Path(__file__).with_name("login.py").read_text(encoding="utf-8")
    done = feed(name, f"TASK = {task!r}\n{text}", "python3", "-")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def users(password: str) -> list[dict[str, str]]:
    """The users of the inventory, with another password for the first."""
    return [{"name": "app", "password": password}, {"name": "second", "password": "canary-of-second"}]


def unit_of(host: Any, instance: str) -> dict[str, str]:
    """What systemd knows of an instance. All hosts of a rack share one clock, so times can be compared."""
    text = host.check_output("systemctl show mqbroker@%s --property=%s", instance, ",".join(UNIT_PROPERTIES))
    return dict(line.split("=", 1) for line in text.splitlines())
