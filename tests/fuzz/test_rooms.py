"""Each room with what is valid in it broken in every way, then at random from a fixed seed; and journal tools on files.

Which rooms there are is said by rooms.py; `python -m tests.fuzz.fuzz_rooms` takes other seeds, for longer.
"""

from __future__ import annotations

import random

import pytest
from mqbroker.base.errors import StorageFault

from tests.fuzz import breaking, fuzz_rooms, journals
from tests.fuzz.fuzz_wire import Tally
from tests.fuzz.rooms import ROOMS, Room

SEED = 1
BROKEN_MAX = 500  # of a room, evenly spread over what there is
DRAWN = 150
THINNER = {"notice of a neighbour": 5, "journal record": 2, "admin line": 2}


def spread(found: list[bytes], count: int) -> list[bytes]:
    return found[:: max(1, -(-len(found) // count))]


def broken(room: Room) -> list[bytes]:
    found = [
        each for raw in room.valid for each in (breaking.broken_json(raw) if room.is_json else
                                                breaking.broken(raw, room.step))
    ]  # fmt: skip
    return list(dict.fromkeys(found))


@pytest.mark.slow
@pytest.mark.parametrize("name", ROOMS)
def test_a_value_or_the_fault_of_the_room(name: str) -> None:
    room, thinner = ROOMS[name], THINNER.get(name, 1)
    tally = Tally()
    for raw in (*room.valid, *spread(broken(room), BROKEN_MAX // thinner)):
        why = fuzz_rooms.attempt(room, raw, tally)
        assert why is None, f"{why}: {raw.hex()}"
    assert tally.values >= len(room.valid) // 2, "hardly anything is taken: nothing is tested behind the first look"
    assert tally.faults or not room.faults, "nothing is refused"
    finding, _ = fuzz_rooms.fuzz(SEED, lambda count: count < DRAWN // thinner, [name])
    assert finding is None, f"{finding.why}: {finding.raw.hex()}"


def test_what_is_valid_is_taken() -> None:
    """But where that is not the whole story: a queue that takes the place of another one, the row of an end."""
    for name, room in ROOMS.items():
        taken = Tally()
        for raw in room.valid:
            assert fuzz_rooms.attempt(room, raw, taken) is None
        assert taken.values >= len(room.valid) - 1, name


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_numbers_at_their_bounds_in_records_of_a_journal(part: int) -> None:
    """A number from which others are counted on would make the node fail at its next message."""
    refused = 0
    for record in journals.EXTREMES[part::9]:
        try:
            journals.read_record(record)
        except StorageFault:
            refused += 1
        except Exception as error:
            error.add_note(record.hex())
            raise
    assert refused


def test_the_same_seed_gives_the_same_inputs() -> None:
    def inputs(seed: int) -> list[bytes]:
        rng = random.Random(seed)
        return [fuzz_rooms.drawn(rng, ROOMS["admin line"]) for _ in range(50)]

    assert inputs(5) == inputs(5)
    assert inputs(5) != inputs(6)


def test_what_is_no_fault_of_the_room_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def careless(raw: bytes) -> None:
        if raw[0] != ROOMS["notice"].valid[0][0]:
            raise IndexError("index out of range")

    monkeypatch.setitem(ROOMS, "page", Room(careless, ROOMS["notice"].valid))
    assert fuzz_rooms.main(["--seconds", "20", "--seed", "4", "--room", "page"]) == 1
    assert "FOUND in page: IndexError" in capsys.readouterr().out


def test_the_command_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_rooms.main(["--seconds", "0.2", "--seed", "4", "--room", "http head"]) == 0
    assert capsys.readouterr().out.startswith("seed 4: ")
