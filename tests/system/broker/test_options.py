"""Options that show from outside: the same broker, one option changed."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerFailed, BrokerProcess, free_port
from tests.support.patience import PATIENCE_S, wait_until

Make = Callable[..., BrokerProcess]


def started(make: Make, **arguments: Any) -> BrokerProcess:
    broker = make(**arguments)
    broker.start()
    return broker


def send(broker: BrokerProcess, address: str, body: str = "x", count: int = 1) -> None:
    broker.admin("send", address=address, messages=[{"body": body}] * count)


def connection_of(broker: BrokerProcess) -> dict[str, Any]:
    """The one connection that the broker has, or is about to have."""
    rows: list[dict[str, Any]] = []
    wait_until(lambda: rows.extend(broker.admin("connections")["connections"]) or rows, "somebody connects")
    return rows[0]


@pytest.mark.option("listeners.local-bind-address")
def test_two_brokers_share_a_port_on_two_addresses(make_broker: Make) -> None:
    first = started(make_broker)
    second = make_broker(listener={"local-bind-address": "127.0.0.2"})
    second.port = first.port
    second.start()
    for address, broker in (("127.0.0.1", first), ("127.0.0.2", second)):
        with socket.create_connection((address, first.port), PATIENCE_S):
            assert connection_of(broker)["listener"] == "clients"


@pytest.mark.option("listeners.port")
def test_the_listener_is_where_the_options_say(make_broker: Make) -> None:
    broker = started(make_broker)
    broker.connect().close()
    old, broker.port = broker.port, free_port()
    broker.stop()
    broker.start()
    broker.connect().close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, old), PATIENCE_S)


@pytest.mark.option("listeners.name")
def test_the_name_of_a_listener_is_in_the_log_and_on_its_connections(make_broker: Make) -> None:
    broker = started(make_broker, listener={"name": "front-door"})
    assert "listener-started listener=front-door" in broker.log
    with broker.connect():
        assert connection_of(broker)["listener"] == "front-door"


@pytest.mark.option("node.admin-socket")
def test_the_admin_socket_is_where_the_options_say(make_broker: Make) -> None:
    broker = make_broker()
    broker.admin_socket = broker.admin_socket.with_name("other.sock")
    broker.start()
    assert sorted(path.name for path in broker.admin_socket.parent.iterdir()) == ["notify.sock", "other.sock"]
    assert broker.admin("status")["state"] == "active"


@pytest.mark.option("node.log-format")
def test_the_log_is_json_when_asked_for(make_broker: Make) -> None:
    broker = started(make_broker, options={"node": {"log-format": "json"}})
    broker.stop()
    events = [json.loads(line)["event"] for line in broker.log.splitlines()]
    assert events[:3] == ["recovered", "listener-started", "ready"]
    assert "stopping" in events


@pytest.mark.option("address-settings.auto-create-queues")
def test_without_auto_creation_a_queue_must_exist(make_broker: Make) -> None:
    broker = started(make_broker, options={"address-settings": {"#": {"auto-create-queues": False}}})
    with pytest.raises(BrokerFailed, match="amqp:not-found"):
        send(broker, "orders")
    broker.admin("queue-create", name="orders")
    send(broker, "orders")


@pytest.mark.option("limits.queues-max")
def test_queues_over_the_bound_are_refused(make_broker: Make) -> None:
    broker = started(make_broker, options={"limits": {"queues-max": 2}})
    send(broker, "one")
    send(broker, "two")
    with pytest.raises(BrokerFailed, match="amqp:resource-limit-exceeded"):
        send(broker, "three")
    send(broker, "two")


@pytest.mark.option("limits.max-message-size-bytes")
def test_a_message_over_the_bound_is_refused(make_broker: Make) -> None:
    broker = started(make_broker, options={"limits": {"max-message-size-bytes": 10_000}})
    send(broker, "orders", "x" * 9_000)
    with pytest.raises(BrokerFailed, match="amqp:link:message-size-exceeded"):
        send(broker, "orders", "x" * 10_001)


@pytest.mark.option("limits.global-max-size-bytes")
def test_what_does_not_fit_into_memory_is_refused(make_broker: Make) -> None:
    limits = {"global-max-size-bytes": 1 << 20, "max-message-size-bytes": 1 << 19}
    broker = started(
        make_broker, options={"limits": limits, "address-settings": {"#": {"address-full-policy": "BLOCK"}}}
    )
    for _ in range(9):
        send(broker, "orders", "x" * 100_000)
    with pytest.raises(BrokerFailed, match="global-max-size"):
        send(broker, "orders", "x" * 200_000)
    held = broker.admin("status")["held_bytes"]
    assert 900_000 < held <= 1 << 20


@pytest.mark.option("journal.journal-file-size-bytes")
def test_journal_files_have_the_size_of_the_option(make_broker: Make) -> None:
    broker = started(make_broker, options={"journal": {"journal-file-size-bytes": 128 << 10}})
    for _ in range(20):
        send(broker, "orders", "x" * 20_000)
    files = journal_files(broker)
    assert len(files) >= 3
    assert {file.stat().st_size for file in files} == {128 << 10}


@pytest.mark.option("journal.journal-on-damage")
def test_a_damaged_journal_starts_when_told_to_truncate_it(make_broker: Make) -> None:
    broker = started(make_broker)
    for number in range(3):
        send(broker, "orders", f"message {number}")
    broker.stop()
    (file,) = journal_files(broker)
    content = bytearray(file.read_bytes())
    content[content.index(b"message 1")] ^= 1
    file.write_bytes(content)
    broker.launch()
    assert broker.wait() == 6
    broker.options = {"journal": {"journal-on-damage": "truncate"}}
    broker.start()
    found = broker.admin("receive", address="orders", count_max=10, wait_ms=60_000)["messages"]
    assert [message["body"] for message in found] == ["message 0"]
    # The damaged file is kept for whoever wants to look at it.
    kept = [path for path in file.parent.iterdir() if ".damaged-" in path.name]
    assert [path.read_bytes() for path in kept] == [content]


def journal_files(broker: BrokerProcess) -> list[Path]:
    return sorted((broker.data_directory / "journal").glob("journal-*.mqj"))
