"""Brokers are removed; messages and identities only where that is asked for."""

from __future__ import annotations

import json
from typing import Any

from scene import HOSTS, NODES, Run

GONE = ("/opt/mq", "/etc/mq", "/run/mq", "/etc/systemd/system/mqbroker@.service")
MQBROKER = "/opt/mq/current/bin/mqbroker"


def left_of_program(host: Any) -> list[str]:
    """Anything of a broker but its data."""
    found = [path for path in GONE if host.file(path).exists]
    units = host.check_output("systemctl list-units --all --plain --no-legend 'mqbroker@*'").splitlines()
    wants = host.check_output("find /etc/systemd/system -name 'mqbroker*'").splitlines()
    processes = host.run("pgrep -u mq").stdout.split()
    return [*found, *units, *wants, *processes]


def data_of(host: Any) -> str:
    return str(host.check_output("find /var/lib/mq -type f -exec sha256sum {} + | LC_ALL=C sort"))


def test_data_stay_unless_told_otherwise(play: Run, hosts: dict[str, Any]) -> None:
    first = hosts["mq1"]
    said = json.dumps([{"body": "kept"}])
    first.check_output("%s admin send address=kept messages=%s", MQBROKER, said)

    outcome = play("uninstall", "--check")
    assert outcome.code == 0, outcome.output
    assert sorted(outcome.changed) == list(HOSTS)
    assert all(hosts[name].service(f"mqbroker@{instance}").is_running for name, instance, _ in NODES)

    identities = {name: host.check_output("cat /var/lib/mq/*/identity.json") for name, host in hosts.items()}
    outcome = play("uninstall")
    assert outcome.code == 0, outcome.output
    assert {name: left_of_program(host) for name, host in hosts.items()} == {name: [] for name in HOSTS}
    assert {name: host.check_output("cat /var/lib/mq/*/identity.json") for name, host in hosts.items()} == identities

    # What is left is enough to go on with.
    outcome = play("rollout", "--limit", "mq1")
    assert outcome.code == 0, outcome.output
    assert first.check_output("cat /var/lib/mq/*/identity.json") == identities["mq1"]
    received = json.loads(first.check_output("%s admin receive address=kept wait_ms=5000", MQBROKER))
    assert [message["body"] for message in received["messages"]] == ["kept"]


def test_everything_goes_where_that_is_asked_for(play: Run, hosts: dict[str, Any]) -> None:
    outcome = play("uninstall", mq_uninstall_data=True)
    assert outcome.code == 0, outcome.output
    for host in hosts.values():
        assert left_of_program(host) == []
        assert not host.file("/var/lib/mq").exists
        assert not host.user("mq").exists
        assert not host.group("mq").exists

    outcome = play("uninstall", mq_uninstall_data=True)
    assert outcome.code == 0, outcome.output
    assert outcome.changed == {}


def test_a_check_of_a_bare_host_says_what_would_be_made(play: Run, hosts: dict[str, Any]) -> None:
    outcome = play("rollout", "--check", "--diff", "--limit", "mq1")
    assert outcome.code == 0, outcome.output
    assert {"Copy the bundle", "Make the identities", "Write the unit and the options"} <= set(outcome.changed["mq1"])
    assert "canary-of-" not in outcome.output
    assert left_of_program(hosts["mq1"]) == []
    assert not hosts["mq1"].file("/var/lib/mq").exists
    assert not hosts["mq1"].user("mq").exists
