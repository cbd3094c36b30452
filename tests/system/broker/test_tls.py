"""TLS of a running broker: logins and messages inside it, certificates renewed by SIGHUP, peers that misbehave."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from mqbroker.wire.performatives import Close, Open, SaslMechanisms, SaslOutcome
from prometheus_client.parser import text_string_to_metric_families

from tests.support import frames
from tests.support.broker_process import BrokerProcess, free_port
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_S
from tests.support.processor import undelayed
from tests.system.bad_input.peer import Bystander, Peer

Make = Callable[..., BrokerProcess]
TLS_HEADER = b"AMQP\x02\x01\x00\x00"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def started(make: Make, authority: Authority, client_auth: str = "none", **options: Any) -> BrokerProcess:
    broker = make(listener=authority.listener(client_auth, **options), tls=authority.client())
    broker.start()
    return broker


def serial_of(broker: BrokerProcess) -> str:
    """Which certificate a new connection is shown."""
    with broker.connect() as sock:
        assert isinstance(sock, ssl.SSLSocket)
        return str((sock.getpeercert() or {})["serialNumber"])


def offer_of(broker: BrokerProcess) -> list[str]:
    """The mechanisms that a new connection is offered."""
    with Peer(broker) as peer:
        peer.sock.sendall(frames.SASL_HEADER)
        (offer,) = peer.wait_for(SaslMechanisms)
        return [str(name) for name in offer.sasl_server_mechanisms]


def told(broker: BrokerProcess) -> list[tuple[str, ...]]:
    """(level, end, days left) of each certificate that the log says ends soon."""
    line = r"^\S+ (\w+) +certificate-expires listener=clients .*not_after=(\S+) days_left=(\S+) "
    return re.findall(line, broker.log, re.MULTILINE)


def ends(broker: BrokerProcess) -> dict[str, float]:
    """Option -> seconds since 1970, as Prometheus is told."""
    families = text_string_to_metric_families(broker.get("/metrics")[2])
    (family,) = (one for one in families if one.name == "mqbroker_certificate_not_after_seconds")
    assert all(sample.labels["listener"] == "clients" for sample in family.samples)
    return {sample.labels["option"]: sample.value for sample in family.samples}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def failed_start(broker: BrokerProcess) -> str:
    broker.launch()
    assert broker.wait() == 1
    return broker.log


def test_a_certificate_that_ends_soon_is_told_once_and_its_end_is_a_metric(
    make_broker: Make, authority: Authority
) -> None:
    in_days = {days: datetime.now(UTC).replace(microsecond=0) + timedelta(days=days, hours=1) for days in (5, 20, 400)}
    authority.renew(not_after=in_days[5])
    broker = make_broker(
        listener=authority.listener("optional"), tls=authority.client(), options={"metrics": {"port": free_port()}}
    )
    broker.start()
    assert told(broker) == [("ERROR", f"{in_days[5]:%Y-%m-%dT%H:%M:%SZ}", "5")]
    assert f"option=tls-certificate-file file={authority.certificate_file} " in broker.log
    ca = x509.load_pem_x509_certificate(authority.ca_file.read_bytes()).not_valid_after_utc
    assert ends(broker) == {"tls-certificate-file": in_days[5].timestamp(), "tls-client-ca-file": ca.timestamp()}
    assert broker.get("/readyz")[0] == 200, "a certificate that ends is no reason to restart"

    def reloaded(count: int) -> None:
        broker.signal(signal.SIGHUP)
        wait_until(lambda: broker.log.count(" reloaded ") == count)

    reloaded(1)
    assert len(told(broker)) == 1, "the same certificate is not told again within a day"
    authority.renew(not_after=in_days[20])
    reloaded(2)
    assert told(broker)[1:] == [("WARNING", f"{in_days[20]:%Y-%m-%dT%H:%M:%SZ}", "20")]
    authority.key_file.write_text("canary")
    reloaded(3)
    assert ends(broker)["tls-certificate-file"] == in_days[20].timestamp(), "the one of before is still in use"
    authority.renew(not_after=in_days[400])
    reloaded(4)
    assert len(told(broker)) == 2
    assert ends(broker)["tls-certificate-file"] == in_days[400].timestamp()


@pytest.mark.option("listeners.tls-certificate-file", "listeners.tls-key-file")
def test_a_login_and_a_message_inside_tls(make_broker: Make, authority: Authority) -> None:
    broker = started(make_broker, authority)
    with Bystander(broker) as peer:
        peer.work()
        assert isinstance(peer.sock, ssl.SSLSocket)
        assert peer.sock.version() == "TLSv1.3"
        assert broker.admin("queues")["queues"][0]["message_count"] == 1
        peer.send(frames.close())
        peer.wait_for_end()
        assert isinstance(peer.heard()[-1], Close)


def test_tls_beyond_loopback_needs_no_permission_and_offers_plain(make_broker: Make, authority: Authority) -> None:
    broker = started(make_broker, authority, local_bind_address="0.0.0.0")
    assert "PLAIN" in offer_of(broker)


def test_certificates_are_renewed_by_sighup_and_connections_go_on(make_broker: Make, authority: Authority) -> None:
    broker = started(make_broker, authority)
    before = serial_of(broker)
    with Bystander(broker) as peer:
        peer.work()
        authority.renew()
        assert serial_of(broker) == before, "files count when they are read, and they are read on reload"
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("reloaded users=1 options=1")
        after = serial_of(broker)
        assert after != before
        peer.work()
        # What cannot be used leaves all as it is, and says so.
        authority.key_file.write_text("canary")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("reload-refused listener=clients")
        assert "holds no private key in PEM form" in broker.log
        assert serial_of(broker) == after
        peer.work()
        authority.renew()
        broker.config_file.write_text("[node]\nnme = 'x'\n")
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("reloaded users=1 options=0")
        assert serial_of(broker) not in (before, after), "a fault in the options does not hold up a certificate"
        peer.work()
    assert "canary" not in broker.log


def test_tls_does_not_go_away_by_a_reload(make_broker: Make, authority: Authority) -> None:
    broker = started(make_broker, authority)
    broker.listener = {}
    broker.write_config()
    with broker.config_file.open("a") as file:
        file.write("# end of broker.toml\n")  # else it is taken for the beginning of the one in force
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("restart-needed option=listeners.clients.tls-certificate-file")
    broker.wait_for_log("reloaded")
    assert serial_of(broker)


@pytest.mark.parametrize("option", ["tls-certificate-file", "tls-key-file", "tls-client-ca-file"])
def test_a_missing_file_is_an_error_of_start_and_of_check(
    make_broker: Make, authority: Authority, option: str
) -> None:  # fmt: skip
    broker = make_broker(listener=authority.listener("required") | {option: "/nonexistent/x.pem"})
    log = failed_start(broker)
    assert f"listeners.0.{option}: /nonexistent/x.pem cannot be read (No such file or directory)" in log
    assert "Traceback" not in log
    with pytest.raises(AssertionError, match=f"exit code 1: .*{option}: /nonexistent/x.pem cannot be read"):
        broker.command("config", "check", str(broker.config_file))
    broker.listener = authority.listener("required")
    broker.write_config()
    assert "good" in broker.command("config", "check", str(broker.config_file))


@pytest.mark.option("listeners.tls-client-auth", "listeners.tls-client-ca-file")
def test_who_presents_no_certificate_where_one_is_required(make_broker: Make, authority: Authority) -> None:
    broker = started(make_broker, authority, "required")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        offer_of(broker)
    broker.wait_for_log("the peer presented no certificate, and tls-client-auth is required")
    broker.tls = authority.client(authority.certificate(common_name="whoever"))
    with Bystander(broker) as good:
        good.work()


@pytest.mark.option("listeners.tls-ciphers")
def test_a_peer_without_our_ciphers_is_told_so(make_broker: Make, authority: Authority) -> None:
    broker = started(make_broker, authority, tls_ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")
    context = authority.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    broker.tls = context
    with pytest.raises(ssl.SSLError, match="handshake"):
        broker.connect()
    broker.wait_for_log("no cipher that both sides have")


@pytest.mark.option("listeners.tls-handshake-timeout-ms")
def test_silent_and_slow_handshakes_end_after_their_time_and_disturb_nobody(
    make_broker: Make, authority: Authority
) -> None:
    """(37): one that says nothing, and one that sends its hello byte by byte."""
    broker = started(make_broker, authority, tls_handshake_timeout_ms=1500)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = authority.client().wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    rest = list(outgoing.read())
    with Bystander(broker) as bystander, undelayed(broker.pid) as seconds:
        peers = [socket.create_connection((broker.host, broker.port), PATIENCE_S) for _ in range(20)]
        started_s, before_s = time.monotonic(), seconds()
        open_ = set(peers)
        while open_ and seconds() - before_s < 10:
            byte = bytes([rest.pop(0)])
            for number, peer in enumerate(peers):
                if number % 2 and peer in open_:
                    with contextlib.suppress(ConnectionError):  # its end may be on its way
                        peer.sendall(byte)
            bystander.work()
            for peer in list(open_):
                peer.settimeout(0.01)
                try:
                    assert peer.recv(100) == b""
                    open_.discard(peer)
                except TimeoutError:
                    continue
                except ConnectionError:
                    open_.discard(peer)
        assert time.monotonic() - started_s > 1.4
        assert seconds() - before_s < 5
        for peer in peers:
            peer.close()
        assert broker.log.count("not done within 1500 ms") == 20
        broker.wait_for_connections(1)


def test_plain_on_tls_and_tls_on_plain_are_one_line_in_the_log(make_broker: Make, authority: Authority) -> None:
    broker = started(make_broker, authority)
    with socket.create_connection((broker.host, broker.port), PATIENCE_S) as sock:
        sock.sendall(frames.SASL_HEADER)
        assert sock.recv(100) == TLS_HEADER, "the header that is good here (§2.2)"
        assert sock.recv(100) == b""
    broker.wait_for_log("the peer speaks AMQP without TLS")
    plain = make_broker()
    plain.start()
    plain.tls = authority.client()
    with pytest.raises((ssl.SSLError, ConnectionError)):
        plain.connect()
    plain.wait_for_log("a TLS handshake, and there is no TLS here")
    for one in (broker, plain):
        assert "Traceback" not in one.log


@pytest.mark.parametrize("has_tls", [False, True])
def test_the_header_of_tls_is_answered_with_the_one_that_is_good_here(
    make_broker: Make, authority: Authority, has_tls: bool
) -> None:
    """Inside TLS and where there is none, that is the header of SASL (§2.2, §5.2)."""
    broker = started(make_broker, authority) if has_tls else make_broker()
    if not has_tls:
        broker.start()
    with Peer(broker) as peer:
        peer.send(TLS_HEADER)
        peer.wait_for_end()
        assert bytes(peer.said) == frames.SASL_HEADER


def test_memory_before_a_handshake_is_bounded(make_broker: Make, authority: Authority) -> None:
    """Peers that shake no hands but send: each a record's head and then bytes without end."""
    broker = started(make_broker, authority, tls_handshake_timeout_ms=20_000)
    before = broker.rss_bytes()
    head = b"\x16\x03\x01\x40\x00\x01\x01\xff\xff\x03\x03"  # a hello of 131,071 bytes in records of 16 KiB
    peers = [socket.create_connection((broker.host, broker.port), PATIENCE_S) for _ in range(100)]
    for peer in peers:
        peer.sendall(head + bytes(16_000))
    with Peer(broker) as peer:
        peer.send(frames.plain(broker.user, broker.password))
        peer.wait_for(SaslOutcome)
    assert broker.rss_bytes() - before < 20 << 20
    for each in peers:
        each.close()


