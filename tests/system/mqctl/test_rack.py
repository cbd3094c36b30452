"""The whole way on real hosts: init, preflight, plan, rollout, messages, faults, uninstall. Needs root and the rack.

mq3 is reached only through mq1. The tests are one story and run in their order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from tests.support.drifts import ALONE, DRIFTS, FILTERED, Drift
from tests.support.rack_site import ENVIRONMENT_CANARY, Rack, Site, site_on

# On a busy machine a rollout of three bare hosts takes ten minutes.
pytestmark = [pytest.mark.system, pytest.mark.timeout(1500)]

HOSTS = ["mq1", "mq2", "mq3"]


rack = Rack("mqctl")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(rack, "3", "--behind", "mq3=mq1", folder=tmp_path_factory.mktemp("rack") / "site") as one:
        yield one


def test_bare_hosts(site: Site) -> None:
    rows = site.document("status", code=3)["rows"]
    assert [(row["host"], row["state"]) for row in rows] == [(host, "absent") for host in HOSTS]
    findings = site.document("preflight")["rows"]
    assert {row["host"] for row in findings} == set(HOSTS)
    assert not [row for row in findings if row["level"] == "error"]


def test_sudo_with_a_password(site: Site) -> None:
    password = "canary-for-sudo-1"
    script = (
        "useradd -m -s /bin/bash ops && install -d -o ops -m 700 /home/ops/.ssh && "
        "install -o ops -m 600 /home/deploy/.ssh/authorized_keys /home/ops/.ssh/ && "
        f"echo ops:{password} | chpasswd && echo 'ops ALL=(ALL) ALL' > /etc/sudoers.d/ops"
    )
    rack("exec", "mq2", "--", "sh", "-c", script)
    own = site.folder / "host_vars/mq2.yml"
    own.parent.mkdir()
    own.write_text(f"ansible_user: ops\nansible_become_password: {password}\n")
    done = site.run("status", "--json", code=3)
    assert [row["state"] for row in json.loads(done.stdout)["rows"]] == ["absent"] * 3
    assert password not in done.stdout + done.stderr
    own.write_text("ansible_user: ops\nansible_become_password: wrong-canary\n")
    rows = site.document("status", code=3)["rows"]
    assert [row["state"] for row in rows] == ["absent", "failed", "absent"]
    assert "ops may not act as root: sudo: 1 incorrect password attempt" in rows[1]["note"]
    own.unlink()


def test_plan_then_rollout_then_an_empty_plan(site: Site) -> None:
    plan = site.document("plan", code=3)
    assert {row["host"] for row in plan["rows"]} == set(HOSTS)
    assert "release" in {row["what"] for row in plan["rows"]}
    assert plan == site.document("plan", code=3)
    refused = site.run("rollout", "--plan", "0" * 16, "--yes", code=1)
    assert f"the plan is {plan['plan']} by now" in refused.stderr
    done = site.document("rollout", "--plan", plan["plan"])
    assert [(row["host"], row["state"]) for row in done["rows"] if row["host"] in HOSTS] == [
        (one, "ok") for one in HOSTS
    ]
    assert site.document("plan")["rows"] == []
    settled = site.document("rollout", "--yes")["rows"]
    assert {row["note"] for row in settled} == {"as the last rollout left it"}
    rows = site.document("status")["rows"]
    assert [row["state"] for row in rows] == ["running"] * 3
    assert len({row["node_id"] for row in rows}) == 3


def test_messages_on_one_host_survive_its_power(site: Site) -> None:
    sent = site.document("send", "orders", "order {n}", "--count", "4000", "--to", "mq3")["rows"]
    assert sent[0]["accepted"] == 4000
    first = site.run("receive", "orders", "--from", "mq3", "--count", "1000").stdout.splitlines()
    rack("kill", "mq3")
    rows = site.document("status", "--timeout", "5", code=3)["rows"]
    assert [row["state"] for row in rows] == ["running", "running", "unreachable"]
    rack("boot", "mq3")
    rest = site.run("receive", "orders", "--from", "mq3", "--count", "3000", "--timeout", "20").stdout.splitlines()
    assert first + rest == [f"order {number}" for number in range(1, 4001)]
    queues = site.document("queue", "list", "--host", "mq3")["rows"]
    # It goes by itself once it is empty, which a busy machine may be late to see.
    assert [(row["queue"], row["messages"]) for row in queues] in ([("orders", 0)], [])


def test_one_unreachable_host_does_not_hide_the_rest(site: Site) -> None:
    rack("kill", "mq2")
    plan = site.document("plan", code=1)
    assert set(plan["unreachable"]) == {"mq2"}
    findings = site.document("preflight", code=3)["rows"]
    assert {row["host"]: row["level"] for row in findings}["mq2"] == "unreachable"
    assert {row["host"] for row in findings} == set(HOSTS)
    rack("boot", "mq2")
    site.run("status")


def unit_of(host: str) -> dict[str, str]:
    """What systemd says of the broker."""
    names = "--property=ActiveState,SubState,NRestarts,ExecMainStatus"
    lines = rack("exec", host, "--", "systemctl", "show", names, "mqbroker@default").splitlines()
    return dict(line.split("=", 1) for line in lines)


def start(host: str) -> bool:
    """Whether the broker can be started."""
    done = rack("exec", host, "--", "sh", "-c", "systemctl start mqbroker@default 2>/dev/null; echo $?")
    return done.strip() == "0"


def test_a_damaged_journal_stops_the_broker_until_somebody_decides(site: Site) -> None:
    for text, count in (("kept {n}", 50), ("later", 1)):
        (sent,) = site.rows("send", "kept", text, "--count", str(count), "--to", "mq2")
        assert sent["accepted"] == count
    damage = (
        "systemctl stop mqbroker@default; cd /var/lib/mq/default/journal; cp -p journal-*.mqj /root; "
        'python3 - "$(grep -l "kept 25" journal-*.mqj)" <<END\n'
        "import sys, pathlib\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "content = bytearray(file.read_bytes())\n"
        'content[content.index(b"kept 25")] ^= 1\n'
        "file.write_bytes(content)\n"
        "END\n"
    )
    rack("exec", "mq2", "--", "sh", "-ec", damage)
    remedy = "put back a backup, or set journal-on-damage to truncate for one start"
    assert not start("mq2")
    stays = {"ActiveState": "failed", "SubState": "failed", "NRestarts": "0", "ExecMainStatus": "6"}
    assert unit_of("mq2") == stays
    for command in ("systemctl status --no-pager --full mqbroker@default; true", "journalctl -u mqbroker@default"):
        said = rack("exec", "mq2", "--", "sh", "-c", command)
        assert remedy in said, said
        assert ".mqj at byte " in said, said
    # Who looks with mqctl is told as well, and a rollout neither mends it nor begins a circle.
    (row,) = [one for one in site.rows("status", code=3) if one["host"] == "mq2"]
    assert row["state"] == "failed"
    (row,) = [one for one in site.rows("health", code=3) if one["host"] == "mq2"]
    assert (row["state"], row["failing"]) == ("failed", ["running"])
    assert "journalctl -u mqbroker@default" in row["why"]
    rows = site.rows("rollout", "--yes", "--limit", "mq2", code=1)
    (row,) = [one for one in rows if one["host"] == "mq2"]
    assert "mqbroker@default.service is failed, its log ends with: " in row["note"]
    assert remedy in row["note"]
    assert unit_of("mq2") == stays
    # A backup of it is put back.
    rack("exec", "mq2", "--", "sh", "-ec", "cp -p /root/journal-*.mqj /var/lib/mq/default/journal")
    assert start("mq2")
    got = site.run("receive", "kept", "--from", "mq2", "--count", "51", "--timeout", "20").stdout.splitlines()
    assert got == [*(f"kept {number}" for number in range(1, 51)), "later"]
    assert site.document("plan")["rows"] == []


def test_a_changed_option_is_planned_and_rolled_out(site: Site) -> None:
    site.set_options("mq_broker_options:\n  limits:\n    link_credit: 77\n")
    plan = site.document("plan", "--limit", "mq1", code=3)["rows"]
    assert [(row["host"], row["what"], row["before"], row["after"], row["needs"]) for row in plan] == [
        ("mq1", "option limits.link-credit", "2000", "77", "restart")
    ]
    site.run("rollout", "--limit", "mq1", "--yes")
    rest = site.document("plan", code=3)["rows"]
    assert {row["host"] for row in rest} == {"mq2", "mq3"}


def test_brokers_discover_each_other_over_the_cluster_card(site: Site) -> None:
    group = "{name: lan, group_address: 231.7.7.7, group_port: 9876"
    site.set_options(
        "mq_broker_options:\n  limits:\n    link_credit: 77\n"
        "mq_connectors:\n  - {name: cluster, port: 5673}\n"
        f"mq_broadcast_groups:\n  - {group}, connector_ref: cluster}}\n"
        f"mq_discovery_groups:\n  - {group}}}\n"
    )
    site.run("rollout", "--yes")
    reached = {host: f"amqp://198.51.100.{11 + number}:5673" for number, host in enumerate(HOSTS)}
    wanted = {(host, place) for host in HOSTS for one, place in reached.items() if one != host}
    deadline_s = time.monotonic() + 90
    while (found := {(row["host"], row["connector"]) for row in site.document("discovery", "list")["rows"]}) != wanted:
        assert time.monotonic() < deadline_s, (found, site.run("discovery", "groups").stdout)


def test_a_changed_password_is_planned_without_being_shown(site: Site) -> None:
    secrets = site.folder / "group_vars/brokers/secrets.yml"
    before, after = site.secrets()[1], "canary-new-password-1"
    secrets.write_text(secrets.read_text().replace(before, after))
    done = site.run("plan", code=3)
    assert done.stdout.count("password of app") == 3
    assert before not in done.stdout + done.stderr
    assert after not in done.stdout + done.stderr


def test_no_canary_at_full_verbosity(site: Site) -> None:
    canaries = [*site.secrets(), ENVIRONMENT_CANARY]
    outputs = []
    for words in (["--check", "--diff", "--limit", "mq3"], ["--diff"]):
        done = site.run("rollout", "--yes", "-vvv", *words)
        outputs.append(done.stdout + done.stderr)
    for text in outputs:
        assert "TASK [" in text
        assert [one for one in canaries if one in text] == []
    assert site.document("plan")["rows"] == []


@pytest.mark.one_day_in_three(0)
def test_whatever_is_changed_on_a_host_is_planned_and_mended(site: Site) -> None:
    """All at once on mq1, then what cannot go together with the rest, each on a host of its own.

    The first rollout gives mq2 a packet filter. What changes of that goes together with what mq2 has alone.
    """
    own = site.folder / "host_vars/mq2.yml"
    own.parent.mkdir(exist_ok=True)
    own.write_text("mq_firewall: true\nmq_firewall_confirm_s: 20\n")
    planned = {row["what"] for row in site.document("plan", "--limit", "mq2", code=3)["rows"]}
    assert {"packet filter in force", "packet filter at boot", "folder /etc/mq-firewall"} <= planned
    mend(site, [("mq1", one) for one in DRIFTS], "mq2")
    mend(site, [*zip(HOSTS, ALONE, strict=True), *(("mq2", one) for one in FILTERED)])
    own.unlink()
    assert [row["what"] for row in site.document("plan", code=3)["rows"]] == ["packet filter"]
    site.run("rollout", "--yes", "--limit", "mq2")
    assert site.document("rollout", "--yes", "--full")["changed"] == 0
    assert site.document("plan")["rows"] == []


def mend(site: Site, drifts: list[tuple[str, Drift]], *beside: str) -> None:
    """Change that, see it planned, and mend it, with what is to be done on other hosts beside."""
    for host in HOSTS:
        script = "\n".join(one.command for place, one in drifts if place == host)
        rack("exec", host, "--", "sh", "-ec", script)
    hosts = ",".join(sorted({*beside, *(host for host, _ in drifts)}))
    plan = site.document("plan", "--limit", hosts, code=3)["rows"]
    seen = {(row["host"], row["what"], row["action"]) for row in plan}
    assert [one for host, one in drifts if (host, one.what, one.action) not in seen] == [], plan
    site.run("rollout", "--yes", "--force", "--limit", hosts)  # who lacks its program cannot be asked
    assert site.document("plan", "--limit", hosts)["rows"] == []


def test_what_no_inventory_names_is_left_over(site: Site) -> None:
    made = "mkdir /etc/mq/old /var/lib/mq/old && touch /etc/mq/default/notes /etc/mq/old/broker.toml"
    rack("exec", "mq1", "--", "sh", "-ec", made)
    plan = site.document("plan")
    assert [(one["host"], one["instance"], one["what"]) for one in plan["left_over"]] == [
        ("mq1", "old", "instance old, which does not run"),
        ("mq1", "old", "messages and identity of instance old"),
        ("mq1", "", "file /etc/mq/default/notes"),
    ]
    for one in plan["left_over"]:
        rack("exec", one["host"], "--", "sh", "-ec", one["remedy"].replace("sudo ", ""))
    assert site.document("plan")["left_over"] == []


def test_uninstall_keeps_data_unless_told_otherwise(site: Site) -> None:
    refused = site.run("uninstall", code=2)
    assert "--yes" in refused.stderr
    site.run("uninstall", "--yes", "--limit", "mq1")
    assert [row["state"] for row in site.document("status", code=3)["rows"]] == ["absent", "running", "running"]
    left = "ls -d /var/lib/mq/default/identity.json /etc/mq /opt/mq 2>/dev/null; true"
    assert rack("exec", "mq1", "--", "sh", "-c", left).split() == ["/var/lib/mq/default/identity.json"]
    site.run("uninstall", "--yes", "--data")
    assert rack("exec", "mq1", "--", "sh", "-c", "ls -d /var/lib/mq /etc/mq /opt/mq 2>/dev/null; true").strip() == ""
    assert [row["state"] for row in site.document("status", code=3)["rows"]] == ["absent"] * 3
