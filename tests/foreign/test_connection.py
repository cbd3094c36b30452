"""Connections of a foreign client: what open says, idle timeouts both ways, refusals of links, greetings of others."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.foreign.client import ProtonClient
from tests.foreign.conftest import wait_for_depth
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.foreign

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
MECHANISMS_CODE = b"\x00\x53\x40"
Make = Callable[..., BrokerProcess]


def connections(broker: BrokerProcess) -> int:
    count: int = broker.admin("status")["connections"]
    return count


def wait_until(is_so: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> float:
    started_s = time.monotonic()
    while not is_so():
        assert time.monotonic() - started_s < timeout_s, f"{what}: not after {timeout_s} s"
        time.sleep(0.02)
    return time.monotonic() - started_s


# -- open --------------------------------------------------------------------------------------------------------------


@pytest.mark.option("listeners.idle-timeout-ms")
@pytest.mark.option("listeners.max-frame-size-bytes")
@pytest.mark.option("limits.sessions-per-connection-max")
def test_open_announces_limits_and_half_of_the_idle_timeout(make_broker: Make, client: ProtonClient) -> None:
    """Half, because clients take the announced time for the time after which they are gone, and beat just before it."""
    listener = {"idle-timeout-ms": 30_000, "max-frame-size-bytes": 8192}
    broker = make_broker(listener=listener, options={"limits": {"sessions-per-connection-max": 5}})
    broker.start()
    opened = client.connect("c", broker)
    assert opened["idle_timeout_s"] == 15.0
    assert opened["frame_size"] == 8192
    assert opened["channel_max"] == 4
    assert opened["properties"]["product"] == "mqbroker"
    assert opened["container"] == opened["properties"]["node-id"] == broker.admin("status")["node_id"]
    # What is not there is not offered: Qpid JMS, rhea and others act on these names.
    offered = ["sole-connection-for-container", "ANONYMOUS-RELAY", "SHARED-SUBS", "DELAYED_DELIVERY"]
    assert opened["capabilities"] == offered
    client.sender("c", "out", "orders")
    client.receiver("c", "in", "orders", credit=1)
    client.send("out", ["a"], size=100_000)
    assert client.receive("in", 1)[0]["size"] == 100_000


def test_two_connections_may_have_one_container_id(
    broker: BrokerProcess, make_client: Callable[[], ProtonClient], queue: str
) -> None:
    for number in range(2):
        client = make_client()
        client.connect("c", broker, container="same")
        client.sender("c", "out", queue)
        client.send("out", [f"m{number}"])
    wait_for_depth(broker, queue, 2)


# -- idle timeouts -----------------------------------------------------------------------------------------------------


def test_heartbeats_keep_a_connection_on_which_nothing_else_happens(make_broker: Make, client: ProtonClient) -> None:
    """Each end closes what is silent for 5 s; neither has anything to say."""
    broker = make_broker(listener={"idle-timeout-ms": 5000})
    broker.start()
    client.connect("c", broker, heartbeat_s=5.0)
    client.sender("c", "out", "orders")
    client.ask("work", time_s=8)
    assert client.ask("is_lost", name="c")["lost"] is None
    assert client.send("out", ["a"])[0]["outcome"] == "accepted"


def test_a_client_closes_a_broker_that_falls_silent(make_broker: Make, client: ProtonClient) -> None:
    broker = make_broker()
    broker.start()
    client.connect("c", broker, heartbeat_s=0.6)
    broker.signal(signal.SIGSTOP)
    try:
        assert client.ask("wait_lost", name="c")["lost"]["condition"] == "amqp:resource-limit-exceeded"
    finally:
        broker.signal(signal.SIGCONT)
    wait_until(lambda: connections(broker) == 0, "the connection is gone here too")


def test_a_client_that_falls_silent_is_closed_and_its_messages_go_to_others(
    make_broker: Make, make_client: Callable[[], ProtonClient]
) -> None:
    broker = make_broker(listener={"idle-timeout-ms": 3000})
    broker.start()
    silent, other = make_client(), make_client()
    silent.connect("c", broker)
    silent.sender("c", "out", "orders")
    silent.send("out", ["a", "b"])
    silent.receiver("c", "in", "orders", credit=2)
    silent.receive("in", 2, outcome=None)
    silent.stop()
    took_s = wait_until(lambda: connections(broker) == 0, "the silent client is closed")
    assert took_s > 0.5
    assert "amqp:resource-limit-exceeded" in broker.log
    other.connect("c", broker)
    other.receiver("c", "in", "orders", credit=2)
    assert [(row["id"], row["delivery_count"]) for row in other.receive("in", 2)] == [("a", 1), ("b", 1)]
    silent.go_on()
    assert silent.ask("wait_lost", name="c")["lost"]["condition"] == "amqp:resource-limit-exceeded"


# -- refusals ----------------------------------------------------------------------------------------------------------

REFUSED_SENDERS: dict[str, tuple[dict[str, Any], str]] = {
    "long name": ({"address": "x" * 1025}, "amqp:invalid-field"),
    "half a name": ({"address": "orders::"}, "amqp:invalid-field"),
}
REFUSED_RECEIVERS: dict[str, tuple[dict[str, Any], str]] = {
    "bad selector": ({"address": "orders", "selector": "color = 'blue"}, "amqp:invalid-field"),
    "deep selector": ({"address": "orders", "selector": "(" * 1000 + "a = 1" + ")" * 1000}, "amqp:invalid-field"),
    "no address": ({"address": None}, "amqp:invalid-field"),
}


@pytest.mark.parametrize("case", REFUSED_SENDERS)
def test_a_refused_sender_sees_a_null_target_and_the_reason(
    broker: BrokerProcess, client: ProtonClient, queue: str, case: str
) -> None:
    arguments, condition = REFUSED_SENDERS[case]
    client.connect("c", broker)
    answer = client.sender("c", "refused", **arguments)
    assert (answer["refused"]["condition"], answer["is_null"]) == (condition, True)
    assert answer["refused"]["description"]
    assert_usable(client, queue)


@pytest.mark.parametrize("case", REFUSED_RECEIVERS)
def test_a_refused_receiver_sees_a_null_source_and_the_reason(
    broker: BrokerProcess, client: ProtonClient, queue: str, case: str
) -> None:
    arguments, condition = REFUSED_RECEIVERS[case]
    client.connect("c", broker)
    answer = client.receiver("c", "refused", **arguments)
    assert (answer["refused"]["condition"], answer["is_null"]) == (condition, True)
    assert answer["refused"]["description"]
    assert_usable(client, queue)


def assert_usable(client: ProtonClient, queue: str) -> None:
    """A refused link ends alone: session and connection go on."""
    client.sender("c", "out", queue)
    client.receiver("c", "in", queue, credit=1)
    client.send("out", ["a"])
    assert client.receive("in", 1)[0]["id"] == "a"


@pytest.mark.option("address-settings.auto-create-queues")
@pytest.mark.option("limits.consumers-per-queue-max")
def test_limits_of_queues_refuse_links(make_broker: Make, client: ProtonClient) -> None:
    options = {"address-settings": {"#": {"auto-create-queues": False}}, "limits": {"consumers-per-queue-max": 1}}
    broker = make_broker(options=options)
    broker.start()
    client.connect("c", broker)
    for answer in (client.sender("c", "out", "orders"), client.receiver("c", "in", "orders")):
        assert (answer["refused"]["condition"], answer["is_null"]) == ("amqp:not-found", True)
        assert "orders" in answer["refused"]["description"]
    broker.admin("queue-create", name="orders")
    client.receiver("c", "in1", "orders")
    answer = client.receiver("c", "in2", "orders")
    assert (answer["refused"]["condition"], answer["is_null"]) == ("amqp:resource-limit-exceeded", True)
    client.ask("close_link", name="in1")
    assert client.receiver("c", "in3", "orders")["address"] == "orders"


@pytest.mark.option("limits.max-message-size-bytes")
def test_a_message_over_the_limit_ends_its_link_alone(make_broker: Make, client: ProtonClient) -> None:
    broker = make_broker(options={"limits": {"max-message-size-bytes": 200_000}})
    broker.start()
    client.connect("c", broker)
    assert client.sender("c", "out", "orders")["size_max"] == 200_000
    client.sender("c", "other", "orders")
    # Proton does not look at the limit that it was told.
    client.ask("send", link="out", ids=["big"], size=1_000_000, is_waiting=False)
    assert client.ask("wait_detached", name="out")["error"]["condition"] == "amqp:link:message-size-exceeded"
    assert client.send("other", ["small"], size=100_000)[0]["outcome"] == "accepted"
    wait_for_depth(broker, "orders", 1)


def test_a_receiver_with_a_limit_of_its_own_is_not_sent_more(
    broker: BrokerProcess, client: ProtonClient, queue: str
) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.send("out", ["small"], size=500)
    client.receiver("c", "in", queue, credit=10, size_max=1000)
    assert [row["id"] for row in client.receive("in", 1)] == ["small"]
    client.send("out", ["big"], size=5000)
    assert client.ask("wait_detached", name="in")["error"]["condition"] == "amqp:link:message-size-exceeded"
    client.receiver("c", "in2", queue, credit=10)
    assert [(row["id"], row["delivery_count"]) for row in client.receive("in2", 1)] == [("big", 0)]


@pytest.mark.option("limits.links-per-session-max")
def test_too_many_links_end_their_connection(make_broker: Make, client: ProtonClient) -> None:
    """Proton sends what is above handle-max all the same; the connection that did is closed, others go on."""
    broker = make_broker(options={"limits": {"links-per-session-max": 3}})
    broker.start()
    client.connect("c", broker)
    for number in range(3):
        client.sender("c", f"out{number}", "orders")
    assert client.sender("c", "out3", "orders")["refused"]["condition"] == "amqp:connection:framing-error"
    client.connect("c2", broker)
    client.sender("c2", "out", "orders")
    assert client.send("out", ["a"])[0]["outcome"] == "accepted"


# -- greetings ---------------------------------------------------------------------------------------------------------

GREETINGS = {
    "AMQP 0-9-1": b"AMQP\x00\x00\x09\x01",
    "AMQP 0-8": b"AMQP\x01\x01\x08\x00",
    "AMQP 1.0 without login": AMQP_HEADER,
    "AMQP 1.0 with TLS": b"AMQP\x02\x01\x00\x00",
    "MQTT": b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04test",
    "STOMP": b"CONNECT\naccept-version:1.2\nhost:x\n\n\x00",
}


@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS.keys())
def test_a_foreign_greeting_gets_the_header_and_a_line_in_the_log(broker: BrokerProcess, greeting: bytes) -> None:
    """The header says what is spoken here; the line says to whoever runs the broker why a client does not come in."""
    before = broker.log.count("connection-failed")
    with broker.connect() as sock:
        sock.sendall(greeting)
        assert all_of(sock) == SASL_HEADER
    wait_until(lambda: broker.log.count("connection-failed") > before, "a line in the log")
    line = [line for line in broker.log.splitlines() if "connection-failed" in line][-1]
    assert "protocol header" in line


def test_a_listener_without_login_answers_with_the_header_of_amqp(make_broker: Make) -> None:
    broker = make_broker(listener={"sasl-mechanisms": ["ANONYMOUS"]})
    broker.start()
    with broker.connect() as sock:
        sock.sendall(AMQP_HEADER)
        assert sock.recv(8) == AMQP_HEADER
    with broker.connect() as sock:
        sock.sendall(SASL_HEADER)
        sock.settimeout(PATIENCE_S)
        assert sock.recv(4096).startswith(SASL_HEADER)
    with broker.connect() as sock:
        sock.sendall(GREETINGS["AMQP 0-9-1"])
        assert all_of(sock) == SASL_HEADER


def all_of(sock: socket.socket) -> bytes:
    sock.settimeout(PATIENCE_S)
    data = b""
    while more := sock.recv(4096):
        data += more
    return data


# -- the end -----------------------------------------------------------------------------------------------------------


def test_a_broker_that_stops_tells_its_clients(make_broker: Make, client: ProtonClient) -> None:
    broker = make_broker()
    broker.start()
    client.connect("c", broker)
    client.sender("c", "out", "orders")
    client.send("out", ["a"])
    assert broker.stop() == 0
    assert client.ask("wait_lost", name="c")["lost"]["condition"] == "amqp:connection:forced"


def test_connections_come_and_go(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    for number in range(100):
        client.connect("c", broker)
        client.sender("c", "out", queue)
        client.send("out", [f"m{number}"])
        assert client.ask("close", name="c")["error"] is None
    wait_until(lambda: connections(broker) == 0, "all connections are gone")
    wait_for_depth(broker, queue, 100)
