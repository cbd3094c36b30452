"""What operators do wrong, on real hosts: reloads that are refused, a rollout that is interrupted, two of them at once.

The tests are one story and run in their order. Needs root and the rack.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.rack_site import Rack, Site

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
