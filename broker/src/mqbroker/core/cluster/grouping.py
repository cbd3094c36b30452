"""Groups that are kept together in a whole cluster: all messages of a group go to the queue that its pin names.

Ordinary routing chooses that queue once. The node that decides (the arbiter) pins a group as it routes its first
message; other nodes ask before they do, which is `mqbroker.node.cluster.grouping.grouping`. What cannot wait for an
answer, because the broker itself moves it, goes the ordinary way where no pin is known. A subscription that one node
alone has needs no pin. Source: Artemis's manual, "Clustered Grouping"; docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING
from zlib import crc32

from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.address import ANYCAST, UNKNOWN, Address, Origin, RoutedPart, parts_by
from mqbroker.core.cluster.cluster_bindings import (
    ClusterBindings,
    ClusterQueue,
    ClusterQueueMember,
    bindings_at,
    passes,
    queues_of,
)
from mqbroker.core.cluster.group_owners import GroupKey, GroupOwners
from mqbroker.core.cluster.remote_binding import cluster_name_of
from mqbroker.core.queue.message_view import MessageView, view_at
from mqbroker.core.queue.queue import Queue
from mqbroker.wire.parts import parts_of

if TYPE_CHECKING:
    from mqbroker.core.cluster.cluster_store import ClusterStore
    from mqbroker.wire.run import Run

Pair = tuple[ClusterQueue, Queue | None]


class Grouping:
    """`matches`: addresses that it is for. `is_arbiter` and `is_reached` (whether one is) are set by who knows.

    `age` grows when something that the arbiter said may have been missed; `told_ms_max`: for how long an answer of it
    holds, -1 or 0 for ever.
    """

    def __init__(
        self, store: ClusterStore, node_id: str, matches: Callable[[str], bool], told_ms_max: int, *, is_kept: bool
    ) -> None:
        self._store = store
        self._node_id = node_id
        self._matches = matches
        self._told_ms_max = told_ms_max
        self.owners = GroupOwners(store, is_kept=is_kept)
        self.is_arbiter = is_kept
        self.is_reached = False
        self.age = 0

    def covers(self, address: Address) -> bool:
        """Whether groups at this address are kept together. What is sent to one queue of an address stays there."""
        return address.target == address.name and self._matches(address.name)

    # -- routing -------------------------------------------------------------------------------------------------------

    def route(self, address: Address, run: Run, origin: Origin, only: str) -> list[RoutedPart]:
        """As `Address.route`, but that messages of one group go where the group is."""
        group_id = run.traits.group_id
        if not group_id or not self.covers(address):
            return address.route(run, origin, only)
        pairs = (bindings_at(address) or ClusterBindings()).pairs(address.open_to(origin, only), origin, only)

        def queues_for(index: int) -> list[Queue]:
            view = view_at(run, index, address.name)
            concerned = _concerned(pairs, group_id, view)
            return queues_of(address, [each for pair in concerned for each in self._members(pair, group_id, view)])

        return parts_by(run.count, queues_for)

    def _members(self, pair: Pair, group_id: str, view: MessageView) -> list[ClusterQueueMember]:
        """Who gets a message of the group among the bindings of one name: one of them, or none."""
        group, queue = pair
        key = (group.name, group_id)
        pin = self.owners.get(key) if _needs_pin(pair) else None
        if pin is not None:
            self.owners.use(key, pin)
            owner = self._among(pair, pin.owner)
            if owner is not None and passes(owner if isinstance(owner, Queue) else owner.binding, view):
                return [owner]
        chosen = [member for _, member in group.shares(queue, 1, view)]
        if chosen and pin is None and _needs_pin(pair) and self.is_arbiter and not self.owners.is_full:
            self.owners.put(key, self._name_of(chosen[0]))
        return chosen

    def _among(self, pair: Pair, owner: str) -> ClusterQueueMember | None:
        group, queue = pair
        if queue is not None and self._name_of(queue) == owner:
            return queue
        return next((each for each in group.remotes if each.binding.cluster_name == owner), None)

    def _name_of(self, member: ClusterQueueMember) -> str:
        if isinstance(member, Queue):
            return cluster_name_of(member.kind.name, self._node_id)
        return member.binding.cluster_name

    # -- what has to be asked for --------------------------------------------------------------------------------------

    def wanted(self, address: Address, run: Run) -> dict[GroupKey, str]:
        """Groups of these messages that cannot be routed yet, each with the queue that would be its owner.

        The arbiter decides at once, of as many as it can keep.
        """
        owners: dict[GroupKey, str] = {}
        for part in parts_of(run):
            group_id = part.traits.group_id
            if group_id:
                pairs = (bindings_at(address) or ClusterBindings()).pairs(address.open_to(UNKNOWN), UNKNOWN, "")
                for index in range(part.count):
                    view = view_at(part, index, address.name)
                    for pair in _concerned(pairs, group_id, view):
                        self._want(owners, pair, group_id, view)
        return owners

    def _want(self, owners: dict[GroupKey, str], pair: Pair, group_id: str, view: MessageView) -> None:
        group, queue = pair
        key = (group.name, group_id)
        if key in owners or not _needs_pin(pair) or self.is_settled(key):
            return
        chosen = group.shares(queue, 1, view)
        if chosen and self.is_arbiter and self.owners.get(key) is None and not self.owners.is_full:
            self.owners.put(key, self._name_of(chosen[0][1]))
        elif chosen:
            pin = self.owners.get(key)  # who decides may be another node by now, and know nothing of it
            is_known = pin is not None and self.knows(pin.owner)
            owners[key] = pin.owner if pin is not None and is_known else self._name_of(chosen[0][1])

    def is_settled(self, key: GroupKey) -> bool:
        """Whether messages of the group can be routed now."""
        pin = self.owners.get(key)
        return pin is not None and self.knows(pin.owner) and (self.is_arbiter or self._holds(pin.told_ns, pin.age))

    def _holds(self, told_ns: int, age: int) -> bool:
        """Whether an answer can still be relied on."""
        if 0 < self._told_ms_max * NS_PER_MS <= self._store.at.monotonic_ns - told_ns:
            return False
        return age == self.age or not self.is_reached

    def knows(self, owner: str) -> bool:
        """Whether a queue of that name in the cluster is here, or elsewhere as far as this node knows."""
        return owner in self._store.remotes.by_name or self.is_here(owner)

    def is_here(self, owner: str) -> bool:
        """Whether it is one of this node's own."""
        return self._store.remotes.queue_here(owner, self._node_id) is not None

    def groups_in(self, address: Address, run: Run, keys: set[GroupKey]) -> Iterator[tuple[int, int, bool]]:
        """The run in parts (begin, end, whether one of these groups is concerned)."""
        begin = 0
        for part in parts_of(run):
            end = begin + part.count
            pairs = (bindings_at(address) or ClusterBindings()).pairs(address.open_to(UNKNOWN), UNKNOWN, "")
            yield begin, end, any((group.name, part.traits.group_id) in keys for group, _ in pairs)
            begin = end


def _concerned(pairs: list[Pair], group_id: str, view: MessageView) -> list[Pair]:
    """Bindings by name that get a message of the group: all that give copies, and one of those that share.

    Which one hangs on the group, so that all nodes that know the same names choose the same.
    """
    shared = sorted((pair for pair in pairs if pair[0].routing == ANYCAST), key=lambda pair: pair[0].name)
    copies = [pair for pair in pairs if pair[0].routing != ANYCAST]
    if len(shared) > 1:
        first = crc32(group_id.encode()) % len(shared)
        turn = shared[first:] + shared[:first]
        shared = [pair for pair in turn if pair[0].members(pair[1], view)][:1]
    return shared + copies


def _needs_pin(pair: Pair) -> bool:
    group, queue = pair
    return group.routing == ANYCAST or len(group.remotes) + (queue is not None) > 1
