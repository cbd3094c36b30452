"""What operators do wrong, on real hosts: reloads that are refused, a rollout that is interrupted, two of them at once.

The tests are one story and run in their order. Needs root and the rack.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plugins.module_utils import change_lock
from tests.support.certificates import Authority
from tests.support.rack_site import ELSEWHERE, Rack, Site, interrupt, site_on

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

rack = Rack("operator")
HOSTS = ["mq1", "mq2"]
OWN = "/etc/ssl/own"
LISTENERS = (
    "mq_listeners:\n"
    f"  - {{name: clients, port: 5671, tls_certificate_file: {OWN}/server.pem, tls_key_file: {OWN}/server.key}}\n"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(rack, "2", folder=tmp_path_factory.mktemp("rack") / "site") as one:
        yield one


def put(host: str, file: Path) -> None:
    """A file of the operator's own, which no inventory knows of."""
    script = f"mkdir -p {OWN} && cat > {OWN}/{file.name} <<'END'\n{file.read_text()}END\nchmod 0644 {OWN}/*"
    rack("exec", host, "--", "sh", "-ec", script)


def invocation(host: str) -> str:
    return rack("exec", host, "--", "systemctl", "show", "--value", "--property=InvocationID", "mqbroker@default")


def noted(host: str) -> str:
    """Who holds the host."""
    return rack("exec", host, "--", "cat", change_lock.PLACE).strip()


