"""Looking at messages without taking any: a queue page by page, or one message by its id.

A page ends at a bound of messages, of bytes or of messages looked at, and says where the next one begins; nothing is
kept between pages, so a queue may change under a reader, who then sees what is there when a page is made. What the
queue itself has paged is read from disk, in as many steps as that takes, and comes last, in the order of ids.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

from mqbroker.admin.arguments import queue_named, selector_of
from mqbroker.base.errors import Refused
from mqbroker.core.paging.page_look import PageLook
from mqbroker.core.queue.backlog import PRIORITY_MAX, rank_of
from mqbroker.core.queue.message_view import view_of
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.core.selector.selector import Selector
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest
from mqbroker.node.values.message_json import shown

LIMIT_MAX = 1_000
LIMIT = 100
LOOKS_MAX = 1_000  # some 6 µs each, where a selector looks at them
PAGE_BYTES_MAX = 4 << 20
BODY_BYTES_MAX = 1 << 20  # larger messages are shown without their bodies in pages
ID_MAX = 2**63

READY, SCHEDULED, PAGED, WAITING, DELIVERING = "ready", "scheduled", "paged", "waiting", "delivering"
BEGINNING = f"{READY}:0:0"
_PLACE = re.compile(f"({READY}|{SCHEDULED}|{PAGED}):([0-9]{{1,20}}):([0-9]{{1,20}})")

# Where a page begins: among the deliverable messages, behind them among the scheduled ones (due time, then rank), or
# behind those among what is on disk alone (id).
BrowsePlace = tuple[str, int, int]


class BrowsedPage:
    """What one answer to a look at messages shows: rows of those that its selector and bounds let through."""

    def __init__(self, selector: Selector | None, limit: int) -> None:
        self.messages: list[dict[str, Any]] = []
        self._selector = selector
        self._limit = limit
        self._looks = 0
        self._size_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the page ends here."""
        is_large = self._size_bytes >= PAGE_BYTES_MAX
        return is_large or self._looks >= LOOKS_MAX or len(self.messages) >= self._limit

    def look(self, segment: Segment, index: int, state: str) -> None:
        """Look at one message, and show it where the selector lets it through."""
        self._looks += 1
        if self._selector is None or self._selector.matches(view_of(segment, index)):
            self.messages.append(_with_state(shown(segment, index, body_bytes_max=BODY_BYTES_MAX), state))
            self._size_bytes += min(segment.run.size_bytes(index, 1), BODY_BYTES_MAX)


def browse(broker: Broker, request: AdminRequest) -> None:
    """`browse`: deliverable messages in their order, then scheduled ones by their time, then what is paged."""
    queue = queue_named(broker, request, "queue")
    place = _place_of(request)
    page = BrowsedPage(selector_of(request), request.arguments["limit"])
    following: BrowsePlace | None = place
    if place[0] == READY:
        following = _ready(queue, page, place) or (SCHEDULED, 0, 0)
    if following is not None and following[0] == SCHEDULED:
        following = _scheduled(queue, page, following)
        if following is None and queue.pages is not None:
            following = (PAGED, 0, queue.pages.first_id)
    if following is None or following[0] != PAGED or page.is_full:
        _answer(broker, request, page, following)
    else:
        broker.jobs.add(Browse(broker, request, page, PageLook(broker.store, queue, _ids(broker, following))))


def _answer(broker: Broker, request: AdminRequest, page: BrowsedPage, following: BrowsePlace | None) -> None:
    place = None if following is None else ":".join(map(str, following))
    broker.reply(request.id, {"messages": page.messages, "next": place})


def _ids(broker: Broker, place: BrowsePlace) -> tuple[int, int]:
    return place[2], broker.store.next_id


class Looking(ABC):
    """A request that looks at messages that are paged, as a `node.values.jobs.Job`."""

    needs_disk = True

    def __init__(self, broker: Broker, request: AdminRequest, look: PageLook) -> None:
        self._broker = broker
        self._request = request
        self._look = look

    @property
    def is_waiting(self) -> bool:
        """Whether it can do nothing before a page has come (node/values/jobs.py:Job)."""
        return self._look.is_waiting

    def run(self) -> bool:
        """Look at one piece more; False: it is over, and answered (node/values/jobs.py:Job)."""
        look = self._look
        if look.queue.is_deleted:
            self._fail("amqp:resource-deleted", "the queue was deleted")
            return False
        if look.is_behind:
            self._came_in(look.front)
        if not look.is_behind:
            self._paged()
            look.go_on()
        if self._answered():
            return False
        look.ask()
        return True

    def _paged(self) -> None:
        for segment in self._look.segments():
            for index in range(segment.start, segment.start + segment.n):
                if self._see(segment, index, PAGED):
                    return

    def _came_in(self, end: int) -> None:
        """What was read for somebody else since is in memory."""
        look, queue = self._look, self._look.queue
        segments = [(segment, READY) for segment in queue.backlog.of_ids(look.at, end)]
        segments += [(segment, SCHEDULED) for _, _, segment in queue.scheduled]
        for segment, state in sorted(segments, key=_first_id):
            low = max(look.at, segment.first_id)
            for message_id in range(low, min(segment.first_id + segment.n, end)):
                if self._see(segment, message_id - segment.run.first_id, state):
                    return
        look.at = end

    @abstractmethod
    def _see(self, segment: Segment, index: int, state: str) -> bool:
        """Look at a message, and go behind it. True: not at this one any more, the answer ends before it."""

    @abstractmethod
    def _answered(self) -> bool:
        """Whether there was enough for an answer, which is given."""

    def abandon(self) -> None:
        """The node stops: the look fails, and is answered so (node/values/jobs.py:Job)."""
        self._fail("amqp:connection:forced", "the broker stops")

    def _fail(self, condition: str, why: str) -> None:
        self._broker.reply_error(self._request.id, condition, f"{self._request.operation}: {why}")


