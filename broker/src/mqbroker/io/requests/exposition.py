"""Metrics as text: Prometheus' own library writes it, over our plain values. Imported when first asked for.

Runs in a thread: many series take seconds. Source: Prometheus text format 0.0.4, OpenMetrics 1.0 where the client
accepts it.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from mqbroker.admin.metrics import FAMILIES, Family, Values

_PROCESS = ProcessCollector(registry=None)


class _Given(Collector):
    """A collector over values that are there already."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        for name, family in FAMILIES.items():
            if name in self._values:
                yield _metric(family, self._values)
        yield from _PROCESS.collect()


def render(values: Values, form: str) -> tuple[bytes, str]:
    """Text and its content type: that of `form`, as a header Accept names it, else Prometheus' own."""
    encode, content_type = choose_encoder(form)
    return encode(_Given(values)), content_type


def _metric(family: Family, values: Values) -> Metric:
    metric = Metric(family.name.removesuffix("_total"), family.meaning, family.kind)
    for label_values, value in values[family.name]:
        # Sums have fewer label values than names: they speak of the whole broker.
        labels = dict(zip(family.labels, label_values, strict=False))
        if family.kind == "histogram":
            counts = value.cumulated()
            for bound, count in zip((*map(str, value.bounds_s), "+Inf"), counts, strict=True):
                metric.samples.append(Sample(f"{family.name}_bucket", {**labels, "le": bound}, count))
            metric.samples.append(Sample(f"{family.name}_count", labels, counts[-1]))
            metric.samples.append(Sample(f"{family.name}_sum", labels, value.sum_s))
        elif family.kind == "summary":
            metric.samples.append(Sample(f"{family.name}_count", labels, value[0]))
            metric.samples.append(Sample(f"{family.name}_sum", labels, value[1]))
        else:
            metric.samples.append(Sample(family.name, labels, value))
    return metric
