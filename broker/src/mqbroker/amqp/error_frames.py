"""Frames that tell an error or an outcome: their words are cut to what fits a frame of the peer's (AMQP 1.0 §2.4.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mqbroker.wire.frames import encode_frame
from mqbroker.wire.performatives import Disposition, Modified, TransactionalState, encode


def frame_within(channel: int, performative: Any, size_max: int) -> bytes:
    """One frame. The condition and the info of an error stay whole, because programs read them."""
    frame = encode_frame(channel, encode(performative))
    over = len(frame) - size_max
    return frame if over <= 0 else encode_frame(channel, encode(_shorter(performative, over)))


def _shorter(told: Any, over_bytes: int) -> Any:
    """With so many bytes less of words. What a peer said of its own deliveries it knows (§2.6.12, the echo)."""
    if isinstance(told, Disposition):
        return replace(told, state=_shorter(told.state, over_bytes))
    if isinstance(told, TransactionalState):
        return replace(told, outcome=_shorter(told.outcome, over_bytes))
    if isinstance(told, Modified):
        return replace(told, message_annotations=None)
    error = getattr(told, "error", None)
    if error is None or not error.description:
        return told
    words = error.description.encode()
    kept = words[: max(len(words) - over_bytes, 0)].decode(errors="ignore")
    return replace(told, error=replace(error, description=kept))
