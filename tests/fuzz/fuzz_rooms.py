"""Mutation fuzzer of everything that takes bytes of others beside AMQP: a value, or the fault that the room documents.

    python -m tests.fuzz.fuzz_rooms --seconds 60 --seed 7 [--room "admin line"]

Inputs are valid ones broken in a few places, JSON in its values as well; the seed decides all of them. A finding prints
the room, the input in hex and the command that runs it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable

from tests.fuzz import breaking
from tests.fuzz.fuzz_wire import Finding, Tally, mutate
from tests.fuzz.rooms import ROOMS, Room


def drawn(rng: random.Random, room: Room) -> bytes:
    """An input for a room."""
    raw = rng.choice(room.valid)
    if room.is_json and rng.random() < 0.8:
        return breaking.mutated_json(rng, raw)
    return mutate(rng, raw, rng.choice(room.valid))


def attempt(room: Room, raw: bytes, tally: Tally) -> str | None:
    """What is wrong with what the room makes of it, None if it keeps the contract."""
    try:
        room.take(raw)
        tally.values += 1
    except room.faults:
        tally.faults += 1
    except Exception as error:  # the contract itself: anything else is the finding
        return f"{type(error).__name__}: {error}"
    tally.inputs += 1
    return None


def fuzz(seed: int, keeps_on: Callable[[int], bool], names: list[str]) -> tuple[Finding | None, Tally]:
    """Feeds inputs while `keeps_on(count so far)`; ends at the first finding."""
    rng = random.Random(seed)
    tally = Tally()
    while keeps_on(tally.inputs):
        name = rng.choice(names)
        raw = drawn(rng, ROOMS[name])
        why = attempt(ROOMS[name], raw, tally)
        if why is not None:
            return Finding(name, raw, why), tally
    return None, tally


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long to run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="decides every input (default: %(default)s)")
    parser.add_argument("--room", choices=sorted(ROOMS), help="only this one")
    options = parser.parse_args(arguments)
    until = time.monotonic() + options.seconds
    names = [options.room] if options.room else sorted(ROOMS)
    finding, tally = fuzz(options.seed, lambda _: time.monotonic() < until, names)
    print(f"seed {options.seed}: {tally.inputs} inputs, {tally.values} values, {tally.faults} faults")
    if finding is None:
        return 0
    print(f"FOUND in {finding.target}: {finding.why}\ninput: {finding.raw.hex()}")
    print(f"again: python -m tests.fuzz.fuzz_rooms --seed {options.seed} --seconds {options.seconds:g}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
