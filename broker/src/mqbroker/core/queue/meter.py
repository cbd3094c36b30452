"""How much is at an address, where its settings bound it, and what happens to more.

A message counts once for each queue that it is in, from its arrival until it is settled; its bytes are those of its
frames. Addresses without a bound have no meter, and cost nothing. Policies: BLOCK gives producers no credit until there
is room again (what they may still send is taken in), FAIL rejects, DROP accepts and drops, PAGE takes everything and
keeps what is too much on disk (paging.py): there a meter knows what is in memory. Where a queue of the address needs
its messages in memory, PAGE is BLOCK. What is paged may be bounded too (`page-limit-…`): beyond that, messages are
rejected or dropped. Source: Artemis's manual, "Flow control", "Paging".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mqbroker.base.look import LOOK
from mqbroker.config.slices import AddressSettings
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.memory import Memory
from mqbroker.wire.run import Run

if TYPE_CHECKING:
    from mqbroker.core.queue.queue import Queue

DROP, FAIL, BLOCK, PAGE = "DROP", "FAIL", "BLOCK", "PAGE"
ROOM_PERCENT: Final = 85  # below this share of its bounds an address takes more, so that credit does not flap


class Meters:
    """All addresses that have a bound. `roomy` are those with room again for producers that wait."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory
        self.roomy: dict[Meter, None] = {}
        self.refused_total = 0
        self.dropped_total = 0

    def of(self, name: str, settings: AddressSettings) -> Meter | None:
        """One for a new address, if it needs one."""
        bounds = (settings.max_size_bytes, settings.max_size_messages)
        if max(*bounds, settings.page_limit_bytes, settings.page_limit_messages) < 0:
            return None
        return Meter(self, name, settings)


