"""What a broker must refuse, as bytes: for tests, and for the benchmark's process that sends it beside a load.

Cases with the same number try one weakness in several places: before the login, before open, on an open connection.
They come from advisories of other brokers and from the MUSTs of the specification. They are for a broker with the
bounds FRAME_SIZE_MAX and MESSAGE_SIZE_MAX.
"""

from __future__ import annotations

from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
    encode,
)  # fmt: skip
from mqbroker.wire.types import Described, Symbol

from tests.support import frames

CANARY = "canary-7f3a9c"
FRAME_SIZE_MAX = 262_144
MESSAGE_SIZE_MAX = 20_000
ADDRESS = "bad-input"


def raw_frame(body: bytes, kind: int = 0, channel: int = 0) -> bytes:
    return (8 + len(body)).to_bytes(4, "big") + bytes([2, kind]) + channel.to_bytes(2, "big") + body


def sized(size: int, kind: int = 0) -> bytes:
    return size.to_bytes(4, "big") + bytes([2, kind, 0, 0])


def nested(depth: int) -> bytes:
    """Lists in lists."""
    value = b"\x45"
    for _ in range(depth):
        value = b"\xd0" + (len(value) + 4).to_bytes(4, "big") + b"\0\0\0\1" + value
    return value


def open_with(properties: bytes) -> bytes:
    """The body of an open whose properties are these bytes."""
    fields = b"\xa1\1x" + b"\x40" * 8 + properties
    return b"\0\x53\x10\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\0\0\0\x0a" + fields


def attach_with(properties: bytes) -> bytes:
    fields = b"\xa1\1x\x52\5\x42" + b"\x40" * 10 + properties
    return b"\0\x53\x12\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\0\0\0\x0e" + fields


def map_of(value: bytes) -> bytes:
    """A map of one symbol to this value."""
    content = b"\xa3\1k" + value
    return b"\xd1" + (len(content) + 4).to_bytes(4, "big") + b"\0\0\0\2" + content


ZERO_WIDTH = [b"\xf0\0\0\0\5\xff\xff\xff\xff" + code for code in (b"\x40", b"\x41", b"\x43", b"\x44", b"\x45")]
TOO_LONG = [code + b"\x7f\xff\xff\xff" for code in (b"\xb1", b"\xb0", b"\xb3", b"\xd1", b"\xd0", b"\xf0")]

GREETINGS = {
    "AMQP 0-9-1": b"AMQP\0\0\x09\1", "MQTT": b"\x10\x10\0\4MQTT\4\2\0\x3c\0\4abcd", "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "STOMP": b"CONNECT\naccept-version:1.2\n\n\0", "TLS": b"\x16\3\1\2\0\1\0\1\xfc\3\3", "zeros": bytes(4096),
    "SSH": b"SSH-2.0-x\r\n", "AMQP without login": frames.opened(),
}  # fmt: skip
BEFORE: dict[str, bytes] = {
    "(1) frame size 2^32-1": sized(0xFFFFFFFF, 1),
    **{f"(2) frame size {size}": sized(size, 1) for size in (0, 1, 7)},
    "(2) doff 0": b"\0\0\0\x08\0\1\0\0",
    "(2) doff 1": b"\0\0\0\x08\1\1\0\0",
    "(2) doff past the end": b"\0\0\0\x08\x09\1\0\0",
    "(2) AMQP frame during SASL": frames.frame(Open(container_id=CANARY)),
    "(3) frame above the maximum before open": sized(4097, 1),
    **{f"(5) array of 2^32-1 nothings {n}": raw_frame(b"\0\x53\x41" + value, 1) for n, value in enumerate(ZERO_WIDTH)},
    "(7) 33 lists deep": raw_frame(b"\0\x53\x41" + nested(33), 1),
    "(7) as deep as a frame": raw_frame(bytes(4000), 1),
    **{
        f"(8) longer than its frame {n}": raw_frame(b"\0\x53\x41\xc0\x0b\1" + value, 1)
        for n, value in enumerate(TOO_LONG)
    },
    "(13) outcome from a client": frames.sasl(SaslOutcome(code=0)),
    "(13) response without an init": frames.sasl(SaslMechanisms(sasl_server_mechanisms=(Symbol("PLAIN"),))),
    "malformed PLAIN": frames.sasl(SaslInit(mechanism=Symbol("PLAIN"), initial_response=CANARY.encode())),
    "malformed SCRAM": frames.sasl(SaslInit(mechanism=Symbol("SCRAM-SHA-256"), initial_response=CANARY.encode())),
    "noise": CANARY.encode() * 100,
}

FRAMING, DECODE, FIELD, ORDER = (
    "amqp:connection:framing-error", "amqp:decode-error", "amqp:invalid-field", "amqp:not-allowed",
)  # fmt: skip


def open_of_size(size: int) -> bytes:
    body = bytearray(encode(Open(container_id="x", max_frame_size=70_000)))
    at = body.index((70_000).to_bytes(4, "big"))
    body[at : at + 4] = size.to_bytes(4, "big")
    return raw_frame(bytes(body))


BEFORE_OPEN: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "(3) frame above the maximum before open": (sized(4097), (FRAMING,)),
    "(4) max-frame-size 0": (open_of_size(0), (FIELD,)),
    "(4) max-frame-size 511": (open_of_size(511), (FIELD,)),
    **{
        f"(5) array of nothings {n}": (raw_frame(open_with(map_of(value))), (DECODE,))
        for n, value in enumerate(ZERO_WIDTH)
    },
    "(7) 33 lists deep": (raw_frame(open_with(map_of(nested(33)))), (DECODE,)),
    **{
        f"(8) longer than its frame {n}": (raw_frame(open_with(map_of(value))), (DECODE,))
        for n, value in enumerate(TOO_LONG)
    },
    "(13) begin before open": (frames.begun(), (ORDER,)),
    "(13) transfer before open": (frames.transfer(0), (ORDER,)),
    "(13) close before open": (frames.close(), (ORDER,)),
    "open without a container id": (raw_frame(b"\0\x53\x10\x45"), (FIELD, DECODE)),
}

