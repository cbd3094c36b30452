"""What is told of queues that pause where messages move to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqctl.commands.rollout import scale_down
from mqctl.exits import Exit
from mqctl.nodes import Node
from mqctl.scaledown.cancellation import TakeBack, take_back
from mqctl.scaledown.cluster_look import NodeLook
from mqctl.scaledown.leaving_host import Leaver
from mqctl.scaledown.pauses import NAMES_MAX, foreseen, told_of
from mqctl.scaledown.receipt import page, rows_of
from mqctl.world import World

from tests.unit.mqctl.test_scale_down_on_hosts import INVENTORY, ROW, document, drain, leaving, made, said, says, world

__all__ = ["leaving", "world"]
SECOND = NodeLook(
    Node("mq1", "second"), status={"node_id": "id-mq1"}
)  # its broker is called mq1-second, or as was said
UNTIL = "what is there stands until mqctl queue resume NAME --host mq1/second"
ALSO = ", and mqctl address resume ADDRESS --host mq1/second where its address pauses there too"
WAITS = "mqctl queue pause NAME --host mq1/second has it wait there as well"
MADE = f"queue a: made paused at mq1/second, as here; {UNTIL}"
STANDS = f"queue a: paused at mq1/second, and not here; {UNTIL}{ALSO}"
GOES = f"queue a: paused here and empty, and what still comes is handed out at mq1/second; {WAITS}"


def planned(**changes: Any) -> dict[str, Any]:
    return {"queue": "a", "left": 3, "paused": True, **changes}


@pytest.mark.parametrize(
    ("there", "rows", "wanted"),
    [
        (None, [planned()], [MADE]),
        (None, [planned(), planned()], [MADE]),  # of two nodes that leave
        (None, [planned(paused=False)], []),
        (None, [planned(left=0)], [MADE]),  # something may be on its way to it
        (None, [{"queue": "a", "left": 3}], []),  # an earlier release does not say
        (False, [planned()], []),  # that hinders: room.py
        (False, [planned(left=0)], [GOES]),
        (True, [planned()], []),
        (True, [planned(left=0)], []),
        (True, [planned(paused=False)], [STANDS]),
        (True, [planned(paused=False, left=0)], []),
        (None, [planned(), planned(queue="b", paused=False)], [MADE]),
    ],
)
def test_the_plan_says_what_will_stand_there(there: bool | None, rows: list[dict[str, Any]], wanted: list[str]) -> None:
    queues = [] if there is None else [{"name": "a", "paused": there}]
    assert foreseen(replace(SECOND, queues=queues), rows) == wanted


def heir(node_id: str = "id-mq1", *, paused_there: bool | None = True) -> dict[str, Any]:
    return {"node_id": node_id, "node": "mq1-second", "moved": 3, "paused_there": paused_there}


def row(*heirs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"queue": "a", "paused": True, "heirs": list(heirs or (heir(),)), **changes}


def now(*paused: bool) -> NodeLook:
    """How the queue is where it came."""
    return replace(SECOND, queues=[{"name": "a", "paused": each} for each in paused])


PAUSED_THERE = f"mq3: queue a: paused at mq1/second; {UNTIL}{ALSO}"
SERVED_THERE = f"mq3: queue a: paused here, and handed out at mq1/second; {WAITS}"


@pytest.mark.parametrize(
    ("here", "there", "looked", "wanted"),
    [
        (True, True, now(True), [PAUSED_THERE]),
        (False, True, now(True), [PAUSED_THERE]),
        (True, False, now(False), [SERVED_THERE]),
        (False, False, now(False), []),
        (True, None, now(True), []),
        (True, True, now(False), [SERVED_THERE]),  # somebody has resumed it since
        (False, True, now(False), []),
        (True, False, now(True), [PAUSED_THERE]),  # or paused it
        (True, True, now(), []),  # it has gone there
    ],
)
def test_once_all_has_moved_it_says_what_stands_and_what_is_handed_out(
    here: bool, there: bool | None, looked: NodeLook, wanted: list[str]
) -> None:
    rows = [row(heir(paused_there=there), paused=here), {"queue": "of an earlier release", "heirs": [{"node_id": "x"}]}]
    assert told_of("mq3", rows, [looked, replace(SECOND, status={"node_id": "another"})]) == wanted
    assert told_of("mq3", [{"queue": "of an earlier one"}], [looked]) == []


@pytest.mark.parametrize("looks", [[], [replace(SECOND, fault="it is silent")]])
def test_of_a_node_that_does_not_answer_it_says_what_that_said_and_no_name_that_nobody_knows(
    looks: list[NodeLook],
) -> None:
    also = "and mqctl address resume ADDRESS there where its address pauses there too"
    assert told_of("mq3", [row()], looks) == [
        f"mq3: queue a: paused at mq1-second; what is there stands until mqctl queue resume NAME there, {also}"
    ]
    (text,) = told_of("mq3", [row({**heir(), "node": None})], looks)
    assert "paused at id-mq1; " in text


def test_each_node_that_has_some_is_named() -> None:
    other = NodeLook(Node("mq2", "default"), status={"node_id": "id-mq2"}, queues=[{"name": "a", "paused": False}])
    rows = [row(heir(), heir("id-mq2", paused_there=False)), row(heir(), heir("id-mq2", paused_there=False), queue="b")]
    looks = [replace(SECOND, queues=[{"name": each, "paused": True} for each in "ab"]), other]
    texts = told_of("mq3", rows, looks)
    assert [text.partition(";")[0] for text in texts] == [
        "mq3: queue a, b: paused at mq1/second",
        "mq3: queue a: paused here, and handed out at mq2",
    ]


def test_so_many_are_named() -> None:
    rows = [row(queue=f"q{number}") for number in range(NAMES_MAX + 2)]
    (text,) = told_of("mq3", rows, ())
    assert ("q19 and 2 more: paused at mq1" in text, "q20" in text) == (True, False)


COUNTED = {
    "address": "a", "before": {"messages": 3}, "came": 0, "consumed": 0, "moved": 3, "left": 0, "arrived": 3,
    "moved_digest": "x", "arrived_digest": "x",
}  # fmt: skip


def test_the_receipt_has_it() -> None:
    queues = [{**row(), **COUNTED}, {"queue": "of an earlier one", **COUNTED}]
    own = {"balances": True, "difference": [], "queues": queues}
    rows = rows_of("mq3", "default", "mq1", own, is_forced=False)
    assert [(one["paused"], one["heirs"]) for one in rows] == [(True, [heir()]), (False, [])]
    assert "\nmq3: queue a: paused at mq1-second; what is there stands until" in page(document(rows=rows))


# -- who tells it -----------------------------------------------------------------------------------------------------

AT_MQ1 = "mq3: queue a: paused at mq1; what is there stands until mqctl queue resume NAME --host mq1, and"


def has_paused(**changes: Any) -> None:
    """mq3 drains, or has drained, to mq1, which has its queue paused."""
    receipt = {"balances": True, "difference": [], "queues": [row(**COUNTED)]}
    answer = drain(**{"state": "moved", "node": "mq1", "node_id": "id-mq1", "receipt": receipt, **changes})
    says("mq1", queues={"queues": [{"name": "a", "paused": True}]})
    says("mq3", **{"scale-down-show": answer})


@pytest.mark.slow
@pytest.mark.parametrize("state", ["moving", "moved"])
def test_who_looks_how_far_it_is_is_told(world: World, leaving: Leaver, state: str) -> None:
    has_paused(state=state)
    assert scale_down._show(world, scale_down.Options(hosts=["mq3"], show=True), [leaving]) == Exit.DONE
    assert AT_MQ1 in said(world)


@pytest.mark.slow
def test_who_takes_it_back_is_told_what_stands_elsewhere(world: World, leaving: Leaver) -> None:
    made("default")
    has_paused(state="moving")
    assert take_back(world, [leaving], TakeBack(60.0, is_sure=True)) == Exit.DONE
    assert "what has moved is at mq1\n" + AT_MQ1 in said(world)


@pytest.mark.slow
def test_nobody_else_is_asked_where_nothing_pauses(world: World, leaving: Leaver, tmp_path: Path) -> None:
    has_paused(receipt=None)
    assert scale_down._show(world, scale_down.Options(hosts=["mq3"], show=True), [leaving]) == Exit.DONE
    assert not (tmp_path / "mq1" / "asked").exists()
    assert "queue a" not in said(world)


@pytest.mark.slow
@pytest.mark.parametrize("is_resumed", [False, True])
def test_when_a_host_has_left_it_is_told_also_where_its_brokers_were_stopped_before(
    world: World, leaving: Leaver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_resumed: bool
) -> None:
    """The receipt is all that there is of it then. Nothing is taken away here: no collection is on these hosts."""
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    made("default")
    has_paused()
    for name in ("take_away", "have_forgotten"):
        monkeypatch.setattr(scale_down, name, lambda *_: None)
    monkeypatch.setattr(scale_down, "look_at_rest", lambda *_: Exit.DONE)
    how = scale_down.Options(hosts=["mq3"], yes=True, resume=is_resumed)
    kept = document(rows=[ROW | row()]) if is_resumed else scale_down._drained(world, how, leaving)
    has_paused(receipt=None)
    assert scale_down._left(world, how, leaving, kept)[0] == Exit.DONE
    assert AT_MQ1 in said(world)
