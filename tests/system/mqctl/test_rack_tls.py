"""Certificates on real hosts: made by a rollout, used by both listeners, renewed without a restart. Needs the rack.

The tests are one story and run in their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.rack_site import Rack, Site, site_on

pytestmark = [pytest.mark.system, pytest.mark.timeout(1800)]

HOSTS = ["mq1", "mq2"]
# Run on a host: connects to a listener and says what it was shown, or why it was not let in.
LOOK = """
import json, socket, ssl, sys
address, port, is_node = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "node"
place = "/etc/mq/default/tls/"
context = ssl.create_default_context(cafile=place + "ca.pem")
if is_node:
    context.load_cert_chain(place + "server.pem", place + "server.key")
try:
    with socket.create_connection((address, port), 20) as plain:
        with context.wrap_socket(plain, server_hostname=address) as sock:
            sock.sendall(b"AMQP\\x03\\x01\\x00\\x00")
            answer = sock.recv(4)
            print(json.dumps([answer == b"AMQP", sock.getpeercert()["serialNumber"].lower().lstrip("0")]))
except OSError as fault:
    print(json.dumps([False, str(fault)]))
"""
rack = Rack("tls")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site_on(rack, "2", folder=tmp_path_factory.mktemp("rack") / "site", init=()) as one:
        yield one


def look(source: str, target: str, port: int, who: str = "client") -> tuple[bool, str]:
    """Whether a listener of `target` answers to somebody on `source`, and the serial number that it shows."""
    address = f"198.51.100.{10 + int(target.removeprefix('mq'))}"
    answers, serial = json.loads(rack("exec", source, "--", "python3", "-c", LOOK, address, str(port), who))
    return bool(answers), str(serial)


def starts() -> list[str]:
    """Changes with every start of a broker."""
    return [rack("exec", host, "--", "systemctl", "show", "mqbroker@default", "--property=InvocationID,NRestarts")
            for host in HOSTS]  # fmt: skip


def serials(site: Site) -> dict[str, str]:
    return {row["host"]: row["serial"] for row in site.document("tls", "show")["rows"] if row["kind"] == "node"}


def test_a_rollout_makes_what_is_missing(site: Site) -> None:
    assert not (site.folder / "tls/main/nodes").exists()
    plan = site.document("plan", code=3)
    made = [(row["host"], row["what"], row["action"]) for row in plan["rows"] if "certificate" in row["what"]]
    assert made == [
        (host, f"certificate {file}", action)
        for host in HOSTS
        for file, action in (("server.pem", "issue"), ("ca.pem", "create"))
    ]
    assert plan == site.document("plan", code=3)
    site.run("rollout", "--check", "--yes")
    assert not (site.folder / "tls/main/nodes").exists()
    done = site.run("rollout", "--plan", plan["plan"], "-vvv", "--diff")
    keys = [one.read_text().splitlines()[1] for one in (site.folder / "tls").rglob("*.key")]
    assert len(keys) == 3
    assert [one for one in keys if one in done.stdout + done.stderr] == []
    assert site.document("plan")["rows"] == []
    assert site.document("rollout", "--yes", "--full")["changed"] == 0
    found = rack("exec", "mq1", "--", "sh", "-c", "cd /etc/mq/default/tls && stat -c '%n %a %U %G' . *").splitlines()
    assert found == [". 750 root mq", *(f"{name} 640 root mq" for name in ("ca.pem", "server.key", "server.pem"))]
    assert rack("exec", "mq1", "--", "sh", "-c", "ls -A /run/mq/default/loaded").split() == [
        "broker.toml", "files.json", "mqbroker@.service", "release", "started.toml",
    ]  # fmt: skip


def test_both_listeners_have_tls_and_the_cluster_asks_for_a_certificate(site: Site) -> None:
    serial = serials(site)["mq1"]
    assert look("mq2", "mq1", 5671) == (True, serial)
    assert look("mq2", "mq1", 5673, "node") == (True, serial)
    assert not look("mq2", "mq1", 5673)[0]


def test_new_certificates_are_reloaded_and_nothing_restarts(site: Site) -> None:
    before, old = starts(), serials(site)
    site.run("tls", "rotate")
    plan = site.document("plan", code=3)["rows"]
    assert [(row["host"], row["what"], row["needs"]) for row in plan] == [
        (host, what, "reload")
        for host in HOSTS
        for what in ("file /etc/mq/default/tls/server.key", "certificate server.pem")
    ]
    assert look("mq2", "mq1", 5671) == (True, old["mq1"])
    site.run("rollout", "--yes")
    assert look("mq2", "mq1", 5671) == (True, serials(site)["mq1"])
    assert old["mq1"] != serials(site)["mq1"]
    assert starts() == before
    assert site.document("plan")["rows"] == []


def test_a_new_ca_in_steps_that_wait_for_the_hosts(site: Site) -> None:
    before = starts()
    site.run("tls", "rotate", "--ca", "begin")
    refused = site.run("tls", "rotate", "--ca", "switch", code=1)
    assert "2 of 2 hosts are not ready for this step" in refused.stderr
    site.run("rollout", "--yes")
    site.run("tls", "rotate", "--ca", "switch")
    site.run("rollout", "--yes", "--limit", "mq1")
    # One host shows what the new CA signed, the other what the old one did, and they trust each other.
    assert look("mq1", "mq2", 5673, "node")[0]
    assert look("mq2", "mq1", 5673, "node")[0]
    refused = site.run("tls", "rotate", "--ca", "finish", code=1)
    assert "mq2: default does not run with the certificates" in refused.stderr
    assert starts() == before


def test_without_tls_no_key_is_left(site: Site) -> None:
    site.set_options('mq_tls: "off"\nmq_allow_plaintext: true\n')
    plan = site.document("plan", "--limit", "mq1", code=3)["rows"]
    assert {row["what"] for row in plan if row["action"] == "remove"} >= {
        "certificate server.pem",
        "certificate ca.pem",
    }
    site.run("rollout", "--yes", "--limit", "mq1")
    assert rack("exec", "mq1", "--", "sh", "-c", "ls -d /etc/mq/default/tls 2>/dev/null; true").strip() == ""
    assert site.document("plan", "--limit", "mq1")["rows"] == []
    # Nor is it looked for in vain.
    assert "cannot stat" not in rack("exec", "mq1", "--", "journalctl", "--quiet", "--unit", "mqbroker@default")