def _first_id(segment_and_state: tuple[Segment, str]) -> int:
    return segment_and_state[0].first_id


class Browse(Looking):
    """`browse` where it comes to what is paged."""

    def __init__(self, broker: Broker, request: AdminRequest, page: BrowsedPage, look: PageLook) -> None:
        super().__init__(broker, request, look)
        self._page = page

    def _see(self, segment: Segment, index: int, state: str) -> bool:
        if self._page.is_full:
            return True
        self._page.look(segment, index, state)
        self._look.at = segment.run.first_id + index + 1
        return False

    def _answered(self) -> bool:
        is_done = self._look.is_done
        if not is_done and not self._page.is_full:
            return False
        _answer(self._broker, self._request, self._page, None if is_done else (PAGED, 0, self._look.at))
        return True


def _ready(queue: Queue, page: BrowsedPage, place: BrowsePlace) -> BrowsePlace | None:
    for segment in queue.backlog.from_rank(place[2]):
        for rank in range(max(segment.rank, place[2]), segment.rank + segment.n):
            if page.is_full:
                return READY, 0, rank
            page.look(segment, rank - segment.rank + segment.start, READY)
    return None


def _scheduled(queue: Queue, page: BrowsedPage, place: BrowsePlace) -> BrowsePlace | None:
    for due_ms, rank, segment in sorted(queue.scheduled, key=lambda entry: entry[:2]):
        for each in range(rank, rank + segment.n):
            if (due_ms, each) < place[1:]:
                continue
            if page.is_full:
                return SCHEDULED, due_ms, each
            page.look(segment, each - rank + segment.start, SCHEDULED)
    return None


def _place_of(request: AdminRequest) -> BrowsePlace:
    text: str = request.arguments["from"]
    place = _PLACE.fullmatch(text)
    if place is None:
        raise Refused("amqp:invalid-field", f"browse: argument 'from' is what 'next' said before, not {text[:80]!r}")
    return place[1], int(place[2]), int(place[3])


def _with_state(message: dict[str, Any], state: str) -> dict[str, Any]:
    return message | {"state": state}


def show(broker: Broker, request: AdminRequest) -> None:
    """`message-show`: one message wherever in its queue it is, by its id in the queue."""
    queue = queue_named(broker, request, "queue")
    wanted: int = request.arguments["id"]
    held = _found(broker, queue, wanted)
    if held is not None:
        broker.reply(request.id, _with_state(shown(held[0], wanted - held[0].run.first_id), held[1]))
    elif queue.pages is not None:
        broker.jobs.add(Show(broker, request, PageLook(broker.store, queue, (wanted, wanted + 1))))
    else:
        raise Refused("amqp:not-found", f"message-show: queue {queue.kind.name!r} has no message {wanted}")


class Show(Looking):
    """`message-show` of a message that may be paged."""

    _seen: tuple[Segment, str] | None = None

    def _see(self, segment: Segment, index: int, state: str) -> bool:
        self._seen = segment, state
        self._look.at += 1
        return False

    def _answered(self) -> bool:
        if not self._look.is_done:
            return False
        queue, wanted = self._look.queue, self._look.before_id - 1
        held = self._seen or _found(self._broker, queue, wanted)  # it may be with a consumer by now
        if held is not None:
            shown_ = shown(held[0], wanted - held[0].run.first_id)
            self._broker.reply(self._request.id, _with_state(shown_, held[1]))
        else:
            self._fail("amqp:not-found", f"queue {queue.kind.name!r} has no message {wanted}")
        return True


def _found(broker: Broker, queue: Queue, wanted: int) -> tuple[Segment, str] | None:
    for priority in range(PRIORITY_MAX + 1):
        rank = rank_of(priority, wanted)
        if queue.backlog.has(rank):
            return next(queue.backlog.from_rank(rank)), READY
    elsewhere = [
        *((segment, SCHEDULED) for _, _, segment in queue.scheduled),
        *((segment, WAITING) for segment in queue.waiting),
        *((segment, DELIVERING) for held_of, segment in broker.store.in_delivery() if held_of is queue),
    ]
    return next((pair for pair in elsewhere if 0 <= wanted - pair[0].first_id < pair[0].n), None)
