"""The fields of a transfer that stand behind its tag: parsed once, then looked up.

Nearly all transfers of a client end in the same few bytes. Source: AMQP 1.0 §2.7.5.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from mqbroker.base.errors import PeerFault
from mqbroker.wire.performatives import Transfer, decode_performative

TRANSFER: Final = b"\x00\x53\x14"
CACHE_SIZE_MAX: Final = 1024
CACHED_BYTES_MAX: Final = 64  # what a peer sends is kept only as far as sensible peers send it

_U32: Final = Struct(">I")
_tails: Final[dict[tuple[int, bytes], bool | None]] = {}


def tail_is_settled(field_count: int, tail: bytes) -> bool | None:
    """The settled flag of the fields behind the tag; None where any of them is unusual, or their number wrong."""
    key = (field_count, tail)
    if key in _tails:
        return _tails[key]
    if len(tail) > CACHED_BYTES_MAX:
        return None
    if len(_tails) >= CACHE_SIZE_MAX:
        _tails.clear()
    is_settled = _tails[key] = _decoded_tail(field_count, tail)
    return is_settled


def _decoded_tail(field_count: int, tail: bytes) -> bool | None:
    fields = _U32.pack(field_count) + b"\x43\x43\xa0\x00" + tail
    body = TRANSFER + b"\xd0" + _U32.pack(len(fields)) + fields
    try:
        transfer, end = decode_performative(body, 0, len(body))
    except PeerFault:
        return None
    if end != len(body) or not isinstance(transfer, Transfer):
        return None
    is_unusual = (
        transfer.message_format or transfer.more or transfer.rcv_settle_mode is not None
        or transfer.state is not None or transfer.resume or transfer.aborted
    )  # fmt: skip
    return None if is_unusual else bool(transfer.settled)
