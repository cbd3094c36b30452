"""docs/METRICS.md, dashboard and alerts speak of exactly the metrics that a running broker gives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from mqbroker.admin.health import CHECKS
from mqbroker.admin.metrics import FAMILIES
from mqbroker.client import sync
from mqbroker.config.declarations.options import defaults
from mqbroker.config.declarations.variables import METRICS_PORT
from mqbroker.io.requests import http, http_head
from prometheus_client.parser import text_string_to_metric_families

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.certificates import Authority

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "METRICS.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| (gauge|counter|summary|histogram) \| ([^|]+) \| ([^|]*) \| ([^|]+) \|$", re.MULTILINE)
NAME = re.compile(r"\b(?:artemis|mqbroker|process)_\w+")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}


class Documented(NamedTuple):
    kind: str
    unit: str
    labels: tuple[str, ...]
    meaning: str


DOCUMENTED = {
    name: Documented(kind, unit, tuple(re.findall(r"`(\w+)`", labels)), meaning)
    for name, kind, unit, labels, meaning in ROW.findall(TEXT)
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    """path -> family -> (type, labels, names of its series), as a running broker exports them."""
    options = {"metrics": {"port": free_port()}}
    authority = Authority(tmp_path_factory.mktemp("ca"))
    directory, listener = tmp_path_factory.mktemp("broker"), authority.listener()
    with BrokerProcess(directory, options=options, listener=listener, tls=authority.client()) as broker:
        broker.admin("send", address="orders", messages=[{"body": "x"}])
        uri = f"amqps://{broker.user}:{broker.password}@{broker.host}:{broker.port}"
        with sync.connect(uri, tls=broker.tls) as connection, connection.sender("made"):
            pass
        yield {path: families(broker.get(path)[2]) for path in ("/metrics", "/metrics/per-object")}


def families(text: str) -> dict[str, tuple[str, set[tuple[str, ...]], set[str]]]:
    found = {}
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {tuple(sorted(key for key in sample.labels if key != "le")) for sample in family.samples}
        found[name] = (family.type, labels, {sample.name for sample in family.samples})
    return found


def series_of(name: str) -> set[str]:
    """The names that can be asked for."""
    return {name + suffix for suffix in SUFFIXES.get(DOCUMENTED[name].kind, ("",))}


SERIES = {series for name in DOCUMENTED for series in series_of(name)}


@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-object"])
def test_what_is_exported_is_documented_and_the_other_way_round(exported: Any, path: str) -> None:
    assert set(exported[path]) == set(DOCUMENTED)
    for name, (kind, _, series) in exported[path].items():
        assert kind == DOCUMENTED[name].kind, name
        assert series == series_of(name), name


def test_labels_are_documented(exported: Any) -> None:
    for name, documented in DOCUMENTED.items():
        assert exported["/metrics/per-object"][name][1] == {tuple(sorted(documented.labels))}, name
        is_summed_up = documented.labels[1:2] in (("address",), ("user",))
        labels = documented.labels[:1] if is_summed_up else documented.labels
        assert exported["/metrics"][name][1] == {tuple(sorted(labels))}, name


def test_meanings_are_those_that_are_exported() -> None:
    for name, family in FAMILIES.items():
        assert (DOCUMENTED[name].meaning, DOCUMENTED[name].labels) == (family.meaning, family.labels), name


def test_units_fit_names() -> None:
    for name, documented in DOCUMENTED.items():
        stem = name.removesuffix("_total")
        assert stem.endswith("_bytes") <= (documented.unit == "bytes"), name
        assert stem.endswith("_seconds") <= (documented.unit == "s"), name


def test_bounds_and_checks_are_the_real_ones() -> None:
    assert re.findall(r"^\| `([a-z-]+)` \| ", TEXT.partition("## Checks")[2], re.MULTILINE) == list(CHECKS)
    for told in (
        f"| `connections-max` ({defaults().metrics.connections_max}) |",
        f"headers | {http_head.HEAD_BYTES_MAX >> 10} KiB | 431 |",
        f"arrive | {http.HEAD_S_MAX:g} s |",
        f"read | {http.ANSWER_S_MAX:g} s |",
        f"together | {http.UNREAD_BYTES_MAX >> 20} MiB |",
        f"port = {METRICS_PORT}\n",
    ):
        assert told in TEXT, told


def test_dashboard_asks_for_what_exists() -> None:
    board = json.loads((DOCS / "grafana/mqbroker.json").read_text(encoding="utf-8"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) >= 10
    for panel in panels:
        assert panel["title"]
        assert panel["description"]
        for target in panel["targets"]:
            assert set(NAME.findall(target["expr"])) <= SERIES, target["expr"]
            assert NAME.search(target["expr"])
    places = [tuple(panel["gridPos"][key] for key in "xywh") for panel in panels]
    assert all(x + w <= 24 for x, _, w, _ in places)
    cells = [(x + dx, y + dy) for x, y, w, h in places for dx in range(w) for dy in range(h)]
    assert len(cells) == len(set(cells)), "panels do not overlap"


def test_alerts_ask_for_what_exists_and_say_what_to_do() -> None:
    rules = yaml.safe_load((DOCS / "alerts/mqbroker.rules.yml").read_text(encoding="utf-8"))
    (group,) = rules["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(set(names)) == len(names) >= 8
    for rule in group["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
        asked = set(NAME.findall(rule["expr"]))
        assert asked <= SERIES, rule["alert"]
        assert asked or rule["expr"].startswith("up{"), rule["alert"]


@pytest.mark.parametrize("text", ["rate(mqbroker_messages_recieved_total[5m])", "artemis_message_counts"])
def test_names_that_do_not_exist_are_found(text: str) -> None:
    assert set(NAME.findall(text)) - SERIES
