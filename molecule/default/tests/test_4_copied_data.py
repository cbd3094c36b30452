"""A data directory that was copied to another host: two nodes with one id would take each other for themselves."""

from __future__ import annotations

import json
from typing import Any

from scene import Run, unit_of

IDENTITY_MISMATCH = 5
DATA = "/var/lib/mq/default"
MQBROKER = "/opt/mq/current/bin/mqbroker"


def node_id(host: Any) -> str:
    found: str = json.loads(host.file(f"{DATA}/identity.json").content_string)["node_id"]
    return found


def test_a_copied_data_directory_is_refused_until_told_what_it_is(play: Run, hosts: dict[str, Any]) -> None:
    original, copy = hosts["mq1"], hosts["mq3"]
    copy.check_output("systemctl stop mqbroker@default")
    copy.check_output("mv %s %s.own", DATA, DATA)
    original.check_output("tar -C /var/lib/mq -cpf /srv/shared/copy.tar default")
    copy.check_output("tar -C /var/lib/mq -xpf /srv/shared/copy.tar")
    original.check_output("rm /srv/shared/copy.tar")

    # The broker itself does not start, and is not tried again and again.
    assert copy.run("systemctl start mqbroker@default").rc != 0
    unit = unit_of(copy, "default")
    assert (unit["ActiveState"], unit["ExecMainStatus"], unit["NRestarts"]) == ("failed", str(IDENTITY_MISMATCH), "0")
    said = copy.check_output("journalctl --no-pager --output=cat --lines=5 --unit=mqbroker@default")
    assert "mqbroker identity adopt" in said
    assert "mqbroker identity new" in said

    # Told the wrong thing, the node runs with the id of another; the module finds that over the whole group, --limit
    # or not.
    copy.check_output("sudo -u mq %s identity adopt --data-directory %s", MQBROKER, DATA)
    outcome = play("rollout", "--limit", "mq3")
    assert outcome.code != 0
    assert "mq1/default" in outcome.complaints()
    assert "mq3/default" in outcome.complaints()

    # Told the right thing, it is a node of its own again.
    copy.check_output("systemctl stop mqbroker@default")
    copy.check_output("sudo -u mq %s identity new --even-if-original --data-directory %s", MQBROKER, DATA)
    assert node_id(copy) != node_id(original)
    copy.check_output("systemctl start mqbroker@default")
    assert copy.service("mqbroker@default").is_running

    # The rollout that failed still has the host, until it is gone on with.
    outcome = play("rollout", "--limit", "mq3")
    assert "is under way" in outcome.complaints()
    outcome = play("rollout", "--limit", "mq3", mq_resume=True)
    assert outcome.code == 0, outcome.output
