"""The fields of a transfer that stand behind its tag: parsed once, then looked up.

Nearly all transfers of a client end in the same few bytes, and those of a transaction in the same ones. Sources:
AMQP 1.0 §2.7.5 (transfer), §4.4.1 (what is posted in a transaction says so by its state).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from mqbroker.base.errors import PeerFault
from mqbroker.base.value import Value
from mqbroker.wire.performatives import TransactionalState, Transfer, decode_performative

TRANSFER: Final = b"\x00\x53\x14"
CACHE_SIZE_MAX: Final = 1024
CACHED_BYTES_MAX: Final = 64  # what a peer sends is kept only as far as sensible peers send it

_U32: Final = Struct(">I")


class TransferTail(Value):
    """Whether the message is settled, and the transaction that it is posted in; None: in none."""

    __match_args__ = ("is_settled", "txn_id")
    __slots__ = __match_args__

    def __init__(self, is_settled: bool, txn_id: bytes | None) -> None:
        self.is_settled: Final = is_settled
        self.txn_id: Final = txn_id


_tails: Final[dict[tuple[int, bytes], TransferTail | None]] = {}


def tail_of(field_count: int, tail: bytes) -> TransferTail | None:
    """What the fields behind the tag say; None where any of them is unusual, or their number wrong."""
    key = (field_count, tail)
    if key in _tails:
        return _tails[key]
    if len(tail) > CACHED_BYTES_MAX:
        return None
    if len(_tails) >= CACHE_SIZE_MAX:
        _tails.clear()
    told = _tails[key] = _decoded_tail(field_count, tail)
    return told


def _decoded_tail(field_count: int, tail: bytes) -> TransferTail | None:
    fields = _U32.pack(field_count) + b"\x43\x43\xa0\x00" + tail
    body = TRANSFER + b"\xd0" + _U32.pack(len(fields)) + fields
    try:
        transfer, end = decode_performative(body, 0, len(body))
    except PeerFault:
        return None
    if end != len(body) or not isinstance(transfer, Transfer):
        return None
    state = transfer.state
    is_posted = isinstance(state, TransactionalState)
    is_unusual = (
        transfer.message_format or transfer.more or transfer.rcv_settle_mode is not None
        or (state is not None and not is_posted) or transfer.resume or transfer.aborted
    )  # fmt: skip
    if is_unusual:
        return None
    return TransferTail(bool(transfer.settled), state.txn_id if isinstance(state, TransactionalState) else None)
