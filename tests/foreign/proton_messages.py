"""Messages of every AMQP type and section as Proton encodes them, one a line in base64. Runs under /usr/bin/python3."""

from __future__ import annotations

import base64
import sys
import uuid
from collections.abc import Iterator

from proton import (
    UNDESCRIBED,
    AnnotationDict,
    Array,
    Data,
    Described,
    Message,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")

VALUES = [
    None, True, False, ubyte(0), ubyte(255), ushort(65535), uint(0), uint(255), uint(2**32 - 1), ulong(0), ulong(255),
    ulong(2**64 - 1), byte(-128), short(-32768), int32(-1), int32(-(2**31)), -1, -(2**63), 2**63 - 1, float32(1.5),
    -0.1, float("inf"), decimal32(7), decimal64(2**50), decimal128(bytes(range(16))), char("\U0001f600"),
    timestamp(-1), timestamp(1_700_000_000_000), ID, b"", b"\x00" * 255, b"b" * 256, b"\x00\x53\x70\xc0", "", "a" * 255,
    "ä€\U0001f600" * 100, symbol("sym"), symbol("s" * 300), [], [1, "two", [3.0, [None]]], list(range(300)), {},
    {"key": {"inner": [1, 2]}, symbol("s"): ulong(1), 5: None}, Described(symbol("described"), {"a": 1}),
    Described(ulong(2**40), [b"x"]), Array(UNDESCRIBED, Data.INT, 1, 2, 3),
    Array(UNDESCRIBED, Data.SYMBOL, "a", "b" * 300),
    Array(symbol("of"), Data.LIST, [1], []), Array(UNDESCRIBED, Data.BOOL, True, False), Array(UNDESCRIBED, Data.NULL),
]  # fmt: skip


def full() -> Message:
    """All sections, and all fields of header and properties."""
    message = Message(body={"all": ["of", "it"]}, durable=False)
    message.priority, message.ttl, message.first_acquirer, message.delivery_count = 9, 86_400.0, True, 0
    message.instructions = AnnotationDict({"x-opt-instruction": [1]})
    message.annotations = AnnotationDict({"x-opt-jms-dest": byte(0), "x-opt-jms-msg-type": byte(5), ulong(7): "seven"})
    message.annotations[symbol("x-opt-qpid-tracestate")] = {"traceparent": "00-0123-45-01"}
    message.properties = {"color": "blue", "weight": 2.5, "none": None, "big": 2**40, "id": ID, "at": timestamp(1)}
    message.id, message.correlation_id = ulong(77), ID
    message.user_id, message.address, message.subject, message.reply_to = b"me", "to", "subject", "reply"
    message.content_type, message.content_encoding = symbol("text/plain"), symbol("gzip")
    message.expiry_time, message.creation_time = 4_000_000_000.0, 1_700_000_000.0
    message.group_id, message.group_sequence, message.reply_to_group_id = "group", 42, "other"
    return message


def messages() -> Iterator[Message]:
    for value in VALUES:
        yield Message(body=value, inferred=False)
        is_simple = not isinstance(value, Described | Array)
        yield Message(properties={"value": value}) if is_simple else Message(body=[value])
    # Data and sequence sections instead of a value.
    yield Message(body=b"data", inferred=True)
    yield Message(body=["sequence", 1], inferred=True)
    yield Message(inferred=True)
    yield full()
    for identity in (ulong(2**64 - 1), ID, b"binary", "string"):
        yield Message(id=identity, correlation_id=identity)


def main() -> None:
    for message in messages():
        message.durable = "durable" in sys.argv
        print(base64.b64encode(message.encode()).decode())


if __name__ == "__main__":
    main()
