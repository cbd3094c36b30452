"""Text of metrics, read back by Prometheus' own parsers."""

from __future__ import annotations

from typing import Any

from mqbroker.admin import metrics
from mqbroker.admin.health import DiskSpace
from mqbroker.admin.metrics import Measured
from mqbroker.base.histogram import Histogram
from mqbroker.io.requests.exposition import render
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.support.stage import Stage


def rendered(form: str = "", *, per_object: bool = False) -> tuple[str, str]:
    syncs = Histogram((0.001, 0.1))
    for took_s in (0.0005, 0.05, 7.0):
        syncs.add(took_s)
    stage = Stage()
    stage.admin("queue-create", name='a"b\\c\nd', address="orders")
    values = metrics.of_node(stage.broker, per_object=per_object)
    around = metrics.of_world("default", Measured(5, 3, 1000, syncs, 7, 2_000_000_000, 11, 12, DiskSpace(1000, 250)))
    text, content_type = render(values | around, form)
    return text.decode(), content_type


def samples(families: Any) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_both_forms_say_the_same() -> None:
    plain, kind = rendered()
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    wide, wide_kind = rendered("application/openmetrics-text")
    assert wide_kind.startswith("application/openmetrics-text; version=")
    assert wide.endswith("# EOF\n")
    first, second = samples(parse_text(plain)), samples(parse_openmetrics(wide))
    moving = {name for name in first if name.startswith("process_") or name == "mqbroker_info"}
    assert {name: first[name] for name in first if name not in moving} == {
        name: second[name] for name in second if name not in moving
    }


def test_times_are_histogram_and_summary() -> None:
    found = samples(parse_text(rendered()[0]))
    buckets = [(labels["le"], value) for labels, value in found["mqbroker_journal_sync_seconds_bucket"]]
    assert buckets == [("0.001", 1), ("0.1", 2), ("+Inf", 3)]
    assert found["mqbroker_journal_sync_seconds_count"] == [({"broker": "default"}, 3)]
    assert found["mqbroker_step_seconds_sum"] == [({"broker": "default"}, 2)]
    assert found["artemis_disk_store_usage"] == [({"broker": "default"}, 0.75)]


def test_any_name_of_a_queue_is_escaped() -> None:
    found = samples(parse_text(rendered(per_object=True)[0]))
    ((labels, _),) = found["artemis_message_count"]
    assert labels == {"broker": "default", "address": "orders", "queue": 'a"b\\c\nd'}


def test_what_could_not_be_measured_is_left_out() -> None:
    values = metrics.of_world("default", Measured(5, 3, 1000, Histogram(()), 7, 2, 11, 12))
    text, _ = render(values, "")
    assert b"mqbroker_disk_pending_bytes" in text
    assert b"mqbroker_disk_free_bytes" not in text
