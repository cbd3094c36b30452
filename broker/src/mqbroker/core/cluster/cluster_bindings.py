"""Which of the bindings of an address get a message, where other nodes have some of them.

Bindings of one queue name, here and elsewhere, are one queue of the cluster: it gets one copy, shared out among its
bindings by one cursor. Who may have it is decided by `message-load-balancing`. A run is shared out in stretches: n
messages to k bindings are at most k parts, so that runs stay runs; messages that come one by one take turns.
Source: docs/adr/0012-cluster-connections.md; Artemis's manual, "Clusters", "Server-side message load balancing".
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from mqbroker.base.look import LOOK
from mqbroker.core.address.address import ANYCAST, MULTICAST, UNKNOWN, Address, Origin, RoutedPart, parts_by
from mqbroker.core.address.bindings_elsewhere import BindingsElsewhere
from mqbroker.core.cluster.remote_binding import RemoteBinding
from mqbroker.core.queue.message_view import MessageView, view_at
from mqbroker.core.queue.queue import Queue
from mqbroker.wire.run import Run

if TYPE_CHECKING:
    from mqbroker.core.cluster.forwarding import Forwarding

OFF, STRICT, ON_DEMAND, OFF_WITH_REDISTRIBUTION = "OFF", "STRICT", "ON_DEMAND", "OFF_WITH_REDISTRIBUTION"
REDISTRIBUTING: Final = (ON_DEMAND, OFF_WITH_REDISTRIBUTION)


class Remote(NamedTuple):
    """A binding of another node, and the cluster connection over which it is reached."""

    binding: RemoteBinding
    via: Forwarding


ClusterQueueMember = Queue | Remote
M = TypeVar("M")


class ClusterQueue:
    """One queue of the cluster: all bindings of a name at an address."""

    __slots__ = ("cursor", "name", "remotes", "routing")

    def __init__(self, routing: str, name: str) -> None:
        self.routing = routing
        self.name = name
        self.remotes: list[Remote] = []
        self.cursor = 0

    def shares(self, queue: Queue | None, count: int, view: MessageView | None) -> list[tuple[int, ClusterQueueMember]]:
        """Who gets how many of `count` equal messages, the first ones first. `view`: one of them, if it is looked at.

        Nobody gets them where the filters of all bindings reject them.
        """
        members = self.members(queue, view)
        if len(members) > 1:
            willing = [each for each in members if self._is_willing(each, view)]
            members = willing or members[:1]
        if len(members) <= 1:
            return [(count, each) for each in members]
        return _shared_out(count, self._turn(members, count))

    def open_to(self, moved_from: str) -> ClusterQueue:
        """It, for messages that are moved from this address, or (empty) are not: without the bindings that take only
        what is moved from another one, where it has such."""
        open_ones = [each for each in self.remotes if each.binding.moved_from in ("", moved_from)]
        if len(open_ones) == len(self.remotes):
            return self
        LOOK.has_touched = True
        group = ClusterQueue(self.routing, self.name)
        group.remotes = open_ones
        return group

    def is_wanted(self, view: MessageView | None) -> bool:
        """Whether a consumer elsewhere would take a message that lies here; `view` None: one or another."""
        return bool(self._wanting(view))

    def elsewhere(self, count: int, view: MessageView | None) -> list[tuple[int, Remote]]:
        """As `shares`, among those who want what lies here. There must be one."""
        return _shared_out(count, self._turn(self._wanting(view), count))

    def _wanting(self, view: MessageView | None) -> list[Remote]:
        return [
            each
            for each in self.remotes
            if each.via.mode in REDISTRIBUTING
            and each.binding.is_connected
            and each.binding.consumers_count
            and not each.binding.heir
            and (view is None or (passes(each.binding, view) and accepts(each.binding, view)))
        ]

    def _turn(self, members: list[M], count: int) -> list[M]:
        """Members, the one whose turn it is first; the next ones have theirs after `count` messages."""
        first = self.cursor % len(members)
        LOOK.has_touched = True
        self.cursor = first + count
        return members[first:] + members[:first]

    def members(self, queue: Queue | None, view: MessageView | None) -> list[ClusterQueueMember]:
        """Who may have it at all: the queue that is here, then those that can be reached and
        stay, then the others."""
        local: list[ClusterQueueMember] = [queue] if queue is not None and passes(queue, view) else []
        open_to = [each for each in self.remotes if self._is_open(each) and passes(each.binding, view)]
        return [*local, *sorted(open_to, key=lambda each: (not each.binding.is_connected, bool(each.binding.heir)))]

    def _is_open(self, remote: Remote) -> bool:
        """Whether messages go there that are sent here."""
        return remote.via.mode in (STRICT, ON_DEMAND) or self.routing != ANYCAST

    @property
    def is_open(self) -> bool:
        """Whether messages that are sent here go elsewhere at all."""
        return any(map(self._is_open, self.remotes))

    @property
    def takes_each(self) -> bool:
        """Whether they go where no filter asks what they say."""
        return any(self._is_open(each) and each.binding.filter is None for each in self.remotes)

    def _is_willing(self, member: ClusterQueueMember, view: MessageView | None) -> bool:
        """Whether a consumer is there that would take it, or none is asked for."""
        if isinstance(member, Queue):
            return self.is_strict or takes(member, view)
        binding, via = member
        if binding.heir:
            return False  # what came there would come here or elsewhere from there
        return binding.is_connected and (via.mode == STRICT or accepts(binding, view))

    @property
    def is_strict(self) -> bool:
        """Whether consumers do not matter."""
        return any(each.via.mode == STRICT for each in self.remotes)


ClusterQueues = dict[tuple[str, str], ClusterQueue]  # by their routing types and names


class ClusterBindings(BindingsElsewhere):
    """The bindings that other nodes have for one address.

    There may be thousands that each take what is moved from one address alone, and none of the others is gone through
    for a message that is moved, or is not.
    """

    __slots__ = ("_copied", "_groups", "_is_alone", "_is_choosy", "_of_origin", "_plain")

    def __init__(self, groups: Iterable[ClusterQueue] = (), *, is_alone: bool = False) -> None:
        """`is_alone`: they are of one queue, and what comes is for that, whatever it takes of what comes to its
        address."""
        self._is_alone = is_alone
        self._groups: ClusterQueues = {(each.routing, each.name): each for each in groups}
        self._is_choosy: bool | None = None  # not known since bindings or consumers have changed
        # Not known since bindings have changed: those that are open to what senders send,
        self._plain: ClusterQueues | None = None
        self._of_origin: dict[str, ClusterQueues] = {}  # by address, those that also or only take what is moved from it
        self._copied: set[str] | None = None  # and the names of those that get copies of what senders send

    def __bool__(self) -> bool:
        return bool(self._groups)

    def of(self, routing: str) -> ClusterBindings | None:
        """Those of this routing type alone, if there are any."""
        groups = [group for group in self._groups.values() if group.routing == routing]
        return ClusterBindings(groups) if groups else None

    def has(self, routing: str) -> bool:
        """Whether there is a binding of this routing type."""
        return any(each == routing for each, _ in self._groups)

    def takes(self, routing: str) -> bool:
        """Whether what is sent at this node goes to one of this routing type, as far as nobody nearer has it."""
        return any(group.routing == routing and group.is_open for group in self._open_to_senders().values())

    def takes_each(self, routing: str) -> bool:
        """Whether one of them does that has no filter, so that every message gets there."""
        return any(group.routing == routing and group.takes_each for group in self._open_to_senders().values())

    def reaches(self, view: MessageView, only: str) -> bool:
        """Whether one of them gets this message if nobody here does; `only` one of this routing type, empty: of any."""
        groups = (group for group in self._open_to_senders().values() if not only or group.routing == only)
        return any(group.members(None, view) for group in groups)

    def group_of(self, queue: Queue) -> ClusterQueue | None:
        """The bindings elsewhere that may have what is in a queue that is here."""
        key, plain = (queue.kind.routing, queue.kind.name), self._open_to_senders()
        return self._of_origin.get(queue.kind.moved_from, plain).get(key) or plain.get(key)

    def group(self, routing: str, name: str) -> ClusterQueue | None:
        """The bindings elsewhere of a queue of the cluster."""
        return self._groups.get((routing, name))

    @property
    def remotes(self) -> Iterable[Remote]:
        """The bindings of other nodes at this address, of all groups."""
        return (each for group in self._groups.values() for each in group.remotes)

    def keeps_apart(self, origin: str) -> bool:
        """Whether there is one that takes only what is moved from this address."""
        self._open_to_senders()
        return origin in self._of_origin

    def origin_of(self, name: str) -> str:
        """The one address from which all queues of this name take what is moved; empty: there is no such."""
        groups = (self.group(routing, name) for routing in (ANYCAST, MULTICAST))
        origins = {each.binding.moved_from for group in groups if group is not None for each in group.remotes}
        return origins.pop() if len(origins) == 1 else ""

    def add(self, remote: Remote) -> None:
        """A binding is known from now on."""
        key = remote.binding.routing, remote.binding.queue
        LOOK.has_touched = True
        if key not in self._groups:
            self._groups[key] = ClusterQueue(*key)
        group = self._groups[key]
        group.remotes.append(remote)
        group.remotes.sort(key=lambda each: each.binding.cluster_name)
        self._look_at_origins()
        self.look()

    def remove(self, binding: RemoteBinding) -> None:
        """A binding was deleted, or is not known from now on."""
        key = binding.routing, binding.queue
        group = self._groups[key]
        LOOK.has_touched = True
        group.remotes = [each for each in group.remotes if each.binding is not binding]
        if not group.remotes:
            del self._groups[key]
        self._look_at_origins()
        self.look()

    def look(self) -> None:
        """Filters or consumers of a binding are other ones."""
        LOOK.has_touched = True
        self._is_choosy = None

    def _look_at_origins(self) -> None:
        """There are other bindings."""
        LOOK.has_touched = True
        self._plain = self._copied = None

    def copied_beyond(self, queues: list[Queue]) -> int:
        """How many queues of the cluster get a copy each of what is sent here, but for these, which are here."""
        LOOK.has_touched = True
        if self._copied is None:
            self._copied = {group.name for group in self._open_to_senders().values() if group.routing != ANYCAST}
        copied = self._copied
        return len(copied) - sum(each.kind.name in copied for each in queues if not each.kind.moved_from)

    def _open_to(self, moved_from: str) -> ClusterQueues:
        """The groups for messages that are moved from this address, or (empty) are not."""
        plain = self._open_to_senders()
        of_origin = self._of_origin.get(moved_from)
        return plain if of_origin is None else plain | of_origin

    def _open_to_senders(self) -> ClusterQueues:
        """The groups for messages that nobody moves. Those for what is moved are looked for too."""
        LOOK.has_touched = True
        if self._plain is None:
            plain: ClusterQueues = {}
            self._of_origin = {}
            for key, group in self._groups.items():
                if self._is_alone:
                    plain[key] = group
                    continue
                for origin in dict.fromkeys(each.binding.moved_from for each in group.remotes):
                    groups = self._of_origin.setdefault(origin, {}) if origin else plain
                    groups[key] = group.open_to(origin)
            self._plain = plain
        return self._plain

    @property
    def is_choosy(self) -> bool:
        """Whether a filter or a selector of theirs has to see each message."""
        LOOK.has_touched = True
        if self._is_choosy is None:
            self._is_choosy = any(is_choosy(each.binding) for each in self.remotes)
        return self._is_choosy

    # -- routing -------------------------------------------------------------------------------------------------------

    def route(self, address: Address, run: Run, origin: Origin, only: str) -> list[RoutedPart]:
        """As `Address.route`, which asks for this."""
        pairs = self.pairs(address.open_to(origin, only), origin, only)
        if not self._splits(pairs):
            parts = [_spread(group.shares(queue, run.count, None)) for group, queue in pairs]
            return [(begin, count, queues_of(address, members)) for begin, count, members in _joined(parts, run.count)]

        def queues_for(index: int) -> list[Queue]:
            view = view_at(run, index, address.name)
            return queues_of(address, self._one(address, pairs, view))

        return parts_by(run.count, queues_for)

    def looks_at_each(self, queues: list[Queue]) -> bool:
        """Whether messages go one by one where these queues are here."""
        return self._splits(self.pairs(queues, UNKNOWN, ""))

    def _splits(self, pairs: list[tuple[ClusterQueue, Queue | None]]) -> bool:
        shared_count = sum(group.routing == ANYCAST for group, _ in pairs)
        return self.is_choosy or shared_count > 1 or any(_is_choosy(queue) for _, queue in pairs)

    def pairs(self, open_to: list[Queue], origin: Origin, only: str) -> list[tuple[ClusterQueue, Queue | None]]:
        """Each queue of the cluster that may have messages of this origin with the queue of its name that is here.

        `open_to`: those that are here and may have them.
        """
        groups = self._open_to(origin.moved_from)
        pairs: list[tuple[ClusterQueue, Queue | None]] = []
        known: dict[tuple[str, str], None] = {}
        LOOK.has_touched = True
        for queue in open_to:
            key = queue.kind.routing, queue.kind.name
            known[key] = None
            pairs.append((groups.get(key) or ClusterQueue(*key), queue))
        pairs += [(group, None) for key, group in groups.items() if key not in known]
        return [pair for pair in pairs if not only or pair[0].routing == only]

    @staticmethod
    def _one(
        address: Address, pairs: list[tuple[ClusterQueue, Queue | None]], view: MessageView
    ) -> list[ClusterQueueMember]:
        """Who gets one message: one of the shared queues, and each of the others."""
        shared = [pair for pair in pairs if pair[0].routing == ANYCAST]
        members: list[ClusterQueueMember] = []
        LOOK.has_touched = True
        for place in range(len(shared)):
            group, queue = shared[(address.cursor + place) % len(shared)]
            members = [member for _, member in group.shares(queue, 1, view)]
            if members:
                address.cursor += place + 1
                break
        for group, queue in pairs:
            if group.routing != ANYCAST:
                members += [member for _, member in group.shares(queue, 1, view)]
        return members


def alone_elsewhere(address: Address, queue: str, routing: str = "") -> Address | None:
    """For what is for one queue of an address that other nodes alone have: an address that leads there alone.

    `routing`: what that queue is, where somebody says so. None: no other node has it, or gets anything that is sent
    here.
    """
    bindings, either = bindings_at(address), (routing,) if routing else (ANYCAST, MULTICAST)
    groups = [bindings.group(each, queue) for each in either] if bindings is not None else []
    open_ones = [group for group in groups if group is not None and group.is_open]
    if not open_ones:
        return None
    alone = address.alone(queue)
    LOOK.has_touched = True
    alone.target = address.name  # groups of it are kept together (grouping.py), as of whoever sends there
    alone.cluster_bindings = ClusterBindings(open_ones[:1], is_alone=True)
    return alone


def bindings_at(address: Address) -> ClusterBindings | None:
    """Those of an address, which itself needs to know less of them."""
    bindings = address.cluster_bindings
    assert bindings is None or isinstance(bindings, ClusterBindings)
    return bindings


def _shared_out(count: int, turn: list[M]) -> list[tuple[int, M]]:
    share, rest = divmod(count, len(turn))
    return [(n, each) for place, each in enumerate(turn) if (n := share + (place < rest))]


def takes(queue: Queue, view: MessageView | None) -> bool:
    """Whether a consumer of a queue that is here would take a message; `view` None: one that nobody looks at."""
    for each in queue.consumers:
        if not each.is_browser and (each.filter is None or (view is not None and each.filter.matches(view))):
            return not queue.kind.is_draining  # or it is the way to another node
    return False


def accepts(binding: RemoteBinding, view: MessageView | None) -> bool:
    """Whether another node's binding takes the message; without a view only one that takes all does."""
    return binding.accepts_all or (view is not None and binding.accepts(view))


