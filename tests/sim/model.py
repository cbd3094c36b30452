"""A model of queues: of each copy of a message where it may be, how often it may come, and in which order.

A copy is one message in one queue of its address. It ends in one way: settled by a consumer there, or found among the
dead letters, or among the expired messages, or dropped for a reason that the settings of its place give. `Model` knows
facts that clients noted, and what nodes sent and when; of the broker's own books it knows nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from mqbroker.wire.sections import Header

from tests.sim.places import DEAD, EXPIRED, HOME, MOVED, Place
from tests.support.checker import Sent, id_in

QUIET_MS = 1_000  # longer than anything waits that is on its way


@dataclass(slots=True)
class Letter(Sent):
    """One message as its producer knows it. Times are those of the world's wall clock, in ms."""

    name: str = ""
    priority: int = 4
    colour: str = ""
    group: str = ""
    ttl_ms: int = 0
    delay_ms: int = 0
    index: int = 0  # among all messages
    sent_ms: int = 0  # first
    accepted_ms: int = 0
    is_resent: bool = False  # with its duplicate id, after a connection that was lost

    @property
    def is_anew(self) -> bool:
        """Whether it may be in the queue anew: not durable, it and its duplicate id were gone when it was resent."""
        return self.is_exempt and self.is_resent


@dataclass(slots=True)
class Copy:
    """One message in one queue of its address, as consumers know it."""

    seen: int = 0
    failed: int = 0  # deliveries that consumers called failures
    is_returned: bool = False  # given back in order: comes again without a flag
    is_settling: bool = False
    is_settled: bool = False  # and confirmed
    is_rejected: bool = False
    ended: str = ""  # where it was found, if not at home
    not_before_ms: int = 0  # its redelivery delay


@dataclass(slots=True)
class Subscription:
    """A queue that its subscriber knows to be there: what was written before it may have missed it."""

    address: str
    since: int
    colour: str
    is_durable: bool
    owed: frozenset[str] = frozenset()  # messages from before it, which its address must have kept for it


class Reader(Protocol):
    """Whoever takes messages: a consumer, a browser, or a drain."""

    tag: str  # of one connection
    conn: int  # that connection, 0 when it is lost or was told to end
    place: Place
    where: str
    queue: str
    colour: str
    is_drain: bool
    takes: bool  # not a browser


