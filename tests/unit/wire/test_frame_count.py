"""Frames that are counted as they come, against frames that are taken apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mqbroker.wire.frame_count import FrameCount

from tests.support import frames
from tests.support.floods import FLOODS
from tests.unit.wire.strategies import steady

SAID = frames.anonymous() + frames.opened() + frames.begun() + b"".join(flood.piece(3) for flood in FLOODS.values())
COUNT = len(frames.heard(SAID.removeprefix(frames.SASL_HEADER))) + 1


@steady
@given(st.lists(st.integers(1, 200), min_size=1, max_size=40))
def test_pieces_of_any_size_have_as_many_frames_as_the_whole(sizes: list[int]) -> None:
    counted, at, count = FrameCount(), 0, 0
    for size in [*sizes, len(SAID)]:
        count += counted.begun_in(SAID[at : at + size])
        at += size
    assert count == COUNT


def test_what_is_too_short_to_be_a_frame_counts_as_one() -> None:
    assert FrameCount().begun_in(bytes(80)) == 10
