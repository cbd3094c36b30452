"""A bug right behind each mutator that conversations and a few histories reach: the step raises, the node stops.

While bytes are looked at, and as well where a step does what it does for everybody: deliveries, timers, what the disk
said. The mutators are those of tests/contract/test_mutators.py, which says of the others that they are no different.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from mqbroker.base.look import LOOK
from mqbroker.node.amqp.peers.containment import Containment

from tests.contract.test_mutators import found, is_exempt
from tests.golden.conversation import play as play_node
from tests.scenarios.cluster import play as play_cluster
from tests.sim.days import DAY
from tests.sim.histories import Simulation
from tests.support.mutators import ROOMS, Function, files_of
from tests.support.rotation import SHARES

ROOT = Path(__file__).parents[2]
CONVERSATIONS: list[tuple[Callable[[str], str], Path]] = [
    *((play_node, file) for file in sorted((ROOT / "golden/conversations").glob("*.txt"))),
    *((play_cluster, file) for file in sorted((ROOT / "scenarios/conversations").glob("*.txt"))),
]
HISTORIES = (1003, 4001, 3000)
REACHED_MIN = 400  # of some 530
LOOKED_MIN = 200  # of these, while bytes are looked at
ROOMS_REACHED = ("amqp/unsettled.py", "core/", "journal/", "node/", "cluster/")


class Planted(Exception):
    """The bug."""


def mutators() -> list[tuple[str, type, FunctionType]]:
    """Methods that change something: key, class, function."""
    own = set(files_of(ROOMS))
    methods: list[tuple[str, type, FunctionType]] = []
    for each in found()[0]:
        if each.file in own and each.changes and not is_exempt(each) and each.name != "__init__":
            methods += _method_of(each)
    return methods


def _method_of(function: Function) -> Iterator[tuple[str, type, FunctionType]]:
    file, _, path = function.key.partition(":")
    owner, _, name = path.rpartition(".")
    place = getattr(
        importlib.import_module(f"mqbroker.{file.removesuffix('.py').replace('/', '.')}"), owner or "?", None
    )
    method = vars(place).get(name) if isinstance(place, type) else None
    if isinstance(place, type) and isinstance(method, FunctionType):
        yield function.key, place, method


@contextmanager
def watched(told: Callable[[str, bool], None]) -> Iterator[None]:
    """`told` hears of each mutator that has changed something, right behind it, and whether bytes are looked at."""
    depth = 0
    look = Containment._bug_in

    def looking(take: Any, data: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            return look(take, data)
        finally:
            depth -= 1

    def wrapped(key: str, method: FunctionType) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            result = method(*arguments, **named)
            if not depth or LOOK.has_touched:
                told(key, bool(depth))
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Containment, "_bug_in", staticmethod(looking))
        for key, place, method in mutators():
            patch.setattr(place, method.__name__, wrapped(key, method))
        yield


def play_history(seed: str) -> str:
    """A history, to its end or to the bug."""
    return Simulation(int(seed)).run().trace


def plays() -> list[tuple[Callable[[str], str], str]]:
    """All that is played, the shortest first."""
    texts = [(play, file.read_text(encoding="utf-8")) for play, file in CONVERSATIONS]
    return texts + [(play_history, str(seed)) for seed in HISTORIES]


def share_of_turn(everything: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Every third of them, the next one each day that has this test; all in `make soak`."""
    return everything if os.environ.get("SOAK") else everything[DAY // SHARES % 3 :: 3]


@pytest.mark.slow
def test_a_bug_behind_a_mutator_stops_the_node() -> None:
    reached: dict[str, int] = {}  # by key: the first of what is played that reaches it
    looked: set[str] = set()
    place = {"": 0}
    planted: dict[str, bool] = {}  # and whether it is to be while bytes are looked at

    def told(key: str, is_looking: bool) -> None:
        reached.setdefault(key, place[""])
        if is_looking:
            looked.add(key)
        if key in planted and is_looking >= planted[key]:
            raise Planted(key)

    played = plays()
    with watched(told):
        for place[""], (play, text) in enumerate(played):
            play(text)
        for room in ROOMS_REACHED:
            assert any(key.startswith(room) for key in looked), room
        assert len(looked) >= LOOKED_MIN, f"{len(looked)} of {len(mutators())}"
        assert len(reached) >= REACHED_MIN, f"{len(reached)} of {len(mutators())}"
        for key, number in share_of_turn(list(reached.items())):
            play, text = played[number]
            planted[key] = False
            with pytest.raises(Planted):
                play(text)
            planted.clear()
