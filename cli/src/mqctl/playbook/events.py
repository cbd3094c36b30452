"""What Ansible reports while it runs, made into the state of each host. Pure: an event in, what is new for people out.

Invariant: a host that fails or is not reached changes nothing for the others; each host ends with one verdict.
Source: events of ansible-runner (`event`, `event_data`, `stdout`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

FINDINGS = "preflight_findings"
OUTCOMES = {
    "runner_on_ok": "ok",
    "runner_on_skipped": "skipped",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
}
# Where a result says what went wrong, in the order of usefulness.
REASONS = ("msg", "module_stderr", "stderr", "reason", "exception")
REASON_CHARACTERS_MAX = 2000


@dataclass(slots=True)
class HostRun:
    """One host in a run."""

    name: str
    ok: int = 0
    changed: int = 0
    skipped: int = 0
    state: str = "ok"
    task: str = ""
    note: str = ""
    changes: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Happened:
    """One thing worth a line: `kind` is task, changed, failed or unreachable."""

    kind: str
    host: str
    text: str


class RunState:
    """Takes events in their order. `redact` cleans every text before it is kept."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self.hosts: dict[str, HostRun] = {}
        self._redact = redact

    def apply(self, event: Mapping[str, Any]) -> list[Happened]:
        """Take one event; what is new."""
        kind = event.get("event", "")
        data: Mapping[str, Any] = event.get("event_data") or {}
        if kind == "playbook_on_task_start":
            return [Happened("task", "", task_name(data))]
        if kind in OUTCOMES:
            return self._outcome(OUTCOMES[kind], data)
        return []

    def _outcome(self, outcome: str, data: Mapping[str, Any]) -> list[Happened]:
        host = self.hosts.setdefault(str(data.get("host", "")), HostRun(str(data.get("host", ""))))
        result = data.get("res")
        result = result if isinstance(result, Mapping) else {}
        host.task = task_name(data)
        host.findings += [
            {name: self._redact(str(value)) for name, value in one.items()} for one in findings_of(result)
        ]
        if outcome == "failed" and data.get("ignore_errors"):
            outcome = "ok"
        if outcome == "skipped":
            host.skipped += 1
            return []
        if outcome == "ok":
            host.ok += 1
            return self._changed(host) if result.get("changed") else []
        host.state = outcome
        reason = self._redact(reason_of(result))
        host.note = f"{host.task}: {reason}" if outcome == "failed" else reason
        return [Happened(outcome, host.name, host.note)]

    @staticmethod
    def _changed(host: HostRun) -> list[Happened]:
        host.changed += 1
        host.changes.append(host.task)
        return [Happened("changed", host.name, host.task)]

    def put_in_order(self, names: Iterable[str]) -> None:
        """Hosts in the order of the inventory: events come in the order in which hosts are done."""
        ordered = {name: self.hosts[name] for name in names if name in self.hosts}
        self.hosts = ordered | self.hosts

    @property
    def failed(self) -> list[HostRun]:
        """Hosts on which a task failed."""
        return [one for one in self.hosts.values() if one.state == "failed"]

    @property
    def unreachable(self) -> list[HostRun]:
        """Hosts that were not reached."""
        return [one for one in self.hosts.values() if one.state == "unreachable"]


def task_name(data: Mapping[str, Any]) -> str:
    """The task as the playbook names it, with its role where the name does not have it."""
    name = str(data.get("task") or data.get("name") or data.get("task_action") or "")
    role = str(data.get("role") or "").rpartition(".")[2]
    return name if not role or name.startswith(role) else f"{role}: {name}"


def reason_of(result: Mapping[str, Any]) -> str:
    """Why a task failed, in one line. Items of a loop that failed come before the summary of the loop."""
    if result.get("censored"):
        return "the details are hidden because they may hold secrets"
    items = [one for one in result.get("results") or [] if isinstance(one, Mapping) and one.get("failed")]
    for one in [*items, result]:
        for name in REASONS:
            text = one.get(name)
            if text:
                text = "; ".join(map(str, text)) if isinstance(text, list) else str(text)
                return " ".join(text.split())[:REASON_CHARACTERS_MAX]
    return "it gave no reason"


def findings_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Findings of the preflight role in a result: as a fact or as a value of its own."""
    facts = result.get("ansible_facts")
    for place in (result, facts if isinstance(facts, Mapping) else {}):
        found = place.get(FINDINGS)
        if isinstance(found, list):
            return [dict(one) if isinstance(one, Mapping) else {"message": str(one)} for one in found]
    return []
