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

import pytest

from plugins.module_utils import operation
from tests.support.certificates import Authority
from tests.support.rack_site import ELSEWHERE, RACK, Rack, Site, interrupt, site_on
from tests.system.mqctl.test_plain_playbooks import ANSIBLE

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
    note = json.loads(rack("exec", host, "--", "cat", operation.PLACE))
    return str(note["user"]) if note["is_held"] else ""


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
        assert rows["mq1"]["note"].startswith("broker: The release can run with them: ")
        assert f"{OWN}/server.key is not the key of the certificate in {OWN}/server.pem" in rows["mq1"]["note"]
        assert "no broker was restarted on any host" in rows["mq1"]["note"]
        assert [(row["host"], row["what"], row["needs"]) for row in site.document("plan", code=3)["rows"]] == line
        # It has ended, so nobody is held up by it, wherever he is.
        assert [noted(host) for host in ("mq1", "mq2")] == ["", ""]
    refused = site.run("rollout", "--yes", "--full", code=1, inside=ELSEWHERE)
    assert "The release can run with them" in refused.stderr
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
        assert noted(host) == "" or f"{host}: a task is still under way there, so it stays held" in said
    site.run("rollout", "--yes", "--resume")
    assert site.document("plan")["rows"] == []
    assert noted("mq1") == ""


def hold(host: str, number: int, what: str = "mqctl rollout") -> None:
    """As if bob had gone on elsewhere with what runs here, or had begun before."""
    text = json.dumps(BOB | {"number": number, "what": what})
    rack("exec", host, "--", "sh", "-ec", f"cat > {operation.PLACE} <<'END'\n{text}\nEND")


def hold_for_bob(_: int) -> None:
    for host in HOSTS:
        hold(host, 1000)


BOB = {
    "is_held": True, "token": "bob", "user": "bob", "machine": "laptop", "since": "2026-01-05 10:12:00 UTC",
}  # fmt: skip


def test_a_second_operator_is_told_of_the_first(site: Site) -> None:
    hold("mq2", 100)
    told = "operation 100 (mqctl rollout, bob from laptop, since 2026-01-05 10:12:00 UTC) is under way"
    for words in (("rollout", "--full"), ("uninstall",), ("uninstall", "--resume")):
        refused = site.run(*words, "--yes", code=1)
        assert told in refused.stderr
        assert "mqctl rollout --resume" in refused.stderr
        assert "try: mqctl operation show" in refused.stderr
        assert [noted(host) for host in HOSTS] == ["", "bob"]
    rows = {row["host"]: (row["number"], row["state"], row["user"]) for row in site.rows("operation", "show")}
    assert rows["mq2"] == (100, "held", "bob")
    assert rows["mq1"][1] == "free"
    site.run("rollout", "--yes", "--full", "--resume", inside=ELSEWHERE)
    assert [row["number"] for row in site.rows("operation", "show")] == [101, 101]
    assert [noted(host) for host in HOSTS] == ["", ""]


def test_a_plain_playbook_is_an_operation_of_its_own(site: Site) -> None:
    # Settings of a user with which hosts would not wait for each other.
    (site.folder / "ansible.cfg").write_text("[defaults]\nstrategy = free\nany_errors_fatal = true\nforks = 1\n")
    hold("mq2", 200)
    command = [sys.executable, str(RACK), "enter", "--", str(ANSIBLE), "mqops.cluster.firewall", "-i", "inventory.yml"]

    def play(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words], cwd=site.folder, env=site.environment, capture_output=True, text=True, timeout=600,
            check=False,
        )  # fmt: skip

    refused = play()
    assert refused.returncode != 0
    said = " ".join(refused.stdout.split())
    assert "operation 200 (mqctl rollout, bob from laptop" in said, refused.stdout
    assert "mq2 cannot be taken, for the reason said there; nothing was changed on any host" in said, refused.stdout
    # What could be taken was given back.
    assert [noted(host) for host in HOSTS] == ["", "bob"]
    # It goes on with what another run of it began, and not with what is mqctl's.
    assert play("-e", "mq_resume=true").returncode != 0
    assert [noted(host) for host in HOSTS] == ["", "bob"]
    hold("mq2", 210, what="packet filters")
    done = play("-e", "mq_resume=true")
    assert done.returncode == 0, done.stdout
    rows = site.rows("operation", "show")
    assert [(row["state"], row["command"]) for row in rows] == [("free", "packet filters")] * 2
    assert len({row["number"] for row in rows}) == 1
    assert rows[0]["number"] > 201  # the refused one had 201 on mq1
    (site.folder / "ansible.cfg").unlink()


def test_who_was_taken_for_gone_and_is_not_restarts_nothing_more(site: Site) -> None:
    site.set_options(f"{LISTENERS}mq_broker_options:\n  limits:\n    link_credit: 78\n")
    before = [invocation(host) for host in HOSTS]
    rows, _ = site.rollout_until("mq1: changed: broker: Write the unit and the options", hold_for_bob, 1)
    assert {host: row["state"] for host, row in rows.items()} == {"mq1": "failed", "mq2": "stopped"}
    assert "operation 1000 (mqctl rollout, bob from laptop" in rows["mq1"]["note"]
    assert [invocation(host) for host in HOSTS] == before
    assert [noted(host) for host in HOSTS] == ["bob", "bob"]
    site.run("rollout", "--yes", "--resume")
    assert site.document("plan")["rows"] == []
    assert [noted(host) for host in HOSTS] == ["", ""]


def test_what_mqctl_held_that_was_killed_stays_held(site: Site) -> None:
    site.set_options(f"{LISTENERS}mq_broker_options:\n  limits:\n    link_credit: 79\n")
    line = "mq1: changed: broker: Write the unit and the options"
    site.rollout_until(line, lambda group: os.killpg(group, signal.SIGKILL), -signal.SIGKILL)
    site.was_killed = True
    held = site.rows("operation", "show")
    assert [row["state"] for row in held] == ["held", "held"]
    # A boot ends no operation.
    rack("kill", "mq1")
    rack("boot", "mq1")
    for inside in ((), ELSEWHERE):
        assert "mqctl rollout --resume" in site.run("rollout", "--yes", code=1, inside=inside).stderr
    site.run("operation", "release", "--yes")
    freed = site.rows("operation", "show")
    assert [(row["state"], row["number"]) for row in freed] == [("free", held[0]["number"] + 1)] * 2
    site.run("rollout", "--yes")
    site.was_killed = False
    assert site.document("plan")["rows"] == []
    assert [noted(host) for host in HOSTS] == ["", ""]
