"""What lies behind a frame's end says nothing of the frame, whether it is in the buffer or not."""

from __future__ import annotations

import pytest
from mqbroker.amqp.connection import Connection
from mqbroker.amqp.limits import ConnectionLimits

from tests.support import frames
from tests.support.bad_input import raw_frame

LIMITS = ConnectionLimits(65536, 65536, 60_000, 64, 1024, 1 << 30)


@pytest.mark.parametrize(("waiting", "is_close"), [
    (frames.close(), True),
    (frames.flow(None, 0) + frames.close(), True),
    (raw_frame(b"\0\x53") + b"\x18\0\0\0", False),
    (raw_frame(b"") + b"\0\x53\x18\0", False),
], ids=["a close", "a close behind a flow", "half a descriptor", "no body"])  # fmt: skip
def test_what_waits_ends_the_connection_by_a_whole_close_only(waiting: bytes, is_close: bool) -> None:
    connection = Connection(LIMITS)
    connection.is_held = True
    connection.receive(waiting)
    assert connection.is_close_waiting is is_close
