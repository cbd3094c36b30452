"""The brokers of the scenario, in their row."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.rack_cluster import RackBroker, RackCluster, RackHosts

HOSTS = ("mq1", "mq2", "mq3", "mq4")


@pytest.fixture(scope="session")
def chain() -> RackCluster:
    rack = RackHosts()
    return RackCluster([RackBroker(rack, name) for name in HOSTS], pairwise(HOSTS))
