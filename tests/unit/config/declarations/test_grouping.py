"""The grouping handler in broker.toml and in inventories: what is refused, what is doubted, and who decides."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.config.declarations.clustering import doubts
from mqbroker.config.file.load import parse
from mqbroker.config.inventory.inventory import check_inventory
from mqbroker.config.slices import BrokerOptions

from tests.unit.config.declarations.test_cluster_connections import AROUND, connection
from tests.unit.config.inventory.test_inventory import faults, variables

HANDLER = "[grouping-handler]\n"


def test_a_remote_handler_needs_somebody_to_ask_and_a_local_one_hardly_means_to_be_alone() -> None:
    found = parse(f'{HANDLER}type = "REMOTE"\n')
    assert isinstance(found, list)
    assert [fault.path for fault in found] == ["grouping-handler.type"]
    alone = parse(f'{HANDLER}type = "LOCAL"\n')
    assert isinstance(alone, BrokerOptions)
    assert [doubt.path for doubt in doubts(alone)] == ["grouping-handler.type"]
    both = parse(AROUND + connection() + f'{HANDLER}type = "LOCAL"\n')
    assert isinstance(both, BrokerOptions)
    assert (list(doubts(both)), both.grouping_handler.timeout, both.grouping_handler.group_timeout) == ([], 5000, -1)


def hosts(**types: str | None) -> list[str]:
    """Faults of an inventory whose hosts have these types; None: no handler."""
    found = {}
    for number, (host, said) in enumerate(types.items()):
        more: dict[str, Any] = {
            "ansible_host": f"192.0.2.{number + 1}",
            "mq_cluster_interface": "eth1",
            "mq_allow_plaintext": True,
        }
        if said is not None:
            more |= {
                "mq_grouping_handler": {"type": said},
                "mq_connectors": [{"name": "own", "port": 5673}],
                "mq_cluster_connections": [{"name": "c", "connector_ref": "own", "static_connectors": ["own"]}],
            }
        found[host] = variables(**more)
    return [str(fault) for fault in check_inventory(found)]


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ({"mq1": None, "mq2": None}, []),
        ({"mq1": "LOCAL", "mq2": "REMOTE", "mq3": "REMOTE"}, []),
        ({"mq1": "REMOTE", "mq2": "REMOTE"}, ["here that is none"]),
        ({"mq1": "LOCAL", "mq2": "LOCAL"}, ["here that is mq1 and mq2"]),
        ({"mq1": "LOCAL", "mq2": None}, ["is missing"]),
        ({"mq1": "{{ who }}", "mq2": "REMOTE"}, []),
    ],
)
def test_one_host_of_a_cluster_decides(types: dict[str, str | None], said: list[str]) -> None:
    found = hosts(**types)
    assert len(found) == len(said)
    assert all(part in fault for part, fault in zip(said, found, strict=True))


def test_the_handler_has_a_variable_of_its_own() -> None:
    found = faults(mq_broker_options={"grouping_handler": {"type": "LOCAL"}})
    assert found["mq_broker_options.grouping_handler"].startswith("is written as mq_grouping_handler")
    assert list(faults(mq_grouping_handler={"typ": "LOCAL"})) == ["mq_grouping_handler.typ"]
