"""What holds for every operation, by its row: a row more is held to it as well."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.admin.arguments import Argument, number
from mqbroker.admin.operation import Operation, OperationEffect
from mqbroker.admin.operations import OPERATIONS, ROWS
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest, Stop

from tests.unit.admin.site import Site

OF_ANOTHER_KIND = {str: 7, int: "7", bool: 1, list: "x"}
CHANGES, ENDS = OperationEffect.CHANGES, OperationEffect.ENDS
EVERY = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def right(argument: Argument) -> Any:
    """Something that the argument takes."""
    if argument.kind is int:
        return argument.bounds[0] if argument.bounds else 1
    return {str: (*argument.choices, "x")[0], bool: True, list: ["x"]}[argument.kind]


def refusal(row: Operation, **changes: object) -> str:
    """What is said of a request of which only these arguments are wrong, or (None) missing."""
    said = {each.name: right(each) for each in row.arguments} | changes
    condition, why = Site().refused(row.name, **{name: value for name, value in said.items() if value is not None})
    assert condition == "amqp:invalid-field"
    return why


def test_no_two_operations_have_one_name() -> None:
    assert len(OPERATIONS) == len(ROWS)


@EVERY
def test_it_says_what_it_does(row: Operation) -> None:
    assert row.sentence.endswith(".")
    assert row.answer
    names = [each.name for each in row.arguments]
    assert len(set(names)) == len(names)


@EVERY
def test_what_is_left_out_is_something_that_could_be_said(row: Operation) -> None:
    for each in row.arguments:
        if each.default is not None:
            said = list(each.default) if isinstance(each.default, tuple) else each.default
            assert each.checked(row.name, said) == said


@EVERY
def test_wrong_arguments_are_named(row: Operation) -> None:
    assert f"{row.name}: unknown argument 'colour'" in refusal(row, colour="red")
    for each in row.arguments:
        assert f"{row.name}: argument {each.name!r} must be {each.kind.__name__}" == refusal(
            row, **{each.name: OF_ANOTHER_KIND[each.kind]}
        )
        if each.is_needed:
            assert refusal(row, **{each.name: None}) == f"{row.name}: argument {each.name!r} is missing"
        if each.kind is int:
            assert refusal(row, **{each.name: True}).endswith("must be int")
        if each.bounds is not None:
            assert [each.checked(row.name, bound) for bound in each.bounds] == list(each.bounds)
            assert "is a whole number from" in refusal(row, **{each.name: each.bounds[0] - 1})
            assert "is a whole number from" in refusal(row, **{each.name: each.bounds[1] + 1})
        if each.choices:
            assert "is one of" in refusal(row, **{each.name: "colour"})


@EVERY
def test_what_changes_anything_or_ends_it_leaves_a_notice_also_where_it_is_refused(row: Operation) -> None:
    site = Site()
    site.refused(row.name, colour="red")
    notices = [each.fields for each in site.stage.notices if each.event == "admin"]
    assert [each["outcome"] for each in notices] == ["amqp:invalid-field"] * (row.effect in (CHANGES, ENDS))


def test_the_function_is_given_who_asks_and_what_is_meant() -> None:
    given: list[AdminRequest] = []
    row = Operation("paint", lambda _, request: given.append(request), "nothing", (number("coats", 2, (1, 9)),))
    row.perform(Site().stage.broker, AdminRequest(7, 3, "paint", {}, 1000))
    assert given == [AdminRequest(7, 3, "paint", {"coats": 2}, 1000)]


@pytest.mark.parametrize("fault", [Refused("amqp:not-found", "gone"), PeerFault("amqp:not-found", "gone")])
def test_what_the_function_refuses_is_the_answer(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(broker: Broker, request: AdminRequest) -> None:
        raise fault

    monkeypatch.setitem(OPERATIONS, "paint", Operation("paint", refuse, "nothing"))
    assert Site().refused("paint") == ("amqp:not-found", "gone")


@EVERY
def test_while_the_node_stops_only_what_looks_is_answered(row: Operation) -> None:
    site = Site()
    site.stage.give(Stop())
    answer = site.stage.admin(row.name, **{each.name: right(each) for each in row.arguments}) or {}
    is_stopping = "the broker stops" in str(answer.get("description"))
    assert is_stopping == (row.effect in (CHANGES, OperationEffect.TAKES_PART))