def test_a_reload_that_is_refused_fails_and_stays_in_the_plan(site: Site, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    for host in ("mq1", "mq2"):
        put(host, authority.certificate_file)
        put(host, authority.key_file)
    site.set_options(LISTENERS)
    site.run("rollout", "--yes")
    assert site.document("plan")["rows"] == []
    before = invocation("mq1")
    rack("exec", "mq1", "--", "systemctl", "reload", "mqbroker@default")
    # The key of another certificate, put there by hand.
    put("mq1", other.key_file)
    line = [("mq1", f"running file {OWN}/server.key", "reload")]
    assert [(row["host"], row["what"], row["needs"]) for row in site.document("plan", code=3)["rows"]] == line
    reload = "systemctl reload mqbroker@default; echo $?; journalctl -u mqbroker@default -o cat -n 20"
    code, *log = rack("exec", "mq1", "--", "sh", "-c", reload).splitlines()
    assert code != "0"
    assert any("is not the key of the certificate" in one for one in log), log
    for _ in range(2):
        rows = {row["host"]: row for row in site.document("rollout", "--yes", code=1)["rows"]}
        assert rows["mq1"]["state"] == "failed"
        assert "Stop where it refuses what is installed: mqbroker reload: config-reload: " in rows["mq1"]["note"]
        assert f"{OWN}/server.key is not the key of the certificate in {OWN}/server.pem" in rows["mq1"]["note"]
        assert [(row["host"], row["what"], row["needs"]) for row in site.document("plan", code=3)["rows"]] == line
        # It has ended, so nobody is held up by it, wherever he is.
        assert [noted(host) for host in ("mq1", "mq2")] == ["", ""]
    refused = site.run("rollout", "--yes", "--full", code=1, inside=ELSEWHERE)
    assert "Stop where it refuses what is installed" in refused.stderr
    assert {row["state"] for row in site.document("status")["rows"]} == {"running"}
    put("mq1", authority.key_file)
    assert site.document("plan")["rows"] == []
    authority.renew()
    put("mq1", authority.certificate_file)
    put("mq1", authority.key_file)
    assert {row["what"] for row in site.document("plan", code=3)["rows"]} == {
        f"running file {OWN}/{name}" for name in ("server.key", "server.pem")
    }
    site.run("rollout", "--yes")
    assert site.document("plan")["rows"] == []
    assert invocation("mq1") == before


def test_ctrl_c_says_how_far_each_host_has_come_and_a_rollout_goes_on(site: Site) -> None:
    site.set_options(f"{LISTENERS}mq_broker_options:\n  limits:\n    link_credit: 77\n")
    rows, said = site.rollout_until("mq1: changed: broker: Write the unit and the options", interrupt, 130)
    # On a busy machine the turn of the other may have come until Ansible has ended.
    assert {row["state"] for row in rows.values()} <= {"interrupted", "stopped"}, rows
    assert "stopped" in {row["state"] for row in rows.values()}, rows
    for host, row in rows.items():
        if row["state"] == "interrupted":
            assert "which may be done or not, or still be under way there" in row["note"]
            assert f"{host}: its broker is " in said
        else:
            before = "the run was interrupted before this host was done; the last thing that was done there is"
            assert before in row["note"]
    assert "interrupted: 0 of 2 hosts done; mqctl rollout again goes on" in said
    # A task that was under way, and did not end, keeps its host; everybody else is given back.
    for host in ("mq1", "mq2"):
        assert noted(host) == "" or f"{host}: a task is still under way there, so it stays held for this run" in said
    site.run("rollout", "--yes")
    assert site.document("plan")["rows"] == []
    assert noted("mq1") == ""


def hold(host: str, holder: dict[str, Any]) -> None:
    """As if another run had the host."""
    rack("exec", host, "--", "sh", "-ec", f"cat > {change_lock.PLACE} <<'END'\n{json.dumps(holder)}\nEND")


def hold_for_bob(_: int) -> None:
    for host in HOSTS:
        hold(host, BOB)


BOB = {
    "user": "bob", "machine": "laptop", "space": "another boot", "pid": 7, "began": "1", "what": "a rollout",
    "since": "2026-01-05 10:12:00 UTC",
}  # fmt: skip


def test_a_second_operator_is_told_of_the_first(site: Site) -> None:
    # Settings of a user with which hosts would not wait for each other.
    (site.folder / "ansible.cfg").write_text("[defaults]\nstrategy = free\nany_errors_fatal = true\nforks = 1\n")
    hold("mq2", BOB)
    rows = {row["host"]: row for row in site.document("rollout", "--yes", "--full", code=1)["rows"]}
    assert (rows["mq1"]["state"], rows["mq2"]["state"], rows["mq1"]["changed"]) == ("failed", "failed", 0)
    told = "it is being changed by bob from laptop (a rollout, process 7) since 2026-01-05 10:12:00 UTC"
    assert told in rows["mq2"]["note"]
    assert rows["mq2"]["note"].endswith("nothing was changed on any host")
    assert "somebody else changes mq2; nothing was changed on any host" in rows["mq1"]["note"]
    assert told in site.run("uninstall", "--yes", code=1).stdout
    # What could be taken was given back, and who says so takes the place of the other.
    assert rack("exec", "mq1", "--", "cat", change_lock.PLACE).strip() == ""
    site.run("rollout", "--yes", "--full", "--take-over")
    assert rack("exec", "mq2", "--", "cat", change_lock.PLACE).strip() == ""
    (site.folder / "ansible.cfg").unlink()
    # A process of this machine holds it for as long as it lives.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as first:
        own = {"space": change_lock.space(), "pid": first.pid, "began": change_lock.began(first.pid)}
        hold("mq1", BOB | own)
        assert f"process {first.pid}" in site.run("rollout", "--yes", "--full", code=1).stdout
        first.communicate()
    site.run("rollout", "--yes", "--full")


def test_who_was_taken_for_gone_and_is_not_ends_before_its_next_batch(site: Site) -> None:
    site.set_options(f"{LISTENERS}mq_broker_options:\n  limits:\n    link_credit: 78\n")
    before = invocation("mq2")
    rows, _ = site.rollout_until("mq1: changed: broker: Write the unit and the options", hold_for_bob, 1)
    assert rows["mq2"]["state"] == "failed", rows
    assert "it is being changed by bob from laptop" in rows["mq2"]["note"]
    assert rows["mq2"]["note"].endswith("; what this run has not done yet stays undone")
    assert invocation("mq2") == before
    assert [json.loads(noted(host)) for host in HOSTS] == [BOB, BOB]
    site.run("rollout", "--yes", "--take-over")
    assert site.document("plan")["rows"] == []
    assert [noted(host) for host in HOSTS] == ["", ""]


def test_what_mqctl_held_that_was_killed_is_held_elsewhere(site: Site) -> None:
    site.set_options(f"{LISTENERS}mq_broker_options:\n  limits:\n    link_credit: 79\n")
    line = "mq1: changed: broker: Write the unit and the options"
    site.rollout_until(line, lambda group: os.killpg(group, signal.SIGKILL), -signal.SIGKILL)
    assert "--take-over" in site.run("rollout", "--yes", code=1, inside=ELSEWHERE).stdout
    site.run("rollout", "--yes")
    assert site.document("plan")["rows"] == []
    assert [noted(host) for host in HOSTS] == ["", ""]
