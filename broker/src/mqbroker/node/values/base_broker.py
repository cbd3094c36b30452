"""What every room of a node may ask of it: the lowest layer of `Broker`.

A node is one object, made of layers, each in the room whose needs it declares: typed by things of that room or of those
below, and with an abstract method for what is decided above. So nobody needs to know a layer above its own. They are
classes of one line of inheritance, and no protocols, as these compile to plain reads and calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from mqbroker import __version__
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level, Notice
from mqbroker.core.address.permissions import Permissions
from mqbroker.journal.plan import Journal
from mqbroker.node.values.activity import Activity
from mqbroker.node.values.completions import Completions
from mqbroker.node.values.counters import Counters
from mqbroker.node.values.effects import AdminReply, Effect
from mqbroker.node.values.event_ring import EventRing
from mqbroker.node.values.login_delays import LoginDelays
from mqbroker.node.values.timers import Timers
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.base.time import At
    from mqbroker.config.slices import BrokerOptions
    from mqbroker.core.store.store import Store
    from mqbroker.journal.recovered import Recovered
    from mqbroker.node.values.accounts import Accounts


class BaseBroker(ABC):
    """See the module's docstring."""

    store: Store
    accounts: Accounts  # who may log in now

    def __init__(self, options: BrokerOptions, recovered: Recovered, ids: tuple[str, str, bytes], at: At) -> None:
        """`ids`: the node's, its process's, and bytes that nobody else knows."""
        self.options = options
        self.node_id, self.boot_id, self.node_secret = ids
        self.container_id = self.node_id
        self.open_properties: dict[Symbol, Any] = {
            Symbol("product"): "mqbroker", Symbol("version"): __version__, Symbol("node-id"): self.node_id,
        }  # fmt: skip
        self.at = self.started_at = at
        self.epoch, self.term = recovered.boot + 1, recovered.term  # the first grows with each start
        self.timers, self.completions, self.counters = Timers(), Completions(), Counters()
        self.effects: list[Effect] = []
        self.journal = Journal(options.journal, recovered)
        self.permissions = Permissions(options.security_settings)
        self.login_delays = LoginDelays()
        self.temporary: dict[str, int] = {}  # temporary queues and addresses: the connections that made them
        self.activity, self.event_ring = Activity(), EventRing()
        self.is_disk_full = False
        self._notices: list[Notice] = []

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether the node begins anything new; else it is on its way to its end."""

    def notice(self, level: Level, event: str, **fields: str | int) -> None:
        """Have an event logged, with these fields, and kept in the event ring."""
        notice = Notice(level, event, fields)
        self._notices.append(notice)
        self.event_ring.add(notice, self.at.wall_ms)

    def _audit(self, request_id: int, outcome: str) -> None:
        fields = self.event_ring.outcome(request_id, outcome)
        if fields is not None:
            self.notice(Level.INFO, "admin", **fields)

    def reply(self, request_id: int, result: Any) -> None:
        """Answer the request of an administrator with a result."""
        self._audit(request_id, "done")
        LOOK.has_touched = True
        self.effects.append(AdminReply(request_id, result))

    def reply_error(self, request_id: int, condition: str, description: str) -> None:
        """Refuse the request of an administrator, with a condition and why."""
        self._audit(request_id, condition)
        LOOK.has_touched = True
        self.effects.append(AdminReply(request_id, error={"condition": condition, "description": description}))
