"""Queues of nodes that leave everything to this one, and for which clients wait here until they have come.

Who subscribes, or alone consumes, before that would not have what is on its way. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.base.time import NS_PER_S
from mqbroker.core.address.address import MULTICAST
from mqbroker.core.cluster.parting_times import BEGINS_NS
from mqbroker.core.cluster.remote_binding import RemoteBinding, cluster_name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mqbroker.core.address.address_store import AddressStore

LOCKED: Final = "amqp:resource-locked"
# After so long without a message of an exclusive queue its consumers are let in, whatever its node says of it: one may
# be stuck there, which is too large here for example, or it is known here as what it was. It counts from when the queue
# began to come. Before that its clients may stay there for a while, and take of it what they had begun.
STILL_NS: Final = 5 * NS_PER_S


class AwaitedQueues:
    """See the module's docstring. `stirred_ns`: by names in the cluster, when something of those came last, or they
    began to come."""

    def __init__(
        self,
        node_id: str,
        store: AddressStore,
        find: Callable[[str], RemoteBinding | None],
        is_heard: Callable[[str], bool],
    ) -> None:
        """`find`: a queue of another node by its name in the cluster. `is_heard`: whether a node's messages come."""
        self._node_id: Final = node_id
        self._store = store
        self._find: Final = find
        self._is_heard: Final = is_heard
        self.leaving: dict[str, str] = {}  # by node: the one that gets all that it has; itself: it is cordoned
        self._leaving_since_ns: dict[str, int] = {}
        self._wholly_here: dict[str, None] = {}  # those of which all is here, by their names in the cluster
        self.stirred_ns: dict[str, int] = {}

    def leaves_to(self, node_id: str, heir: str) -> None:
        """A node leaves everything to that one, or (empty) stays, or is gone."""
        LOOK.has_touched = True
        if heir:
            if self.leaving.get(node_id) != heir:
                self._forget_stirred(node_id)
                self._leaving_since_ns[node_id] = self._store.at.monotonic_ns
            self.leaving[node_id] = heir
        elif self.leaving.pop(node_id, ""):
            self._wholly_here = {name: None for name in self._wholly_here if not name.endswith(node_id)}
            self._forget_stirred(node_id)
            del self._leaving_since_ns[node_id]

    def _forget_stirred(self, node_id: str) -> None:
        LOOK.has_touched = True
        self.stirred_ns = {name: ns for name, ns in self.stirred_ns.items() if not name.endswith(node_id)}

    def deleted(self, name: str) -> None:
        """A queue is there no more."""
        LOOK.has_touched = True
        self.stirred_ns.pop(name, None)

    def moves_here(self, name: str, node_id: str, *, has_come: bool) -> None:
        """A queue of that node drains to its namesake here, `name` in the cluster; `has_come`: all of it is here."""
        there = cluster_name_of(name.removesuffix(self._node_id), node_id)
        LOOK.has_touched = True
        if has_come:
            self._wholly_here[there] = None
        else:
            self._wholly_here.pop(there, None)

    def begins(self, name: str, node_id: str) -> None:
        """That node's queue has a link by which it drains to its namesake here, `name` in the cluster: its first one
        counts, as one that is stuck asks for another again and again."""
        there = cluster_name_of(name.removesuffix(self._node_id), node_id)
        if there not in self.stirred_ns:
            self.stirs(name, node_id)

    def stirs(self, name: str, node_id: str) -> None:
        """Something of that node's queue came, which drains to its namesake here, `name` in the cluster."""
        there = cluster_name_of(name.removesuffix(self._node_id), node_id)
        LOOK.has_touched = True
        if node_id in self.leaving and self._find(there) is not None:
            self.stirred_ns[there] = self._store.at.monotonic_ns

    def check_has_come(self, name: str) -> None:
        """Raises Refused where a durable subscription of this name is another node's that leaves everything to this
        one, and that is linked and has not handed it over: who subscribed here now would not have what waits there."""
        for binding in self._awaited(name):
            if binding.routing == MULTICAST:
                raise _not_here_yet("subscription", binding)

    def check_may_consume(self, names: Iterable[str]) -> None:
        """Raises Refused where the same holds of an exclusive queue of one of these names, as long as something of it
        comes: nobody takes messages meanwhile, so that one consumer has them all, behind what was sent here before."""
        for name in names:
            here = self._store.queues.get(name)
            if here is None or here.kind.exclusive:
                for binding in self._awaited(name):
                    if binding.is_exclusive and self._may_come(binding):
                        raise _not_here_yet("exclusive queue", binding)

    def _awaited(self, name: str) -> Iterator[RemoteBinding]:
        """Queues of this name of nodes that leave to this one, which are linked and have not handed them over."""
        for node_id, heir in self.leaving.items():
            binding = self._find(cluster_name_of(name, node_id))
            if heir != self._node_id or binding is None or binding.is_volatile:  # such a one never drains
                continue
            is_linked = binding.is_connected or self._is_heard(node_id)
            if is_linked and binding.cluster_name not in self._wholly_here:
                yield binding

    def _may_come(self, binding: RemoteBinding) -> bool:
        """Whether something of a queue came a short while ago, or its node may not have begun to send it, and more may
        come. Where the address takes nothing more, only a consumer makes room."""
        meter = self._store.addresses[binding.address].meter
        begins_ns = self._leaving_since_ns[binding.node_id] + BEGINS_NS
        since_ns = self.stirred_ns.get(binding.cluster_name, begins_ns)
        is_still = self._store.at.monotonic_ns - since_ns >= STILL_NS
        return not is_still and not (meter is not None and meter.is_blocking)


def _not_here_yet(what: str, binding: RemoteBinding) -> Refused:
    why = f"{what} {binding.queue!r} is not here yet: node {binding.node_id} hands it over; try again"
    return Refused(LOCKED, why)
