"""What changes of the inventory do to brokers that run."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from scene import NODES, Run, log_in, unit_of, users

RESTART = {"journal": {"journal_compact_min_files": 11}}
RELOAD = {**RESTART, "node": {"log_format": "json"}}
# Where one host shows enough: the one with two brokers.
ONE = ("--limit", "mq2")


def invocations(hosts: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Changes with every start of a broker."""
    return {(name, instance): unit_of(hosts[name], instance)["InvocationID"] for name, instance, _ in NODES}


def contents(hosts: dict[str, Any]) -> dict[str, str]:
    """A hash over all that the roles put on a host, with modes and owners."""
    command = (
        "find /etc/mq /opt/mq /etc/systemd/system /var/lib/mq -not -path '*/journal/*' -printf '%p %M %u %g %l %T@\\n' "
        "-type f -exec sha256sum {} + | LC_ALL=C sort | sha256sum"
    )
    return {name: host.check_output(command) for name, host in hosts.items()}


def test_a_check_reports_a_change_and_makes_none(play: Run, hosts: dict[str, Any]) -> None:
    before, running = contents(hosts), invocations(hosts)
    outcome = play("rollout", "--check", "--diff", *ONE, mq_broker_options=RESTART, mq_users=users("canary-of-nobody"))
    assert outcome.code == 0, outcome.output
    assert list(outcome.changed) == ["mq2"]
    assert "journal-compact-min-files = 11" in outcome.output
    assert "canary-of-" not in outcome.output
    assert (contents(hosts), invocations(hosts)) == (before, running)


def test_an_option_that_needs_it_restarts_one_broker_after_the_other(play: Run, hosts: dict[str, Any]) -> None:
    before = invocations(hosts)
    outcome = play("rollout", mq_broker_options=RESTART)
    assert outcome.code == 0, outcome.output
    after = invocations(hosts)
    assert [node for node in before if before[node] == after[node]] == []
    away = sorted(
        (int(one["InactiveEnterTimestampMonotonic"]), int(one["ActiveEnterTimestampMonotonic"]))
        for one in (unit_of(hosts[name], instance) for name, instance, _ in NODES)
    )
    assert [later for earlier, later in pairwise(away) if later[0] < earlier[1]] == [], away


def test_what_can_be_reloaded_is(play: Run, hosts: dict[str, Any]) -> None:
    """An option, and a password: the new one counts and the old one does not."""
    before = invocations(hosts)
    outcome = play("rollout", *ONE, mq_broker_options=RELOAD, mq_users=users("canary-of-app-2"))
    assert outcome.code == 0, outcome.output
    assert list(outcome.changed) == ["mq2"]
    assert invocations(hosts) == before
    for name, instance, offset in (node for node in NODES if node[0] == "mq2"):
        address = hosts[name].interface("eth1").addresses[0]
        assert log_in(name, address, 5672 + offset, "canary-of-app-2") == 0, (name, instance)
        assert log_in(name, address, 5672 + offset, "canary-of-app") == 1, (name, instance)
        last = hosts[name].check_output("journalctl --no-pager --output=cat --lines=1 --unit=mqbroker@%s", instance)
        assert last.startswith("{"), f"log-format json is not in force: {last}"


def test_a_check_reports_nothing_where_nothing_is_to_be_done(play: Run, hosts: dict[str, Any]) -> None:
    before, running = contents(hosts), invocations(hosts)
    outcome = play("rollout", "--check", *ONE, mq_broker_options=RELOAD, mq_users=users("canary-of-app-2"))
    assert outcome.code == 0, outcome.output
    assert outcome.changed == {}
    assert (contents(hosts), invocations(hosts)) == (before, running)
