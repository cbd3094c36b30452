"""Events of Ansible into the state of hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from mqctl.exits import Exit
from mqctl.playbook.events import TOLD, Happened, PlayProgress, reason_of
from mqctl.playbook.redact import HIDDEN, Redactor
from mqctl.playbook.run import may_be_busy, verdict

ROOT = Path(__file__).resolve().parents[3]


def event(kind: str, host: str = "mq1", task: str = "copy", **result: Any) -> dict[str, Any]:
    data = {"host": host, "task": task, "role": "mqops.cluster.release", "res": result}
    return {"event": kind, "event_data": data, "stdout": ""}


def test_a_host_that_fails_does_not_hide_the_rest() -> None:
    state = PlayProgress()
    assert state.apply(event("runner_on_ok", changed=True)) == [Happened("changed", "mq1", "release: copy")]
    assert state.apply(event("runner_on_failed", "mq2", msg="no\nspace")) == [
        Happened("failed", "mq2", "release: copy: no space")
    ]
    state.apply(event("runner_on_unreachable", "mq3", msg="timed out"))
    state.apply(event("runner_on_ok"))
    assert {one.name: (one.state, one.ok, one.changed) for one in state.hosts.values()} == {
        "mq1": ("ok", 2, 1), "mq2": ("failed", 0, 0), "mq3": ("unreachable", 0, 0),
    }  # fmt: skip
    assert verdict(state) is Exit.FAILED


def test_what_becomes_of_links_is_told() -> None:
    names = {
        one["name"]
        for file in ("awaited", "turn", "settled", "deferred")
        for one in yaml.safe_load((ROOT / f"playbooks/tasks/{file}.yml").read_text())
        if "ansible.builtin.debug" in one
    }
    assert names == set(TOLD)
    for name in names:
        told = event("runner_on_ok", "mq1", name, msg="default: the link to mq2 (7)")
        told["event_data"]["role"] = None
        assert PlayProgress().apply(told) == [Happened(TOLD[name], "mq1", "default: the link to mq2 (7)")]


def test_a_task_whose_answer_was_lost_may_be_under_way() -> None:
    state = PlayProgress()
    state.apply(event("runner_on_start", "mq1"))
    state.apply(event("runner_on_ok", "mq2"))
    state.apply(event("runner_on_unreachable", "mq3", msg="timed out"))
    assert may_be_busy(state) == {"mq1", "mq3"}


def test_unreachable_alone_is_degraded() -> None:
    state = PlayProgress()
    state.apply(event("runner_on_ok"))
    assert verdict(state) is Exit.DONE
    state.apply(event("runner_on_unreachable", "mq3"))
    assert verdict(state) is Exit.DEGRADED


def test_who_only_looked_back_at_another_was_stopped() -> None:
    (task,) = yaml.safe_load((ROOT / "playbooks/tasks/batch.yml").read_text())
    state = PlayProgress()
    said = event("runner_on_failed", task=task["name"], msg="mq2 fell out in a batch before this one")
    said["event_data"]["role"] = ""
    assert state.apply(said) == [Happened("stopped", "mq1", "mq2 fell out in a batch before this one")]
    assert verdict(state) is Exit.FAILED


def test_an_ignored_failure_is_none() -> None:
    state = PlayProgress()
    one = event("runner_on_failed")
    one["event_data"]["ignore_errors"] = True
    assert state.apply(one) == []
    assert state.hosts["mq1"].state == "ok"


def test_the_reason_of_a_loop_is_that_of_its_item() -> None:
    result = {"msg": "One or more items failed", "results": [{"failed": False}, {"failed": True, "msg": "port taken"}]}
    assert reason_of(result) == "port taken"
    assert "hidden" in reason_of({"censored": "the output has been hidden", "msg": "canary"})


def test_findings_are_taken_from_facts_and_from_results() -> None:
    state = PlayProgress()
    finding = {"level": "warning", "check": "clock", "message": "not synchronised"}
    state.apply(event("runner_on_ok", ansible_facts={"preflight_findings": [finding]}))
    assert state.hosts["mq1"].findings == [finding]


def test_secrets_of_the_inventory_are_taken_out_of_texts() -> None:
    redact = Redactor(
        [
            {"mq_cluster_secret": 'can"ary-1', "mq_users": [{"name": "app", "password": "canary-2"}]},
            {"ansible_become_pass": "canary-3", "mq_cluster_name": "main", "vault_token": "canary-4"},
        ]
    )
    text = 'x can"ary-1 can\\"ary-1 canary-2 canary-3 canary-4 main app'
    assert redact(text) == f"x {HIDDEN} {HIDDEN} {HIDDEN} {HIDDEN} {HIDDEN} main app"
    assert Redactor([{}])("text") == "text"


def test_hosts_are_shown_in_the_order_of_the_inventory() -> None:
    state = PlayProgress()
    for host in ("mq3", "mq1", "localhost", "mq2"):
        state.apply(event("runner_on_ok", host))
    state.put_in_order(["mq1", "mq2", "mq3", "mq4"])
    assert list(state.hosts) == ["mq1", "mq2", "mq3", "localhost"]


def verdict_of(state: str, *reasons: str) -> dict[str, Any]:
    return {"ansible_facts": {"preflight_verdict": {"state": state, "reasons": list(reasons)}}}


def test_a_host_that_preflight_said_no_to_is_refused_and_the_others_are_stopped() -> None:
    state = PlayProgress()
    state.apply(event("runner_on_ok", **verdict_of("ok")))
    state.apply(event("runner_on_ok", "mq2", **verdict_of("refused", "full")))
    assert state.apply(event("runner_on_failed", "mq2", msg="full; nothing was changed")) == [
        Happened("refused", "mq2", "full; nothing was changed")
    ]
    state.end("all_done")
    assert {one.name: (one.state, one.note) for one in state.hosts.values()} == {
        "mq1": ("stopped", "nothing was changed on any host: mq2 refused"),
        "mq2": ("refused", "full; nothing was changed"),
    }
    assert verdict(state) is Exit.FAILED


def test_only_who_has_the_mark_has_come_to_the_end() -> None:
    state = PlayProgress()
    state.apply(event("runner_on_ok", ansible_facts={"all_done": True, "password": "canary"}))
    state.apply(event("runner_on_ok", "mq2", changed=True))
    state.apply(event("runner_on_ok", "mq3"))
    state.apply(event("runner_on_unreachable", "mq3", msg="timed out"))
    state.end("all_done")
    assert {one.name: (one.state, one.note) for one in state.hosts.values()} == {
        "mq1": ("ok", ""),
        "mq2": ("stopped", "the run ended before this host was done: mq3 unreachable"),
        "mq3": ("unreachable", "lost at release: copy: timed out"),
    }
    assert state.hosts["mq1"].marks == {"all_done": True}
    assert verdict(state) is Exit.FAILED


def test_who_interrupts_a_run_is_told_how_far_each_host_has_come() -> None:
    state = PlayProgress()
    state.apply(event("runner_on_ok", "done", ansible_facts={"mq_rollout_done": True}))
    state.apply(event("runner_on_ok", "midway", task="look"))
    state.apply(event("runner_on_start", "midway", task="install"))
    state.apply(event("runner_on_start", "between", task="look"))
    state.apply(event("runner_on_ok", "between", task="look"))
    state.apply(event("runner_on_start", "failed"))
    state.apply(event("runner_on_failed", "failed", msg="no space"))
    state.interrupt(["done", "midway", "between", "failed", "untouched"], "mq_rollout_done")
    assert {one.name: one.state for one in state.hosts.values()} == {
        "done": "ok", "midway": "interrupted", "between": "stopped", "failed": "failed", "untouched": "stopped",
    }  # fmt: skip
    notes = {one.name: one.note for one in state.hosts.values()}
    assert notes["midway"] == "at release: install, which may be done or not, or still be under way there"
    assert notes["between"].endswith("before this host was done; the last thing that was done there is release: look")
    assert notes["untouched"].endswith("before this host was done; nothing was done there")
    assert verdict(state) is Exit.FAILED