def is_choosy(binding: RemoteBinding) -> bool:
    """Whether messages have to be looked at to know whether the binding may have them, or its consumers want them."""
    return binding.filter is not None or (not binding.accepts_all and binding.consumers_count > 0)


def _is_choosy(queue: Queue | None) -> bool:
    if queue is None:
        return False
    has_picky = any(each.filter is not None for each in queue.takers)
    return queue.filter is not None or (has_picky and not takes(queue, None))


def passes(binding: Queue | RemoteBinding, view: MessageView | None) -> bool:
    """Whether the filter of a queue, here or elsewhere, lets a message in."""
    return binding.filter is None or view is None or binding.filter.matches(view)


def _spread(shares: list[tuple[int, ClusterQueueMember]]) -> list[tuple[int, int, ClusterQueueMember]]:
    """(begin, end, who) of shares that follow each other."""
    stretches = []
    begin = 0
    for count, member in shares:
        stretches.append((begin, begin + count, member))
        begin += count
    return stretches


def _joined(
    parts: list[list[tuple[int, int, ClusterQueueMember]]], count: int
) -> list[tuple[int, int, list[ClusterQueueMember]]]:
    """What all queues of the cluster get, cut where any of them changes: (begin, count, who)."""
    bounds = sorted({0, count, *(begin for part in parts for begin, _, _ in part)})
    return [
        (low, high - low, [member for part in parts for begin, end, member in part if begin <= low < end])
        for low, high in pairwise(bounds)
    ]


def queues_of(address: Address, members: list[ClusterQueueMember]) -> list[Queue]:
    """The queues that keep a message for these: those here, and store-and-forward queues for the others."""
    queues: list[Queue] = []
    bindings: dict[tuple[str, str, str, str], list[Remote]] = {}
    LOOK.has_touched = True
    for member in members:
        if isinstance(member, Queue):
            queues.append(member)
        else:
            binding = member.binding
            # A neighbour may know some subscriptions beyond it before others, so each waits in a queue of its own.
            alone = binding.cluster_name if binding.distance > 1 and binding.routing != ANYCAST else ""
            bindings.setdefault((member.via.name, binding.target, binding.routing, alone), []).append(member)
    for remotes in bindings.values():
        queues += remotes[0].via.queues_for(address, [each.binding for each in remotes])
    return queues
