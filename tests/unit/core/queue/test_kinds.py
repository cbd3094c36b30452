"""What the journal keeps of the kind of a queue: the same text, whether its common part is remembered or not."""

from __future__ import annotations

import json
import random
from typing import Any

from mqbroker.core.queue import kinds
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.journal.records import encode_attributes

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
