"""What Ansible reports while it runs, made into the state of each host. Pure: an event in, what is new for people out.

Invariant: a host that fails or is not reached changes nothing for the others; each host ends with one verdict:

    ok           it has come to the end
    refused      preflight has found errors, and nothing was changed
    failed       a task failed
    unreachable  it was not reached, or lost on the way, or left out as nobody could look at it before
    stopped      nothing is wrong with it, but the run ended before it was done
    interrupted  somebody ended the run while a task was under way there

Source: events of ansible-runner (`event`, `event_data`, `stdout`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

FINDINGS = "preflight_findings"
VERDICT = "preflight_verdict"
# Where this fails another host is to blame, which the reason names (playbooks/tasks/batch.yml).
LOOK_BACK = "No host of the batches before fell out"
# Where this fails somebody wished it (playbooks/tasks/held.yml).
PAUSED = "Nobody has paused this operation"
# What these say is told (playbooks/tasks/awaited.yml, turn.yml, settled.yml).
TOLD = {
    "Say which links are given up": "given up",
    "Say which members could not be asked for their links": "not asked",
    "Say what could not be noted": "not noted",
    "Say which links have not stood since a restart": "still noted",
    "Say which hosts go first": "first",  # with -v
}
OUTCOMES = {
    "runner_on_ok": "ok",
    "runner_on_skipped": "skipped",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
}
# Verdicts after which the exit code is that of a failure.
FAILURES = ("refused", "failed", "stopped", "interrupted")
# Where a result says what went wrong, in the order of usefulness.
REASONS = ("msg", "module_stderr", "stderr", "reason", "exception")
REASON_CHARACTERS_MAX = 2000


@dataclass(slots=True)
class HostProgress:
    """One host in a run. `doing`: the task that is under way there, `task`: the last one that was."""

    name: str
    doing: str = ""
    ok: int = 0
    changed: int = 0
    skipped: int = 0
    state: str = "ok"
    task: str = ""
    note: str = ""
    changes: list[str] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)
    marks: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Happened:
    """One thing worth a line: `kind` is task, changed, refused, failed, stopped, unreachable, or one of `TOLD`."""

    kind: str
    host: str
    text: str


class PlayProgress:
    """Takes events in their order. `redact` cleans every text before it is kept."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self.hosts: dict[str, HostProgress] = {}
        self._redact = redact

    def apply(self, event: Mapping[str, Any]) -> list[Happened]:
        """Take one event; what is new."""
        kind = event.get("event", "")
        data: Mapping[str, Any] = event.get("event_data") or {}
        if kind == "playbook_on_task_start":
            return [Happened("task", "", task_name(data))]
        if kind == "runner_on_start":
            self._host(data).doing = task_name(data)
        if kind in OUTCOMES:
            return self._outcome(OUTCOMES[kind], data)
        return []

    def _host(self, data: Mapping[str, Any]) -> HostProgress:
        name = str(data.get("host", ""))
        return self.hosts.setdefault(name, HostProgress(name))

    def _outcome(self, outcome: str, data: Mapping[str, Any]) -> list[Happened]:
        host = self._host(data)
        host.doing = ""
        result = data.get("res")
        result = result if isinstance(result, Mapping) else {}
        host.task = task_name(data)
        host.findings += [
            {name: self._redact(str(value)) for name, value in one.items()} for one in findings_of(result)
        ]
        host.marks |= marks_of(result)
        if outcome == "failed" and data.get("ignore_errors"):
            outcome = "ok"
        if outcome == "skipped":
            host.skipped += 1
            return []
        if outcome == "ok":
            host.ok += 1
            if host.task in TOLD:
                return [Happened(TOLD[host.task], host.name, self._redact(reason_of(result)))]
            return self._changed(host) if result.get("changed") else []
        return self._fell_out(host, outcome, self._redact(reason_of(result)))

    @staticmethod
    def _fell_out(host: HostProgress, outcome: str, reason: str) -> list[Happened]:
        """A task that fails where preflight has said no is the refusal itself. Who was reached before was lost."""
        if outcome == "failed" and is_refused(host):
            host.state, host.note = "refused", reason
        elif outcome == "failed" and host.task in (LOOK_BACK, PAUSED):
            host.state, host.note = "stopped", reason
        elif outcome == "failed" or host.ok:
            host.state = outcome
            host.note = f"{host.task}: {reason}" if outcome == "failed" else f"lost at {host.task}: {reason}"
        else:
            host.state, host.note = outcome, reason
        return [Happened(host.state, host.name, host.note)]

    @staticmethod
    def _changed(host: HostProgress) -> list[Happened]:
        host.changed += 1
        host.changes.append(host.task)
        return [Happened("changed", host.name, host.task)]

    def put_in_order(self, names: Iterable[str]) -> None:
        """Hosts in the order of the inventory: events come in the order in which hosts are done."""
        ordered = {name: self.hosts[name] for name in names if name in self.hosts}
        self.hosts = ordered | self.hosts

    def leave_out(self, faults: Mapping[str, str]) -> None:
        """Hosts that the run was not for, as they could not be looked at before it: each with the reason."""
        self.hosts |= {
            name: HostProgress(name, state="unreachable", note=f"left out, as it could not be looked at: {why}")
            for name, why in faults.items()
        }

    def end(self, mark: str) -> None:
        """The run is over. Whoever is well and has not got the fact `mark`, which the last task sets, was stopped."""
        others = [one for one in self.hosts.values() if one.state != "ok"]
        ended = (
            "nothing was changed on any host"
            if any(one.state == "refused" for one in others)
            else "the run ended before this host was done"
        )
        why = ", ".join(f"{one.name} {one.state}" for one in others)
        for one in self.hosts.values():
            if one.state == "ok" and not one.marks.get(mark):
                one.state = "stopped"
                one.note = f"{ended}: {why}" if why else ended

    def interrupt(self, names: Iterable[str], mark: str) -> None:
        """Somebody has ended the run, of the hosts `names`. Who has got the fact `mark` is done all the same."""
        for one in [self.hosts.setdefault(name, HostProgress(name)) for name in names]:
            if one.state != "ok" or one.marks.get(mark):
                continue
            if one.doing:
                one.state = "interrupted"
                one.note = f"at {one.doing}, which may be done or not, or still be under way there"
            else:
                one.state = "stopped"
                before = f"the last thing that was done there is {one.task}" if one.task else "nothing was done there"
                one.note = f"the run was interrupted before this host was done; {before}"

    @property
    def failed(self) -> list[HostProgress]:
        """Hosts that were refused, on which a task failed, or that were stopped."""
        return [one for one in self.hosts.values() if one.state in FAILURES]

    @property
    def unreachable(self) -> list[HostProgress]:
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
    for place in (result, facts_of(result)):
        findings = place.get(FINDINGS)
        if isinstance(findings, list):
            return [dict(one) if isinstance(one, Mapping) else {"message": str(one)} for one in findings]
    return []


def facts_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that a task has set."""
    facts = result.get("ansible_facts")
    return dict(facts) if isinstance(facts, Mapping) else {}


def marks_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of the facts: the verdict, and what is plainly true. Others may hold secrets."""
    return {name: value for name, value in facts_of(result).items() if name == VERDICT or value is True}


def is_refused(host: HostProgress) -> bool:
    """Whether preflight has said so."""
    verdict = host.marks.get(VERDICT)
    return isinstance(verdict, Mapping) and verdict.get("state") == "refused"
