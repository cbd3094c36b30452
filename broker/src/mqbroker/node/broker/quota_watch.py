"""Who is refused a queue or an address because of a quota (core/address/quotas.py), for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqbroker.base.look import LOOK
from mqbroker.core.address.permissions import Actor
from mqbroker.node.values.repeated_notices import Seldom

if TYPE_CHECKING:
    from mqbroker.node.values.base_broker import BaseBroker


class QuotaWatch:
    """Tells the log who was refused."""

    def __init__(self, broker: BaseBroker) -> None:
        self._refusals = Seldom(broker, "quota-reached", "user")
        quotas = broker.store.quotas
        LOOK.has_touched = True
        quotas.on_refusal = self._refused

    def _refused(self, actor: Actor, why: str) -> None:
        self._refusals.tell(actor.maker, 1, conn=actor.conn, why=why)
