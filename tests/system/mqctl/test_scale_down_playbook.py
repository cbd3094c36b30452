"""The playbook `scale_down` where not all that stay are there. Real Ansible; hosts are rooms on this machine."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.system.mqctl.test_hosts_that_fall_out import ROOT, Hosts
from tests.system.mqctl.test_plain_playbooks import Site, site

__all__ = ["site"]

DRAIN, STOP = "Drain the brokers of the host that leaves", "Stop the brokers of the host that leaves"
PLAY, TASK = "Wait until no other node waits for an answer of it", "All that stay can be asked"


def the_look(site: Site) -> str:
    """A playbook that reaches all hosts, and then does what the play that waits for answers does before it asks."""
    (waits,) = [one for one in yaml.safe_load((ROOT / "playbooks/scale_down.yml").read_text()) if one["name"] == PLAY]
    (look,) = [one for one in waits["tasks"] if one["name"] == TASK]
    common: dict[str, Any] = {"gather_facts": False, "vars_files": [str(ROOT / "playbooks/vars/roles.json")]}
    reach = {"name": "reach", "hosts": "all", "tasks": [{"name": "reach all", "ansible.builtin.ping": None}]}
    then = [look, {"name": "go on", "ansible.builtin.ping": None}]
    play = {"name": PLAY, "hosts": "all", "any_errors_fatal": waits["any_errors_fatal"], "tasks": then}
    (site.folder / "look.json").write_text(json.dumps([common | reach, common | play]))
    return "look.json"


@pytest.mark.parametrize(
    ("hosts", "limit", "is_whole"),
    [
        ({"mq1": {}, "mq2": {}, "mq3": {}, "other": {"mq_cluster_name": "other"}}, "mq1,mq2,mq3", True),
        ({"mq1": {}, "mq2": {}, "mq3": {}}, "mq1,mq3", False),
        ({"mq1": {}, "mq2": {"line_cut_at": "reach all"}, "mq3": {}}, "all", False),
    ],
    ids=["all are there", "one is left out", "one is not reached"],
)
def test_nothing_is_stopped_while_a_node_that_stays_is_not_asked(
    site: Site, hosts: Hosts, limit: str, *, is_whole: bool
) -> None:
    done = site.play(the_look(site), hosts, "--limit", limit, "-e", "mq_scale_down=mq3")
    assert ("TASK [go on]" in done.stdout) is is_whole, done.stdout
    assert ("mq2: not reached, so nobody knows" in " ".join(done.stdout.split())) is not is_whole


def test_the_look_comes_before_anything_is_stopped() -> None:
    """And before the drain, whatever it can know by then."""
    plays = yaml.safe_load((ROOT / "playbooks/scale_down.yml").read_text())
    tasks = [(play["name"], task["name"]) for play in plays for task in play.get("tasks", ())]
    assert tasks.index((PLAY, TASK)) < tasks.index((STOP, "Stop the brokers"))
    assert tasks.index((DRAIN, "All of its cluster are held")) < tasks.index(
        (DRAIN, "Begin to drain, or turn what does not go on")
    )


@pytest.mark.parametrize("book", ["scale_down", "drain"])
@pytest.mark.parametrize(
    ("limit", "refused_by"), [("all", ()), ("mq1,mq3", ("scale_down",)), ("mq1,mq2", ("scale_down", "drain"))]
)
def test_whom_limit_leaves_out_is_named_before_anything_is_changed(
    site: Site, book: str, limit: str, refused_by: tuple[str, ...]
) -> None:
    first = yaml.safe_load((ROOT / f"playbooks/{book}.yml").read_text())[0]
    first["tasks"][0]["ansible.builtin.import_tasks"] = str(ROOT / "playbooks/tasks/hosts.yml")
    first["tasks"].append({"name": "go on", "ansible.builtin.debug": {"msg": "."}, "run_once": True})
    (site.folder / "first.json").write_text(json.dumps([first]))
    hosts: Hosts = {"mq1": {}, "mq2": {}, "mq3": {}, "other": {"mq_cluster_name": "other"}}
    done = site.play("first.json", hosts, "--limit", limit, "-e", f"mq_{book}=mq3")
    assert ("TASK [go on]" in done.stdout) is (book not in refused_by), done.stdout
    left_out = f"--limit leaves out {'mq2' if limit == 'mq1,mq3' else 'mq3'}, and all hosts"
    assert (left_out in " ".join(done.stdout.split())) is (book == "scale_down" and bool(refused_by))


@pytest.mark.parametrize("is_lost", [False, True])
def test_whom_nobody_reached_is_named_before_the_drain(site: Site, *, is_lost: bool) -> None:
    plays = yaml.safe_load((ROOT / "playbooks/scale_down.yml").read_text())
    (drain,) = [one for one in plays if one["name"] == DRAIN]
    (look,) = [one for one in drain["tasks"] if one["name"] == "All of its cluster are held"]
    common: dict[str, Any] = {"gather_facts": False, "vars_files": [str(ROOT / "playbooks/vars/roles.json")]}
    kept = {"name": "as if taken", "ansible.builtin.command": "echo", "register": "__mq_lock"}
    # The module says `refusal`; here a fact that is only there where the task came through.
    taken = {"name": "taken", "ansible.builtin.set_fact": {"__mq_lock": {"refusal": ""}}}
    then = [look, {"name": "go on", "ansible.builtin.ping": None}]
    take = {"name": "take", "hosts": "all", "any_errors_fatal": False, "tasks": [kept, taken]}
    play = {"name": DRAIN, "hosts": "mq3", "any_errors_fatal": True, "tasks": then}
    (site.folder / "held.json").write_text(json.dumps([common | take, common | play]))
    hosts: Hosts = {"mq1": {}, "mq2": {"line_cut_at": "as if taken"} if is_lost else {}, "mq3": {}}
    done = site.play("held.json", hosts, "-e", "mq_scale_down=mq3")
    assert ("TASK [go on]" in done.stdout) is not is_lost, done.stdout
    assert ("mq2: not reached, so nobody could ask" in " ".join(done.stdout.split())) is is_lost