# EXTERNAL


def outcome_of(broker: BrokerProcess, authzid: bytes = b"") -> int:
    """The code of a login with EXTERNAL; -1 where the handshake had come to nothing."""
    try:
        with Peer(broker) as peer:
            peer.sock.sendall(frames.external(authzid))
            (outcome,) = peer.wait_for(SaslOutcome)
            return int(outcome.code)
    except (ssl.SSLError, ConnectionError):
        return -1


@pytest.mark.option("listeners.sasl-mechanisms")
def test_external_lets_in_whom_the_certificate_names(make_broker: Make, authority: Authority) -> None:
    broker = started(make_broker, authority, "optional", sasl_mechanisms=["EXTERNAL", "PLAIN"])
    assert offer_of(broker) == ["PLAIN"]
    broker.tls = authority.client(authority.certificate(common_name="app"))
    assert offer_of(broker) == ["EXTERNAL", "PLAIN"]
    with Peer(broker) as peer:
        peer.send(frames.external() + frames.opened())
        peer.wait_for(Open)
        assert broker.admin("connections")["connections"][0]["user"] == "app"
    assert outcome_of(broker, b"app") == 0
    assert outcome_of(broker, b"somebody-else") == 1
    broker.wait_for_log("does not name the user as whom it wants to act")
    broker.tls = authority.client(authority.certificate(common_name="stranger"))
    assert outcome_of(broker) == 1
    broker.wait_for_log("there is no such user here")


