"""The cluster `lan`, and the one beside it."""

from __future__ import annotations

import pytest

from tests.support.rack_cluster import RackBroker, RackCluster, RackHosts


@pytest.fixture(scope="session")
def rack() -> RackHosts:
    return RackHosts()


@pytest.fixture(scope="session")
def lan(rack: RackHosts) -> RackCluster:
    return RackCluster([RackBroker(rack, name) for name in ("mq1", "mq2", "mq3")])


@pytest.fixture(scope="session")
def beside(rack: RackHosts) -> RackCluster:
    return RackCluster([RackBroker(rack, name, "beside") for name in ("mq1", "mq2", "mq3")])
