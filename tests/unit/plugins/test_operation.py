"""One operation at a time changes a host: what is noted, what may follow it, and what is refused."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils import operation

from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
GUARD = ROOT / "cli/src/mqctl/remote/guard.py"


def note(number: int = 7, token: str = "own", **changes: Any) -> dict[str, Any]:
    return {
        "number": number, "is_held": True, "token": token, "user": "ann", "machine": "control",
        "what": "mqctl rollout", "since": "2026-01-05 10:12:00 UTC", **changes,
    }  # fmt: skip


class Place:
    """Where a host keeps its note."""

    def __init__(self, folder: Path) -> None:
        self.file, self.lock = folder / "note.json", str(folder / "lock")

    def take(self, wanted: dict[str, Any], instead_of: str = "") -> dict[str, Any] | None:
        return operation.take(wanted, instead_of, str(self.file), self.lock)

    def give_back(self, own: dict[str, Any]) -> bool:
        return operation.give_back(own, str(self.file), self.lock)

    def lost_to(self, own: dict[str, Any]) -> str:
        return operation.lost_to(own, str(self.file))

    @property
    def found(self) -> dict[str, Any] | None:
        return operation.look(str(self.file))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# (what is noted, which number comes, in whose place) -> whether it is noted. None: nothing is.
HELD, FREE = note(5, "first"), note(5, "first", is_held=False)
FOLLOWS = {
    (None, 1): True,
    ("free", 4): False, ("free", 5): False, ("free", 6): True,
    ("held", 4): False, ("held", 5): False, ("held", 6): False,
    ("in its place", 4): False, ("in its place", 5): False, ("in its place", 6): True,
    ("in the place of another", 4): False, ("in the place of another", 5): False, ("in the place of another", 6): False,
}  # fmt: skip


def test_the_table_has_every_case() -> None:
    states = ("free", "held", "in its place", "in the place of another")
    assert set(FOLLOWS) == {(None, 1), *product(states, (4, 5, 6))}


@pytest.mark.parametrize(("state", "number"), FOLLOWS)
def test_what_may_follow_what_is_noted(place: Place, state: str | None, number: int) -> None:
    before = {None: None, "free": FREE}.get(state, HELD)
    if before:
        place.file.write_text(json.dumps(before))
    instead_of = {"in its place": "first", "in the place of another": "another"}.get(state or "", "")
    in_the_way = place.take(note(number), instead_of)
    is_noted = FOLLOWS[state, number]
    assert in_the_way == (None if is_noted else before)
    assert place.found == (note(number) if is_noted else before)


def test_an_operation_meets_itself_in_each_of_its_plays(place: Place) -> None:
    place.take(note())
    assert place.take(note()) is None
    # One with its token and another number is not itself: it was gone on with.
    assert place.take(note(8)) == note()


def test_a_number_outlives_its_operation(place: Place) -> None:
    place.take(note())
    assert place.lost_to(note()) == ""
    assert place.give_back(note(token="other")) is False
    assert place.give_back(note()) is True
    assert place.found == note(is_held=False)
    assert place.give_back(note()) is False
    assert "is over; begin anew" in place.lost_to(note())
    assert not operation.is_followed(note(), str(place.file))
    assert place.take(note()) == note(is_held=False)
    assert place.take(note(8)) is None


def test_who_was_gone_on_with_is_told_by_whom(place: Place) -> None:
    place.take(note())
    assert place.take(note(8, "next", user="bob"), instead_of="own") is None
    assert place.lost_to(note()) == operation.sentence(note(8, "next", user="bob"))
    assert operation.is_followed(note(), str(place.file))
    assert not operation.is_followed(note(8, "next"), str(place.file))
    assert place.give_back(note()) is False
    place.file.unlink()
    assert "somebody has removed" in place.lost_to(note())


def test_of_many_at_once_one_has_it(place: Place) -> None:
    won = list[str]()

    def attempt(token: str) -> None:
        if place.take(note(7, token)) is None:
            won.append(token)

    threads = [threading.Thread(target=attempt, args=(str(number),)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


@pytest.mark.slow
def test_nobody_takes_it_while_another_one_does(place: Place) -> None:
    seen = list[Any]()
    place.take(note())
    with open(place.lock, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiting = threading.Thread(target=lambda: seen.append(place.take(note(8, "other"))))
        waiting.start()
        waiting.join(0.3)
        assert seen == []
    waiting.join()
    assert seen == [note()]


def test_what_is_not_whole_is_nothing(place: Place) -> None:
    wrong: list[dict[str, Any]] = [
        {"number": "7"}, {"number": True}, {"number": 0}, {"number": 2**53}, {"is_held": 1}, {"user": ["ann"]},
        {"since": None},
    ]  # fmt: skip
    lacking = [{name: value for name, value in note().items() if name != gone} for gone in note()]
    texts = ("", "{", "[]", '{"number": 7}', *(json.dumps(note() | one) for one in wrong), *map(json.dumps, lacking))
    for written in (b"\xff\xfe{", json.dumps(note()).encode() + b"\x80", *(text.encode() for text in texts)):
        place.file.write_bytes(written)
        assert place.found is None, written
        assert place.take(note(1)) is None
        place.file.unlink()


def test_a_note_is_replaced_whole(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut in the middle of it leaves the one before, so no number is given out twice."""
    place.take(note())

    def cut(*_: Any) -> None:
        raise OSError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", cut)
        with pytest.raises(OSError, match="cut off"):
            place.give_back(note())
    assert place.found == note()


