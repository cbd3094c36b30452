"""What a canary says of links: in words, and whether it is about nodes that somebody waits for."""

from __future__ import annotations

from typing import Any

import pytest
from mqctl.brokers import canary

IDS = ("one", "two", "three")  # of which the first is asked


def row(node_id: str | None, state: str = "confirmed", connector: str | None = "amqp://mq9:5673") -> dict[str, Any]:
    return {"node": None, "node_id": node_id, "connector": connector, "state": state, "why": "it is so"}


@pytest.mark.parametrize(
    ("connector", "said"),
    [
        ("mq.example.org:5673", "link to mq.example.org:5673: missing: it is so"),
        (None, "link to nodes that names lead to: missing: it is so"),  # of brokers that do not say which
    ],
)
def test_a_link_to_nobody_is_named_as_well(connector: str | None, said: str) -> None:
    assert canary.trouble(row(None, "missing", connector)) == said


@pytest.mark.parametrize(
    ("rows", "is_among"),
    [
        ([row("two"), row("three")], False),
        ([row("two"), row("three", "timeout")], True),
        ([row("two"), row("three"), row("four", "missing")], False),  # another one, which has another cause
        ([row("two"), row(None, "missing")], True),  # that may be the third one
        ([row("two"), row("three"), row(None, "missing")], False),  # all of them are linked
        ([row("two")], False),  # where not each is linked with each, and nobody is looked for
        ([row(None, "failed")], True),
    ],
)
def test_links_between_nodes_are_told_from_those_to_others(rows: list[dict[str, Any]], *, is_among: bool) -> None:
    assert canary.is_among(rows, IDS) is is_among
