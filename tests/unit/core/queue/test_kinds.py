"""What the journal keeps of the kind of a queue: the same text, whether its common part is remembered or not."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from mqbroker.core.queue import kinds
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.journal.records import encode_attributes

NODE = "4a73b2a4-10f1-4221-acc5-162ff36b0d3f"
TEXTS = ("", "orders", 'a"b\\c', "ü", "\U0001f600", "x,name:", "1" * 50)
CHOICES: dict[type, tuple[Any, ...]] = {
    str: TEXTS,
    bool: (False, True),
    int: (-1, 0, 7),
    tuple: ((), ("a",), ("a", 'b"')),
}


def any_kind(choice: random.Random) -> QueueKind:
    said = {name: choice.choice(CHOICES[type(default)]) for name, default in choice.sample(kinds.OPTIONAL, 6)}
    return QueueKind(choice.choice(TEXTS[1:]), choice.choice(TEXTS[1:]), choice.choice(kinds.ROUTINGS), **said)


def test_the_text_is_that_of_the_attributes() -> None:
    choice = random.Random(5)
    for _ in range(2_000):
        kind = any_kind(choice)
        for _ in range(2):
            assert kind.encoded() == encode_attributes(kind.attributes())
        assert QueueKind.of(json.loads(kind.encoded())) == kind


def test_what_is_remembered_of_kinds_is_bounded() -> None:
    for number in range(2 * kinds.ENCODED_MAX):
        QueueKind("q", "q", ring_size=number).encoded()
        assert len(kinds._ENCODED) <= kinds.ENCODED_MAX
    while len(kinds._ENCODED) < kinds.ENCODED_MAX:
        number += 1
        QueueKind("q", "q", ring_size=number).encoded()
    before = len(kinds._ENCODED)  # what is too long to be kept makes no room
    for number in range(10):
        kind = QueueKind("q", "q", selector=f"a = '{number}{'x' * kinds.ENCODED_SIZE_MAX}'")
        assert kind.encoded() == encode_attributes(kind.attributes())
    assert len(kinds._ENCODED) == before


@pytest.mark.parametrize(
    ("address", "route", "meant"),
    [
        ("news", ("s1" + NODE,), "s1"),
        ("news", ("s1" + NODE, "s2" + NODE), "$.sf.c.x.1"),
        ("$.canary", ("$.canary",), "$.sf.c.x.1"),  # for the node itself
    ],
)
def test_what_waits_for_another_node_is_for_the_one_queue_there(
    address: str, route: tuple[str, ...], meant: str
) -> None:
    assert QueueKind("$.sf.c.x.1", address, kinds.FORWARD, forwards_to=NODE, route=route).queue_meant == meant


def test_what_drains_is_for_the_queue_that_it_is_in() -> None:
    kind = QueueKind("orders", "sales", forwards_to=NODE, route=("orders" + NODE,), drains_as="$.sf.c.x.1")
    assert kind.queue_meant == "orders"
