"""Bad input against a running broker: the specified error, a closed connection, and nobody else disturbed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from mqbroker.wire.performatives import Begin, SaslMechanisms, SaslOutcome

from tests.support import frames
from tests.support.bad_input import (
    AFTER,
    BEFORE,
    BEFORE_OPEN,
    CANARY,
    FRAME_SIZE_MAX,
    GREETINGS,
    MESSAGE_SIZE_MAX,
    SMALLER,
)
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.system.bad_input.peer import CLOSE_S_MAX, Bystander, Peer


@pytest.fixture(scope="module", params=["plain", "tls"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all cases, without TLS and with it: what one peer did must not show to the next."""
    listener: dict[str, Any] = {"max-frame-size-bytes": FRAME_SIZE_MAX, "idle-timeout-ms": 600_000}
    limits = {"max-message-size-bytes": MESSAGE_SIZE_MAX}
    directory = tmp_path_factory.mktemp("bad")
    tls = None
    if request.param == "tls":
        authority = Authority(directory / "ca")
        listener |= authority.listener()
        tls = authority.client()
    with BrokerProcess(directory, {"limits": limits}, listener, tls=tls) as made:
        yield made


@pytest.fixture(scope="module")
def _bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    with Bystander(broker) as made:
        yield made


@pytest.fixture
def bystander(broker: BrokerProcess, _bystander: Bystander) -> Iterator[Bystander]:
    """Works before and after every case, on the one connection that it has had all the time."""
    _bystander.work()
    yield _bystander
    _bystander.work()
    assert broker.admin("status")["state"] == "active"
    log = broker.log
    for secret in (CANARY, broker.password, "Traceback", "ERROR"):
        assert secret not in log
    assert 'event="bug"' not in log


# -- before login -----------------------------------------------------------------------------------------------------


def check_ended(peer: Peer, bystander: Bystander) -> None:
    """Closed within its second, however busy the machine is."""
    took_s = peer.wait_for_end()
    bystander.work()
    assert took_s < CLOSE_S_MAX


@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS)
def test_greetings_of_other_protocols(broker: BrokerProcess, bystander: Bystander, greeting: bytes) -> None:
    with Peer(broker) as peer:
        peer.send(greeting)
        check_ended(peer, bystander)
        assert bytes(peer.said) in (frames.SASL_HEADER, b""), "our header tells what is spoken here (§2.2)"


@pytest.mark.parametrize("case", BEFORE)
def test_before_login(broker: BrokerProcess, bystander: Bystander, case: str) -> None:
    with Peer(broker) as peer:
        peer.send(frames.SASL_HEADER)
        peer.wait_for(SaslMechanisms)
        peer.send(BEFORE[case])
        check_ended(peer, bystander)
        outcome = peer.heard()[2:]
        assert [type(each) for each in outcome] == [SaslOutcome], "a login tells an error by its outcome alone"
        assert outcome[0].code == 1


@pytest.mark.parametrize(("user", "password"), [("app", f"{CANARY}-wrong"), ("nobody", CANARY), ("app", "")])
def test_a_failed_login_is_told_and_closed(
    broker: BrokerProcess, bystander: Bystander, user: str, password: str
) -> None:
    with Peer(broker) as peer:
        peer.send(frames.plain(user, password))
        check_ended(peer, bystander)
        assert [each.code for each in peer.heard() if isinstance(each, SaslOutcome)] == [1]
        broker.wait_for_log("login-failed")


# -- after login, before open -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", BEFORE_OPEN)
def test_before_open(broker: BrokerProcess, bystander: Bystander, case: str) -> None:
    data, conditions = BEFORE_OPEN[case]
    with Peer(broker) as peer:
        peer.send(frames.plain(broker.user, broker.password))
        peer.wait_for(SaslOutcome)
        peer.send(frames.AMQP_HEADER + data)
        check_ended(peer, bystander)
        ((kind, condition),) = frames.errors(bytes(peer.said))
        assert kind == "Close"
        assert condition in conditions


# -- on an open connection --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", AFTER)
def test_on_an_open_connection(broker: BrokerProcess, bystander: Bystander, case: str) -> None:
    data, condition = AFTER[case]
    with Peer(broker) as peer:
        peer.login()
        peer.send(data)
        check_ended(peer, bystander)
        assert frames.errors(bytes(peer.said)) == [("Close", condition)]


@pytest.mark.parametrize("case", SMALLER)
def test_what_ends_no_more_than_a_link_or_a_session(broker: BrokerProcess, bystander: Bystander, case: str) -> None:
    data, told = SMALLER[case]
    with Peer(broker) as peer:
        peer.login()
        peer.send(data + frames.begun(3))
        peer.wait_for(Begin, 2)
        assert frames.errors(bytes(peer.said)) == [told]
        peer.send(frames.close())
        check_ended(peer, bystander)


def test_a_silent_connection_costs_its_time_and_no_more(tmp_path_factory: pytest.TempPathFactory) -> None:
    """At each stage before its open a peer has the login's time; afterwards the idle timeout's."""
    listener = {"login-timeout-ms": 600, "idle-timeout-ms": 1200}
    with BrokerProcess(tmp_path_factory.mktemp("silent"), listener=listener) as broker:
        starts = [b"", b"A", frames.SASL_HEADER, frames.SASL_HEADER + b"\0\0"]
        peers = [Peer(broker) for _ in starts]
        started_s = time.monotonic()
        for peer, start in zip(peers, starts, strict=True):
            peer.send(start)
        with Peer(broker) as opened:
            opened.login()
            for peer in peers:
                with peer:
                    peer.wait_for_end()
                    assert time.monotonic() - started_s > 0.5
            opened.wait_for_end()
            assert frames.errors(bytes(opened.said)) == [("Close", "amqp:resource-limit-exceeded")]
            assert time.monotonic() - started_s > 1.1
        broker.wait_for_connections(0)
