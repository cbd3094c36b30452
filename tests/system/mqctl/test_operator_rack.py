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
from tests.support.rack_site import MQCTL, RACK, Rack, Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

rack = Rack("operator")
OWN = "/etc/ssl/own"
LISTENERS = (
    "mq_listeners:\n"
    f"  - {{name: clients, port: 5671, tls_certificate_file: {OWN}/server.pem, tls_key_file: {OWN}/server.key}}\n"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    rack("destroy")
    try:
        rack("up", "2")
        folder = tmp_path_factory.mktemp("rack") / "site"
        folder.mkdir()
        (folder / "inventory.yml").write_text(rack("inventory", "--group", "brokers"))
        one = Site(folder, rack)
        one.run("init", "--interface", "eth1", "--allow-plaintext")
        one.take_bundle()
        yield one
    finally:
        rack("destroy")


def put(host: str, file: Path) -> None:
    """A file of the operator's own, which no inventory knows of."""
    script = f"mkdir -p {OWN} && cat > {OWN}/{file.name} <<'END'\n{file.read_text()}END\nchmod 0644 {OWN}/*"
    rack("exec", host, "--", "sh", "-ec", script)


def invocation(host: str) -> str:
    return rack("exec", host, "--", "systemctl", "show", "--value", "--property=InvocationID", "mqbroker@default")


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


def interrupted_at(site: Site, line: str) -> tuple[dict[str, dict[str, Any]], str]:
    """A rollout that gets Ctrl-C when mqctl says this; how each host ended, and what was said."""
    command = [sys.executable, str(RACK), "enter", "--", *MQCTL, "rollout", "--yes", "--json"]
    environ = {**os.environ, "RACK_NAME": rack.name, "XDG_RUNTIME_DIR": str(site.run_folder)}
    out = site.folder / "rollout.json"
    with out.open("w") as stdout, subprocess.Popen(
        command, cwd=site.folder, env=environ, stdout=stdout, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        said = []
        for one in process.stderr:
            said.append(one)
            if line in one and process.returncode is None:
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
                line = "\n\n"
        assert process.wait(120) == 130, "".join(said)
    return {row["host"]: row for row in json.loads(out.read_text())["rows"]}, "".join(said)


def test_ctrl_c_says_how_far_each_host_has_come_and_a_rollout_goes_on(site: Site) -> None:
    site.set_options(f"{LISTENERS}mq_broker_options:\n  limits:\n    link_credit: 77\n")
    rows, said = interrupted_at(site, "mq1: changed: broker: Write the unit and the options")
    assert rows["mq1"]["state"] in ("interrupted", "stopped"), rows
    assert rows["mq2"]["state"] == "stopped"
    assert (
        "the run was interrupted before this host was done; the last thing that was done there is"
        in rows["mq2"]["note"]
    )
    if rows["mq1"]["state"] == "interrupted":
        assert "which may be done or not, or still be under way there" in rows["mq1"]["note"]
        assert "mq1: its broker is " in said
    assert "interrupted: 0 of 2 hosts done; mqctl rollout again goes on" in said
    # What the run that is gone has held stands in nobody's way here.
    assert rack("exec", "mq1", "--", "cat", change_lock.PLACE).strip() != ""
    site.run("rollout", "--yes")
    assert site.document("plan")["rows"] == []
    assert rack("exec", "mq1", "--", "cat", change_lock.PLACE).strip() == ""


def hold(host: str, holder: dict[str, Any]) -> None:
    """As if another run had the host."""
    rack("exec", host, "--", "sh", "-ec", f"cat > {change_lock.PLACE} <<'END'\n{json.dumps(holder)}\nEND")


def test_a_second_operator_is_told_of_the_first(site: Site) -> None:
    elsewhere = {
        "user": "bob", "machine": "laptop", "space": "another boot", "pid": 7, "began": "1", "what": "a rollout",
        "since": "2026-01-05 10:12:00 UTC",
    }  # fmt: skip
    hold("mq2", elsewhere)
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
    # A process of this machine holds it for as long as it lives.
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as first:
        own = {"space": change_lock.space(), "pid": first.pid, "began": change_lock.began(first.pid)}
        hold("mq1", elsewhere | own)
        assert f"process {first.pid}" in site.run("rollout", "--yes", "--full", code=1).stdout
        first.communicate()
    site.run("rollout", "--yes", "--full")
