"""A message as administrators see it: its sections as JSON can carry them, and what the broker alone knows of it."""

from __future__ import annotations

import base64
from typing import Any

from mqbroker.base.errors import PeerFault
from mqbroker.core.queue.backlog import Segment
from mqbroker.wire.sections import describe_message


def shown(segment: Segment, index: int, *, body_bytes_max: int = -1) -> dict[str, Any]:
    """Message `index` of the segment's run. `body_bytes_max`: a larger message is shown without its body, -1: never.

    One that is in a file always is.
    """
    run = segment.run
    payload = bytes(run.payload(index))
    message = _described(payload)
    size_bytes = run.message_bytes(index)
    if run.large is not None or 0 <= body_bytes_max < size_bytes:
        message |= {"body": None, "body_encoding": "omitted"}
    return message | {
        "message_id_in_queue": run.first_id + index,
        "delivery_count": segment.deliveries,
        "size_bytes": size_bytes,
        "arrived_ms": run.arrived_ms,
        "expires_ms": run.expires_ms or None,
    }


def _described(payload: bytes) -> dict[str, Any]:
    """One whose sections a publisher got wrong is shown as it is."""
    try:
        return describe_message(payload)
    except PeerFault as fault:
        return {"body": base64.b64encode(payload).decode(), "body_encoding": "base64", "malformed": fault.description}
