"""What a task says when it fails is only rendered then: here each such message is, by Ansible, as it would be then.

A new `fail` or `assert` in a playbook or role needs a row in SAID.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.mqops.cluster.plugins.filter.link_faults import FilterModule
from mqbroker.config.declarations.variables import Instance
from mqbroker.config.inventory.tables import node_name
from mqctl.errors import UsageError
from mqctl.gate.batches import batches
from mqctl.playbook.rollout import batch_of

ROOT = Path(__file__).resolve().parents[2]
LOADER = DataLoader()
FAILING = {"ansible.builtin.fail": "msg", "ansible.builtin.assert": "fail_msg"}
KINDS = ("lock", "held", "unlock")
PHYSICAL = "the disk is full"

# Task -> what is known when it fails, and what must be said.
SAID: dict[str, tuple[dict[str, Any], str]] = {
    "Each host has one name": (
        {"__mq_second_names": "mq2 leads to mq1"}, "mq2 leads to mq1; nothing was changed on any host",
    ),
    "No host was refused": (
        {"preflight_verdict": {"state": "refused", "reasons": ["no room", "no clock"]}},
        "no room; no clock; nothing was changed on any host; put that right, or leave the host out with --limit",
    ),
    "So many hosts can be changed at a time": (
        {"rollout_batch": 2.5}, "rollout_batch is 2.5: that is neither a number of hosts nor a percentage; nothing was",
    ),
    "No host of the batches before fell out": (
        {"ansible_play_hosts_all": ["mq1", "mq2", "mq3"], "ansible_play_hosts": ["mq3"]},
        "mq1, mq2 fell out in a batch before this one",
    ),
    "Nothing that ran before is under way": (
        {"__mq_moved": ["mq1", "mq2"], "__mq_tasks": ["process 7, AnsiballZ_ping.py"]},
        "mq1, mq2: tasks of Ansible's are still under way (process 7, AnsiballZ_ping.py), or have brought",
    ),
    "No other operation has come to the host": (
        {"__broker_kept": {"refusal": "operation 8 is under way"}},
        "operation 8 is under way; the broker stays as it was",
    ),
    "Nobody has gone on with this removal or given it up": (
        {"__uninstall_kept": {"refusal": "operation 8 is under way"}, "__uninstall_stopped": {"changed": True},
         "uninstall_archive": ""},
        "operation 8 is under way; what is still on the host stays; its brokers are stopped and disabled by now: mqctl",
    ),
    "Those that go alone have names of instances": (
        {"uninstall_instances": ["blue", "", "b*"]}, 'uninstall_instances has "", "b*", which is no name of an',
    ),
    "Instances that are to go alone are named": ({}, "mq_uninstall_instances is given and names no instance; leave it"),
    "No node id occurs twice": ({"__mq_shared": "mq1 and mq2 share a node id"}, "mq1 and mq2 share a node id"),
    "Refuse hosts with errors": (
        {"preflight_verdict": {"state": "refused", "reasons": ["no room", "no clock"]}}, "no room; no clock",
    ),
    "The bundle is whole and of a known form": (
        {"release_bundle": "dist/bundle", "release_keep": 1},
        "dist/bundle is damaged or of another form, build it again with: mqctl bundle build; or release_keep is 1",
    ),
    "Certificates, keys and CA are on the control node": (
        {"__tls_missing": ["tls/mq1.pem"], "tls_source": "provided"},
        "tls/mq1.pem cannot be found on the control node; mq_tls is provided",
    ),
    "Stop where it does not run as it should": (
        {"__broker_answer": {"changed": False}, "__broker_done": {"msg": PHYSICAL}, "__broker_node": {"instance": "a"}},
        "the disk is full; look at: journalctl -u mqbroker@a",
    ),
    "Stop where it refuses what is installed": (
        {"__broker_reloaded": {"rc": 1, "stderr_lines": ["broker.toml: nobody listens", "nothing was taken"]}},
        "broker.toml: nobody listens; nothing was taken; it goes on with what it had",
    ),
    "No other operation is on these hosts": (
        {"__mq_lock": {"refusal": ""}, "__mq_held": ["mq1", "mq2"]},
        "mq1, mq2 cannot be taken, for the reason said there; nothing was changed on any host",
    ),
    "No other operation has come in the place of this one": (
        {"__mq_kept": {"refusal": "operation 8 is under way"}},
        "operation 8 is under way; what this run has not done yet stays undone",
    ),
    "Nobody has paused this operation": (
        {"__mq_kept": {"refusal": "somebody paused operation 8"}},
        "somebody paused operation 8; what this run has not done yet stays undone until somebody goes on",
    ),
    "The release can run with them": (
        {"__broker_trial": {"faults": ["release 2 refuses the options of a", "release 2 is old"]}},
        "release 2 refuses the options of a; release 2 is old; no broker was restarted on any host",
    ),
    "All links of the members that are not part of this run stand": (
        {"__mq_absent_notes": {"results": [
            {"item": "mq1", "reached": True, "answer": {"links": [{}]}},
            {"item": "mq3", "reached": False, "answer": {}},
            {"item": "mq4", "reached": True, "answer": {"failed": True, "msg": "sudo: no"}},
            {"item": "mq6", "skipped": True},
        ]}, "__mq_absent_links": {"results": [
            {"item": {"host": "mq1"}, "reached": True, "answer": {"failed": True, "msg": "not whole after 60 s: no"}},
            {"item": {"host": "mq2"}, "reached": False, "answer": {}, "why": "timed out"},
            {"item": {"host": "mq5"}, "reached": True, "answer": {"links": []}},
            {"item": {"host": "mq6"}, "skipped": True},
        ]}},
        "mq4: sudo: no; mq1: not whole after 60 s: no; mq2: lost before anybody knew whether the links stand that it "
        "waits for: timed out",
    ),
    "No host that has to wait for links was lost": (
        {"ansible_play_hosts_all": ["mq1", "mq2", "mq3", "mq4", "mq5"], "ansible_play_hosts": ["mq2"], "hostvars": {
            "mq1": {"__mq_awaited": {"links": [{}]}}, "mq2": {"__mq_awaited": {"links": [{}]}},
            "mq3": {"__mq_awaited": {"links": []}}, "mq4": {"__mq_awaited": {"links": [{}], "given_up": ["x"]}},
            "mq5": {},
        }},
        "mq1 has noted links",
    ),
    "The first batch has mended them": (
        {"__mq_late_links": {"results": [
            {"item": {"host": "mq2"}, "reached": True, "answer": {"failed": True, "msg": "not whole"}},
            {"item": {"host": "mq3"}, "reached": False, "answer": {}, "why": "timed out"},
            {"item": {"host": "mq4"}, "reached": True, "answer": {"links": []}},
            {"item": {"host": "mq5"}, "skipped": True},
        ]}},
        "mq2: not whole; mq3: lost before anybody knew whether the links stand that it waits for: timed out",
    ),
    "It is known which release is left": (
        {"ansible_play_hosts_all": ["mq1", "mq2"],
         "hostvars": {"mq1": {"__mq_now": {"current": "2"}, "__mq_last": {"found": {"number": 2, "goal": "3"}}},
                      "mq2": {"__mq_now": {"current": "1"}}}},
        "the hosts have the releases 2, 1, and not 3, which they were brought to or taken back from last; say which "
        "one is left with -e mq_rollback_from=RELEASE; nothing was changed",
    ),
    "Who goes on says what with": ({}, "so it takes -e mq_rollback_from=RELEASE"),
    "It has kept what it returns to": (
        {"__mq_left": "2"}, "it has kept nothing of what was before release 2: there was no other one",
    ),
    "It can return to it": (
        {"__mq_back": {"release": "1"}, "__mq_whole": {"faults": ["bin/mqbroker is gone", "more"]},
         "__mq_trial": {"faults": ["release 1 does not run here"]}},
        "release 1 is not whole any more: bin/mqbroker is gone; release 1 does not run here; nothing was changed",
    ),
    "Nothing is deleted with its messages": (
        {"__mq_trial": {"deletions": ["a: address new", "b: queue n"]}},
        "would delete with all messages: a: address new; b: queue n; nothing was changed on any host",
    ),
    "The host that leaves is named": ({}, "mq_scale_down has to name a host of the inventory"),
    "No host of its cluster is left out": (
        {"__mq_left_out": ["mq1", "mq2"], "mq_scale_down": "mq3"},
        "--limit leaves out mq1, mq2, and all hosts of the cluster have to be there when mq3 leaves; nothing was",
    ),
    "All of its cluster are held": (
        {"__mq_unheld": ["mq1", "mq2"], "mq_scale_down": "mq3"},
        "mq1, mq2: not reached, so nobody could ask whether they wait for an answer of mq3; it is not asked to drain",
    ),
    "It leaves others behind": ({}, "and mq_scale_down_to the node that takes its messages"),
    "Who leaves later are other hosts of its cluster": (
        {"__mq_no_leavers": ["mq8", "mq9"], "mq_scale_down": "mq3"},
        "mq_scale_down_later has mq8, mq9: it names hosts of the cluster that leave after mq3, and none of them has",
    ),
    "All that leave later are known by their ids": (
        {"__mq_strangers": ["mq2", "mq4"]},
        "mq2, mq4: the broker knows none of their nodes, so what it has might go there; it is not asked to drain:",
    ),
    "All that stay can be asked": (
        {"__mq_unasked": ["mq1", "mq2"], "mq_scale_down": "mq3"},
        "mq1, mq2: not reached, so nobody knows whether they wait for an answer of mq3; it drains on and is not",
    ),
    "Each of them is that of an instance which drains": (
        {"__mq_strange": ["a", "b"]}, "/var/lib/mq has a, b, of which the inventory names no instance",
    ),
    "No broker runs whose data is to be moved aside": (
        {"__uninstall_services": {"stdout_lines": [
            "mqbroker@a.service loaded active running x", "mqbroker@b.service loaded inactive dead x",
            "mqbroker@c.service not-found failed failed x", "mqbroker@d.service loaded deactivating stop-sigterm x",
        ]}},
        "mqbroker@a.service, mqbroker@d.service: runs, so nobody has looked into its journal",
    ),
    "Every message is accounted for": (
        {"item": {"item": {"name": "a"}, "stdout": '{"state": "moved", "receipt": {"difference": ["one is lost"]}}'}},
        "a: moved: one is lost; the host stays as it is",
    ),
    "The host that drains is named": ({}, "mq_drain has to name a host of the inventory"),
    "Others serve while it drains": ({}, "mq_drain has to name one host of a cluster that has others"),
    "What moves already is not to stay": (
        {"mq_drain": "mq3", "__mq_states": ["moving", "none"]}, "taking that back (moving, none): say mq_drain_to, or",
    ),
    "It is so": (
        {"__mq_aim": "moved", "item": {
            "item": {"name": "a"}, "stdout": '{"state": "failed", "hindrances": [{"why": "it is full"}]}',
        }},
        "a: failed, not moved: it is full; the brokers go on",
    ),
    "The folder of backups is named": ({}, "mq_backup_folder has to name a folder of the hosts, from the root on; no"),
    "As many stay as can be meant": ({"mq_backup_keep": 0}, "mq_backup_keep is 0, and has to be a whole number from 1"),
    "The host and its backup are named": ({}, "mq_restore_backup the id of a backup, and mq_backup_folder the folder"),
    "One instance is meant": (
        {"__mq_names": ["a", "b"]}, "and mq_restore_instance one of its instances (a, b); nothing was changed on any",
    ),
    "Its broker does not run": (
        {"__mq_unit": {"stdout": "mqbroker@a.service loaded active running"}, "__mq_restored": "a"},
        "the broker runs: mqbroker@a.service loaded active running; stop it first, systemctl stop mqbroker@a; nothing",
    ),
    "The node of the backup does not run": (
        {"hostvars": {"mq3": {"__mq_backup_node": "55ac6ed8"}}, "mq_restore": "mq3"},
        "a broker here is node 55ac6ed8, that of the backup, or is linked with it: it runs and is not gone; nothing",
    ),
    "Each queue has what the backup had": (
        {"mq_restore_receipt": {
            "queues": [{"queue": "a", "balances": True}, {"queue": "b", "balances": False}], "aside": None,
        }},
        "b: not what the backup had; what was there before is in (nothing was there)",
    ),
    "Nothing came in the last moment": ({"__mq_late": ["a", "b"]}, "a, b: messages came after the receipt was made"),
    "Stop where nobody gets in": (
        {"firewall_confirm_s": 60, "__firewall_place": "/etc/mq-firewall"},
        "within 60 s the old ones are back; what was tried is /etc/mq-firewall/candidate.nft",
    ),
    "Stop where the old rules have come back": ({"firewall_confirm_s": 60}, "it took more than 60 s"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "way"),
    [
        ({"mq_operation": {"number": 7}}, "mqctl scale-down mq3 --resume takes it out"),
        (
            {"mq_operation": {"number": 7}, "uninstall_instances": ["blue"]},
            "mqctl scale-down mq3/blue --resume takes it out",
        ),
        ({}, "run mqops.cluster.uninstall with --limit mq3, and have each other node forget its node ids"),
        (
            {"uninstall_instances": ["blue"]},
            'with --limit mq3 -e \'{"mq_uninstall_instances": ["blue"]}\', and have each other node forget',
        ),
    ],
)
def test_who_is_cut_off_while_a_host_leaves_is_not_led_to_a_rollout_of_it(more: dict[str, Any], way: str) -> None:
    """Its brokers have drained: they would run again as empty ones. mqctl knows no receipt of the plain playbook."""
    own, message = failing()["Nobody has gone on with this removal or given it up"]
    known = {"__uninstall_kept": {"refusal": "x"}, "__uninstall_stopped": {"changed": True},
             "uninstall_archive": "scale-down-1", "uninstall_instances": [], "inventory_hostname": "mq3",
             **more}  # fmt: skip
    said = Templar(LOADER, {**own, **known}).template(message)
    assert way in said
    assert "rollout" not in said
    assert ("--resume" in said) is ("mq_operation" in more)


def load(path: Path) -> Any:
    """A file of ours: its templates are trusted."""
    return LOADER.load_from_file(str(path), trusted_as_template=True)


def tasks_of(found: Any) -> Iterator[dict[str, Any]]:
    """All tasks, in blocks and plays as well."""
    if isinstance(found, list):
        for one in found:
            yield from tasks_of(one)
    elif isinstance(found, dict):
        yield found
        for part in ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always"):
            yield from tasks_of(found.get(part))


def failing() -> dict[str, tuple[dict[str, Any], str]]:
    """Task -> its own variables and its message."""
    files = [*ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("roles/*/handlers/*.yml")]
    return {
        str(task["name"]): (task.get("vars", {}), task[module][argument])
        for file in files
        for task in tasks_of(load(file))
        for module, argument in FAILING.items()
        if module in task
    }


def test_each_message_has_its_row_and_no_row_is_left_over() -> None:
    assert set(failing()) == set(SAID)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
def test_the_message_can_be_rendered_when_it_is_needed(name: str) -> None:
    own, message = failing()[name]
    known, wanted = SAID[name]
    templar = Templar(LOADER, {**own, **known})
    for short, function in FilterModule().filters().items():  # no loader of plugins is there
        templar.environment.filters[f"mqops.cluster.{short}"] = function
    assert wanted in templar.template(message)


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"msg": PHYSICAL}, PHYSICAL),
        ({"msg": "", "module_stderr": PHYSICAL}, PHYSICAL),
        ({"rc": 1}, "it gave no reason"),
        ({"censored": "hidden"}, "it gave no reason"),
    ],
)
def test_a_task_of_preflight_that_fails_is_a_finding(result: dict[str, Any], reason: str) -> None:
    variables = load(ROOT / "roles/preflight/vars/main.yml")
    known = {"ansible_failed_task": {"name": "Look at the host"}, "ansible_failed_result": result}
    found = Templar(LOADER, {**variables, **known}).template(variables["__preflight_unseen"])
    assert found["level"] == "error"
    assert found["message"] == f'the task "Look at the host" failed: {reason}'


@pytest.mark.parametrize(
    ("what", "is_handed", "instead_of"), [("a rollout", False, "first"), ("packet filters", False, ""),
                                          ("a rollout", True, "")],
)  # fmt: skip
def test_a_playbook_goes_on_only_with_what_it_began_itself(what: str, instead_of: str, *, is_handed: bool) -> None:
    (task,) = [
        one for one in load(ROOT / "playbooks/tasks/lock.yml") if one["name"] == "Take the host for this operation"
    ]
    known: dict[str, Any] = {
        **task["vars"], "mq_resume": True, "__mq_what": "a rollout",
        "__mq_seen": {"found": {"what": what, "token": "first"}},
        **({"mq_operation": {"number": 2}} if is_handed else {}),
    }  # fmt: skip
    text = task["mqops.cluster.operation"]["instead_of"]
    assert Templar(LOADER, known).template(text) == instead_of
    assert Templar(LOADER, {**known, "__mq_seen": {"found": None}}).template(text) == ""
    assert Templar(LOADER, {**known, "mq_resume": False}).template(text) == ""


@pytest.mark.parametrize(
    ("notes", "goal", "is_about"),
    [
        ([{"number": 7, "what": "mqctl upgrade", "goal": "2"}, {"number": 6, "goal": "1"}], "", ("2", "mqctl upgrade")),
        ([{"number": 7, "what": "a drain", "goal": "2", "goal_by": "mqctl upgrade --limit mq1"}, None], "",
         ("2", "mqctl upgrade --limit mq1")),
        ([{"number": 7, "what": "mqctl upgrade", "goal": "2"}, None], "3", ("3", "a drain of mq3")),
        ([None, None], "", ("", "")),
        ([{"number": 7, "what": "a drain"}, None], "", ("", "")),
    ],
)  # fmt: skip
def test_a_playbook_that_is_about_no_release_keeps_which_one_it_was_and_by_whom(
    notes: list[Any], goal: str, is_about: tuple[str, str]
) -> None:
    (task,) = [
        one for one in load(ROOT / "playbooks/tasks/lock.yml") if one["name"].startswith("Begin an operation with")
    ]
    known: dict[str, Any] = {
        **task["vars"], "ansible_play_hosts": ["mq1", "mq2"], "__mq_what": "a drain of mq3",
        "hostvars": {f"mq{number}": {"__mq_seen": {"found": one}} for number, one in enumerate(notes, 1)},
        **({"__mq_goal": goal} if goal else {}),
    }  # fmt: skip
    begun = task["ansible.builtin.set_fact"]["__mq_operation"]
    assert tuple(Templar(LOADER, known).template(begun[name]) for name in ("goal", "goal_by")) == is_about


def test_in_every_play_of_a_rollout_that_changes_hosts_a_failure_ends_it() -> None:
    plays = [
        play
        for name in ("rollout", "firewall")
        for play in load(ROOT / f"playbooks/{name}.yml")
        if play.get("become") and play["hosts"] != "all"
    ]
    # The last one gives the hosts back: one where that fails keeps nobody else's.
    assert plays.pop()["name"] == "Let others change these hosts again"
    assert len(plays) == 9
    assert [play.get("max_fail_percentage") for play in plays] == [0] * len(plays)
    # Where a host that is lost counts as failed, too.
    assert [play["name"] for play in plays if play.get("any_errors_fatal")] == [
        "Restart running brokers, batch after batch",
        "Filter what reaches the hosts, one after the other",
    ]
    # And wherever there are batches, each looks at those before it.
    for play in plays:
        tasks = [*play.get("pre_tasks", []), *play.get("tasks", [])]
        looks = [task.get("ansible.builtin.import_tasks") for task in tasks[:2]]
        assert (looks == ["tasks/batch.yml", "tasks/held.yml"]) is ("serial" in play), play["name"]


@pytest.mark.parametrize("name", ["rollout", "rollback", "firewall", "scale_down", "drain", "restore", "uninstall"])
def test_each_play_that_may_change_a_host_asks_first_whose_it_is(name: str) -> None:
    """The first of them takes the hosts, the last one gives them back, and no other comes before or after."""
    plays = [one for one in load(ROOT / f"playbooks/{name}.yml") if one.get("become")]
    if name == "rollback":  # what it looks at first it does not change
        plays = plays[1:]
    if name == "rollout":  # its last play is that of the packet filters
        plays += [one for one in load(ROOT / "playbooks/firewall.yml") if one.get("become")][-1:]
    asked = [
        [
            file.removeprefix("tasks/")
            for one in (*play.get("pre_tasks", []), *play.get("tasks", []), *play.get("post_tasks", []))
            if (file := one.get("ansible.builtin.import_tasks", "")) in {f"tasks/{kind}.yml" for kind in KINDS}
        ]
        for play in plays
    ]
    if name == "uninstall":
        assert asked == [["lock.yml", "unlock.yml"]]
        return
    assert asked == [["lock.yml"], *[["held.yml"]] * (len(plays) - 2), ["unlock.yml"]]
    for play in plays[1:-1]:
        first = [
            one.get("ansible.builtin.import_tasks") for one in (*play.get("pre_tasks", []), *play.get("tasks", []))
        ]
        assert first[int(first[0] == "tasks/batch.yml")] == "tasks/held.yml", play["name"]


def test_a_host_that_leaves_has_its_receipt_before_anything_that_can_fail() -> None:
    (play,) = [one for one in load(ROOT / "playbooks/scale_down.yml") if "roles" in one]
    assert play["pre_tasks"][-1]["name"] == "Leave the receipt there"


@pytest.mark.parametrize("name", ["uninstall", "scale_down"])
def test_a_removal_that_ends_before_brokers_stop_leaves_them_behind_their_packet_filter(name: str) -> None:
    roles = [[role["role"] for role in one["roles"]] for one in load(ROOT / f"playbooks/{name}.yml") if "roles" in one]
    assert roles == [["mqops.cluster.uninstall", "mqops.cluster.firewall"]]


@pytest.mark.parametrize(
    "size",
    [None, "", 1, "2", "02", 300, "25%", "100%", "007%", 0, "0", "0%", "101%", "2.5", 2.0, "50.5%", [1, 2], True, False,
     "%", "\u00b2", "2\n", " 2", -1],
)  # fmt: skip
def test_a_playbook_takes_the_batches_that_mqctl_takes(size: object) -> None:
    (task,) = [
        one for one in tasks_of(load(ROOT / "playbooks/rollout.yml"))
        if one.get("name") == "So many hosts can be changed at a time"
    ]  # fmt: skip
    templar = Templar(LOADER, {**task["vars"], "rollout_batch": size})
    try:
        batch_of("" if size is None else str(size))
        is_right = True
    except UsageError:
        is_right = False
    assert templar.evaluate_conditional(task["ansible.builtin.assert"]["that"]) is is_right


LATER = "mq2, mq4"


@pytest.mark.parametrize(
    ("later", "shown", "not_to"),
    [
        (LATER, {"state": "none", "passed_over": []}, ["not_to=id-2,id-4"]),
        (None, {"state": "none", "passed_over": ["id-2"]}, ["not_to="]),
        (LATER, {"state": "none"}, []),  # an earlier release does not know it
    ],
)
def test_a_playbook_has_those_passed_over_that_leave_later(
    later: str | None, shown: dict[str, Any], not_to: list[str]
) -> None:
    tasks = {one.get("name"): one for one in tasks_of(load(ROOT / "playbooks/scale_down.yml"))}
    begins = tasks["Begin to drain, or turn what does not go on"]
    members = [{"node": f"mq{number}", "node_id": f"id-{number}"} for number in (1, 2, 3)]
    known = {
        **begins["vars"], "__mq_program": "mqbroker", "mq_scale_down_to": "mq1", "item": [{"name": "default"}, shown],
        "__mq_node_hosts": {"mq1": "mq1", "mq2": "mq2", "mq3": "mq3", "second": "mq4"},
        "__mq_known": {"stdout": json.dumps({"members": [*members, {"node": "second", "node_id": "id-4"}]})},
        **({"mq_scale_down_later": later} if later else {"__mq_known": {"skipped": True}}),
    }  # fmt: skip
    if later:
        strangers = tasks["All that leave later are known by their ids"]["vars"]
        assert Templar(LOADER, known | strangers).template(strangers["__mq_strangers"]) == []
        less = {"__mq_known": {"stdout": json.dumps({"members": members[:1]})}}
        assert Templar(LOADER, known | strangers | less).template(strangers["__mq_strangers"]) == ["mq2", "second"]
    argv = Templar(LOADER, known).template(begins["ansible.builtin.command"]["argv"])
    assert argv == ["mqbroker", "admin", "--instance", "default", "scale-down", "node=mq1", *not_to]


@pytest.mark.parametrize(
    ("later", "strange"), [("mq2,mq4", []), ("mq1", ["mq1"]), ("mq3, mq9,", ["mq3", "mq9"]), ("", [])]
)
def test_who_leaves_later_is_another_host_that_takes_nothing(later: str, strange: list[str]) -> None:
    """Neither the one that leaves now, nor that of the node which takes its messages."""
    tasks = {one.get("name"): one for one in tasks_of(load(ROOT / "playbooks/scale_down.yml"))}
    known = {
        "mq_scale_down": "mq3", "mq_scale_down_to": "first", "mq_scale_down_later": later,
        "__mq_members": ["mq1", "mq2", "mq3", "mq4"], "__mq_node_hosts": {"first": "mq1", "mq2": "mq2"},
    }  # fmt: skip
    text = tasks["Who leaves later are other hosts of its cluster"]["vars"]["__mq_no_leavers"]
    assert Templar(LOADER, known).template(text) == strange


def test_an_upgrade_without_mqctl_is_a_rollout_with_one_host_first() -> None:
    """Variables of an import go to all plays of what is imported."""
    (imported,) = load(ROOT / "playbooks/upgrade.yml")
    assert imported["ansible.builtin.import_playbook"] == "mqops.cluster.rollout"
    assert imported["vars"] == {"rollout_canary": True}


@pytest.mark.slow
def test_playbooks_can_be_parsed_where_no_hosts_are() -> None:
    """All at one start, which is most of what it costs; what cannot be parsed is named."""
    names = sorted(file.name for file in (ROOT / "playbooks").glob("*.yml"))
    assert len(names) >= 10
    command = [
        Path(sys.executable).parent / "ansible-playbook",
        "--syntax-check",
        *(f"playbooks/{one}" for one in names),
    ]
    known = {"ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev"), "ANSIBLE_LOCALHOST_WARNING": "false"}
    result = subprocess.run(command, cwd=ROOT, env={**os.environ, **known}, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if line] == [f"playbook: playbooks/{one}" for one in names]


@pytest.mark.parametrize(("name", "task"), [("backup", "Copy them"), ("restore", "Restore")])
def test_what_may_still_be_at_work_is_not_given_a_second_time(name: str, task: str) -> None:
    """Where a connection breaks, Ansible gives a command once more as often as this says."""
    (found,) = [one for one in tasks_of(load(ROOT / f"playbooks/{name}.yml")) if one.get("name") == task]
    assert load(ROOT / "playbooks/vars/roles.yml")["ansible_ssh_retries"] > 0
    assert found["vars"]["ansible_ssh_retries"] == 0


def test_batches_are_restarted_as_they_were_judged() -> None:
    (play,) = [one for one in load(ROOT / "playbooks/rollout.yml") if "batches" in str(one.get("serial"))]
    assert play["order"] == "sorted"


def test_links_that_an_earlier_restart_has_left_behind_come_before_the_first_batch() -> None:
    plays = load(ROOT / "playbooks/rollout.yml")
    (number,) = [number for number, one in enumerate(plays) if "batches" in str(one.get("serial"))]
    tasks = [one["ansible.builtin.import_tasks"] for one in plays[number - 1]["tasks"]]
    assert tasks == ["tasks/held.yml", "tasks/awaited.yml"]


HOSTS = ["mq1", "mq2", "mq3", "mq4"]  # the first three are to be restarted; mq5 is not part of the run


def noted_links(awaited: dict[str, str | None]) -> dict[str, dict[str, Any]]:
    return {one: {"links": [{"node": awaited[one]}] if one in awaited else []} for one in [*HOSTS, "mq5"]}


def seen_by(host: str, awaited: dict[str, str | None], size: str, *, is_forced: bool) -> dict[str, Any]:
    """What a host knows; `awaited`: host -> where the link leads that it has noted."""
    links = noted_links(awaited)
    return {
        "__mq_sizes": batches(HOSTS[:3], {}, size), "groups": {"mq_turn_alone": ["mq3", "mq1", "mq2"]},
        "__mq_node_hosts": {one: one for one in [*HOSTS, "lost"]},
        "ansible_play_hosts": HOSTS, "inventory_hostname": host, "rollout_force": is_forced,
        "__mq_absent_notes": {"results": [{"item": "mq5", "answer": {} if is_forced else links["mq5"]}]},
        "__mq_awaited": {**links[host], **({"given_up": []} if is_forced else {})},
        "hostvars": {one: {"__mq_awaited": links[one]} for one in HOSTS},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("awaited", "size", "is_forced", "first"),
    [
        ({}, "", False, ""),
        ({"mq1": "x"}, "", False, "mq1: before links that have not stood"),
        ({"mq1": "x"}, "", True, ""),
        ({"mq1": "x", "mq2": None}, "2", False, "mq1, mq2: before"),
        ({"mq5": "mq1"}, "", False, "mq1: before"),
        ({"mq2": "x"}, "", False, ""),
        ({"mq5": None}, "", False, ""),
    ],
)
def test_who_goes_first_is_told_to_whom_asks_for_more(
    awaited: dict[str, str | None], size: str, first: str, *, is_forced: bool
) -> None:
    (task,) = [
        one for one in load(ROOT / "playbooks/tasks/awaited.yml") if one["name"].startswith("Say which hosts go")
    ]
    templar = Templar(LOADER, {**task["vars"], **seen_by("mq3", awaited, size, is_forced=is_forced)})
    assert all(templar.evaluate_conditional(each) for each in task["when"]) == bool(first)
    assert templar.template(task["ansible.builtin.debug"]["msg"]).startswith(first)
    assert task["ansible.builtin.debug"]["verbosity"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("awaited", "size", "waiting", "deferred"),
    [
        ({}, "", set(), set()),
        ({"mq1": "x"}, "", set(), set()),  # has its turn first: what it gets may be what mends it
        ({"mq1": "x"}, "2", {"mq1"}, set()),  # and not with another one
        ({"mq1": "x", "mq2": "x"}, "2", set(), set()),
        ({"mq2": "x"}, "", {"mq2"}, set()),
        ({"mq2": "mq1"}, "", {"mq2"}, set()),  # mq1 is whole, so its restart is not what mends it
        ({"mq4": "mq1"}, "", {"mq4"}, set()),  # mq4 was the canary of what mq1 would get
        ({"mq5": "mq1"}, "", set(), {"mq5"}),  # whom --limit leaves out: somebody wants mq1 to have its turn
        ({"mq5": "mq1"}, "2", set(), set()),  # mq2 is whole: it is waited for where it is, before the first batch
        ({"mq1": "mq2"}, "2", {"mq1"}, set()),
        ({"mq4": "mq2"}, "", {"mq4"}, set()),  # whose turn is not the first
        ({"mq4": "lost"}, "", {"mq4"}, set()),
        ({"mq1": "x", "mq2": "x"}, "", {"mq2"}, set()),
        ({"mq1": "mq2", "mq2": "mq1"}, "", set(), {"mq2"}),  # that of mq1 may mend both, and is looked at after it
        ({"mq1": "mq2", "mq2": "mq1"}, "3", {"mq1", "mq2"}, set()),
        ({"mq4": "x"}, "", {"mq4"}, set()),  # has nothing to be restarted for any more
        ({"mq1": "x", "mq4": "x"}, "", {"mq4"}, set()),
        ({"mq1": "x", "mq4": "mq1"}, "", set(), {"mq4"}),
        ({"mq1": "x", "mq5": "mq1"}, "", set(), {"mq5"}),  # is not part of this run
        ({"mq1": None}, "", set(), set()),  # its own, wherever it leads
        ({"mq5": None}, "", set(), set()),  # nobody knows where it leads: it is waited for where it is
        ({"mq1": "x", "mq2": None}, "", {"mq2"}, set()),
    ],
)
@pytest.mark.parametrize("is_forced", [False, True])
def test_who_waits_for_the_links_of_an_earlier_restart(
    awaited: dict[str, str | None], size: str, waiting: set[str], deferred: set[str], *, is_forced: bool
) -> None:
    tasks = load(ROOT / "playbooks/tasks/awaited.yml")
    (task,) = [one for one in tasks if one["name"].startswith("Wait until they")]
    (note,) = [one for one in tasks if one["name"].startswith("Note which links wait")]
    found, links = set(), noted_links(awaited)
    for host in HOSTS:
        templar = Templar(LOADER, {**task["vars"], **seen_by(host, awaited, size, is_forced=is_forced)})
        if all(templar.evaluate_conditional(each) for each in task["when"]):
            found.add(host)
        late = templar.template(note["ansible.builtin.set_fact"]["__mq_deferred"])
        assert late == ([] if is_forced else [{"host": one, **links[one]} for one in sorted(deferred)])
    assert found == (set() if is_forced else waiting)


def test_members_that_have_noted_something_are_waited_for_and_those_away_are_named() -> None:
    tasks = load(ROOT / "playbooks/tasks/awaited.yml")
    (wait,) = [one for one in tasks if one["name"].startswith("Wait for those of the members")]
    (say,) = [one for one in tasks if one["name"].startswith("Say which members")]
    rows = [{"instance": "a", "node": "x"}, {"instance": "a", "node": "mq9"}, {"instance": "b", "node": None}]
    answers: list[dict[str, Any]] = [
        {"item": "mq1", "reached": True, "answer": {"links": rows}}, {"item": "mq2", "reached": False, "answer": {}},
        {"item": "mq3", "reached": True, "answer": {"links": []}},
        {"item": "mq4", "reached": True, "answer": {"failed": True}}, {"item": "mq5", "skipped": True},
    ]  # fmt: skip
    known = {
        **wait["vars"], **say["vars"], "__mq_absent_notes": {"results": answers}, "__mq_mended_nodes": ["mq9"],
        "ansible_play_hosts": ["mq7"], "hostvars": {"mq7": {"__mq_awaited": {"links": rows}}},
    }  # fmt: skip
    templar = Templar(LOADER, known)
    (item,) = templar.template(wait["loop"])
    assert item["host"] == "mq1"
    arguments = Templar(LOADER, {**known, "item": item}).template(
        {name: wait["mqops.cluster.ask_member"]["arguments"][name] for name in ("instances", "wanted")}
    )
    assert arguments == {"instances": ["a", "b"], "wanted": [rows[0], rows[2]]}
    assert templar.template(say["ansible.builtin.debug"]["msg"]).startswith("mq2: not reached")
    assert templar.evaluate_conditional(say["when"])


@pytest.mark.parametrize(
    ("turns", "batch", "due", "due_after"),
    [
        (4, ["mq1", "mq2"], None, None),  # the first one
        (4, ["mq3"], ["mq2", "mq4"], None),
        (4, ["mq2"], ["mq4"], None),  # waits for its own after it
        (4, ["mq2", "mq3"], ["mq2", "mq4"], None),
        (4, ["mq2", "mq4"], [], None),
        (1, ["mq1"], None, ["mq2", "mq4"]),  # nobody else has a turn
    ],
)
def test_links_that_waited_for_the_first_batch_come_before_the_second_or_at_the_end(
    turns: int, batch: list[str], due: list[str] | None, due_after: list[str] | None
) -> None:
    (task,) = [one for one in load(ROOT / "playbooks/tasks/deferred.yml") if "loop" in one]
    (play,) = [one for one in load(ROOT / "playbooks/rollout.yml") if "batches" in str(one.get("serial"))]
    tasks = [one["ansible.builtin.import_tasks"] for one in play["tasks"]]
    assert tasks[-3:] == ["tasks/deferred.yml", "tasks/turn.yml", "tasks/deferred.yml"]
    for own, wanted in ((play["tasks"][-3], due), (play["tasks"][-1], due_after)):
        known = {
            **task["vars"], **own["vars"], "ansible_check_mode": False, "ansible_play_batch": batch,
            "groups": {"mq_turn_alone": ["mq1", "mq3", "mq2", "mq4"][:turns]},
            "__mq_deferred": [{"host": "mq2", "links": []}, {"host": "mq4", "links": []}],
        }  # fmt: skip
        templar = Templar(LOADER, known)
        assert all(templar.evaluate_conditional(each) for each in task["when"]) == (wanted is not None)
        if wanted is not None:
            assert [one["host"] for one in templar.template(task["loop"])] == wanted


@pytest.mark.parametrize(
    ("queues", "handed_out", "paused"),
    [
        (
            [("a", True, False), ("b", True, False), ("c", False, False)],
            "default: a at mq1, b at mq1: paused here,",
            "",
        ),
        ([("a", True, True), ("b", True, None)], "", "default: a at mq1: paused there; what"),
        (
            [("a", True, True), ("b", True, False)],
            "default: b at mq1: paused here, and",
            "default: a at mq1: paused th",
        ),
        ([("a", False, True), ("b", False, False)], "", "default: a at mq1: paused there; what"),
        (
            [("a", True, True), ("a", True, True, None)],
            "",
            "default: a at mq1, a at a node that is gone: paused there; what",
        ),
        ([], "", ""),
    ],
)
def test_what_was_paused_is_told_where_it_has_moved(
    queues: list[tuple[Any, ...]], handed_out: str, paused: str
) -> None:
    rows: list[dict[str, Any]] = [
        {"queue": name, "paused": here, "heirs": [{"node": (*node, "mq1")[0], "paused_there": there}]}
        for name, here, there, *node in queues
    ]
    rows += [{"queue": "of an earlier release"}, {"queue": "and", "paused": True, "heirs": [{"node": "mq1"}]}]
    item = {"item": {"name": "default"}, "stdout": json.dumps({"state": "moved", "receipt": {"queues": rows}})}
    tasks = load(ROOT / "playbooks/tasks/pauses.yml")
    for task, wanted in zip(tasks, (handed_out, paused), strict=True):
        templar = Templar(LOADER, {**task["vars"], "item": item})
        assert templar.evaluate_conditional(task["when"]) == bool(wanted)
        assert templar.template(task["ansible.builtin.debug"]["msg"]).startswith(wanted)


@pytest.mark.parametrize("name", ["firewall", "rollback"])
def test_at_the_end_links_that_stand_are_noted_no_longer(name: str) -> None:
    """A rollout ends with the packet filter."""
    tasks = [one.get("ansible.builtin.import_tasks") for one in load(ROOT / f"playbooks/{name}.yml")[-1]["tasks"]]
    assert tasks[:2] == ["tasks/settled.yml", "tasks/unlock.yml"]


@pytest.mark.parametrize(("is_back", "wanted"), [(None, ["a", "b"]), (False, ["a", "b"]), (True, ["b"])])
def test_a_rollback_waits_for_no_link_that_did_not_stand_before_it(wanted: list[str], *, is_back: bool | None) -> None:
    (task,) = [one for one in load(ROOT / "playbooks/tasks/turn.yml") if one["name"].startswith("Wait until they")]
    known = {
        **task["vars"], "__mq_links": {"links": ["a", "b"], "standing": ["b"]}, "ansible_check_mode": False,
        **({} if is_back is None else {"release_is_back": is_back}),
    }  # fmt: skip
    templar = Templar(LOADER, known)
    assert templar.template(task["mqops.cluster.cluster_links"]["wanted"]) == wanted
    assert templar.template(task["mqops.cluster.cluster_links"]["stood"]) == ["b"]
    assert all(templar.evaluate_conditional(each) for each in task["when"])


def test_a_playbook_calls_nodes_as_their_brokers_are_called() -> None:
    names = ["mq1", "fe80::1", "h" * 70, "own"]
    hostvars: dict[str, dict[str, Any]] = {host: {"mq_cluster_name": "main"} for host in [*names, "other"]}
    hostvars["h" * 70]["mq_instances"] = [{"name": "default"}, {"name": "b"}]
    hostvars["own"]["mq_instances"] = [{"name": "c", "node_name": "given"}]
    del hostvars["other"]["mq_cluster_name"]
    variables = load(ROOT / "playbooks/vars/roles.yml")
    known = {**variables, "groups": {"all": list(hostvars)}, "hostvars": hostvars}
    wanted = {
        node_name(Instance(**one), host): host
        for host in names
        for one in hostvars[host].get("mq_instances", [{"name": "default"}])
    }
    assert Templar(LOADER, known).template(variables["__mq_node_names"]) == list(wanted)
    assert Templar(LOADER, known).template(variables["__mq_node_hosts"]) == wanted


def test_a_rollback_waits_until_nothing_is_under_way_once_it_has_the_hosts() -> None:
    """`mqctl` has waited before it hands over its operation."""
    (play,) = [one for one in load(ROOT / "playbooks/rollback.yml") if one["name"].startswith("Let nobody else change")]
    asked = [(one["ansible.builtin.import_tasks"], one.get("when")) for one in play["tasks"]]
    assert asked == [("tasks/lock.yml", None), ("tasks/idle.yml", "mq_operation is not defined")]


@pytest.mark.parametrize("name", ["lock", "idle"])
@pytest.mark.parametrize(
    ("before", "is_freed"),
    [
        (None, True),
        ({"is_held": False, "token": "other"}, True),
        ({"is_held": True, "token": "other"}, False),
        ({"is_held": True, "token": "own"}, True),  # by the playbook before it in the same run
    ],
)
def test_what_was_held_before_stays_held_where_another_host_is_not_to_be_had(
    name: str, before: dict[str, Any] | None, *, is_freed: bool
) -> None:
    """It is half done, and who goes on with it goes on from there."""
    (task,) = [
        one for one in load(ROOT / f"playbooks/tasks/{name}.yml")
        if one.get("mqops.cluster.operation", {}).get("state") == "free"
    ]  # fmt: skip
    known = {
        "__mq_seen": {"found": before},
        "__mq_held": ["mq2"],
        "__mq_moved": ["mq2"],
        "__mq_operation": {"token": "own"},
    }
    assert all(Templar(LOADER, known).evaluate_conditional(each) for each in task["when"]) is is_freed


def test_a_rollback_moves_the_link_after_what_the_broker_starts_with() -> None:
    """While the link leads to the release that is left, a host that was cut off has its turn again."""
    (play,) = [one for one in load(ROOT / "playbooks/rollback.yml") if "batches" in str(one.get("serial"))]
    role = "ansible.builtin.import_role"
    wrote = [number for number, one in enumerate(play["tasks"]) if one.get(role, {}).get("tasks_from") == "write"]
    turn = [number for number, one in enumerate(play["tasks"]) if "tasks/turn.yml" in one.values()]
    assert len(wrote) == len(turn) == 1
    assert wrote < turn


@pytest.mark.parametrize(
    ("notes", "given", "left", "is_known"),
    [
        ([{"number": 7, "goal": "2"}, {"number": 6, "goal": "1"}], "", "2", True),
        ([{"number": 7, "goal": "3"}, None], "", "3", False),  # nobody has it
        ([{"number": 7, "goal": "3"}, None], "1", "1", True),
        ([None, {"number": 1}], "", "2", False),  # an earlier mqctl notes none
    ],
)
def test_a_rollback_leaves_what_the_last_operation_was_about(
    notes: list[Any], given: str, left: str, *, is_known: bool
) -> None:
    (looks,) = [one for one in load(ROOT / "playbooks/rollback.yml") if one["name"].startswith("Look at what there")]
    named = {one["name"]: one for one in looks["tasks"]}
    hosts = dict(zip(("mq1", "mq2"), ("2", "1"), strict=True))
    known = {
        "ansible_play_hosts_all": [*hosts, "mq3"], "mq_rollback_from": given, "__mq_now": {"current": "2"},
        "hostvars": {"mq3": {"__mq_now": {"current": "2"}},  # is lost on the way
                     **{name: {"__mq_now": {"current": current}, "__mq_last": {"found": note}}
                        for (name, current), note in zip(hosts.items(), notes, strict=True)}},
    }  # fmt: skip
    found = named["Find the release that is left"]
    templar = Templar(LOADER, {**known, **found["vars"]})
    assert templar.template(found["ansible.builtin.set_fact"]["__mq_left"]) == left
    refusal = named["It is known which release is left"]["ansible.builtin.assert"]["that"]
    assert templar.evaluate_conditional(refusal) is is_known


def test_an_instance_that_was_added_since_goes_back_with_the_options_it_has() -> None:
    (looks,) = [one for one in load(ROOT / "playbooks/rollback.yml") if one["name"].startswith("Look at what there")]
    (task,) = [one for one in looks["tasks"] if one["name"] == "Remember what this host returns to"]
    known = {
        "__mq_now": {"options": {"kept": "new", "added": "own", "strange": "x"}},
        "__mq_before_it": {"found": {"release": "1", "unit": "u", "options": {"kept": "old", "removed": "gone"}}},
        "__mq_instances": [{"name": "kept"}, {"name": "added"}],
    }
    back = Templar(LOADER, {**known, **task["vars"]}).template(task["ansible.builtin.set_fact"]["__mq_back"])
    assert back == {"release": "1", "unit": "u", "options": {"kept": "old", "added": "own"}}
    known["__mq_before_it"] = {"found": None}
    assert Templar(LOADER, {**known, **task["vars"]}).template(task["ansible.builtin.set_fact"]["__mq_back"]) is None


def test_no_play_leaves_it_to_the_settings_of_a_user_how_hosts_wait_for_each_other() -> None:
    """With any other strategy each goes on alone: nobody is stopped, and nothing is all or none."""
    plays = [
        play
        for file in ROOT.glob("playbooks/*.yml")
        for play in load(file)
        if "ansible.builtin.import_playbook" not in play
    ]
    assert len(plays) == 45
    for play in plays:
        assert play["strategy"] == "ansible.builtin.linear", play["name"]
        assert isinstance(play["any_errors_fatal"], bool), play["name"]
