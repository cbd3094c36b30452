"""Who is let in: PLAIN and ANONYMOUS by Proton, SCRAM by Cyrus SASL, and who is not.

Debian 12 builds Proton without Cyrus: its own SASL knows PLAIN, ANONYMOUS and EXTERNAL. SCRAM is tested with libsasl2
itself, whose client also checks that the broker knows the verifier.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.foreign.client import FOLDER, PYTHON, ProtonClient
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S
from tests.support.processor import undelayed

pytestmark = pytest.mark.foreign

UNAUTHORIZED = "amqp:unauthorized-access"


def cyrus(broker: BrokerProcess, mechanism: str, user: str, password: str) -> dict[str, Any]:
    done = subprocess.run(
        [PYTHON, str(FOLDER / "cyrus_login.py"), str(broker.port), mechanism, user, password],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def test_plain(broker: BrokerProcess, client: ProtonClient) -> None:
    assert client.connect("c", broker)["mechanism"] == "PLAIN"


@pytest.mark.parametrize("login", [("app", "wrong"), ("nobody", "app-password-1"), ("app", "")])
def test_a_wrong_password_or_name_is_refused(
    broker: BrokerProcess, client: ProtonClient, login: tuple[str, str]
) -> None:
    user, password = login
    answer = client.connect("c", broker, user=user, password=password)
    assert answer["failed"]["condition"] == UNAUTHORIZED
    assert "login-failed" in broker.log
    # The same process may try again, and better.
    assert client.connect("c2", broker)["mechanism"] == "PLAIN"


def test_a_client_without_a_password_finds_no_mechanism(broker: BrokerProcess, client: ProtonClient) -> None:
    answer = client.connect("c", broker, user=None, password=None)
    assert answer["failed"]["condition"] == UNAUTHORIZED


@pytest.mark.option("listeners.sasl-mechanisms")
def test_anonymous_where_it_is_configured(
    make_broker: Callable[..., BrokerProcess], make_client: Callable[[], ProtonClient]
) -> None:
    broker = make_broker(listener={"sasl-mechanisms": ["ANONYMOUS", "PLAIN"]})
    broker.start()
    client = make_client()
    assert client.connect("c", broker, user=None, password=None)["mechanism"] == "ANONYMOUS"
    client.sender("c", "out", "orders")
    assert client.send("out", ["a"])[0]["outcome"] == "accepted"
    other = make_client()
    assert other.connect("c", broker, mechanisms="PLAIN")["mechanism"] == "PLAIN"


def test_anonymous_is_refused_elsewhere(broker: BrokerProcess, client: ProtonClient) -> None:
    answer = client.connect("c", broker, user=None, password=None, mechanisms="ANONYMOUS")
    assert answer["failed"]["condition"] == UNAUTHORIZED


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
def test_cyrus_logs_in(broker: BrokerProcess, mechanism: str) -> None:
    row = cyrus(broker, mechanism, broker.user, broker.password)
    assert row["offered"] == ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
    assert (row["mechanism"], row["code"]) == (mechanism, 0)
    assert row["is_genuine"] is (None if mechanism == "PLAIN" else True)


@pytest.mark.parametrize("login", [("app", "wrong"), ("nobody", "app-password-1")])
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"])
def test_cyrus_with_a_wrong_name_or_password_is_refused(
    broker: BrokerProcess, mechanism: str, login: tuple[str, str]
) -> None:
    assert cyrus(broker, mechanism, *login)["code"] == 1


def test_names_and_passwords_of_any_characters(make_broker: Callable[..., BrokerProcess], client: ProtonClient) -> None:
    """Separators of SCRAM's messages in the name, letters beyond ASCII in the password."""
    broker = make_broker()
    broker.prepare()
    broker.set_user("a=b,c", "pässwörd €,=")
    broker.start()
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        assert cyrus(broker, mechanism, "a=b,c", "pässwörd €,=")["code"] == 0
    assert client.connect("c", broker, user="a=b,c", password="pässwörd €,=")["mechanism"] == "PLAIN"


def test_many_wrong_logins_do_not_hold_up_a_good_one(
    broker: BrokerProcess, make_client: Callable[[], ProtonClient]
) -> None:
    bad, good = make_client(), make_client()
    for number in range(50):
        bad.connect(f"c{number}", broker, user=f"other-{number}", password="wrong", is_waiting=False)
    with undelayed(broker.pid, bad.process.pid, good.process.pid) as seconds:
        assert good.connect("c", broker)["mechanism"] == "PLAIN"
        assert seconds() < 5
    for number in range(50):
        assert bad.ask("wait_lost", name=f"c{number}")["lost"]["condition"] == UNAUTHORIZED
