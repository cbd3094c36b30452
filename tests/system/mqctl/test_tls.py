"""`mqctl tls` from end to end: files, rows and exit codes, and a broker with TLS clients that live through changes."""

from __future__ import annotations

import datetime
import json
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mqctl.commands.setup import tls_show
from mqctl.exits import Exit
from mqctl.main import execute
from mqctl.world import real_world

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S
from tests.system.bad_input.peer import Bystander


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MQCTL_INVENTORY", raising=False)
    return tmp_path


def rows(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[dict[str, Any]]:
    """The rows of a `tls` command."""
    capsys.readouterr()
    assert execute(["tls", *words, "-o", "json"]) == code, capsys.readouterr().err
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "mqctl.tls/1"
    found: list[dict[str, Any]] = document["rows"]
    return found


def keys_in(place: Path) -> list[str]:
    """A line out of the middle of every private key."""
    return [one.read_text().splitlines()[1] for one in place.rglob("*.key")]


def test_init_makes_a_ca_and_issue_what_is_missing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["init", "mq1=192.0.2.11", "mq2=192.0.2.12"]) == 0
    (ca,) = rows(capsys, "init")  # it is there already, and stays
    first = rows(capsys, "issue")
    assert [(one["host"], one["names"][:2]) for one in first] == [
        ("mq1", ["mq1", "192.0.2.11"]), ("mq2", ["mq2", "192.0.2.12"]),
    ]  # fmt: skip
    assert rows(capsys, "issue") == []
    shown = rows(capsys, "show")
    assert shown == [ca, *first]
    renewed = rows(capsys, "issue", "--renew", "--limit", "mq2")
    assert [one["host"] for one in renewed] == ["mq2"]
    assert renewed[0]["serial"] != first[1]["serial"]
    assert len({one["serial"] for one in [*rows(capsys, "rotate"), *first, *renewed]}) == 5


def test_show_says_what_ends_soon(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["init", "mq1"])
    assert [one["state"] for one in rows(capsys, "show", code=Exit.DEGRADED)] == ["ok", "missing"]
    rows(capsys, "issue", "--days", "100")
    assert execute(["tls", "show"]) == 0
    assert "NOT AFTER" in capsys.readouterr().out
    world = real_world()
    for days, state in ((80, "expires soon"), (101, "expired")):
        late = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        world.now = lambda late=late: late  # type: ignore[misc]
        assert tls_show.run(world, tls_show.Options()) == Exit.DEGRADED
        assert state in capsys.readouterr().out
    assert rows(capsys, "show", "--soon", "99", code=0)[1]["state"] == "ok"


def test_without_a_ca_nothing_is_planned(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["init", "mq1"])
    shutil.rmtree(place / "tls")
    for words in (["tls", "issue"], ["tls", "rotate"]):
        capsys.readouterr()
        assert execute(words) == Exit.USAGE
        said = capsys.readouterr().err
        assert "there is no CA in" in said
        assert "try: mqctl tls init, or set mq_tls: off" in said
    assert [one["state"] for one in rows(capsys, "show", code=Exit.DEGRADED)] == ["missing", "missing"]


def test_where_there_is_no_tls_there_is_nothing_to_show(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["init", "mq1", "--allow-plaintext"])
    assert not (place / "tls").exists()
    assert rows(capsys, "show") == []


def test_steps_of_a_new_ca_have_their_order(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["init", "mq1"])
    rows(capsys, "issue")
    for step, possible in (("switch", "begin"), ("finish", "begin")):
        assert execute(["tls", "rotate", "--ca", step]) == Exit.USAGE
        assert f"mqctl tls rotate --ca {possible}" in capsys.readouterr().err
    assert execute(["tls", "rotate", "--ca", "begin", "--permit", "10.0.0.0/8"]) == 0
    assert [one["kind"] for one in rows(capsys, "show")] == ["ca", "next ca", "node"]
    # mq1 cannot be asked what it runs with, so the step waits.
    assert execute(["tls", "rotate", "--ca", "switch"]) == Exit.FAILED
    assert "1 of 1 hosts are not ready" in capsys.readouterr().err
    assert execute(["tls", "rotate", "--ca", "switch", "--unseen"]) == Exit.FAILED
    assert "may not sign for 127.0.0.1" in capsys.readouterr().err


