"""What is told of queues that pause where messages move to."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqctl.commands.rollout import scale_down
from mqctl.scaledown.leaver import Leaver
from mqctl.scaledown.pauses import NAMES_MAX, foreseen, told_of
from mqctl.world import World

from tests.unit.mqctl.test_scale_down_on_hosts import drain, leaving, made, said, says, world
from tests.unit.mqctl.test_scale_down_plan import OTHERS

__all__ = ["leaving", "world"]
MADE, STANDS = "queue a: made paused at mq1, as here; what", "queue a: paused at mq1, and not here; what"
UNTIL = "what is there stands until mqctl queue resume NAME --host mq1, or mqctl address resume of its address"


def row(**said: Any) -> dict[str, Any]:
    return {"queue": "a", "left": 3, "paused": True, **said}


@pytest.mark.parametrize(
    ("there", "rows", "wanted"),
    [
        (None, [row()], [MADE]),
        (None, [row(), row()], [MADE]),  # of two nodes that leave
        (None, [row(paused=False)], []),
        (None, [row(left=0)], []),
        (None, [{"queue": "a", "left": 3}], []),  # an earlier release does not say
        (False, [row()], []),  # that hinders: room.py
        (True, [row()], []),
        (True, [row(paused=False)], [STANDS]),
        (True, [row(paused=False, left=0)], []),
        (None, [row(), row(queue="b", paused=False)], [MADE]),
    ],
)
def test_the_plan_says_what_will_stand_there(there: bool | None, rows: list[dict[str, Any]], wanted: list[str]) -> None:
    queues = [] if there is None else [{"name": "a", "paused": there}]
    found = foreseen(replace(OTHERS[0], queues=queues), rows)
    assert [text.partition(";")[0] for text in found] == [text.partition(";")[0] for text in wanted]
    assert all(text.endswith(UNTIL) for text in found)


@pytest.mark.parametrize(
    ("here", "there", "wanted"),
    [
        (True, True, [f"mq3: queue a: paused at mq1; {UNTIL}"]),
        (False, True, [f"mq3: queue a: paused at mq1; {UNTIL}"]),
        (True, False, ["mq3: queue a: paused here, and handed out at mq1; mqctl queue pause NAME --host mq1 there"]),
        (False, False, []),
        (True, None, []),
    ],
)
def test_once_all_has_moved_it_says_what_stands_and_what_is_handed_out(
    here: bool, there: bool | None, wanted: list[str]
) -> None:
    rows = [row(paused=here, paused_there=there), {"queue": "of an earlier release"}]
    assert told_of("mq3", {"state": "moved", "node": "mq1", "queues": rows}) == wanted
    assert told_of("mq3", {}) == []


def test_so_many_are_named() -> None:
    rows = [row(queue=f"q{number}", paused_there=True) for number in range(NAMES_MAX + 2)]
    (text,) = told_of("mq3", {"node": "mq1", "queues": rows})
    assert ("q19 and 2 more: paused at mq1" in text, "q20" in text) == (True, False)


@pytest.mark.slow
def test_with_the_receipt_of_a_host_that_leaves_it_is_told(world: World, leaving: Leaver) -> None:
    made("default")
    receipt = {"balances": True, "difference": [], "queues": []}
    rows = [row(left=0, paused_there=True)]
    says("mq3", **{"scale-down-show": drain(state="moved", node="mq1", node_id="id-mq1", receipt=receipt, queues=rows)})
    assert scale_down._drained(world, scale_down.Options(hosts=["mq3"], force=True), leaving)["differences"] == []
    assert f"queue a: paused at mq1; {UNTIL}" in said(world)
