"""The events (events.py) that a message makes: it comes, and what we sent of it is settled.

Apart from the others because these are compiled in a native build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mqbroker.base.value import Value

if TYPE_CHECKING:
    from mqbroker.amqp.links import ReceiverLink
    from mqbroker.amqp.session import Session
    from mqbroker.amqp.unsettled import Taken
    from mqbroker.wire.run import Run


class Incoming(Value):
    """Messages arrived on a link. Unless settled they are owed an outcome under ids delivery_id…"""

    __match_args__ = ("link", "run", "delivery_id", "is_settled")
    __slots__ = __match_args__

    def __init__(self, link: ReceiverLink, run: Run, delivery_id: int, is_settled: bool) -> None:
        self.link: Final = link
        self.run: Final = run
        self.delivery_id: Final = delivery_id
        self.is_settled: Final = is_settled


class Settled(Value):
    """The peer gave an outcome to deliveries of ours. `outcome` None: settled without one. `owes_settlement`: the
    receiver waits for our own settlement of first…last (its settle mode is `second`). `has_more`: the same outcome
    of further deliveries follows, as there are very many."""

    __match_args__ = ("session", "taken", "outcome", "owes_settlement", "first", "last", "has_more")
    __slots__ = __match_args__

    def __init__(
        self, session: Session, taken: list[Taken], outcome: Any, owes_settlement: bool, first: int, last: int,
        has_more: bool = False,
    ) -> None:  # fmt: skip
        self.session: Final = session
        self.taken: Final = taken
        self.outcome: Final = outcome
        self.owes_settlement: Final = owes_settlement
        self.first: Final = first
        self.last: Final = last
        self.has_more: Final = has_more
