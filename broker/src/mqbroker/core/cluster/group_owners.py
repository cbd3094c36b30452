"""Pins: which queue of the cluster owns a group. A queue is known by its name and by its name in the cluster.

The node that decides keeps them in the journal, because they cannot be found out again: as ids of duplicate detection
under names that no address has, as what has arrived from other nodes is (arrivals.py). The pin that was used last
comes last. A node that decides no more keeps what it has decided until the one that does has taken it over.
Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mqbroker.base.look import LOOK
from mqbroker.core.address.stored_tables import list_in, text_in
from mqbroker.core.queue.kinds import INTERNAL_PREFIX

if TYPE_CHECKING:
    from mqbroker.core.cluster.cluster_store import ClusterStore
    from mqbroker.journal.recovered import Recovered

GroupKey = tuple[str, str]  # the name of a queue, the id of a group

PREFIX: Final = INTERNAL_PREFIX + "pin."
PINS_MAX: Final = 100_000
NUMBER: Final = 1  # each name holds one id
NOT_TOLD: Final = -1  # the age of what no other node has said


class Pin:
    """`used_ns`: when a message of the group was last routed here, or asked for. `told_ns`: when its owner was last
    told by the node that decides, in the `age` of the link to it."""

    __slots__ = ("age", "owner", "told_ns", "used_ns")

    def __init__(self, owner: str, now_ns: int, age: int) -> None:
        self.owner = owner
        self.used_ns = self.told_ns = now_ns
        self.age = age


class GroupOwners:
    """All that a node knows. `is_kept`: in the journal. `inherited`: what this node has decided, and the one that does
    by now has not confirmed."""

    def __init__(self, store: ClusterStore, *, is_kept: bool) -> None:
        self._store = store
        self._is_kept = is_kept
        self._pins: OrderedDict[GroupKey, Pin] = OrderedDict()
        self._by_owner: dict[str, dict[GroupKey, None]] = {}
        self.inherited: dict[GroupKey, None] = {}

    def __len__(self) -> int:
        return len(self._pins)

    @property
    def is_full(self) -> bool:
        """Whether the node that decides can decide of no further group."""
        return len(self._pins) >= PINS_MAX

    def get(self, key: GroupKey) -> Pin | None:
        """The pin of a group: who owns it; None: nobody yet."""
        return self._pins.get(key)

    def items(self) -> Iterator[tuple[GroupKey, Pin]]:
        """All, the one that was used last comes last."""
        return iter(self._pins.items())

    def owners(self) -> list[str]:
        """Names in the cluster of all queues that own a group."""
        return list(self._by_owner)

    def of(self, owner: str) -> list[GroupKey]:
        """The groups that the queue of this cluster name owns."""
        return list(self._by_owner.get(owner, ()))

    def use(self, key: GroupKey, pin: Pin) -> None:
        """A message of the group is routed."""
        LOOK.has_touched = True
        pin.used_ns = self._store.at.monotonic_ns
        self._pins.move_to_end(key)

    def put(self, key: GroupKey, owner: str, age: int = 0) -> None:
        """A group has this owner; on disk with this step's append, where pins are kept. The oldest of too many goes,
        but for what this node is to hand over."""
        pin = self._pins.get(key)
        now_ns = self._store.at.monotonic_ns
        LOOK.has_touched = True
        self._confirmed(key)
        if pin is not None and pin.owner == owner:
            pin.told_ns, pin.age = now_ns, age
            self.use(key, pin)
            return
        if pin is not None:
            self.drop(key)
        else:
            self._make_room()
        self._pins[key] = Pin(owner, now_ns, age)
        self._by_owner.setdefault(owner, {})[key] = None
        if self._is_kept:
            self._store.journal.duplicates.add(_name_of(key), NUMBER, owner.encode(), NUMBER)

    def _make_room(self) -> None:
        """For one. What is inherited is beside as many others, since nobody else may know it."""
        LOOK.has_touched = True
        if len(self._pins) - len(self.inherited) >= PINS_MAX:
            while (oldest := next(iter(self._pins))) in self.inherited:
                self._pins.move_to_end(oldest)
            self.drop(oldest)
        elif len(self._pins) >= 2 * PINS_MAX:
            self.drop(next(iter(self._pins)))

    def drop(self, key: GroupKey) -> None:
        """A group has no owner any more."""
        LOOK.has_touched = True
        pin = self._pins.pop(key, None)
        if pin is None:
            return
        self._confirmed(key)
        keys = self._by_owner[pin.owner]
        del keys[key]
        if not keys:
            del self._by_owner[pin.owner]
        if self._is_kept:
            self._store.journal.duplicates.drop(_name_of(key))

    def load(self, recovered: Recovered) -> None:
        """Take over what recovery found. Raises StorageFault."""
        for _, key, owner in pins_in(recovered):
            self._pins[key] = Pin(owner, self._store.at.monotonic_ns, 0)
            self._by_owner.setdefault(owner, {})[key] = None
        if not self._is_kept:
            self.bequeath()

    # -- another node decides ------------------------------------------------------------------------------------------

    def bequeath(self) -> None:
        """This node decides no more: the one that does is to hear of all that it has decided."""
        LOOK.has_touched = True
        for key, pin in self._pins.items():
            pin.age = NOT_TOLD
            self.inherited[key] = None

    def postpone(self, key: GroupKey) -> None:
        """It is to hear of others first."""
        LOOK.has_touched = True
        if key in self.inherited:
            del self.inherited[key]
            self.inherited[key] = None

    def decide(self) -> None:
        """This node decides: nobody has to hear of it."""
        LOOK.has_touched = True
        self.inherited.clear()

    def _confirmed(self, key: GroupKey) -> None:
        """The node that decides has said who owns a group, or it ends."""
        LOOK.has_touched = True
        if key in self.inherited:
            del self.inherited[key]
            if not self._is_kept:
                self._store.journal.duplicates.drop(_name_of(key))


def pins_in(recovered: Recovered) -> Iterator[tuple[str, GroupKey, str]]:
    """What is kept of groups: its name, the group, its owner. Raises StorageFault."""
    for name, stored in recovered.duplicates.items():
        if name.startswith(PREFIX):
            queue, group_id = list_in(f"the name of a group, {name!r}", name.removeprefix(PREFIX), (str, str))
            yield name, (queue, group_id), text_in(f"the owner of group {group_id!r}", stored[-1].duplicate_id)


def _name_of(key: GroupKey) -> str:
    return PREFIX + json.dumps(key, ensure_ascii=False, separators=(",", ":"))