def test_keys_are_shown_nowhere_and_may_be_encrypted(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    execute(["init", "mq1"])
    (place / "pw").write_text("opensesame\n")
    command = ["ansible-vault", "encrypt", "--vault-password-file", "pw", "tls/main/ca.key"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert execute(["tls", "issue"]) == Exit.FAILED
    assert "is encrypted" in capsys.readouterr().err
    assert execute(["tls", "issue", "--vault-password-file", "pw", "-vvv"]) == 0
    said = capsys.readouterr()
    assert not [one for one in keys_in(place) if one in said.out + said.err]


class Site:
    """A broker whose two listeners have the certificate of mq1, as a rollout would set them up."""

    def __init__(self, place: Path, cluster_port: int) -> None:
        self.tls = place / "tls" / "main"
        self.certificate, self.key = (self.tls / "nodes" / "mq1" / name for name in ("default.pem", "default.key"))
        files = {"tls-certificate-file": str(self.certificate), "tls-key-file": str(self.key)}
        peers = {"tls-client-auth": "required", "tls-client-ca-file": str(self.tls / "trust.pem")}
        cluster = {"name": "cluster", "kind": "cluster", "port": cluster_port, **files, **peers}
        self.cluster_port = cluster_port
        self.broker = BrokerProcess(place / "broker", {"listeners": [cluster]}, listener=files, tls=self.client())

    def client(self, *, is_node: bool = False) -> ssl.SSLContext:
        """Somebody who trusts what trust.pem has now."""
        made = ssl.create_default_context(cafile=str(self.tls / "trust.pem"))
        if is_node:
            made.load_cert_chain(self.certificate, self.key)
        return made

    def reload(self) -> None:
        """What a rollout does where certificates alone have changed."""
        assert self.broker.process is not None
        self.broker.notify.forget()
        self.broker.process.send_signal(signal.SIGHUP)
        assert self.broker.notify.wait_for("READY=1", 60)

    def serial(self, context: ssl.SSLContext) -> str:
        """Of the certificate that a new client is shown."""
        plain = socket.create_connection((self.broker.host, self.broker.port), PATIENCE_S)
        with plain, context.wrap_socket(plain, server_hostname="localhost") as sock:
            return str((sock.getpeercert() or {})["serialNumber"]).lower().lstrip("0")

    def is_let_in(self, context: ssl.SSLContext) -> bool:
        """Whether the cluster listener answers to the header of SASL."""
        plain = socket.create_connection((self.broker.host, self.cluster_port), PATIENCE_S)
        try:
            with plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as sock:
                sock.sendall(b"AMQP\x03\x01\x00\x00")
                return sock.recv(4) == b"AMQP"
        except (ssl.SSLError, ConnectionError):
            return False


@pytest.fixture
def site(place: Path, capsys: pytest.CaptureFixture[str], free_port: int) -> Iterator[Site]:
    execute(["init", "mq1"])
    execute(["tls", "issue"])
    made = Site(place, free_port)
    with made.broker:
        yield made


@pytest.fixture
def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_clients_live_through_new_certificates_and_a_new_ca(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old = site.client()
    with Bystander(site.broker) as standing:
        standing.work()
        (first,) = [one["serial"] for one in rows(capsys, "show") if one["kind"] == "node"]
        assert site.serial(old) == first
        (second,) = [one["serial"] for one in rows(capsys, "rotate")]
        assert site.serial(old) == first  # the broker has what it has read
        site.reload()
        assert site.serial(old) == second != first
        assert execute(["tls", "rotate", "--ca", "begin"]) == 0
        site.reload()
        both = site.client(is_node=True)
        assert execute(["tls", "rotate", "--ca", "switch", "--unseen"]) == 0
        site.reload()
        assert site.serial(both) not in (first, second)
        assert site.is_let_in(both)  # signed by the old one, which is trusted until the end
        with pytest.raises(ssl.SSLCertVerificationError):
            site.serial(old)
        assert execute(["tls", "rotate", "--ca", "finish", "--unseen"]) == 0
        site.reload()
        site.broker.tls = site.client()
        assert site.serial(site.client()) == site.serial(both)
        assert not site.is_let_in(both)
        standing.work()  # connected before all of this, and never dropped
    assert "tls-handshake-failed" in site.broker.log


def test_the_cluster_listener_is_for_nodes_alone(site: Site) -> None:
    assert site.is_let_in(site.client(is_node=True))
    assert not site.is_let_in(site.client())
