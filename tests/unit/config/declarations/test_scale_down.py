"""What a broker does with its messages at a stop, in broker.toml: what is refused, and what Artemis's files have."""

from __future__ import annotations

import pytest
from mqbroker.base.time import NS_PER_MS, STANDSTILL_MS_MAX
from mqbroker.config.file.load import parse
from mqbroker.config.slices import BrokerOptions
from mqbroker.node.cluster.departure.idle_queues import STEP_NS_MAX

from tests.unit.config.declarations.test_cluster_connections import AROUND, connection

AROUND_IT = AROUND + connection()


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[scale-down]\nenabled = true\n", "scale-down.enabled"),
        (AROUND_IT + '[scale-down]\nconnectors = ["nowhere"]\n', "scale-down.connectors"),
        (AROUND_IT + '[scale-down]\ndiscovery-group-ref = "nowhere"\n', "scale-down.discovery-group-ref"),
        (AROUND_IT + '[scale-down]\nconnectors = ["own"]\ndiscovery-group-ref = "lan"\n',
         "scale-down.discovery-group-ref"),
        (AROUND_IT + "[scale-down]\ntimeout = 999\n", "scale-down.timeout"),
        (AROUND_IT + "[scale-down]\ncommit-interval = -2\n", "scale-down.commit-interval"),
        (AROUND_IT + "[scale-down]\nheir-timeout = 0\n", "scale-down.heir-timeout"),
        (AROUND_IT + "[scale-down]\nheir-timeout = 2000\n", "scale-down.heir-timeout"),
    ],
)  # fmt: skip
def test_what_leads_nowhere_is_refused(text: str, path: str) -> None:
    found = parse(text)
    assert isinstance(found, list)
    assert path in [fault.path for fault in found]


@pytest.mark.parametrize("timeout_ms", [-1, 2_001])
def test_an_heir_is_waited_for_longer_than_a_standstill_counts(timeout_ms: int) -> None:
    found = parse(AROUND_IT + f"[scale-down]\nheir-timeout = {timeout_ms}\n")
    assert isinstance(found, BrokerOptions)
    assert found.scale_down.heir_timeout == timeout_ms
    assert STANDSTILL_MS_MAX * NS_PER_MS == STEP_NS_MAX


@pytest.mark.option("scale-down.commit-interval")
def test_what_artemis_says_of_commits_is_taken_and_without_effect() -> None:
    found = parse(AROUND_IT + "[scale-down]\nenabled = true\ncommit-interval = 100\n")
    assert isinstance(found, BrokerOptions)
    assert (found.scale_down.enabled, found.scale_down.commit_interval) == (True, 100)
