"""A short run of the codec's fuzzer with fixed seeds, noise from hypothesis, and proof that the fuzzer finds things."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.wire.decode import Buffer

from tests.fuzz import fuzz_wire
from tests.unit.wire import strategies

# Every seed that ever failed joins this list.
SEEDS = (1, 2, 3)
INPUTS_PER_SEED = 6000


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_value_or_peer_fault_and_nothing_else(seed: int) -> None:
    finding, tally = fuzz_wire.fuzz(seed, lambda count: count < INPUTS_PER_SEED, fuzz_wire.TARGETS)
    assert finding is None, f"{finding.target}: {finding.why}: {finding.raw.hex()}"
    # A fuzzer whose inputs are all refused at the first byte, or all accepted, would test nothing.
    assert tally.inputs == INPUTS_PER_SEED
    assert tally.values > INPUTS_PER_SEED // 50
    assert tally.faults > INPUTS_PER_SEED // 4


@pytest.mark.slow
@pytest.mark.parametrize("target", fuzz_wire.TARGETS.values(), ids=fuzz_wire.TARGETS)
@strategies.steady
@given(noise=st.binary(max_size=200))
def test_noise(target: fuzz_wire.Target, noise: bytes) -> None:
    assert fuzz_wire.attempt(target, noise, fuzz_wire.Tally()) is None


@pytest.mark.parametrize("target", fuzz_wire.TARGETS)
def test_every_seed_input_is_valid_for_its_target(target: str) -> None:
    tally = fuzz_wire.Tally()
    for raw in fuzz_wire.CORPUS[target]:
        assert fuzz_wire.attempt(fuzz_wire.TARGETS[target], raw, tally) is None
    assert (tally.values, tally.faults) == (len(fuzz_wire.CORPUS[target]), 0)


def test_the_same_seed_gives_the_same_inputs() -> None:
    def inputs(seed: int) -> list[bytes]:
        seen: list[bytes] = []
        fuzz_wire.fuzz(seed, lambda count: count < 50, {"value": lambda raw: seen.append(bytes(raw))})
        return seen

    assert inputs(5) == inputs(5)
    assert inputs(5) != inputs(6)


def test_an_error_that_is_no_peer_fault_is_found() -> None:
    def careless(raw: Buffer) -> None:
        if raw[0] == 0xD0:
            raise IndexError("index out of range")

    finding, _ = fuzz_wire.fuzz(1, lambda count: count < 20_000, {"value": careless})
    assert finding is not None
    assert (finding.target, finding.raw[0], finding.why) == ("value", 0xD0, "IndexError: index out of range")


def test_the_command_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz_wire.main(["--seconds", "0.2", "--seed", "4"]) == 0
    assert capsys.readouterr().out.startswith("seed 4: ")
