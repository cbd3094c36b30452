"""What the room of addresses may ask of the store.

The store is one object, and each room knows as much of it as it needs: this, what the cluster needs besides
(core/cluster/cluster_store.py), what paging does (core/paging/paging_store.py), and all of it (core/store/store.py).
The room of queues asks nothing: whoever does on behalf of a queue is here. Source: docs/adr/0024-what-rooms-ask.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqbroker.core.address.address import UNKNOWN, Origin
from mqbroker.core.address.quotas import NOBODY, Quotas

if TYPE_CHECKING:
    from mqbroker.base.time import At, Timed
    from mqbroker.config.slices import LimitOptions
    from mqbroker.core.address.address import Address
    from mqbroker.core.address.dead_letters import DeadLetters
    from mqbroker.core.address.decisions import Decisions
    from mqbroker.core.address.diverts import Diverts
    from mqbroker.core.address.message_observer import MessageObserver
    from mqbroker.core.address.permissions import Actor
    from mqbroker.core.address.settings import Settings
    from mqbroker.core.queue.backlog import Segment
    from mqbroker.core.queue.kinds import QueueKind
    from mqbroker.core.queue.memory import Memory
    from mqbroker.core.queue.queue import Queue
    from mqbroker.journal.plan import Journal
    from mqbroker.wire.run import Run


class AddressStore(ABC):
    """See the module's docstring."""

    at: At
    node_id: str
    next_id: int  # of the next message
    limits: LimitOptions
    settings: Settings
    journal: Journal
    decisions: Decisions
    memory: Memory
    quotas: Quotas
    dead_letters: DeadLetters
    diverts: Diverts
    addresses: dict[str, Address]
    queues: dict[str, Queue]
    message_observers: tuple[MessageObserver, ...]
    routed_total: int
    unrouted_total: int
    schedule: Callable[[Timed], None]  # has somebody called when it is due
    ends_itself: Callable[[Queue], bool]  # whether somebody else ends the queue

    # -- who may -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def permit(self, actor: Actor | None, permission: str, address: str, queue: str = "") -> None:
        """Raises Refused where the actor has not this permission at this address, or that of this queue."""

    # -- names ---------------------------------------------------------------------------------------------------------

    @abstractmethod
    def address_for(self, name: str, actor: Actor | None, *, anycast: bool = False) -> Address:
        """The address, made with a queue of its name where the actor may do that. Raises Refused.

        `anycast`: a queue of its name is wanted, whatever the settings say.
        """

    @abstractmethod
    def target_for(self, target: str, actor: Actor | None, wanted: str = "") -> Address:
        """Where messages go that name their target, and what is wanted there (routing_demands.py), themselves. Raises
        Refused."""

    @abstractmethod
    def queue_for(self, name: str, actor: Actor | None) -> Queue:
        """The queue to consume from: by its own name, else the first shared one of that address. Raises Refused."""

    @abstractmethod
    def is_multicast(self, name: str) -> bool:
        """Whether an address gives copies to who reads there, or makes a queue, and does not say what he wants."""

    @abstractmethod
    def is_diverted(self, name: str) -> bool:
        """Whether messages of an address go to others as well, or instead."""

    @abstractmethod
    def find_diverted(self, name: str) -> bool:
        """Whether all messages of an address go to others instead, and get to a queue; it may be made for them."""

    @abstractmethod
    def is_topic_by_rule(self, name: str) -> bool:
        """Whether an address without queues gives copies because a person or the settings say so."""

    # -- what is made and goes -----------------------------------------------------------------------------------------

    @abstractmethod
    def make_address(self, name: str, actor: Actor | None, *, is_temporary: bool = False) -> Address:
        """The address, without a queue where it is new. Raises Refused."""

    @abstractmethod
    def add_address(self, name: str, maker: tuple[str, int] = NOBODY) -> Address:
        """One that is not there, whoever wants it; it counts for its maker."""

    @abstractmethod
    def forget_address(self, name: str) -> None:
        """An address that nobody is bound to any more is not kept."""

    @abstractmethod
    def create_queue(self, kind: QueueKind, actor: Actor | None) -> Queue:
        """Make and bind a queue; on disk with this step's append. Raises Refused."""

    @abstractmethod
    def delete_queue(self, queue: Queue, actor: Actor | None) -> int:
        """Unbind a queue and drop what is in it; says how many messages that is. Raises Refused while it is in use."""

    # -- messages ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def publish(self, address: Address, run: Run, origin: Origin = UNKNOWN, *, is_known: bool = False) -> bool:
        """Take a run in. True: its acceptance must wait for this step's append (`decisions.wait`).

        `is_known`: a person moves it, so that the id that was seen when it came first makes no duplicate of it.
        """

    @abstractmethod
    def take_in(self, address: Address, run: Run, origin: Origin, only: str) -> bool:
        """What diverts leave or bring; `only` queues of this routing type get it. True: as `publish`."""

    @abstractmethod
    def keep(self, address: Address, segment: Segment) -> None:
        """An address keeps these for queues that are made later, though none of its own took them."""

    @abstractmethod
    def name_next(self, run: Run) -> None:
        """A run that nobody sent, or sent before, gets its ids."""

    @abstractmethod
    def discard(self, queue: Queue, segment: Segment, why: str) -> None:
        """Messages that were in delivery leave for good, and no consumer has accepted them; `why` is one of LEFT."""

    @abstractmethod
    def tell_left(self, queue: Queue, first_id: int, count: int, why: str) -> None:
        """Messages have left a queue for good: once of each, by whoever took it out."""

    @abstractmethod
    def tell_returned(self, queue: Queue, segment: Segment) -> None:
        """Messages are in their queue again, and were with a consumer, or were to go elsewhere."""

    # -- queues --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def changed(self, queue: Queue) -> None:
        """Messages of a queue moved: hand out, settle what left by itself, set the clock."""

    @abstractmethod
    def kind_changed(self, queue: Queue, before: QueueKind) -> None:
        """A queue is of another kind than `before`, with the same name and place: who hears of queues hears that."""

    @abstractmethod
    def watch(self, queue: Queue) -> None:
        """Have a queue looked at when the next time that matters to it has come (`Queue.due_ms`)."""

    @abstractmethod
    def look_at_end(self, queue: Queue) -> None:
        """A queue that is to go does so once nobody uses it."""
