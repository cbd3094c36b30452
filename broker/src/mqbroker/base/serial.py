"""Serial numbers of 32 bits on the wire, plain ascending integers inside (RFC 1982, AMQP 1.0 §2.8.10)."""

from __future__ import annotations

from typing import Final

MODULUS: Final = 1 << 32
_HALF: Final = 1 << 31


def wrap(number: int) -> int:
    """The 32 bits that go over the wire."""
    return number & 0xFFFFFFFF


def unwrap(serial: int, near: int) -> int:
    """The integer with these low 32 bits that lies nearest to `near`; the lower one where two are equally near."""
    difference = (serial - near) & 0xFFFFFFFF
    return near + (difference if difference < _HALF else difference - MODULUS)
