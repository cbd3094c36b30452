"""Queues of other nodes as this one routes to them.

Who tells of them is in `cluster`; here is what routing asks: is the queue reached, does its filter let a message in,
and is somebody there who takes it. A selector comes from another node, which may read what we cannot: it then matches
nothing, and `fault` and `consumer_created` say why. How many bindings and selectors a neighbour may tell of is bounded
where they come in (`mqbroker.cluster.remote_table`). Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.queue.message_view import Filter, MessageView
from mqbroker.core.selector.selector import compile_selector


class _Nothing:
    """Stands for a selector that cannot be read."""

    def matches(self, _message: MessageView) -> bool:
        return False


NOTHING: Final[Filter] = _Nothing()


def cluster_name_of(queue: str, node_id: str) -> str:
    """The name that a queue has in the whole cluster."""
    return queue + node_id


@dataclass(slots=True, eq=False)
class RemoteBinding:
    """A queue of another node, bound to an address there.

    `node_id` owns it; `target` is the neighbour that messages for it are sent to, the same node at distance 1.
    `selector` is the queue's own and `filter` what it says, None for all messages.
    """

    queue: str
    address: str
    routing: str
    selector: str
    node_id: str
    target: str
    distance: int
    is_volatile: bool = False  # it does not outlive the process that has it
    is_exclusive: bool = False  # one consumer at a time gets its messages
    moved_from: str = ""  # it takes what was moved to its address from this one, else only what names it
    cluster_name: str = field(init=False)
    filter: Filter | None = field(init=False, default=None)
    fault: str = field(init=False, default="")  # why the queue's own selector cannot be read
    heir: str = field(init=False, default="")  # the node that its owner leaves everything to
    is_connected: bool = field(init=False, default=True)
    is_deleted: bool = field(init=False, default=False)  # as its owner said; else the way there is forgotten
    consumers_count: int = field(init=False, default=0)
    unfiltered_count: int = field(init=False, default=0)
    # By the text of the selector: what it says, and how many consumers have it.
    consumer_filters: dict[str, tuple[Filter, int]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.cluster_name = cluster_name_of(self.queue, self.node_id)
        if self.selector:
            self.filter, self.fault = _read(self.selector)

    @property
    def accepts_all(self) -> bool:
        """Whether it has a consumer without a selector."""
        return self.unfiltered_count > 0

    def consumer_created(self, selector: str) -> str:
        """One more consumer. Returns why its selector cannot be read, empty where it can."""
        LOOK.has_touched = True
        self.consumers_count += 1
        if not selector:
            self.unfiltered_count += 1
            return ""
        wanted, count = self.consumer_filters.get(selector, (None, 0))
        why = ""
        if wanted is None:
            wanted, why = _read(selector)
        self.consumer_filters[selector] = (wanted, count + 1)
        return why

    def consumer_closed(self, selector: str) -> bool:
        """One consumer less. False where none with this selector was there, and then nothing changes."""
        LOOK.has_touched = True
        if not selector:
            if not self.unfiltered_count:
                return False
            self.unfiltered_count -= 1
        else:
            wanted, count = self.consumer_filters.get(selector, (NOTHING, 0))
            if not count:
                return False
            if count == 1:
                del self.consumer_filters[selector]
            else:
                self.consumer_filters[selector] = (wanted, count - 1)
        self.consumers_count -= 1
        return True

    def forget_consumers(self) -> None:
        """The other node tells of its consumers anew."""
        LOOK.has_touched = True
        self.consumers_count = self.unfiltered_count = 0
        self.consumer_filters.clear()

    def accepts(self, view: MessageView) -> bool:
        """Whether at least one consumer there wants the message. The queue's own filter is not asked."""
        if self.unfiltered_count:
            return True
        return any(wanted.matches(view) for wanted, _ in self.consumer_filters.values())


def _read(selector: str) -> tuple[Filter, str]:
    try:
        return compile_selector(selector), ""
    except Refused as refused:
        return NOTHING, refused.description
