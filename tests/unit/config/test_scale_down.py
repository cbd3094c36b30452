"""What a broker does with its messages at a stop, in broker.toml: what is refused, and what Artemis's files have."""

from __future__ import annotations

import pytest
from mqbroker.config.load import parse
from mqbroker.config.slices import BrokerOptions

from tests.unit.config.test_cluster_connections import AROUND, connection

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
    ],
)  # fmt: skip
def test_what_leads_nowhere_is_refused(text: str, path: str) -> None:
    found = parse(text)
    assert isinstance(found, list)
    assert path in [fault.path for fault in found]


@pytest.mark.option("scale-down.commit-interval")
def test_what_artemis_says_of_commits_is_taken_and_without_effect() -> None:
    found = parse(AROUND_IT + "[scale-down]\nenabled = true\ncommit-interval = 100\n")
    assert isinstance(found, BrokerOptions)
    assert (found.scale_down.enabled, found.scale_down.commit_interval) == (True, 100)
