"""Metrics and health of a running broker, asked as a monitoring system asks."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.patience import PATIENCE_S, wait_until

Make = Callable[..., BrokerProcess]


def started(make: Make, metrics: dict[str, Any] | None = None, **options: Any) -> BrokerProcess:
    broker = make(options={"metrics": {"port": free_port(), **(metrics or {})}, **options})
    broker.start()
    return broker


def scrape(broker: BrokerProcess, path: str = "/metrics") -> dict[str, float]:
    """name{labels} -> value, as Prometheus reads it."""
    status, kind, text = broker.get(path)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sample.labels.items() if key != "broker")
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def check(broker: BrokerProcess, name: str) -> tuple[int, dict[str, Any]]:
    status, kind, body = broker.get(f"/checks/{name}")
    assert kind == "application/json"
    row: dict[str, Any] = json.loads(body)
    assert (row["check"], row["ok"]) == (name, status == 200)
    return status, row


@pytest.mark.option("metrics.port")
def test_nothing_is_served_unless_a_port_is_named(make_broker: Make) -> None:
    broker = started(make_broker)
    port = broker.options["metrics"]["port"]
    assert f"metrics-started address=127.0.0.1 port={port}" in broker.log
    assert broker.get("/livez") == (200, "text/plain; charset=utf-8", "alive\n")
    broker.stop()
    broker.options = {}
    broker.start()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, port), PATIENCE_S)


@pytest.mark.option("metrics.local-bind-address")
def test_metrics_are_on_the_address_of_the_option(make_broker: Make) -> None:
    broker = started(make_broker, {"local-bind-address": "127.0.0.3"})
    with pytest.raises(ConnectionRefusedError):
        broker.get("/livez")
    broker.host = "127.0.0.3"
    assert broker.get("/livez")[0] == 200


@pytest.mark.option("metrics.connections-max")
def test_connections_over_the_bound_are_answered_with_503_and_a_reload_changes_it(make_broker: Make) -> None:
    broker = started(make_broker, {"connections-max": 1})
    port = broker.options["metrics"]["port"]
    with socket.create_connection((broker.host, port), PATIENCE_S):
        time.sleep(0.1)
        status, _, why = broker.get("/livez")
        assert (status, "connections-max" in why) == (503, True)
        broker.options["metrics"]["connections-max"] = 5
        broker.write_config()
        broker.signal(signal.SIGHUP)
        broker.wait_for_log("reloaded")
        assert broker.get("/livez")[0] == 200


def test_a_port_that_is_taken_stops_the_start_with_a_sentence(make_broker: Make) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        broker = make_broker(options={"metrics": {"port": sock.getsockname()[1]}})
        broker.launch()
        assert broker.wait() != 0
    assert "metrics.port" in broker.log
    assert "ss -ltnp" in broker.log


def test_health_of_a_broker_that_is_well(make_broker: Make) -> None:
    broker = started(make_broker)
    assert broker.get("/readyz") == (200, "text/plain; charset=utf-8", "ready\n")
    assert broker.get("/primary")[0] == 200
    assert broker.get("/backup")[0] == 503
    for name in ("disk-space", "journal", "listeners", "memory", "node-id"):
        assert check(broker, name)[0] == 200, name
    assert check(broker, "listeners")[1]["listeners"] == {"clients": "accepting"}
    for path in ("/checks/nothing", "/checks/"):
        status, _, why = broker.get(path)
        assert (status, why.endswith("there are disk-space, journal, listeners, memory, node-id\n")) == (404, True)
    status, _, why = broker.get("/nowhere")
    assert status == 404
    assert "/readyz" in why


def test_memory_that_is_full_is_a_check_and_no_end_of_readiness(make_broker: Make) -> None:
    limits = {"global-max-size-bytes": 1 << 20, "max-message-size-bytes": 1 << 19}
    settings = {"address-settings": {"#": {"address-full-policy": "BLOCK"}}}
    broker = started(make_broker, limits=limits, **settings)
    broker.admin("send", address="orders", messages=[{"body": "x" * 100_000}] * 9)
    broker.admin("send", address="orders", messages=[{"body": "x" * 90_000}])
    status, row = check(broker, "memory")
    assert status == 503
    assert row["held_bytes"] > 900_000
    assert broker.get("/readyz")[0] == 200


def test_disk_space_is_measured_against_what_the_journal_needs(make_broker: Make) -> None:
    broker = started(make_broker, journal={"disk-pending-bytes-max": 1 << 30})
    _, row = check(broker, "disk-space")
    assert row["free_bytes_min"] == 2 * 10 * (1 << 20) + (1 << 30)
    assert 0 < row["free_bytes"] <= row["size_bytes"]


def asked_while_it_stops(broker: BrokerProcess, attempt: int) -> dict[str, tuple[int, str, str]]:
    """What it answers meanwhile; nothing where it was over before all was asked."""
    with broker.connect():
        wait_until(lambda: broker.admin("connections")["connections"])
        assert broker.get("/readyz")[0] == 200
        broker.signal(signal.SIGTERM)
        broker.wait_for_log("stopping", count=attempt + 1)
        try:
            return {path: broker.get(path) for path in ("/readyz", "/primary", "/livez")}
        except (OSError, http.client.HTTPException):
            return {}


def test_health_turns_during_the_stop(make_broker: Make) -> None:
    """A peer that does not go holds the last second of the stop open: some attempts, as others may use the machine."""
    broker = started(make_broker)
    for attempt in range(20):
        found = asked_while_it_stops(broker, attempt)
        assert broker.wait() == 0
        if found:
            break
        broker.start()
    stops = (503, "text/plain; charset=utf-8", "the broker stops\n")
    assert (found["/readyz"], found["/primary"][0], found["/livez"][0]) == (stops, 503, 200)
    assert "Traceback" not in broker.log


def test_numbers_add_up_while_messages_flow(make_broker: Make) -> None:
    broker = started(make_broker)
    seen: list[dict[str, float]] = []
    for number in range(10):
        broker.admin("send", address=f"queue-{number % 2}", messages=[{"body": "x" * 100}] * 50)
        seen.append(scrape(broker))
        taken = {"id": 1, "op": "receive", "args": {"address": f"queue-{number % 2}", "count_max": 20, "wait_ms": 5000}}
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(broker.admin_socket))
            with sock.makefile("rwb") as lines:
                lines.write(json.dumps(taken).encode() + b"\n")
                lines.flush()
                tag = json.loads(lines.readline())["result"]["tag"]
                seen.append(scrape(broker))
                assert seen[-1]["artemis_delivering_message_count{}"] == 20
                lines.write(json.dumps({"id": 2, "op": "settle", "args": {"tag": tag}}).encode() + b"\n")
                lines.flush()
                assert json.loads(lines.readline())["result"] == {}
    last = scrape(broker)
    assert last["mqbroker_messages_received_total{}"] == last["mqbroker_messages_added_total{}"] == 500
    assert last["mqbroker_messages_delivered_total{}"] == last["mqbroker_messages_acknowledged_total{}"] == 200
    assert last["artemis_message_count{}"] == 300
    assert last["mqbroker_journal_appends_total{}"] >= 20
    assert last["mqbroker_journal_sync_seconds_count{}"] == last["mqbroker_journal_sync_seconds_bucket{le=+Inf}"] >= 20
    assert last["mqbroker_journal_written_bytes_total{}"] > 500 * 100
    assert last["mqbroker_step_seconds_count{}"] > 40
    assert 0 < last["artemis_disk_store_usage{}"] < 1
    assert last["process_resident_memory_bytes{}"] > 1 << 20
    for name in last:
        if name.partition("{")[0].endswith(("_total", "_count", "_bucket")) and name.startswith("mqbroker_"):
            assert [row[name] for row in seen] == sorted(row[name] for row in seen), name
    each = scrape(broker, "/metrics/per-object")
    assert each["artemis_message_count{address=queue-0,queue=queue-0}"] == 150
    assert each["artemis_routed_message_count{address=queue-1}"] == 250


def test_connections_and_their_bytes_are_counted(make_broker: Make) -> None:
    broker = started(make_broker)
    with broker.connect() as sock:
        sock.sendall(b"AMQP\x03\x01\x00\x00")
        assert len(sock.recv(8, socket.MSG_WAITALL)) == 8
        found = scrape(broker)
        assert found["artemis_connection_count{}"] == 1
        assert found["mqbroker_received_bytes_total{}"] == 8
        assert found["mqbroker_sent_bytes_total{}"] >= 8
    wait_until(lambda: scrape(broker)["artemis_connection_count{}"] == 0)
    found = scrape(broker)
    assert (found["artemis_connection_count{}"], found["artemis_total_connection_count{}"]) == (0, 1)