@dataclass(slots=True)
class Model:
    """See the module's docstring."""

    places: dict[str, Place] = field(default_factory=dict)
    letters: dict[str, Letter] = field(default_factory=dict)
    copies: dict[tuple[str, str], Copy] = field(default_factory=dict)
    losses: Counter[str] = field(default_factory=Counter)  # by queue: connections of consumers, and lives of the node
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    purges: dict[str, list[float]] = field(default_factory=dict)  # by queue: how much each took, if that is known
    idle: dict[str, set[str]] = field(
        default_factory=dict
    )  # by queue: what consumers wanted that had credit to the end
    stopped_ms: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    _last: dict[tuple[object, ...], int] = field(default_factory=dict)
    _pinned: dict[tuple[str, str], tuple[Reader, int]] = field(default_factory=dict)

    # -- what producers know -------------------------------------------------------------------------------------------

    def outcome(self, message_id: str, outcome: str, now_ms: int) -> None:
        """The broker answered. A message that was refused when it was sent again may have come in before."""
        letter = self.letters[message_id]
        letter.outcome = "unknown" if letter.is_resent and outcome == "rejected" else outcome
        letter.accepted_ms = now_ms

    def restarted(self, node: str) -> None:
        """What a node did not have on disk is gone, and what it had given to consumers may come again."""
        for letter in self.letters.values():
            if letter.queue.startswith(node):
                letter.is_exempt = letter.is_exempt or not letter.is_durable
        for (_, queue), copy in self.copies.items():
            if queue.startswith(node):
                copy.not_before_ms = 0
                # What was only in subscriptions that end with the node may come anew: its duplicate id was not kept.
                if queue in self.subscriptions and not self.subscriptions[queue].is_durable:
                    copy.seen, copy.is_settled = 0, False
        for place in self.places.values():
            if place.address.startswith(node):
                self.losses[place.address] += 1

    def subscribed(self, queue: str, place: Place, colour: str, now_ms: int, *, is_durable: bool) -> None:
        """A subscriber was told that its subscription stands."""
        if queue not in self.subscriptions:
            owed = self._kept_at(place, now_ms)
            self.subscriptions[queue] = Subscription(place.address, len(self.letters), colour, is_durable, owed)

    def _kept_at(self, place: Place, now_ms: int) -> frozenset[str]:
        """What is surely among the newest messages of an address: of what came behind it, or may have, there is less.

        Nothing is sure where an address has bounds, or where dead letters come in anew. What has expired is not given
        to anybody who comes later.
        """
        if not place.retains or place.is_retried or "address_full_policy" in place.settings:
            return frozenset()
        sent = [each for each in self.letters.values() if each.queue == place.address and each.sent_ms]
        found = []
        for letter in sent:
            behind = sum(each.outcome != "accepted" or each.accepted_ms >= letter.sent_ms for each in sent)
            is_over = 0 < letter.ttl_ms <= now_ms - letter.sent_ms
            is_kept = letter.outcome == "accepted" and letter.is_durable and behind <= place.retains
            if is_kept and not is_over and not letter.is_resent:
                found.append(letter.name)
        return frozenset(found)

    # -- what nodes send -----------------------------------------------------------------------------------------------

    def leaves(self, message_id: str, reader: Reader, now_ms: int) -> None:
        """A node sends a message to a reader."""
        letter = self.letters.get(message_id)
        if letter is None or reader.where != HOME:
            return
        # What is retried lives for ever, and does not wait.
        end_ms = letter.accepted_ms + letter.ttl_ms + 1 if letter.accepted_ms and letter.ttl_ms else now_ms
        if now_ms > end_ms and not reader.place.is_retried:
            self._wrong(f"expired: {message_id} was given to {reader.tag} at {now_ms}, {letter}")
        if letter.delay_ms and now_ms < letter.sent_ms + letter.delay_ms:
            self._wrong(f"too early: {message_id} was given to {reader.tag} at {now_ms}, {letter}")
        if not reader.takes:
            return
        if letter.group and reader.conn:
            self._check_group(reader, message_id, letter.group)
        copy = self.copies.get((message_id, reader.queue))
        may_be_anew = reader.place.is_retried or self._begins_anew(reader.queue, reader.place)
        if copy is not None and now_ms < copy.not_before_ms and not may_be_anew:
            self._wrong(f"too early: {message_id} was given to {reader.tag} before its redelivery delay")

    def _check_group(self, reader: Reader, message_id: str, group: str) -> None:
        """A group is one consumer's for as long as that is connected."""
        owner, conn = self._pinned.get((reader.queue, group), (reader, reader.conn))
        if owner is not reader and owner.conn == conn:
            self._wrong(f"group: {message_id} of {group!r} was given to {reader.tag}, the group is with {owner.tag}")
        self._pinned[(reader.queue, group)] = (reader, reader.conn)

    # -- what consumers know -------------------------------------------------------------------------------------------

    def receive(self, reader: Reader, body: bytes, header: Header, origin: str) -> Copy | None:
        """A reader got a message, which came from queue `origin` if it is not at home any more."""
        message_id = id_in(body) or ""
        letter = self.letters.get(message_id)
        if letter is None or len(body) != letter.size:
            self._wrong(f"unexpected: {reader.tag} got {body[:40]!r}, which nobody sent or which is damaged")
            return None
        if letter.queue != reader.place.address:
            self._wrong(f"misrouted: {message_id} of {letter.queue} came to {reader.tag}")
        if letter.outcome == "rejected":
            self._wrong(f"unexpected: {message_id} was rejected and came to {reader.tag}")
        if reader.colour and letter.colour != reader.colour:
            self._wrong(f"selector: {message_id} is {letter.colour!r} and came to {reader.tag}")
        if reader.where == MOVED:
            origin = letter.queue  # what a person moves says nothing of its own
        queue = reader.queue if reader.where == HOME else origin
        copy = self.copies.setdefault((message_id, queue), Copy())
        if self._begins_anew(queue, reader.place):
            copy.is_settled, copy.is_returned, copy.ended = False, True, ""
        if reader.takes:
            if reader.where == HOME:
                self._check_order(reader, letter, is_new=not header.delivery_count and not copy.seen)
            if reader.is_drain and reader.where == HOME:
                self._check_stuck(reader, letter, copy)
            self._take(reader, letter, copy, header.delivery_count)
            if reader.where != HOME:
                self._end(reader, letter, copy, origin)
        return copy

    def _begins_anew(self, queue: str, place: Place) -> bool:
        """Whether a queue may have ended, and one of its name may have got once more what its address keeps."""
        found = self.subscriptions.get(queue)
        return place.is_topic and place.retains > 0 and (found is None or not found.is_durable)

    def _take(self, reader: Reader, letter: Letter, copy: Copy, deliveries: int) -> None:
        message_id = letter.name
        # A dead letter whose subscription is gone goes back to all of its topic, so to those too that have had it.
        is_anew = letter.is_anew or (reader.place.is_deleted and letter.is_resent)
        if is_anew or (reader.place.is_topic and reader.place.is_retried):
            copy.is_settled, copy.is_returned, copy.ended = False, True, ""
        if copy.is_settled:
            self._wrong(f"settled-then-redelivered: {message_id} came to {reader.tag}")
        is_retried = reader.place.is_retried and self._may_be_dead(letter, copy)
        if copy.ended and copy.ended != reader.where and not is_retried:
            self._wrong(f"twice: {message_id} was {copy.ended} and came to {reader.tag} as {reader.where}")
        is_again = copy.seen > 0 if reader.where == HOME else copy.ended == reader.where
        if is_again and not deliveries and not is_retried and not copy.is_returned:
            self._wrong(f"unflagged duplicate: {message_id} came to {reader.tag} again")
        copy.is_returned = False
        if reader.where == HOME:
            copy.seen += 1
            most = reader.place.attempts_max + self.losses[reader.place.address]
            if reader.place.attempts_max > 0 and most <= deliveries:
                self._wrong(f"attempts: {message_id} came to {reader.tag} after {deliveries} deliveries")

    def _end(self, reader: Reader, letter: Letter, copy: Copy, origin: str) -> None:
        """A message was found where those go that leave their queue otherwise than to a consumer."""
        message_id = letter.name
        if not copy.ended:
            self.ends[reader.where] += 1
        copy.ended = reader.where
        if reader.where == MOVED and not reader.place.is_moved:
            self._wrong(f"moved: {message_id} was moved by nobody")
        # A subscription that ends with its subscriber has no name that this one would know.
        is_known = origin in self.subscriptions or not reader.place.is_topic
        if reader.where == DEAD and is_known and not self._may_be_dead(letter, copy):
            self._wrong(f"dead: {message_id} is a dead letter without a reason: {copy}")
        if reader.where == EXPIRED and not letter.ttl_ms:
            self._wrong(f"expired: {message_id} has no time to live, and is among the expired messages")

    def _check_order(self, reader: Reader, letter: Letter, *, is_new: bool) -> None:
        """One consumer gets what is new to it in order. A drain, when nothing moves any more, gets all in order.

        What may have been retried has come anew, at the end.
        """
        if not reader.is_drain and (not is_new or letter.delay_ms):
            return
        # Groups come from a consumer that is gone, each when it goes.
        key = (reader.tag, letter.producer, letter.priority, "" if reader.is_drain else letter.group)
        # One that was sent again may have been refused at first, when those behind it were not.
        if not letter.is_resent and not reader.place.is_retried:
            if self._last.get(key, -1) >= letter.number:
                self._wrong(f"order: {letter.producer}-{letter.number} came to {reader.tag} after {self._last[key]}")
            self._last[key] = letter.number
        if reader.is_drain:
            level = self._last.setdefault((reader.tag,), letter.priority)
            if letter.priority > level:
                self._wrong(f"priority: {letter.producer}-{letter.number} came to {reader.tag} after priority {level}")
            self._last[(reader.tag,)] = letter.priority

    def _check_stuck(self, reader: Reader, letter: Letter, copy: Copy) -> None:
        """What was left though somebody waited for it, when all had been quiet for long enough."""
        due_ms = max(letter.accepted_ms, letter.sent_ms + letter.delay_ms, copy.not_before_ms)
        is_wanted = self.idle.get(reader.queue, set()) & {"", letter.colour}
        if is_wanted and not letter.group and 0 < due_ms < self.stopped_ms - QUIET_MS:
            self._wrong(f"stuck: {letter} was left in {reader.queue} though a consumer waited, {copy}")

    # -- the end -------------------------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        """After the drain: all violations."""
        lost: dict[str, list[str]] = {}
        for letter in self.letters.values():
            for queue in self._queues_of(letter):
                copy = self.copies.get((letter.name, queue), Copy())
                if letter.outcome == "accepted" and not letter.is_exempt and self._is_lost(letter, copy):
                    lost.setdefault(queue, []).append(f"{letter} {copy}")
        return self.violations + [
            f"lost: {len(found)} messages of {queue}: {found[:3]}"
            for queue, found in lost.items()
            if len(found) > sum(self.purges.get(queue, ()))
        ]

    def _queues_of(self, letter: Letter) -> list[str]:
        """The queues that must have had it."""
        if not self.places[letter.queue].is_topic:
            return [letter.queue]
        return [
            name
            for name, each in self.subscriptions.items()
            if each.address == letter.queue
            and each.is_durable
            and (letter.index >= each.since or letter.name in each.owed)
            and each.colour in ("", letter.colour)
        ]

    def _is_lost(self, letter: Letter, copy: Copy) -> bool:
        place = self.places[letter.queue]
        if copy.is_settling or copy.ended or place.drops:
            return False
        if letter.ttl_ms and (place.is_moved or not place.leads_to(EXPIRED)):
            return False
        return place.leads_to(DEAD) or not self._may_be_dead(letter, copy)

    def _may_be_dead(self, letter: Letter, copy: Copy) -> bool:
        return copy.is_rejected or 0 < self.places[letter.queue].attempts_max <= copy.failed + self.losses[letter.queue]

    def _wrong(self, what: str) -> None:
        self.violations.append(what)