class Meter:
    """See the module's docstring. `waiting` are the producers without credit: link -> whose it is."""

    __slots__ = (
        "_all", "_bytes_max", "_count_max", "_page_bytes_max", "_page_count_max", "_page_drops", "_queues", "_said",
        "count", "emptied_count", "name", "policy", "size_bytes", "waiting",
    )  # fmt: skip

    def __init__(self, meters: Meters, name: str, settings: AddressSettings) -> None:
        self.name = name
        self.policy = self._said = settings.address_full_policy
        self.count = 0
        self.size_bytes = 0
        self.emptied_count = 0  # how often the last queue went, with whatever it had
        self.waiting: dict[Any, Any] = {}
        self._all = meters
        self._bytes_max = settings.max_size_bytes
        self._count_max = settings.max_size_messages
        self._page_bytes_max = settings.page_limit_bytes
        self._page_count_max = settings.page_limit_messages
        self._page_drops = settings.page_full_policy == DROP
        self._queues: list[Queue] = []

    def set_queues(self, queues: list[Queue], *, can_page: bool) -> None:
        """What the address is bound to. Where all of them can page, who waited for room need not wait any more."""
        LOOK.has_touched = True
        if self._queues and not queues:
            self._empty()
        self._queues = queues
        if self._said == PAGE:
            self.policy = PAGE if can_page else BLOCK
            if can_page and self.waiting:
                self._all.roomy[self] = None

    def _empty(self) -> None:
        """The last queue is gone: nothing is at the address, however long it takes to give that back."""
        self.size_bytes = self.count = 0
        self.emptied_count += 1
        if self.waiting:
            self._all.roomy[self] = None

    def add(self, size_bytes: int, count: int) -> None:
        """Messages are in one more queue."""
        LOOK.has_touched = True
        self.size_bytes += size_bytes
        self.count += count

    def remove(self, segment: Segment) -> None:
        """Messages are gone from a queue."""
        LOOK.has_touched = True
        self.size_bytes -= segment.run.size_bytes(segment.start, segment.n)
        self.count -= segment.n
        if self.waiting and self.has_room:
            self._all.roomy[self] = None

    @property
    def is_full(self) -> bool:
        """Whether a bound is reached."""
        return self.would_be_full(self.size_bytes, self.count)

    def would_be_full(self, size_bytes: int, count: int) -> bool:
        """Whether a bound would be reached with so much in memory."""
        return 0 <= self._bytes_max <= size_bytes or 0 <= self._count_max <= count

    def could_hold(self, count: int) -> bool:
        """Whether so many messages in memory are within the bound of messages."""
        return self._count_max < 0 or count <= self._count_max

    def could_page(self, size_bytes: int, count: int, more: int) -> bool:
        """Whether `more` messages may be paged beside so much that is."""
        has_bytes = self._page_bytes_max < 0 or size_bytes < self._page_bytes_max
        return has_bytes and (self._page_count_max < 0 or count + more <= self._page_count_max)

    @property
    def paged(self) -> tuple[int, int]:
        """Bytes and messages that its queues have paged."""
        pages = [queue.pages for queue in self._queues if queue.pages is not None]
        return sum(each.size_bytes for each in pages), sum(each.count for each in pages)

    @property
    def queues_count(self) -> int:
        """In how many queues a message may be."""
        return len(self._queues)

    @property
    def is_node_full(self) -> bool:
        """Whether messages are paged for the node's bound, whatever is at this address."""
        return self._all.memory is not None and self._all.memory.is_full

    @property
    def is_low(self) -> bool:
        """Whether it is less than half full."""
        bounds = ((self._bytes_max, self.size_bytes), (self._count_max, self.count))
        return all(most < 0 or held * 2 < most for most, held in bounds)

    @property
    def has_room(self) -> bool:
        """Whether producers that wait may have credit again."""
        bounds = ((self._bytes_max, self.size_bytes), (self._count_max, self.count))
        return all(most < 0 or held * 100 < most * ROOM_PERCENT for most, held in bounds)

    @property
    def is_blocking(self) -> bool:
        """Whether producers get no credit."""
        return self.policy == BLOCK and self.is_full

    def credit(self, wanted: int) -> int:
        """What a producer is given at most, so that one alone does not go far over the bound."""
        if self.policy != BLOCK or self._count_max < 0:
            return wanted
        return max(1, min(wanted, self._count_max - self.count))

    @property
    def drops(self) -> bool:
        """Whether what does not fit is accepted and dropped."""
        return self.policy == DROP or (self.policy == PAGE and self._page_drops)

    def _page_room(self) -> tuple[int, int] | None:
        """Bytes and messages that may still be paged in each queue, None where there is no bound, or no need to page.

        Below 0: no bound of this kind.
        """
        if self._page_bytes_max < 0 and self._page_count_max < 0:
            return None
        pages = [queue.pages for queue in self._queues if queue.pages is not None]
        is_tight = self.is_full or (self._all.memory is not None and self._all.memory.is_full)
        if not pages and not is_tight:
            return None
        size_bytes, count = sum(each.size_bytes for each in pages), sum(each.count for each in pages)
        share = max(len(self._queues), 1)
        most = ((self._page_bytes_max, size_bytes), (self._page_count_max, count))
        bytes_left, count_left = (-1 if bound < 0 else max(bound - held, 0) // share for bound, held in most)
        return bytes_left, count_left

    def takes(self, count: int) -> bool:
        """Whether so many messages come in together."""
        if self.policy == PAGE:
            room = self._page_room()
            return room is None or (room[0] != 0 and not 0 <= room[1] < count)
        return not self.is_full and (self._count_max < 0 or self.count + count <= self._count_max)

    def fitting(self, run: Run) -> int:
        """How many messages of a run come in before the address is full."""
        if self.policy == PAGE:
            return self._fitting_pages(run)
        if (
            not self.is_full
            and self._count_max < 0
            and self.size_bytes + run.size_bytes(0, run.count) < self._bytes_max
        ):
            return run.count
        left, size_bytes = run.count, self.size_bytes
        if self._count_max >= 0:
            left = min(left, max(self._count_max - self.count, 0))
        if self._bytes_max < 0:
            return left
        for index in range(left):
            if size_bytes >= self._bytes_max:
                return index
            size_bytes += run.size_bytes(index, 1)
        return left

    def _fitting_pages(self, run: Run) -> int:
        room = self._page_room()
        if room is None:
            return run.count
        bytes_left, count_left = room
        left = run.count if count_left < 0 else min(run.count, count_left)
        for index in range(left if bytes_left >= 0 else 0):
            if bytes_left <= 0:
                return index
            bytes_left -= run.size_bytes(index, 1)
        return left

    def refused(self, count: int) -> str:
        """So many did not fit: count them, and say why."""
        LOOK.has_touched = True
        if self.drops:
            self._all.dropped_total += count
        else:
            self._all.refused_total += count
        if self.policy == PAGE:
            return f"the queues of address {self.name!r} have paged page-limit-bytes or page-limit-messages"
        return (
            f"address {self.name!r} is full: it holds {self.count} messages and {self.size_bytes} bytes "
            "(max-size-messages, max-size-bytes)"
        )
