"""Lists of what a node may have tens of thousands of: a piece in each step, so that messages pass meanwhile.

A list holds what was there when it was asked for and is still there when its turn comes, each row as it is then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest

PIECE_ROWS = 500

_Item = TypeVar("_Item")
ListingRow = dict[str, Any]


class Listing(Generic[_Item]):
    """One answer under way, as a `node.values.jobs.Job`. `rows_of`: none for an item that is gone."""

    is_waiting = False
    needs_disk = False

    def __init__(
        self,
        reply: Callable[[ListingRow], None],
        name: str,
        items: Sequence[_Item],
        rows_of: Callable[[_Item], Iterable[ListingRow]],
        rows_max: int | None,
    ) -> None:
        self._reply = reply
        self._name = name
        self._items = items
        self._rows_of = rows_of
        self._rows_max = rows_max
        self._rows: list[ListingRow] = []
        self._next = 0

    def run(self) -> bool:
        """Make the rows of one piece more; False: it is over, and answered (node/values/jobs.py:Job)."""
        rows, enough = self._rows, len(self._rows) + PIECE_ROWS
        stop = min(self._next + PIECE_ROWS, len(self._items))  # of some there may be no rows
        while self._next < stop and len(rows) < enough:
            rows.extend(self._rows_of(self._items[self._next]))
            self._next += 1
        has_all = self._next == len(self._items)
        is_too_long = self._rows_max is not None and len(rows) > self._rows_max
        if not has_all and not is_too_long:
            return True
        answer: ListingRow = {self._name: rows[: self._rows_max]}
        if self._rows_max is not None:
            answer["is_whole"] = not is_too_long
        self._reply(answer)
        return False

    def abandon(self) -> None:
        """See `node.values.jobs.Job`: what is only looked at may still be answered in full."""
        while self.run():
            pass


def answer(
    broker: Broker,
    request: AdminRequest,
    items: Sequence[_Item],
    rows_of: Callable[[_Item], Iterable[ListingRow]],
    *,
    rows_max: int | None = None,
) -> None:
    """Answer with all rows of all items, under the name of the operation, at once where they are few.

    `rows_max`: no more of them, and `is_whole` says whether these are all. Raises Refused when there are too many jobs.
    """
    listing = Listing(partial(broker.reply, request.id), request.operation, items, rows_of, rows_max)
    if listing.run():
        broker.jobs.add(listing)
