"""The log and readers of events hear of dead or expired messages that go nowhere (core/address/dead_letters.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.node.values.repeated_notices import Seldom

if TYPE_CHECKING:
    from mqbroker.node.values.base_broker import BaseBroker

REASON_SIZE_MAX = 400  # a consumer may say why it rejected them


class LossWatch:
    """Tells of queues that lose messages, or hold on to those that they are to be rid of."""

    def __init__(self, broker: BaseBroker) -> None:
        self._lost = Seldom(broker, "messages-lost", "queue")
        self._held = Seldom(broker, "messages-held", "queue")
        LOOK.has_touched = True
        broker.store.dead_letters.on_lost = self._are_lost
        broker.store.dead_letters.on_held = self._are_held

    def _are_lost(self, queue: str, count: int, reason: str) -> None:
        self._lost.tell(queue, count, reason=reason[:REASON_SIZE_MAX])

    def _are_held(self, queue: str, count: int, reason: str) -> None:
        self._held.tell(queue, count, reason=reason[:REASON_SIZE_MAX])
