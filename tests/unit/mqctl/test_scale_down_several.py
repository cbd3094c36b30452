"""Several hosts that leave by one command: who is there for each of them, and whose messages go where."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqctl.commands.rollout import scale_down
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.operation import HeldCluster
from mqctl.scaledown import drain_start
from mqctl.scaledown.leaving_host import Leaver, leavers_of, meant, telling_who_has_left
from mqctl.world import World

from tests.unit.mqctl.test_scale_down_on_hosts import UNBOUNDED, VARIABLES, done, drain, made_hosts, said, says, world

__all__ = ["world"]
CLUSTER = InventoryCluster("main", tuple(Host(f"mq{number}", "main", {}, {}) for number in (1, 2, 3, 4)))


def test_each_finds_those_that_stay_and_nobody_that_has_left() -> None:
    first, second = leavers_of(CLUSTER, ["mq3", "mq2"], is_forced=False)
    assert [one.host for one in first.nodes] == ["mq3"]
    assert [one.host for one in first.heirs] == [one.host for one in second.heirs] == ["mq1", "mq4"]
    # Until it has left the other one is a node of the cluster, which has to answer and to forget.
    assert [one.host for one in first.others] == ["mq1", "mq2", "mq4"]
    assert [one.host for one in second.others] == ["mq1", "mq4"]
    assert (first.later, second.later) == (("mq2",), ())
    assert first.command == second.command == "mqctl scale-down mq3 mq2"


def test_one_alone_is_as_it_was() -> None:
    (one,) = leavers_of(CLUSTER, ["mq3"], is_forced=True)
    assert (one.command, one.again) == ("mqctl scale-down mq3", "mqctl scale-down mq3 --resume --force")
    assert [each.host for each in one.heirs] == [each.host for each in one.others] == ["mq1", "mq2", "mq4"]


@pytest.mark.parametrize(
    ("names", "why"), [(["mq2", "mq2"], "mq2 is named twice"), (["mq2", "mq9"], "mq9 is not a host")]
)
def test_who_is_no_host_or_named_twice_does_not_leave(names: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        leavers_of(CLUSTER, names, is_forced=False)


@pytest.fixture
def party(world: World, tmp_path: Path) -> list[Leaver]:
    """mq3 leaves, and then mq2; mq1 and mq4 stay."""
    names = [one.name for one in CLUSTER.hosts]
    made_hosts(tmp_path, *names)
    cluster = InventoryCluster("main", tuple(Host(name, "main", VARIABLES, {}) for name in names))
    return leavers_of(cluster, ["mq3", "mq2"], is_forced=False)


@pytest.mark.slow
def test_what_keeps_a_later_one_is_told_before_the_first_moves(world: World, party: list[Leaver]) -> None:
    first, second = party
    options = scale_down.Options(hosts=["mq3", "mq2"])
    says("mq2", **{"scale-down": drain(hindrances=[{"kind": "queue", "name": "latest", "why": "stays"}])})
    why = "mq2: 1 thing would not move or not safely: mq2: queue latest: stays; nothing was changed"
    with pytest.raises(CommandError, match=why):
        scale_down._planned(world, options, [first, second], {})
    says("mq2", **{"scale-down-show": drain(state="moving")})
    with pytest.raises(CommandError, match="mq2 drains already"):
        scale_down._planned(world, options, [first, second], {})
    says("mq2", **{"scale-down": drain(), "scale-down-show": drain()})
    with pytest.raises(CommandError, match="there is no terminal to ask on"):
        scale_down._planned(world, options, [first, second], {})
    assert "mq2: 0 messages in 0 queues move to" in said(world)
    assert scale_down._planned(world, replace(options, yes=True), [first, second], {})[1] is not None


@pytest.mark.slow
def test_one_question_is_for_all_and_comes_again_only_where_that_is_not_what_was_agreed_to(
    world: World, party: list[Leaver], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = party
    asked, agreed = replace(world, is_interactive=True), {}
    questions: list[str] = []

    def answer(question: str, **_: Any) -> str:
        questions.append(question)
        return "y"

    monkeypatch.setattr(asked.err, "input", answer)
    options = scale_down.Options(hosts=["mq3", "mq2"], to="mq1")
    scale_down._planned(asked, options, [first, second], agreed)
    scale_down._planned(asked, options, [second], agreed)
    says("mq2", **{"scale-down": drain(hindrances=[{"kind": "queue", "name": "latest", "why": "stays"}])})
    scale_down._planned(asked, replace(options, force=True), [second], agreed)
    says("mq2", **{"scale-down": drain()})
    scale_down._planned(asked, replace(options, to="mq4"), [second], agreed)
    assert questions == [
        "Move everything of mq3 to mq1, then everything of mq2 to mq1, and take mq3 and mq2 out of main? [y/N] ",
        "Move everything of mq2 to mq1, and take mq2 out of main? [y/N] ",
        "Move everything of mq2 to mq4, and take mq2 out of main? [y/N] ",
    ]


TOGETHER = "messages come from mq3 and mq2"


@pytest.mark.slow
@pytest.mark.parametrize("most", [120, 100, 50])
def test_what_they_have_no_room_for_together_is_told_before_the_first_moves(
    world: World, party: list[Leaver], most: int
) -> None:
    """And by `--check` as well; what one of them alone has no room for is told of it."""
    row = {"queue": "orders", "address": "orders", "left": 60, "bytes": 6_000}
    bounds = {**UNBOUNDED, "max-size-messages": most}
    for name in ("mq2", "mq3"):
        says(name, **{"scale-down": drain(queues=[row])})
    for name in ("mq1", "mq4"):
        rows = [{"setting": setting, "value": value} for setting, value in bounds.items()]
        says(name, **{"address-settings-show": {"settings": rows}})
    options = scale_down.Options(hosts=["mq3", "mq2"], to="mq1", check=True)
    assert scale_down._planned(world, options, party, {}) == (None, None)
    alone, together = (f"address orders of mq1: {what}" for what in ("60 messages come", f"120 {TOGETHER}"))
    assert (f"hinders: {alone}, " in said(world), f"hinders: {together}, " in said(world)) == (most < 60, most < 120)
    options = replace(options, check=False, yes=True)
    if most < 120:
        whose, what = ("mq3", alone) if most < 60 else ("mq2", together)
        why = f"{whose}: 1 thing would not move or not safely: {what}, and it has room for {most} .*; nothing was chan"
        with pytest.raises(CommandError, match=why):
            scale_down._planned(world, options, party, {})
    else:
        assert scale_down._planned(world, options, party, {})[1] is not None


@pytest.mark.slow
@pytest.mark.parametrize(("first_pauses", "second_pauses"), [(False, True), (True, False)])
def test_what_pauses_at_one_of_them_alone_is_told_before_the_first_moves(
    world: World, party: list[Leaver], first_pauses: bool, second_pauses: bool
) -> None:
    row = {"queue": "orders", "address": "orders", "left": 5, "bytes": 500}
    for name, is_paused in (("mq3", first_pauses), ("mq2", second_pauses)):
        says(name, **{"scale-down": drain(queues=[{**row, "paused": is_paused}])})
    for name in ("mq1", "mq4"):
        rows = [{"setting": setting, "value": value} for setting, value in UNBOUNDED.items()]
        says(name, **{"address-settings-show": {"settings": rows}})
    options = scale_down.Options(hosts=["mq3", "mq2"], to="mq1", check=True)
    scale_down._planned(world, options, party, {})
    hinders = "hinders: queue orders of mq1: one of the hosts before has it, and it does not pause"
    stands = "warning: queue orders: paused at mq1, and not here"
    assert (hinders in said(world), stands in said(world)) == (second_pauses, first_pauses)


def test_what_is_wrong_once_one_has_left_is_no_fault_of_the_command_line(world: World, party: list[Leaver]) -> None:
    """By that it would say that nothing was touched."""
    for error, code in ((UsageError("no folder"), Exit.FAILED), (CommandError("late", "", Exit.RUNNING), Exit.RUNNING)):
        with pytest.raises(CommandError) as raised, telling_who_has_left(world, party[1], ["mq3"]):
            raise error
        assert raised.value.code is code


@pytest.mark.slow
def test_a_broker_is_told_who_leaves_later_where_its_release_knows_that(world: World, party: list[Leaver]) -> None:
    """Where its heir falls out it would choose one of them by itself."""
    first, second = party
    options = scale_down.Options(hosts=["mq3", "mq2"], yes=True)
    for leaver, later in ((first, "id-mq2"), (second, "")):
        drain_start.begin(world, leaver, scale_down._planned(world, options, [leaver], {})[1], HeldCluster({}, []))
        (arguments,) = map(json.loads, done("arguments", leaver.host.name))
        assert (arguments["node"] in ("id-mq1", "id-mq4"), arguments["not_to"]) == (True, later)
    assert "cannot be told" not in said(world)
    says("mq3", **{"scale-down-show": {name: value for name, value in drain().items() if name != "passed_over"}})
    drain_start.begin(world, first, scale_down._planned(world, options, [first], {})[1], HeldCluster({}, []))
    (arguments,) = map(json.loads, done("arguments"))
    assert "not_to" not in arguments
    assert "mq3: its release cannot be told who leaves later" in said(world)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("names", "before", "silent", "not_to"),
    [
        (["mq3"], ["id-mq2"], [], ""),  # the others stay by now
        (["mq3", "mq2"], [], [], "id-mq2"),
        (["mq3", "mq2"], ["id-mq2"], [], None),
        (["mq3", "mq2"], ["id-mq2"], ["default"], None),  # that one is not heard of, so what was said stays
        (["mq3", "mq2", "mq4"], ["id-mq2"], ["default"], "id-mq4,id-mq2"),
    ],
)
def test_who_drains_already_is_told_anew_who_leaves_later(
    world: World, party: list[Leaver], names: list[str], before: list[str], silent: list[str], not_to: str | None
) -> None:
    """Where the others are given up, or are others, once it has begun."""
    leaver = leavers_of(party[0].cluster, names, is_forced=False)[0]
    says("mq2", silent=silent)
    says("mq3", **{"scale-down-show": drain(state="moving", node="mq1", node_id="id-mq1", passed_over=before)})
    plan = scale_down._agreed(world, scale_down.Options(hosts=names, resume=True), leaver)
    drain_start.begin(world, leaver, plan, HeldCluster({}, []))
    assert done("asked").count("scale-down") == (not_to is not None)
    if not_to is not None:
        assert list(map(json.loads, done("arguments"))) == [{"node": "id-mq1", "not_to": not_to}]
    assert ("warning: mq2 leaves later, and mq3 cannot be told its id now" in said(world)) is bool(silent)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heir", "state", "silent", "is_told"),
    [
        ("mq2", "moving", [], True), ("mq2", "failed", ["default"], True), ("mq1", "moving", [], False),
        ("mq2", "moved", [], False),  # nothing is left that could go elsewhere
    ],
)  # fmt: skip
def test_who_drains_to_one_that_leaves_later_is_warned_of_it(
    world: World, party: list[Leaver], heir: str, state: str, silent: list[str], *, is_told: bool
) -> None:
    """It began alone, and the others were named since: what it has moves twice unless it is told otherwise."""
    says("mq2", silent=silent)
    says("mq3", **{"scale-down-show": drain(state=state, node=heir, node_id=f"id-{heir}")})
    scale_down._agreed(world, scale_down.Options(hosts=["mq3", "mq2"], resume=True), party[0])
    why = "warning: mq3 drains to mq2, which leaves later: what moves there moves once more, unless "
    assert (f"{why}mqctl scale-down mq3 mq2 --resume --to OTHER has it go on" in said(world)) is is_told


@pytest.mark.slow
def test_who_leaves_later_and_is_silent_is_told_of_in_the_plan(world: World, party: list[Leaver]) -> None:
    says("mq2", silent=["default"])
    assert scale_down._agreed(world, scale_down.Options(hosts=["mq3", "mq2"], check=True), party[0]) is None
    assert "warning: mq2 leaves later, and mq3 cannot be told its id now" in said(world)


def test_the_only_instance_of_a_host_is_that_host() -> None:
    assert meant(CLUSTER, ["mq3", "mq2/default", "gone"]) == ["mq3", "mq2", "gone"]
    with pytest.raises(UsageError, match="mq3 has no instance red: it has default"):
        leavers_of(CLUSTER, meant(CLUSTER, ["mq3/red"]), is_forced=False)
