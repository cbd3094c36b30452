"""Mutation fuzzer of the AMQP codec: whatever the bytes, a decoder gives a value or a PeerFault, and soon.

    python -m tests.fuzz.fuzz_wire --seconds 60 --seed 7

Inputs are valid frames, messages and values, broken in a few places; the seed decides all of them. Beside the contract
it checks that flat and general decoders agree, that `skip_value` and the decoder end at the same byte, and that what
decodes encodes to something stable. A finding prints the target, the input in hex, and the command that runs it again.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mqbroker.base.errors import PeerFault
from mqbroker.wire import flat, frames, scan
from mqbroker.wire import performatives as p
from mqbroker.wire import sections as s
from mqbroker.wire import types as t
from mqbroker.wire.composites import decode_composite, encode_composite
from mqbroker.wire.decode import Buffer

from tests.unit.wire import captures

INPUT_SIZE_MAX = 4096
# Decoding is linear in the input; this is far above what 4 KiB take, and far below what anything quadratic would.
INPUT_CPU_S_MAX = 0.25

Target = Callable[[Buffer], None]


@dataclass(frozen=True, slots=True)
class Finding:
    target: str
    raw: bytes
    why: str


@dataclass(slots=True)
class Tally:
    inputs: int = 0
    values: int = 0
    faults: int = 0


# -- targets: each takes any bytes ------------------------------------------------------------------------------------


def _value(raw: Buffer) -> None:
    value, after = t.decode_value(raw, 0, len(raw))
    assert scan.skip_value(raw, 0, len(raw)) == after, "skip_value ends elsewhere"
    again = t.encode_value(value)
    twice, _ = t.decode_value(again, 0, len(again))
    assert t.encode_value(twice) == again, "re-encoding is not stable"


def _composite(raw: Buffer) -> None:
    value, after = decode_composite(raw, 0, len(raw))
    assert 0 < after <= len(raw), "decoder left its bytes"
    again = encode_composite(value)
    twice, _ = decode_composite(again, 0, len(again))
    assert encode_composite(twice) == again, "re-encoding is not stable"


def _flat(raw: Buffer) -> None:
    for decode, made in ((flat.decode_flow_flat, p.Flow), (flat.decode_disposition_flat, p.Disposition)):
        fields: Any = decode(raw, 0, len(raw))
        if fields is not None:
            general, after = p.decode_performative(raw, 0, len(raw))
            assert type(general) is made, "flat decoder took another performative"
            assert after == len(raw), "flat decoder left bytes over"
            assert made(*fields) == general, "flat and general decoder differ"
    p.decode_performative(raw, 0, len(raw))


def _stream(raw: Buffer) -> None:
    offset = 0
    if bytes(raw[:4]) == b"AMQP" and frames.header_at(raw, 0, len(raw)):
        offset = frames.HEADER_SIZE
    while frame := frames.frame_at(raw, offset, len(raw), 1024):
        assert offset + 8 <= frame.body_offset <= frame.end <= len(raw), "frame outside the buffer"
        offset = frame.end
        p.decode_frame(raw, frame)


def _message(raw: Buffer) -> None:
    sections = s.scan_sections(raw, 0, len(raw))
    assert all(-1 <= each <= len(raw) for each in sections), "section outside the buffer"
    s.describe_message(raw)


TARGETS: dict[str, Target] = {
    "value": _value,
    "composite": _composite,
    "flat": _flat,
    "stream": _stream,
    "message": _message,
}


# -- inputs -----------------------------------------------------------------------------------------------------------


def _frames_of(stream: bytes) -> list[bytes]:
    """The recorded frames, each alone."""
    found, offset = [], 0
    while offset < len(stream):
        if stream.startswith(b"AMQP", offset):
            offset += frames.HEADER_SIZE
            continue
        frame = frames.frame_at(stream, offset, len(stream), 512)
        assert frame is not None
        found.append(stream[offset : frame.end])
        offset = frame.end
    return found


def _corpus() -> dict[str, list[bytes]]:
    recorded = [
        raw
        for stream in (captures.PROTON_SENDER, captures.PROTON_RECEIVER, captures.RHEA_RECEIVER, captures.GO_RECEIVER)
        for raw in _frames_of(stream)
    ]
    flow = flat.encode_flow_frame(1, flat.SessionFlow(1, 2, 3, 4), flat.LinkFlow(5, 6, 7, 8, True), True)
    accepted = flat.encode_disposition_accepted(0, True, 3, 9, True)
    bodies = [raw[8:] for raw in [*recorded, flow, accepted]]
    values = [
        t.encode_value({t.Symbol("k"): [t.UInt(1), "text", b"\0", t.Described(t.ULong(1), {"a": t.Char("x")})]}),
        t.encode_value([t.Array(0x70, (1, 2, 3)), t.Array(0xA3, ("a", "b"), (t.Symbol("d"),)), t.Array(0x40, (None,))]),
        t.encode_value([t.Uuid(bytes(16)), t.Decimal128(bytes(16)), t.Float(1.5), 2.5, t.Timestamp(9), -5, t.Int(300)]),
        t.encode_value([t.Array(0xD0, ([1], [])), t.Array(0xF0, (t.Array(0x50, (1, 2)),)), [[[[]]]], "x" * 300]),
    ]
    messages = [
        s.build_message(
            b"body", durable=True, properties=s.Properties(message_id="m"), application_properties={"n": 1, "s": "x"}
        ),
        s.encode_section(scan.MESSAGE_ANNOTATIONS, {t.Symbol("x-opt"): 1})
        + s.encode_section(scan.SEQUENCE, [1, "x"]) * 3,
        s.encode_section(scan.VALUE, {"k": [t.Described(t.Symbol("d"), 1.0)]}) + s.encode_section(scan.FOOTER, {}),
    ]
    attach = p.Attach("l", 1, True, source=p.Source("q", outcomes=(t.Symbol("a"),)), target=p.Coordinator())
    states = [p.TransactionalState(b"t", p.Modified(True, True, {t.Symbol("k"): 1})), p.Received(1, 2)]
    composites = [encode_composite(each) for each in (attach, p.Close(p.Error(t.Symbol("e"), "why")), *states)]
    return {
        "value": values + bodies,
        "composite": bodies + composites,
        "flat": [raw for raw in bodies if raw[2:3] in (b"\x13", b"\x15")],
        "stream": [*recorded, frames.AMQP_HEADER + recorded[0] + frames.EMPTY_FRAME, flow + accepted],
        "message": messages,
    }


CORPUS = _corpus()
_SIZES = (b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x01", b"\0\0\xff\xff")
_CODES = bytes.fromhex("00404142434445505152535455566061707172737480818283849498a0a1a3b0b1b3c0c1d0d1e0f0")


def mutate(rng: random.Random, raw: bytes, other: bytes) -> bytes:
    """`raw` broken in one to four places, at times crossed with `other`."""
    out = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(8)
        if kind == 0:
            out[at : at + 1] = rng.randbytes(1)
        elif kind == 1:
            out[at : at + 1] = rng.choice(_CODES).to_bytes(1)
        elif kind == 2:
            out[at : at + 4] = rng.choice(_SIZES)
        elif kind == 3:
            del out[at : at + rng.randrange(1, 9)]
        elif kind == 4:
            out[at:at] = out[at : at + rng.randrange(1, 40)] * rng.randrange(1, 40)
        elif kind == 5:
            out[at:at] = other[rng.randrange(len(other) + 1) :]
        elif kind == 6 and at < len(out):
            out[at] = (out[at] + rng.choice((-1, 1))) & 0xFF
        else:
            out[at:at] = b"\x00\x53" * rng.randrange(1, 40)
    return bytes(out[:INPUT_SIZE_MAX])


# -- runs -------------------------------------------------------------------------------------------------------------


def attempt(target: Target, raw: bytes, tally: Tally) -> str | None:
    """What is wrong with what `target` makes of `raw`, None if it keeps the contract on bytes and on a view alike."""
    outcomes = []
    for buffer in (raw, memoryview(raw)):
        started = time.process_time()
        try:
            target(buffer)
            outcomes.append("value")
        except PeerFault as fault:
            outcomes.append(str(fault))
        except Exception as error:  # the contract itself: anything else is the finding
            return f"{type(error).__name__}: {error}"
        took_s = time.process_time() - started
        if took_s > INPUT_CPU_S_MAX:
            return f"took {took_s:.2f} s of processor time"
    if outcomes[0] != outcomes[1]:
        return f"bytes give {outcomes[0]!r}, a view of them {outcomes[1]!r}"
    tally.inputs += 1
    tally.values += outcomes[0] == "value"
    tally.faults += outcomes[0] != "value"
    return None


def fuzz(seed: int, keeps_on: Callable[[int], bool], targets: dict[str, Target]) -> tuple[Finding | None, Tally]:
    """Feeds inputs while `keeps_on(count so far)`; ends at the first finding."""
    rng = random.Random(seed)
    tally = Tally()
    names = sorted(targets)
    while keeps_on(tally.inputs):
        name = rng.choice(names)
        raw = mutate(rng, rng.choice(CORPUS[name]), rng.choice(CORPUS[rng.choice(sorted(CORPUS))]))
        why = attempt(targets[name], raw, tally)
        if why is not None:
            return Finding(name, raw, why), tally
    return None, tally


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="how long to run (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="decides every input (default: %(default)s)")
    options = parser.parse_args(arguments)
    until = time.monotonic() + options.seconds
    finding, tally = fuzz(options.seed, lambda _: time.monotonic() < until, TARGETS)
    print(f"seed {options.seed}: {tally.inputs} inputs, {tally.values} values, {tally.faults} faults")
    if finding is None:
        return 0
    print(f"FOUND in {finding.target}: {finding.why}\ninput: {finding.raw.hex()}")
    print(f"again: python -m tests.fuzz.fuzz_wire --seed {options.seed} --seconds {options.seconds:g}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
