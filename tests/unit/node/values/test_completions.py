"""Each that waits for an effect is told once what became of it, whatever it was."""

from __future__ import annotations

from typing import Any

from mqbroker.node.values import inputs as given
from mqbroker.node.values.completions import UNSAID, Completions

from tests.support.stage import Stage


def test_each_is_told_its_own_result_or_reason_once() -> None:
    told: list[tuple[str, Any, str]] = []
    completions = Completions()
    first = completions.expect(lambda result, why: told.append(("first", result, why)))
    second = completions.expect(lambda result, why: told.append(("second", result, why)))
    assert completions.failed(second, "EIO")
    assert completions.done(first, b"bytes")
    assert told == [("second", None, "EIO"), ("first", b"bytes", "")]
    assert not completions.done(first, b"again")
    assert len(told) == 2


def test_no_id_comes_twice_whether_somebody_waits_or_not() -> None:
    completions = Completions()
    ids = [completions.next_id(), completions.expect(lambda *_: None), completions.next_id()]
    assert ids == sorted(set(ids))
    assert not completions.done(ids[0])
    assert not completions.done(99), "nor is one known that was never given out"


def test_who_is_told_may_have_another_effect_carried_out() -> None:
    told: list[Any] = []
    completions = Completions()
    ids: list[int] = []

    def then(result: Any, why: str) -> None:
        told.append(result)
        if len(ids) < 3:
            ids.append(completions.expect(then))

    ids.append(completions.expect(then))
    for number, effect_id in enumerate(ids):
        completions.done(effect_id, number)
    assert told == [0, 1, 2]


def test_a_failure_without_a_reason_is_none_the_less() -> None:
    told: list[tuple[Any, str]] = []
    completions = Completions()
    assert completions.failed(completions.expect(lambda result, why: told.append((result, why))), "")
    assert told == [(None, UNSAID)]


def test_a_failure_that_nobody_waits_for_is_told_to_the_log() -> None:
    stage = Stage()
    stage.give(given.Failed(stage.broker.completions.next_id(), "EACCES"))
    stage.give(given.Done(stage.broker.completions.next_id()))
    stage.run()
    assert [each.fields for each in stage.notices if each.event == "effect-failed"] == [{"id": 1, "why": "EACCES"}]
