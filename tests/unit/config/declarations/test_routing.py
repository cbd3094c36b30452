"""Connection routers in broker.toml and in inventories: what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.config.file.load import parse
from mqbroker.config.inventory.inventory import check_inventory
from mqbroker.config.slices import BrokerOptions

CONNECTOR = '[[connectors]]\nname = "other"\nhost = "192.0.2.2"\nport = 5672\n'
CLUSTER = '[[cluster-connections]]\nname = "all"\nconnector-ref = "other"\nstatic-connectors = ["other"]\n'
ROUTER = '[[connection-routers]]\nname = "spread"\nstatic-connectors = ["other"]\n'
LISTENER = '[[listeners]]\nname = "clients"\nport = 5672\nrouter = "spread"\n'


def faults(text: str) -> dict[str, str]:
    found = parse(text)
    assert isinstance(found, list), found
    return {fault.path: fault.why for fault in found}


def test_defaults_are_those_of_artemis() -> None:
    options = parse(CONNECTOR + ROUTER + LISTENER)
    assert isinstance(options, BrokerOptions)
    (router,) = options.connection_routers
    assert (router.key_type, router.check_period, router.quorum_size, router.quorum_timeout) == (
        "SOURCE_IP", 5000, 1, 3000,
    )  # fmt: skip
    assert (router.local_target_enabled, router.cache_timeout, router.cache_persisted) == (False, -1, False)


@pytest.mark.parametrize(
    ("text", "path", "why"),
    [
        (ROUTER, "connection-routers.0.static-connectors", "there is no other among [[connectors]] (there are: none)"),
        (CONNECTOR + ROUTER * 2, "connection-routers.1.name", "is declared twice, first as connection-routers.0"),
        (
            CONNECTOR + ROUTER + 'discovery-group-ref = "lan"\n',
            "connection-routers.0.discovery-group-ref",
            "there is no",
        ),
        (
            CONNECTOR + ROUTER + 'local-connector-ref = "x"\n',
            "connection-routers.0.local-connector-ref",
            "there is no x",
        ),
        ('[[connection-routers]]\nname = "r"\n', "connection-routers.0.static-connectors", "would refuse everybody"),
        (
            '[[connection-routers]]\nname = "r"\nlocal-target-filter = "a"\nquorum-size = 2\n',
            "connection-routers.0.quorum-size",
            "means nothing without brokers to choose among",
        ),
        (
            CONNECTOR + ROUTER + "modulo = 3\n",
            "connection-routers.0.modulo",
            "goes with policy = CONSISTENT_HASH_MODULO",
        ),
        (
            CONNECTOR + ROUTER + 'policy = "CONSISTENT_HASH_MODULO"\n',
            "connection-routers.0.modulo",
            "which needs it to be 1 or more",
        ),
        (
            CONNECTOR + CLUSTER + ROUTER + 'cluster-connection = "all"\n',
            "connection-routers.0.cluster-connection",
            "is set beside static-connectors; remove one of them",
        ),
        (
            '[[connection-routers]]\nname = "r"\ncluster-connection = "all"\n',
            "connection-routers.0.cluster-connection",
            "there is no all among [[cluster-connections]] (there are: none)",
        ),
        (
            CONNECTOR
            + CLUSTER
            + '[[connection-routers]]\nname = "r"\ncluster-connection = "all"\nlocal-connector-ref = "other"\n',
            "connection-routers.0.local-connector-ref",
            "whose members know each other by their node ids; remove it",
        ),
        (
            CONNECTOR + ROUTER + "cache-persisted = true\n",
            "connection-routers.0.cache-persisted",
            "cache-timeout is -1, so nothing is remembered; set that to 0 or more, or remove this",
        ),
        (
            '[[connection-routers]]\nname = "r"\nlocal-target-filter = "a"\ncache-timeout = 0\n'
            "cache-persisted = true\n",
            "connection-routers.0.cache-persisted",
            "means nothing without brokers to choose among",
        ),
        (CONNECTOR + ROUTER + 'key-filter = "("\n', "connection-routers.0.key-filter", "must be a regular expression"),
        (CONNECTOR + ROUTER + 'policy = "BEST"\n', "connection-routers.0.policy", "must be one of 'FIRST_ELEMENT'"),
        (LISTENER, "listeners.0.router", "there is no router spread; declare it as [[connection-routers]]"),
        (CONNECTOR + ROUTER + LISTENER + 'kind = "cluster"\n', "listeners.0.router", "is for listeners of clients"),
        (CONNECTOR + ROUTER + LISTENER + 'redirect-to = "a:1"\n', "listeners.0.router", "is set beside redirect-to"),
    ],
)
def test_faults(text: str, path: str, why: str) -> None:
    assert why in faults(text)[path]


def test_routers_of_an_inventory() -> None:
    base: dict[str, Any] = {
        "mq_cluster_name": "orders", "mq_cluster_secret": "0123456789abcdef",
        "mq_connectors": [{"name": "other", "host": "192.0.2.2", "port": 5672}],
        "mq_connection_routers": [{"name": "spread", "static_connectors": ["other"]}],
        "mq_listeners": [{"name": "clients", "port": 5672, "router": "spread"}],
    }  # fmt: skip
    assert check_inventory({"mq1": base}) == []
    (fault,) = check_inventory({"mq1": {**base, "mq_connection_routers": []}})
    assert (fault.path, fault.why.partition(";")[0]) == ("mq_listeners.0.router", "there is no router spread")
    (fault,) = check_inventory({"mq1": {**base, "mq_connectors": []}})
    assert fault.path == "mq_connection_routers.0.static_connectors"
