"""Metrics as values, out of a node that did something; with many queues they stay small and quick."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker import __version__
from mqbroker.admin import metrics
from mqbroker.admin.health import DiskSpace
from mqbroker.admin.metrics import FAMILIES, Measured, Values
from mqbroker.base.histogram import Histogram
from mqbroker.base.native import NATIVE
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.queue import QueueKind
from mqbroker.io.requests.exposition import render
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Rejected

from tests.support import frames
from tests.support.processor import processor_time, yardstick_s
from tests.support.stage import Stage, options_with

GO = frames.anonymous() + frames.opened() + frames.begun(incoming_window=1 << 30)
ENDINGS = (
    given.CertificateExpiry("clients", "tls-certificate-file", "/c.pem", 0, 1_900_000_000),
    given.CertificateExpiry("clients", "tls-client-ca-file", "/ca.pem", 0, 2_000_000_000),
)
AROUND = Measured(5, 3, 1000, Histogram((0.1, 1.0)), 7, 2_000_000_000, 11, 12, DiskSpace(1000, 250))


def values_of(stage: Stage, *, per_object: bool = False) -> Values:
    return metrics.of_node(stage.broker, per_object=per_object)


def value(stage: Stage, name: str) -> Any:
    ((_, found),) = values_of(stage)[name]
    return found


def sent(stage: Stage, address: str, count: int, *, durable: bool = True) -> None:
    stage.admin("send", address=address, messages=[{"body": "x" * 50, "durable": durable}] * count)


def test_every_family_is_filled_and_nothing_else() -> None:
    stage = Stage()
    filled = values_of(stage) | metrics.of_world("default", AROUND)
    assert set(filled) == set(FAMILIES)
    assert all(labels[0] == "default" for samples in filled.values() for labels, _ in samples)
    assert not set(values_of(stage)) & set(metrics.of_world("default", AROUND))


def test_every_certificate_has_its_end_with_its_listener_and_option() -> None:
    found = metrics.of_world("default", replace(AROUND, endings=ENDINGS))["mqbroker_certificate_not_after_seconds"]
    assert found == [
        (("default", "clients", "tls-certificate-file"), 1_900_000_000),
        (("default", "clients", "tls-client-ca-file"), 2_000_000_000),
    ]


def test_the_build_is_named_by_metric_and_status() -> None:
    stage = Stage()
    ((labels, _),) = values_of(stage)["mqbroker_info"]
    assert labels == ("default", stage.broker.node_id, __version__, NATIVE)
    assert stage.admin("status")["native"] is (NATIVE == "yes")


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_declarations_are_complete(family: metrics.Family) -> None:
    assert family.meaning.endswith(".")
    assert family.labels[0] == "broker"
    assert (family.kind == "counter") == family.name.endswith("_total")
    assert family.name.startswith(("artemis_", "mqbroker_"))
    # Those of Artemis are gauges there, so they are here.
    assert family.kind == "gauge" or family.name.startswith("mqbroker_")


def test_messages_are_counted_from_arrival_to_settlement() -> None:
    stage = Stage()
    sent(stage, "orders", 10)
    sent(stage, "bills", 5, durable=False)
    assert value(stage, "artemis_message_count") == 15
    assert value(stage, "mqbroker_messages_received_total") == 15
    assert value(stage, "mqbroker_messages_added_total") == value(stage, "artemis_messages_added") == 15
    assert value(stage, "mqbroker_messages_received_bytes_total") > 15 * 50
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver(credit=4))
    assert value(stage, "artemis_consumer_count") == 1
    assert value(stage, "artemis_delivering_message_count") == 4
    assert value(stage, "artemis_message_count") == 15
    assert value(stage, "mqbroker_messages_delivered_total") == 4
    stage.drop_bare(conn)
    assert value(stage, "mqbroker_messages_returned_total") == 4
    assert value(stage, "artemis_delivering_message_count") == 0
    tag = stage.admin("receive", address="orders", count_max=3, wait_ms=10)["tag"]
    stage.admin("settle", tag=tag, outcome="accepted")
    assert value(stage, "mqbroker_messages_acknowledged_total") == value(stage, "artemis_messages_acknowledged") == 3
    assert value(stage, "mqbroker_messages_delivered_total") == 7
    assert value(stage, "artemis_message_count") == 12
    assert value(stage, "mqbroker_connections_accepted_total") == 1
    assert value(stage, "artemis_connection_count") == 0
    logins = dict(values_of(stage)["artemis_authentication_count"])
    assert logins == {("default", "success"): 1, ("default", "failure"): 0}


def test_messages_are_counted_that_wait_for_their_time_expire_or_die() -> None:
    stage = Stage(options_with(address_settings={"#": {"dead_letter_address": "dead", "redelivery_delay": 60_000}}))
    sent(stage, "orders", 1)
    tag = stage.admin("receive", address="orders", wait_ms=10)["tag"]
    stage.admin("settle", tag=tag, outcome="modified")
    stage.admin("send", address="orders", messages=[{"body": "x", "ttl_ms": 100}] * 3)
    assert (value(stage, "artemis_message_count"), value(stage, "artemis_scheduled_message_count")) == (4, 1)
    stage.wait(200)
    assert (value(stage, "artemis_message_count"), value(stage, "artemis_messages_expired")) == (1, 3)
    sent(stage, "orders", 2)
    tag = stage.admin("receive", address="orders", count_max=2, wait_ms=10)["tag"]
    stage.admin("settle", tag=tag, outcome="rejected")
    assert value(stage, "artemis_messages_killed") == 2
    of_queues = dict(values_of(stage, per_object=True)["artemis_messages_killed"])
    assert of_queues == {("default", "orders", "orders"): 2, ("default", "dead", "dead"): 0}
    stage.wait(60_000)
    assert value(stage, "artemis_scheduled_message_count") == 0


def test_per_object_names_each_queue_and_adds_up_to_the_sums() -> None:
    stage = Stage()
    sent(stage, "orders", 10)
    sent(stage, "bills", 5)
    stage.admin("queue-create", name="copy", address="orders", routing_type="multicast")
    sent(stage, "orders", 1)
    one, each = values_of(stage), values_of(stage, per_object=True)
    assert set(one) == set(each)
    assert each["artemis_message_count"] == [
        (("default", "orders", "orders"), 11),
        (("default", "bills", "bills"), 5),
        (("default", "orders", "copy"), 1),
    ]
    assert each["artemis_routed_message_count"] == [(("default", "orders"), 11), (("default", "bills"), 5)]
    for name in one:
        assert sum(value for _, value in one[name]) == sum(value for _, value in each[name]), name


def test_totals_survive_a_stop_of_what_they_count_and_start_again_with_the_process() -> None:
    stage = Stage()
    sent(stage, "orders", 10)
    stage.crash()
    stage.start()
    assert value(stage, "artemis_message_count") == 10
    assert value(stage, "artemis_messages_added") == 10
    assert value(stage, "mqbroker_messages_added_total") == 0


def test_what_is_not_synced_and_a_stop_show() -> None:
    stage = Stage()
    assert value(stage, "mqbroker_journal_unsynced_appends") == 0
    stage.is_disk_held = True
    stage.give(given.AdminRequest(77, 1, "send", {"address": "orders", "messages": [{"body": "x"}]}))
    stage.step()
    assert value(stage, "mqbroker_journal_unsynced_appends") == 1
    assert value(stage, "artemis_active") == 1
    stage.give(given.Stop())
    stage.step()
    assert value(stage, "artemis_active") == 0


def test_rejected_messages_are_counted() -> None:
    stage = Stage()
    sent(stage, "orders", 5)
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver(credit=3))
    stage.talk(conn, frames.disposition(0, 1, Rejected()))
    assert value(stage, "mqbroker_messages_rejected_total") == 2
    assert value(stage, "mqbroker_messages_acknowledged_total") == 0
    for name in ("left", "lost"):
        assert (("default", "killed"), 2) in values_of(stage)[f"mqbroker_messages_{name}_total"]


def test_messages_refused_because_memory_is_full_are_counted() -> None:
    limits = {"global_max_size_bytes": 1 << 20, "max_message_size_bytes": 1 << 19, "link_credit": 20}
    stage = Stage(options_with(limits=limits, address_settings={"#": {"address_full_policy": "BLOCK"}}))
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender())
    for number in range(20):
        stage.talk(conn, frames.transfer(number, b"x" * 60_000))
    refused = value(stage, "mqbroker_messages_refused_total")
    assert 0 < refused < 20
    assert value(stage, "mqbroker_messages_received_total") == 20 - refused
    assert value(stage, "artemis_address_memory_usage_percentage") >= 100
    assert value(stage, "mqbroker_publishers_waiting") == 1


def test_full_addresses_and_duplicates_are_counted() -> None:
    settings = {
        "orders": {"max_size_messages": 1, "address_full_policy": "BLOCK"},
        "drops": {"max_size_messages": 0, "address_full_policy": "DROP"},
        "fails": {"max_size_messages": 0, "address_full_policy": "FAIL"},
    }
    stage = Stage(options_with(address_settings=settings))
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender())
    stage.talk(conn, frames.transfer(0))
    assert value(stage, "mqbroker_publishers_waiting") == 1
    for address in ("drops", "fails"):
        stage.admin("send", address=address, messages=[{"body": "x"}])
    seen = {"body": "x", "application_properties": {"_AMQ_DUPL_ID": "a"}}
    stage.admin("send", address="prices", messages=[seen, seen, seen])
    assert value(stage, "mqbroker_messages_dropped_total") == 1
    assert value(stage, "mqbroker_messages_address_full_total") == 1
    assert value(stage, "mqbroker_messages_duplicate_total") == 2


def test_more_objects_than_one_answer_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "OBJECTS_MAX", 2)
    stage = Stage()
    for name in ("one", "two", "three"):
        stage.admin("queue-create", name=name)
    error = stage.admin("metrics", per_object=True)
    assert error["condition"] == "amqp:resource-limit-exceeded"
    assert "take the sums" in error["description"]
    assert stage.admin("metrics")["mqbroker_queues"] == [(("default",), 3)]


def with_queues(count: int) -> Stage:
    stage = Stage()
    for number in range(count):
        stage.broker.store.create_queue(QueueKind(f"orders.europe.{number:06}", f"orders.europe.{number:06}"), BROKER)
    return stage


@pytest.mark.slow
def test_sums_over_50_000_queues_are_small_and_quick(capsys: pytest.CaptureFixture[str]) -> None:
    stage = with_queues(50_000)
    with processor_time() as seconds:
        values = values_of(stage)
        read_s = seconds()
        text, _ = render(values | metrics.of_world("default", AROUND), "")
        took_s = seconds()
    with capsys.disabled():
        print(f"\n50,000 queues, sums: read in {read_s:.3f} s, {took_s:.3f} s in all, {len(text)} bytes")
    assert b'mqbroker_queues{broker="default"} 50000.0\n' in text
    assert len(text) <= 1 << 20
    assert len(text) < 20_000, "sums do not grow with queues"
    assert took_s <= 30 * yardstick_s()


@pytest.mark.slow
def test_each_of_50_000_queues_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    stage = with_queues(50_000)
    with processor_time() as seconds:
        values = values_of(stage, per_object=True)
        read_s = seconds()
        text, _ = render(values, "")
        took_s = seconds()
    with capsys.disabled():
        print(f"\n50,000 queues, each: read in {read_s:.3f} s, {took_s:.3f} s in all, {len(text)} bytes")
    assert text.count(b"\nartemis_message_count{") == 50_000
    assert text.count(b"\nartemis_routed_message_count{") == 50_000
