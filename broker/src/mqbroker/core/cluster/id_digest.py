"""What tells two sets of message ids apart without naming them: how many, their sum and that of their squares.

Both sums are kept modulo 2^64. Two nodes that have the same numbers of the same messages (docs/adr/0014) have equal
digests, in whatever order they came. One id that is missing, or there twice, makes them differ; so do two, unless they
have the same sum and the same sum of squares as what is there instead. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final

_PACKED: Final = Struct(">QQQ")
PACKED_SIZE_BYTES: Final = _PACKED.size
_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class IdDigest:
    """See the module's docstring."""

    count: int = 0
    total: int = 0
    squares: int = 0

    def plus(self, first: int, count: int) -> IdDigest:
        """The digest with `count` ids from `first` on as well."""
        last = first + count - 1
        total = count * (first + last) // 2
        squares = _squares(last) - _squares(first - 1)
        return IdDigest(self.count + count, (self.total + total) & _MASK, (self.squares + squares) & _MASK)

    def since(self, earlier: IdDigest) -> IdDigest:
        """What has come to it after it was that one."""
        total, squares = self.total - earlier.total, self.squares - earlier.squares
        return IdDigest(self.count - earlier.count, total & _MASK, squares & _MASK)

    def __str__(self) -> str:
        return f"{self.count}:{self.total:016x}:{self.squares:016x}"

    @property
    def numbers(self) -> list[int]:
        """The digest as a JSON list: count, sum, and sum of squares of the ids."""
        return [self.count, self.total, self.squares]

    def packed(self) -> bytes:
        """As journals and links have it."""
        return _PACKED.pack(self.count & _MASK, self.total, self.squares)

    @staticmethod
    def of(packed: bytes) -> IdDigest:
        """The way back. Raises struct.error for another size."""
        return IdDigest(*_PACKED.unpack(packed))


NO_IDS: Final = IdDigest()


def sum_of(digests: Iterable[IdDigest]) -> IdDigest:
    """That of all their ids, of which none is in two of them."""
    count = total = squares = 0
    for each in digests:
        count, total, squares = count + each.count, total + each.total, squares + each.squares
    return IdDigest(count, total & _MASK, squares & _MASK)


def _squares(last: int) -> int:
    """The sum of the squares from 1 to this one."""
    return last * (last + 1) * (2 * last + 1) // 6
