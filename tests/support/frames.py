"""Frames by hand, for peers that do what our own machine never would: bytes out, and what came back as values."""

from __future__ import annotations

from typing import Any

from mqbroker.wire.frames import AMQP_HEADER, SASL_HEADER, encode_frame, frame_at
from mqbroker.wire.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
    decode_frame,
    encode,
)  # fmt: skip
from mqbroker.wire.sections import build_message
from mqbroker.wire.types import Symbol

__all__ = ["AMQP_HEADER", "SASL_HEADER", "Transfer"]

SASL_FRAME = 1


def frame(performative: Any, payload: bytes = b"", channel: int = 0) -> bytes:
    """One AMQP frame."""
    return encode_frame(channel, encode(performative), payload)


def sasl(performative: Any) -> bytes:
    """One SASL frame."""
    return encode_frame(0, encode(performative), b"", SASL_FRAME)


def plain(user: str, password: str) -> bytes:
    """What a client says to log in with PLAIN, its header first."""
    return SASL_HEADER + sasl(SaslInit(mechanism=Symbol("PLAIN"), initial_response=f"\0{user}\0{password}".encode()))


def external(authzid: bytes = b"") -> bytes:
    """What a client says to log in as whom its certificate names."""
    return SASL_HEADER + sasl(SaslInit(mechanism=Symbol("EXTERNAL"), initial_response=authzid))


def anonymous() -> bytes:
    """What a client says to log in with ANONYMOUS."""
    return SASL_HEADER + sasl(SaslInit(mechanism=Symbol("ANONYMOUS")))


def opened(max_frame_size: int = 65536, idle_time_out: int | None = None, container_id: str = "raw") -> bytes:
    """Header and open."""
    open_ = Open(container_id=container_id, max_frame_size=max_frame_size, idle_time_out=idle_time_out)
    return AMQP_HEADER + frame(open_)


def begun(channel: int = 0, incoming_window: int = 2048) -> bytes:
    """A begin."""
    begin = Begin(remote_channel=None, next_outgoing_id=0, incoming_window=incoming_window, outgoing_window=2048)
    return frame(begin, channel=channel)


def sender(address: str = "orders", handle: int = 0, channel: int = 0, name: str = "", mode: int = 2) -> bytes:
    """An attach on which the peer sends."""
    attach = Attach(name=name or f"s{handle}", handle=handle, role=False, snd_settle_mode=mode, source=Source(),
                    target=Target(address=address), initial_delivery_count=0)  # fmt: skip
    return frame(attach, channel=channel)


def receiver(address: str = "orders", handle: int = 1, channel: int = 0, credit: int = 0, **fields: Any) -> bytes:
    """An attach on which the peer receives, and its credit."""
    attach = Attach(name=f"r{handle}", handle=handle, role=True, source=Source(address=address), target=Target(),
                    **fields)  # fmt: skip
    return frame(attach, channel=channel) + (flow(handle, credit, channel=channel) if credit else b"")


def flow(handle: int | None, credit: int, *, channel: int = 0, window: int = 2048, **fields: Any) -> bytes:
    """A flow of a receiver."""
    values: dict[str, Any] = {"delivery_count": 0} | fields
    counters = fields if handle is None else {"link_credit": credit, **values}
    return frame(Flow(next_incoming_id=0, incoming_window=window, next_outgoing_id=0, outgoing_window=2048,
                      handle=handle, **counters), channel=channel)  # fmt: skip


def transfer(number: int, body: bytes = b"x", *, handle: int = 0, channel: int = 0, durable: bool = False,
             **fields: Any) -> bytes:  # fmt: skip
    """One message in one frame."""
    values: dict[str, Any] = {"message_format": 0, "settled": False} | fields
    head = Transfer(handle=handle, delivery_id=number, delivery_tag=number.to_bytes(4, "big"), **values)
    return frame(head, build_message(body, durable=durable), channel)


def disposition(first: int, last: int, state: Any, *, settled: bool = True) -> bytes:
    """An outcome of a receiver."""
    return frame(Disposition(role=True, first=first, last=last, settled=settled, state=state))


def detach(handle: int = 0) -> bytes:
    """A closing detach."""
    return frame(Detach(handle=handle, closed=True))


def end(channel: int = 0) -> bytes:
    """An end."""
    return frame(End(), channel=channel)


def close() -> bytes:
    """A close."""
    return frame(Close())


def heard(data: bytes) -> list[Any]:
    """Headers (as bytes), performatives, and (Transfer, payload) of everything that a node said."""
    found: list[Any] = []
    offset = 0
    while offset < len(data):
        if data.startswith(b"AMQP", offset):
            found.append(data[offset : offset + 8])
            offset += 8
            continue
        at = frame_at(data, offset, len(data), 1 << 31)
        assert at is not None, "a frame is cut off"
        performative, payload = decode_frame(data, at)
        found.append((performative, data[payload : at.end]) if isinstance(performative, Transfer) else performative)
        offset = at.end
    return found


def of_kind(data: bytes, kind: type) -> list[Any]:
    """The performatives of one kind among what a node said."""
    return [each for each in heard(data) if isinstance(each, kind)]


def errors(data: bytes) -> list[tuple[str, str]]:
    """(kind of performative, condition) of everything that told an error."""
    told = [each for each in heard(data) if isinstance(each, Detach | End | Close)]
    return [(type(each).__name__, str(each.error.condition)) for each in told if each.error is not None]
