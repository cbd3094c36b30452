"""Proton over TLS: messages there and back, EXTERNAL by its certificate, and a broker that it does not trust."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.foreign.client import ProtonClient
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority

pytestmark = pytest.mark.foreign


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


@pytest.fixture
def secure(make_broker: Callable[..., BrokerProcess], authority: Authority) -> BrokerProcess:
    broker = make_broker(listener=authority.listener("optional", sasl_mechanisms=["EXTERNAL", "PLAIN"]))
    broker.start()
    return broker


def test_messages_over_tls(secure: BrokerProcess, authority: Authority, client: ProtonClient) -> None:
    assert client.connect("c", secure, ca=str(authority.ca_file))["mechanism"] == "PLAIN"
    client.sender("c", "out", "orders")
    client.receiver("c", "in", "orders", credit=50)
    ids = [f"m{number}" for number in range(50)]
    assert {row["outcome"] for row in client.send("out", ids, durable=True, size=20_000)} == {"accepted"}
    assert [row["id"] for row in client.receive("in", 50)] == ids


def test_external(secure: BrokerProcess, authority: Authority, client: ProtonClient) -> None:
    certificate = authority.certificate(common_name=secure.user)
    login = {"user": None, "password": None, "ca": str(authority.ca_file), "certificate": str(certificate)}
    assert client.connect("c", secure, **login)["mechanism"] == "EXTERNAL"
    assert secure.admin("connections")["connections"][0]["user"] == secure.user


def test_a_broker_of_another_authority_is_not_trusted(
    secure: BrokerProcess, client: ProtonClient, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    answer = client.connect("c", secure, ca=str(other.ca_file))
    assert "certificate verify failed" in str(answer["failed"])
    secure.wait_for_log("tls-handshake-failed")