def test_who_is_told_to_wait_is_told_for_whom_and_the_ways_out() -> None:
    said = operation.sentence(note())
    for part in (
        "operation 7 (mqctl rollout, ann from control, since 2026-01-05 10:12:00 UTC)", "mqctl rollout --resume",
        "mqctl operation release",
    ):  # fmt: skip
        assert part in said
    assert "-e mq_resume=true" in operation.sentence(note(what="a rollout"))


# -- the guard of a step ----------------------------------------------------------------------------------------------


def step(place: Place, number: int, has: str = "held", token: str = "own") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", GUARD.read_text(), str(place.file), str(number), token, has, "cat"]
    return subprocess.run(words, input="read\n", capture_output=True, text=True, timeout=PATIENCE_S, check=False)


@pytest.mark.parametrize(("noted", "is_refused"), [(7, False), (8, True)])
def test_a_step_with_a_lower_number_is_refused(place: Place, noted: int, is_refused: bool) -> None:
    place.take(note(noted))
    done = step(place, 7)
    assert done.stdout == ("" if is_refused else "read\n")
    assert (done.returncode != 0) is is_refused
    assert ("operation 8 has begun since, so nothing more is done for 7" in done.stderr) is is_refused


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"number": "x"}', '{"number": null}'])
def test_a_step_needs_the_note_of_its_operation_where_that_has_the_host(place: Place, text: str) -> None:
    place.file.write_text(text)
    done = step(place, 7)
    assert "operation 7 is not noted any more" in done.stderr
    assert (done.returncode != 0, done.stdout) == (True, "")
    # One that could not be reached when the operation began knows nothing of it.
    assert step(place, 7, "away").stdout == "read\n"


@pytest.mark.parametrize(
    ("noted", "has", "said"),
    [
        (note(7, "other"), "held", "operation 7 has the host"),
        (note(6, "other"), "away", "operation 6 has the host"),
        (note(6, "other", is_held=False), "held", "is not noted any more"),
        (note(6, "other", is_held=False), "away", ""),
        (note(7, is_held=False), "held", "is not noted any more"),
        (note(7), "away", ""),
    ],
)
def test_a_step_of_the_same_number_is_not_that_of_another(
    place: Place, noted: dict[str, Any], has: str, said: str
) -> None:
    place.file.write_text(json.dumps(noted))
    done = step(place, 7, has)
    assert said in done.stderr
    assert done.stdout == ("" if said else "read\n")


def test_a_number_that_could_not_be_read_again_is_not_noted(place: Place) -> None:
    assert place.take(note(2**53 - 1)) is None
    with pytest.raises(ValueError, match="no operation has the number 9007199254740992"):
        place.take(note(2**53), instead_of="own")
    assert place.found == note(2**53 - 1)


def test_somebody_pauses_an_operation_and_it_does_nothing_more(place: Place) -> None:
    own = note(goal="0.2.0-bbbbbbbb")
    assert place.take(own) is None
    assert place.lost_to(own) == ""
    assert operation.wish(own, operation.PAUSE, str(place.file), place.lock)
    assert place.lost_to(own).startswith("somebody paused operation 7")
    assert operation.is_paused(own, str(place.file))
    assert place.found == {**own, "wish": "pause"}
    # Who goes on in its place begins without that wish, and it may not go on itself.
    later = note(8, "later")
    refusal = place.take(later)
    assert refusal is not None
    assert "is paused; go on with mqctl rollout --resume" in operation.sentence(refusal)
    assert place.take(later, "own") is None
    assert place.found == later
    assert not operation.wish(own, operation.PAUSE, str(place.file), place.lock)
    assert place.lost_to(later) == ""


def test_nobody_pauses_what_is_over(place: Place) -> None:
    own = note()
    place.take(own)
    place.give_back(own)
    assert not operation.wish(own, operation.PAUSE, str(place.file), place.lock)
    assert not operation.is_paused(own, str(place.file))


@pytest.mark.parametrize("more", [{"goal": 3}, {"goal_by": 3}, {"wish": None}, {"wish": ["pause"]}])
def test_a_note_with_a_wish_of_another_kind_is_none(place: Place, more: dict[str, Any]) -> None:
    place.file.write_text(json.dumps({**note(), **more}))
    assert place.found is None
