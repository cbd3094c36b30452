"""How much of a run comes in, and when an address has room again: at every place around the bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mqbroker.config.declarations.options import built_in_settings
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.meter import Meter, Meters
from mqbroker.wire.parts import parts_of
from mqbroker.wire.run import Run, parse_run, single
from mqbroker.wire.sections import build_message

from tests.support.frames import transfer


def meter_of(size_bytes: int = -1, count: int = -1, policy: str = "FAIL", meters: Meters | None = None) -> Meter:
    settings = replace(
        built_in_settings(), max_size_bytes=size_bytes, max_size_messages=count, address_full_policy=policy
    )
    made = (meters or Meters()).of("orders", settings)
    assert made is not None
    return made


def run_of(count: int) -> Run:
    frames = b"".join(transfer(1000 + number) for number in range(count))
    parsed = parse_run(frames, 0, len(frames), count, 0xFFFFFFFF)
    assert parsed is not None
    assert parsed.run.count == count
    return parsed.run


def test_there_is_none_without_a_bound() -> None:
    assert Meters().of("orders", built_in_settings()) is None


@pytest.mark.parametrize("bound", range(6))
@pytest.mark.parametrize("held", range(7))
def test_so_many_messages_fit(bound: int, held: int) -> None:
    meter = meter_of(count=bound)
    meter.add(0, held)
    assert meter.fitting(run_of(4)) == min(4, max(bound - held, 0))
    assert meter.is_full == (held >= bound)
    assert [meter.takes(count) for count in (1, 2)] == [held + count <= bound for count in (1, 2)]


@pytest.mark.parametrize("held", range(0, 500, 7))
def test_bytes_fit_up_to_the_message_that_reaches_the_bound(held: int) -> None:
    run, bound = run_of(4), 300
    size_bytes = run.size_bytes(0, 1)
    meter = meter_of(size_bytes=bound)
    meter.add(held, 1)
    wanted = 0
    while wanted < 4 and held + wanted * size_bytes < bound:
        wanted += 1
    assert meter.fitting(run) == wanted
    assert meter.is_full == (held >= bound)


@pytest.mark.parametrize("held", range(25))
def test_room_begins_below_85_percent(held: int) -> None:
    meters = Meters()
    meter = meter_of(count=20, policy="BLOCK", meters=meters)
    (run,) = parts_of(single(build_message("x")))
    meter.add(run.size_bytes(0, 1), held + 1)
    meter.waiting["link"] = "peer"
    assert meter.is_blocking == (held + 1 >= 20)
    meter.remove(Segment(run, 0, 1, 0))
    assert (meter in meters.roomy) == meter.has_room == (held < 17)
    assert meter.credit(100) == max(1, 20 - held)


def test_only_blocking_addresses_block_and_shorten_credit() -> None:
    meter = meter_of(count=0, policy="DROP")
    assert (meter.is_full, meter.is_blocking, meter.credit(100)) == (True, False, 100)
