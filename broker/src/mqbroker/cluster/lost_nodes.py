"""How long other nodes have been away, and when what waits for them is to go elsewhere.

Time counts from the loss of the link, or from our own start for those that were away then already; it ends with the
first link that stands. Nothing is ever due where `on-node-lost` is hold. What is done, once for each absence, is up to
whoever asks: messages are routed anew, or become dead letters.
"""

from __future__ import annotations

from typing import Final

from mqbroker.base.look import LOOK
from mqbroker.base.time import LATE_NS, NS_PER_MS
from mqbroker.config.slices import ClusterConnectionOptions

HOLD: Final = "hold"


class LostNodes:
    """Has a deadline: `next_due_ns`, 0 for none."""

    def __init__(self, options: ClusterConnectionOptions) -> None:
        self.action = options.on_node_lost
        self._grace_ns = options.node_lost_grace * NS_PER_MS
        self._due: dict[str, int] = {}  # by node id; 0: it was acted on
        self._spared: set[str] = set()  # of those: whose grace was lengthened

    @property
    def next_due_ns(self) -> int:
        """When the first grace ends."""
        return min(filter(None, self._due.values()), default=0)

    def lost(self, node_id: str, now_ns: int) -> None:
        """The node is not reached. Also for one that is lost already."""
        LOOK.has_touched = True
        if self.action != HOLD:
            self._due.setdefault(node_id, now_ns + self._grace_ns)

    def back(self, node_id: str) -> None:
        """It is reached, or nothing waits for it any more."""
        LOOK.has_touched = True
        self._due.pop(node_id, None)
        self._spared.discard(node_id)

    def due(self, now_ns: int) -> list[str]:
        """Nodes whose grace has ended now. Where we stood still when it ended nobody was dialled: those have that time
        again, and no more than a grace."""
        LOOK.has_touched = True
        ended = {node_id: now_ns - due_ns for node_id, due_ns in self._due.items() if 0 < due_ns <= now_ns}
        over = [node_id for node_id, late_ns in ended.items() if late_ns < LATE_NS or node_id in self._spared]
        for node_id in ended.keys() - over:
            self._spared.add(node_id)
            self._due[node_id] = now_ns + min(ended[node_id], self._grace_ns)
        self._due.update(dict.fromkeys(over, 0))
        return over
