"""What this node tells its neighbours of queues and consumers: its own, and those that it reaches through others.

Who subscribes gets members, then all bindings between RESET and RESET_COMPLETE, and changes from then on, in one
ordered stream. Bindings are looked up when their turn comes, so nothing of the beginning waits in memory; changes of
those whose turn is still to come are left out. A subscriber that does not take changes quickly enough begins anew. It
is told of queues that are less than `max_hops` away from here, and never of its own or of those that are reached
through it. Nor is one that does not know `moved_from` told of queues for what is moved from one address alone: it would
send them whatever is moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level, Notice
from mqbroker.cluster.address_match import AddressPrefixes, is_internal
from mqbroker.cluster.notices import (
    NOTICE_BYTES_MAX,
    BindingAdded,
    BindingRemoved,
    ClusterNotice,
    ConsumerClosed,
    ConsumerCreated,
    GroupClusterNotice,
    Member,
    MemberGone,
    Reset,
    ResetComplete,
    encode,
)
from mqbroker.cluster.remote_table import Counts, counts_of
from mqbroker.core.cluster.remote_binding import RemoteBinding, cluster_name_of

BACKLOG_MAX: Final = 10_000  # notices
BACKLOG_BYTES_MAX: Final = 4 * 2**20


@dataclass(slots=True)
class ToldBinding:
    """A binding that is told of. Numbers grow in the order in which bindings came."""

    number: int
    added: BindingAdded
    via: str  # the neighbour that it is reached through, empty for our own
    consumers: Counts


@dataclass(frozen=True, slots=True)
class SubscriberWish:
    """What a neighbour asks to be told of. `knows_moved_from`: its release sends no queue what is not for it."""

    max_hops: int
    address: AddressPrefixes
    knows_moved_from: bool = True


class Subscriber:
    """A neighbour that is told. `more` is called when there is something to take again."""

    def __init__(self, announcer: Announcer, node_id: str, wish: SubscriberWish, more: Callable[[], None]) -> None:
        self.node_id = node_id
        self.wish = wish
        self.restarts_total = -1
        self._announcer = announcer
        self._more = more
        self._backlog: deque[bytes] = deque()
        self.begin()

    def begin(self) -> None:
        """Tell everything, from RESET on."""
        LOOK.has_touched = True
        self.restarts_total += 1
        told = self._announcer.told
        self._backlog.clear()
        self._backlog_bytes = 0
        self._current: Iterator[bytes] = self._announcer.head()
        self._names: Iterator[str] = iter(list(told))
        self._last = next(reversed(told.values())).number if told else 0
        self._reached = 0  # number of the binding that was told last; all up to `_last` are told one by one
        self._is_complete = False

    @property
    def has_more(self) -> bool:
        """Whether `take` has something."""
        return not self._is_complete or bool(self._backlog)

    @property
    def backlog_count(self) -> int:
        """Changes that it has not taken yet."""
        return len(self._backlog)

    def wants(self, told: ToldBinding) -> bool:
        """Whether it is told of this binding."""
        added = told.added
        return (
            added.distance < self.wish.max_hops
            and self.node_id not in (added.node_id, told.via)
            and self.wish.address.matches(added.address)
            and (self.wish.knows_moved_from or not added.moved_from)
        )

    def take(self, count_max: int) -> list[bytes]:
        """The next notices, encoded; fewer than asked for where there are no more."""
        taken: list[bytes] = []
        LOOK.has_touched = True
        while len(taken) < count_max:
            text = next(self._current, None)
            if text is None and self._backlog:
                text = self._backlog.popleft()
                self._backlog_bytes -= len(text)
            if text is not None:
                taken.append(text)
            elif self._is_complete:
                break
            else:
                self._advance()
        return taken

    def change(self, text: bytes, number: int = 0) -> None:
        """Something is to be told now, of the binding with this number or (0) of none."""
        if self._reached < number <= self._last:
            return
        if len(self._backlog) >= BACKLOG_MAX or self._backlog_bytes + len(text) > BACKLOG_BYTES_MAX:
            self.begin()
            self._announcer.restarted(self)
            return
        had_more = self.has_more
        LOOK.has_touched = True
        self._backlog.append(text)
        self._backlog_bytes += len(text)
        if not had_more:
            self._more()

    def _advance(self) -> None:
        """One more binding, or the end of all."""
        for name in self._names:
            told = self._announcer.told.get(name)
            if told is None or told.number > self._last:
                continue  # it went, and came again as a change
            self._reached = told.number
            if self.wants(told):
                self._current = _texts(told)
                return
        self._reached = self._last
        self._is_complete = True
        self._current = iter([encode(ResetComplete())])


class Announcer:
    """See the module's docstring. `nodes`: the members of the cluster, this node among them, and who has left it."""

    def __init__(
        self, node_id: str, nodes: Callable[[], Iterable[Member | MemberGone]], log: Callable[[Notice], None]
    ) -> None:
        self._node_id = node_id
        self._nodes = nodes
        self._log = log
        self._number = 0
        self.told: dict[str, ToldBinding] = {}
        self.subscribers: list[Subscriber] = []

    # -- who is told ---------------------------------------------------------------------------------------------------

    def subscribe(self, node_id: str, wish: SubscriberWish, more: Callable[[], None]) -> Subscriber:
        """A neighbour wants to know; it may take from now on."""
        subscriber = Subscriber(self, node_id, wish, more)
        LOOK.has_touched = True
        self.subscribers.append(subscriber)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """A node does not follow any more, and gets no further notices."""
        LOOK.has_touched = True
        if subscriber in self.subscribers:
            self.subscribers.remove(subscriber)

    def head(self) -> Iterator[bytes]:
        """What comes before all bindings."""
        return iter([*map(encode, self._nodes()), encode(Reset())])

    def restarted(self, subscriber: Subscriber) -> None:
        """A subscriber fell behind too far and is told everything anew: have that logged."""
        fields: dict[str, str | int] = {"node_id": subscriber.node_id, "restarts": subscriber.restarts_total}
        self._log(Notice(Level.WARNING, "cluster-subscriber-behind", fields))

    # -- what there is -------------------------------------------------------------------------------------------------

    def member_changed(self, notice: Member | MemberGone) -> None:
        """What is known of a node has changed."""
        text = encode(notice)
        for subscriber in list(self.subscribers):
            subscriber.change(text)

    def tell(self, notice: GroupClusterNotice, came_from: str = "") -> None:
        """Of a group: straight to the neighbour that it is for, else to all who hear of what is so far away."""
        text = encode(notice)
        if len(text) > NOTICE_BYTES_MAX:
            return  # it is refused by the sender's time running out, as where nobody answers
        direct = [each for each in self.subscribers if each.node_id == notice.to]
        around = [each for each in self.subscribers if notice.distance < each.wish.max_hops]
        for subscriber in direct or around:
            if subscriber.node_id not in (notice.node_id, came_from):
                subscriber.change(text)

    def queue_added(self, queue: str, address: str, routing: str, selector: str, **traits: Any) -> None:
        """This node has a queue, without consumers yet, or has it on other terms, with those that it had. `traits`:
        `volatile`, `exclusive` and `moved_from` of BindingAdded."""
        added = BindingAdded(queue, address, routing, selector, self._node_id, 0, **traits)
        known = self.told.get(added.cluster_name)
        self._add(added, "", {} if known is None else dict(known.consumers))

    def queue_removed(self, queue: str) -> None:
        """This node has the queue no more: it is deleted."""
        self._remove(cluster_name_of(queue, self._node_id), is_deleted=True)

    def consumer_joined(self, queue: str, selector: str) -> None:
        """A consumer gets messages of it."""
        self._consumers(cluster_name_of(queue, self._node_id), {selector: 1})

    def consumer_left(self, queue: str, selector: str) -> None:
        """One consumer with this selector less at a queue of this node."""
        self._consumers(cluster_name_of(queue, self._node_id), {selector: -1})

    def remote_added(self, binding: RemoteBinding) -> None:
        """A neighbour leads to a queue."""
        added = BindingAdded(
            binding.queue, binding.address, binding.routing, binding.selector, binding.node_id, binding.distance,
            binding.is_volatile, binding.is_exclusive, binding.moved_from,
        )  # fmt: skip
        self._add(added, binding.target, counts_of(binding))

    def remote_removed(self, binding: RemoteBinding) -> None:
        """The binding of another node is no more; `is_deleted` of it: its owner said so."""
        self._remove(binding.cluster_name, is_deleted=binding.is_deleted)

    def remote_changed(self, binding: RemoteBinding) -> None:
        """The queue has other consumers."""
        told = self.told.get(binding.cluster_name)
        if told is None:
            return
        now = counts_of(binding)
        LOOK.has_touched = True
        if not any(subscriber.wants(told) for subscriber in self.subscribers):
            told.consumers = now
            return
        names = {**told.consumers, **now}
        differences = {name: now.get(name, 0) - told.consumers.get(name, 0) for name in names}
        self._consumers(binding.cluster_name, differences)

    def _add(self, added: BindingAdded, via: str, consumers: Counts) -> None:
        if is_internal(added.queue) or is_internal(added.address):
            return
        text = encode(added)
        if len(text) > NOTICE_BYTES_MAX:
            why = f"its names and selector make {len(text)} bytes; {NOTICE_BYTES_MAX} can be told to other nodes"
            fields: dict[str, str | int] = {"queue": added.queue[:100], "why": why}
            self._log(Notice(Level.WARNING, "cluster-queue-not-told", fields))
            return
        LOOK.has_touched = True
        before = self.told.pop(added.cluster_name, None)
        self._number += 1
        told = self.told[added.cluster_name] = ToldBinding(self._number, added, via, {})
        if before is not None:
            self._withdraw(before, told)
        self._spread(told, text, 1)
        self._consumers(added.cluster_name, consumers)

    def _withdraw(self, before: ToldBinding, told: ToldBinding) -> None:
        """A binding takes the place of one that was told. Who is told of it needs no word that the other is gone: there
        would be none between the two notices, and what is sent then would go nowhere."""
        text = encode(BindingRemoved(told.added.cluster_name))
        LOOK.has_touched = True
        for subscriber in list(self.subscribers):
            if subscriber.wants(before) and not subscriber.wants(told):
                subscriber.change(text, before.number)

    def _remove(self, name: str, *, is_deleted: bool = False) -> None:
        LOOK.has_touched = True
        told = self.told.pop(name, None)
        if told is not None:
            self._spread(told, encode(BindingRemoved(name, is_deleted)), 1)

    def _consumers(self, name: str, differences: Counts) -> None:
        """By selector, how many have come, or (below zero) gone."""
        told = self.told.get(name)
        if told is None:
            return
        LOOK.has_touched = True
        for selector, difference in differences.items():
            count = told.consumers.get(selector, 0)
            notice = ConsumerCreated(name, selector) if difference > 0 else ConsumerClosed(name, selector)
            text = encode(notice)
            if not difference or count + difference < 0 or len(text) > NOTICE_BYTES_MAX:
                continue
            told.consumers[selector] = count + difference
            if not told.consumers[selector]:
                del told.consumers[selector]
            self._spread(told, text, abs(difference))

    def _spread(self, told: ToldBinding, text: bytes, count: int) -> None:
        for subscriber in list(self.subscribers):
            if subscriber.wants(told):
                for _ in range(count):
                    subscriber.change(text, told.number)


def _texts(told: ToldBinding) -> Iterator[bytes]:
    """A binding and its consumers, as they are now."""
    rows: list[tuple[ClusterNotice, int]] = [(told.added, 1)]
    rows += [(ConsumerCreated(told.added.cluster_name, name), count) for name, count in told.consumers.items()]
    return chain.from_iterable(repeat(encode(notice), count) for notice, count in rows)
