"""The playbook `scale_down` where not all that stay are there. Real Ansible; hosts are rooms on this machine."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.system.mqctl.test_hosts_that_fall_out import ROOT, Hosts
from tests.system.mqctl.test_plain_playbooks import Site, site

__all__ = ["site"]

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