@pytest.mark.option("listeners.tls-user-from")
def test_the_user_may_be_the_alternative_name(make_broker: Make, authority: Authority) -> None:
    options = {"sasl_mechanisms": ["EXTERNAL"], "tls_user_from": "subject-alternative-name"}
    broker = make_broker(listener=authority.listener("required", **options))
    broker.prepare()
    broker.set_user("app@example.org", "app-password-2")
    broker.start()
    broker.tls = authority.client(authority.certificate("app@example.org", common_name="app"))
    assert outcome_of(broker, b"app@example.org") == 0
    broker.tls = authority.client(authority.certificate("app@example.org", "b@example.org", common_name="app"))
    assert outcome_of(broker) == 1
    broker.wait_for_log("has 2 alternative name")


ODD: dict[str, tuple[Any, str]] = {
    "no name": (lambda a: a.odd(), "has no common name"),
    "empty name": (lambda a: a.odd(""), "is empty"),
    "zero byte in the name": (lambda a: a.odd("app\0.example.org"), "holds a control character"),
    "two names": (lambda a: a.odd("app", "admin"), "has 2 common names"),
    "not UTF-8": (
        lambda a: a.odd("app", email="to-patch@example.org", patch=(b"to-patch", b"\xff\xfe\xfd\xfc1234")),
        "cannot be read ('utf-8' codec",
    ),
    "very long": (lambda a: a.odd("x" * 20_000), "is longer than 1024 characters"),
    "a line break": (lambda a: a.odd("app\nlogin-failed user=forged"), "holds a control character"),
}


@pytest.mark.parametrize("case", ODD)
def test_certificates_with_odd_names_are_nobodys(make_broker: Make, authority: Authority, case: str) -> None:
    """(39): one clear line in the log, and others go on."""
    make, why = ODD[case]
    broker = started(make_broker, authority, "required", sasl_mechanisms=["EXTERNAL", "PLAIN"])
    good = authority.client(authority.certificate(common_name="app"))
    broker.tls = good
    with Bystander(broker) as bystander:
        broker.tls = authority.client(make(authority))
        assert outcome_of(broker) in (1, -1)
        bystander.work()
        broker.tls = good
        assert outcome_of(broker) == 0
    lines = [line for line in broker.log.splitlines() if "login-failed" in line or "handshake-failed" in line]
    assert len(lines) == 1, broker.log
    assert why in lines[0].lower()
    assert "Traceback" not in broker.log
    assert "user=forged" not in [word for line in broker.log.splitlines() for word in line.split()[:4]]
