"""Who takes the messages of a node that stops: every rule alone and beside the others, and why nobody does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mqbroker.cluster.discovery.announcement import Connector
from mqbroker.cluster.heirs import HeirCandidate, choose
from mqbroker.config.declarations.options import defaults

OPTIONS = replace(defaults().scale_down, enabled=True)
TO_A, TO_B, TO_C = (Connector(f"to-{each}", "amqp", each, 5673) for each in "abc")


def node(name: str, group: str = "", heir: str = "", discovery_group: str = "") -> HeirCandidate:
    places = frozenset({("amqp", name, 5673), ("amqps", f"{name}.example", 5674)})
    return HeirCandidate("cluster", discovery_group, f"id-{name}", name, places, group, heir)


@pytest.mark.parametrize(
    ("said", "listed", "found", "who"),
    [
        ({}, (), "c b", "b"),
        ({"connectors": ("to-c", "to-b")}, (TO_C, TO_B), "b c", "c"),
        ({"connectors": ("to-a", "to-b")}, (TO_A, TO_B), "c b", "b"),
        ({"connectors": ("to-a",)}, (TO_A,), "b", "connectors lead to"),
        ({}, (), "", "no node of the cluster"),
    ],
)
def test_the_first_connector_of_which_a_node_is_linked_decides_else_the_lowest_id(
    said: dict[str, tuple[str, ...]], listed: tuple[Connector, ...], found: str, who: str
) -> None:
    chosen = choose(replace(OPTIONS, **said), listed, [node(name) for name in found.split()])
    assert who in (chosen if isinstance(chosen, str) else (chosen.name,))


def test_a_place_that_only_tls_reaches_is_another_place() -> None:
    options = replace(OPTIONS, connectors=("to-b",))
    assert isinstance(choose(options, [replace(TO_B, scheme="amqps")], [node("b")]), str)


def test_one_that_leaves_itself_takes_nothing() -> None:
    assert choose(OPTIONS, [], [node("a", heir="id-b"), node("b")]) == node("b")
    assert "leave themselves" in str(choose(OPTIONS, [], [node("a", heir="id-b")]))


def test_a_group_takes_only_its_own() -> None:
    options = replace(OPTIONS, group_name="east")
    assert choose(options, [], [node("a", "west"), node("b", "east")]) == node("b", "east")
    assert "group east" in str(choose(options, [], [node("a", "west"), node("b")]))
    assert choose(OPTIONS, [], [node("a", "west")]) == node("a", "west"), "without a name any node does"


def test_a_discovery_group_takes_only_what_it_found() -> None:
    options = replace(OPTIONS, discovery_group_ref="lan")
    assert choose(options, [], [node("a"), node("b", discovery_group="lan")]) == node("b", discovery_group="lan")
    assert "discovery group lan" in str(choose(options, [], [node("a", discovery_group="wan")]))