AFTER: dict[str, tuple[bytes, str]] = {
    "(1) frame size 2^32-1": (sized(0xFFFFFFFF), FRAMING),
    **{f"(2) frame size {size}": (sized(size), FRAMING) for size in (0, 7)},
    "(2) doff 1": (b"\0\0\0\x08\1\0\0\0", FRAMING),
    "(2) doff past the end": (b"\0\0\0\x08\x09\0\0\0", FRAMING),
    "(2) SASL frame": (frames.sasl(SaslOutcome(code=0)), FRAMING),
    "(2) unknown frame type": (b"\0\0\0\x08\2\7\0\0", FRAMING),
    "(3) frame above the negotiated maximum": (sized(FRAME_SIZE_MAX + 1), FRAMING),
    **{
        f"(5) array of nothings {n}": (raw_frame(attach_with(map_of(value))), DECODE)
        for n, value in enumerate(ZERO_WIDTH)
    },
    "(7) 33 lists deep": (raw_frame(attach_with(map_of(nested(33)))), DECODE),
    "(7) 10,000 lists deep": (raw_frame(attach_with(map_of(nested(10_000)))), DECODE),
    "(7) 10,000 descriptors deep": (raw_frame(attach_with(map_of(bytes(10_000)))), DECODE),
    **{
        f"(8) longer than its frame {n}": (raw_frame(attach_with(map_of(value))), DECODE)
        for n, value in enumerate(TOO_LONG)
    },
    "(8) a list that ends in the middle": (raw_frame(b"\0\x53\x12\xc0\x05\3\xa1\1x"), DECODE),
    "(13) second open": (frames.frame(Open(container_id=CANARY)), ORDER),
    "(13) begin on a channel in use": (frames.begun(), ORDER),
    "(13) transfer on an unknown channel": (frames.transfer(0, channel=9), ORDER),
    "(13) flow on an unknown channel": (frames.flow(None, 0, channel=9), ORDER),
    "(13) end on an unknown channel": (frames.end(9), ORDER),
    "(13) channel above channel-max": (frames.begun(channel=60_000), FRAMING),
    "(13) answer to nothing": (
        frames.frame(Begin(remote_channel=77, next_outgoing_id=0, incoming_window=1, outgoing_window=1), channel=5),
        ORDER,
    ),
    "(13) SASL performative in an AMQP frame": (frames.frame(SaslOutcome(code=0)), ORDER),
    "unknown performative": (raw_frame(b"\0\x53\x77\x45"), DECODE),
    "no performative": (raw_frame(b"\x45"), DECODE),
}


def pieces(count: int, size: int, settled: bool) -> bytes:
    first = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=settled, more=True)
    more = Transfer(handle=0, more=True)
    filler = (CANARY.encode() * size)[:size]
    return frames.frame(first, filler) + frames.frame(more, filler) * (count - 1)


SMALLER: dict[str, tuple[bytes, tuple[str, str]]] = {
    "(10) small frames adding up past the maximum": (
        pieces(MESSAGE_SIZE_MAX // 500 + 1, 500, False), ("Detach", "amqp:link:message-size-exceeded"),
    ),
    "(10) the same, settled": (
        pieces(MESSAGE_SIZE_MAX // 500 + 1, 500, True), ("Detach", "amqp:link:message-size-exceeded"),
    ),
    "(10) one large frame": (
        frames.transfer(0, b"x" * MESSAGE_SIZE_MAX), ("Detach", "amqp:link:message-size-exceeded"),
    ),
    "(8) header section longer than its frame": (
        frames.frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), b"\0\x53\x70\xd0\x7f\xff\xff\xff\0\0\0\1"),
        ("Detach", DECODE),
    ),
    "(13) transfer on an unknown handle": (frames.transfer(0, handle=99), ("End", "amqp:session:unattached-handle")),
    "(13) detach of an unknown handle": (frames.detach(99), ("End", "amqp:session:unattached-handle")),
    "(13) handle in use": (frames.sender(name="other"), ("End", "amqp:session:handle-in-use")),
    "(13) outcome of nothing": (frames.disposition(0, 5, Accepted()), ("End", FIELD)),
    "attach without an address": (
        frames.frame(Attach(name="x", handle=7, role=True, source=Source())), ("Detach", FIELD),
    ),
}  # fmt: skip


def selecting(selector: str) -> bytes:
    """An attach that asks for some of the messages."""
    wanted = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), selector)}
    source = Source(address=ADDRESS, filter=wanted)
    return frames.frame(Attach(name="r", handle=7, role=True, source=source, target=Target()))


# Of these only the link is refused.
SELECTORS: dict[str, tuple[bytes, str]] = {
    f"(14) {name}": (selecting(text), FIELD)
    for name, text in {
        "10,000 nested brackets": "(" * 10_000 + "1=1" + ")" * 10_000,
        "as many as fit": "(" * 2000 + "1=1" + ")" * 2000,
        "1,000 brackets deep": "(" * 1000 + "1=1" + ")" * 1000,
        "NOT 1,000 times": "NOT " * 1000,
        "a selector of 60,000 characters": "a = 1 OR " * 6_000 + "a = 1",
        "a pattern of 10,000 parts": "a LIKE '" + "%a" * 10_000 + "'",
    }.items()
}
