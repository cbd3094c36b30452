"""Looking at messages without taking any: a queue page by page, or one message by its id.

A page ends at a bound of messages, of bytes or of messages looked at, and says where the next one begins; nothing is
kept between pages, so a queue may change under a reader, who then sees what is there when a page is made.
"""

from __future__ import annotations

from typing import Any

from mqbroker.admin.arguments import argument, check_names, number, queue_named, selector_of
from mqbroker.base.errors import Refused
from mqbroker.core.backlog import PRIORITY_MAX, rank_of
from mqbroker.core.dispatch import view_of
from mqbroker.core.queue import Queue, Segment
from mqbroker.core.selector import Selector
from mqbroker.node.broker import Broker
from mqbroker.node.inputs import AdminRequest
from mqbroker.node.shown import shown

LIMIT_MAX = 1_000
LIMIT = 100
LOOKS_MAX = 5_000
PAGE_BYTES_MAX = 4 << 20
BODY_BYTES_MAX = 1 << 20  # larger messages are shown without their bodies in pages
ID_MAX = 2**63

READY, SCHEDULED, WAITING, DELIVERING = "ready", "scheduled", "waiting", "delivering"

# Where a page begins: among the deliverable messages, or behind them among the scheduled ones; due time, then rank.
Place = tuple[str, int, int]


class Page:
    """What one answer shows."""

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
        """One message."""
        self._looks += 1
        if self._selector is None or self._selector.matches(view_of(segment, index)):
            self.messages.append(_with_state(shown(segment, index, body_bytes_max=BODY_BYTES_MAX), state))
            self._size_bytes += min(segment.run.size_bytes(index, 1), BODY_BYTES_MAX)


def browse(broker: Broker, request: AdminRequest) -> None:
    """`browse`: deliverable messages in their order, then scheduled ones by their time."""
    check_names(request, ("queue", "selector", "from", "limit"))
    queue = queue_named(broker, request, "queue")
    place = _place_of(request)
    page = Page(selector_of(request), number(request, "limit", LIMIT, (1, LIMIT_MAX)))
    following: Place | None = place
    if place[0] == READY:
        following = _ready(queue, page, place) or (SCHEDULED, 0, 0)
    if following is not None and following[0] == SCHEDULED:
        following = _scheduled(queue, page, following)
    broker.reply(
        request.id,
        {"messages": page.messages, "next": None if following is None else ":".join(map(str, following))},
    )


def _ready(queue: Queue, page: Page, place: Place) -> Place | None:
    for segment in queue.backlog.from_rank(place[2]):
        for rank in range(max(segment.rank, place[2]), segment.rank + segment.n):
            if page.is_full:
                return READY, 0, rank
            page.look(segment, rank - segment.rank + segment.start, READY)
    return None


def _scheduled(queue: Queue, page: Page, place: Place) -> Place | None:
    for due_ms, rank, segment in sorted(queue.scheduled, key=lambda entry: entry[:2]):
        for each in range(rank, rank + segment.n):
            if (due_ms, each) < place[1:]:
                continue
            if page.is_full:
                return SCHEDULED, due_ms, each
            page.look(segment, each - rank + segment.start, SCHEDULED)
    return None


def _place_of(request: AdminRequest) -> Place:
    text: str = argument(request, "from", str, f"{READY}:0:0")
    words = text.split(":")
    if len(words) != 3 or words[0] not in (READY, SCHEDULED) or not all(word.isdecimal() for word in words[1:]):
        raise Refused("amqp:invalid-field", f"browse: argument 'from' is what 'next' said before, not {text[:80]!r}")
    return words[0], int(words[1]), int(words[2])


def _with_state(message: dict[str, Any], state: str) -> dict[str, Any]:
    return message | {"state": state}


def show(broker: Broker, request: AdminRequest) -> None:
    """`message-show`: one message wherever in its queue it is, by its id in the queue."""
    check_names(request, ("queue", "id"))
    queue = queue_named(broker, request, "queue")
    wanted = number(request, "id", None, (1, ID_MAX))
    found = _found(broker, queue, wanted)
    if found is None:
        raise Refused("amqp:not-found", f"message-show: queue {queue.kind.name!r} has no message {wanted}")
    segment, state = found
    broker.reply(request.id, _with_state(shown(segment, wanted - segment.run.first_id), state))


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
