"""Frames that may tell an error: its words are cut to what fits a frame of the peer's (AMQP 1.0 §2.4.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mqbroker.wire.frames import encode_frame
from mqbroker.wire.performatives import encode


def frame_within(channel: int, performative: Any, size_max: int) -> bytes:
    """One frame. The condition and the info of an error stay whole, because programs read them."""
    frame = encode_frame(channel, encode(performative))
    over = len(frame) - size_max
    if over <= 0:
        return frame
    error = getattr(performative, "error", None)
    if error is None or not error.description:
        return frame
    words = error.description.encode()
    kept = words[: max(len(words) - over, 0)].decode(errors="ignore")
    return encode_frame(channel, encode(replace(performative, error=replace(error, description=kept))))
