"""What the broker tells of others while the connection stands: a link of the machine's own, that nobody else sees.

Only asked of brokers that offer it, and where the settings want topology. Each list counts as if it had come in the
broker's open. A broker that ends the link is not asked again on the same session. Source: docs/CLIENTS.md,
`mq:topology`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from mqbroker.amqp.events import Attached, Incoming
from mqbroker.amqp.links import ReceiverLink
from mqbroker.amqp.redirect import TOPOLOGY
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.client.effects import Told
from mqbroker.client.errors import MessageFault
from mqbroker.client.message import decode_message
from mqbroker.client.stages import Stage
from mqbroker.wire.performatives import SETTLE_SETTLED, Attach, Open, Source, Target

if TYPE_CHECKING:
    from mqbroker.client.machine import Machine

CREDIT: Final = 10
LIST_BYTES_MAX: Final = 64 << 10
LIST_BYTES_SHIFT: Final = 2  # so many bytes of a list, as a power of two, are a unit of amqp/frame_costs.py


class TopologyFeed:
    """See the module's docstring."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._is_offered = False
        self._is_due = False

    def opened(self, opened: Open) -> None:
        """A connection stands, and begins its session."""
        wants = self._machine.settings.use_topology_for_load_balancing
        self._is_offered = self._is_due = wants and TOPOLOGY in (opened.offered_capabilities or ())

    def ended(self) -> None:
        """The session is another one, whose links are still to be made."""
        self._is_due = self._is_offered

    def attach(self) -> None:
        """Ask for it on the present session, once."""
        if not self._is_due:
            return
        self._is_due = False
        attach = Attach(
            name=TOPOLOGY, handle=0, role=True, snd_settle_mode=SETTLE_SETTLED, source=Source(address=TOPOLOGY),
            target=Target(address=TOPOLOGY), max_message_size=LIST_BYTES_MAX,
        )  # fmt: skip
        try:
            self._machine.session.attach_receiver(attach).end = self
        except (PeerFault, Refused):
            return  # no handle is free: the application's links count more

    def attached(self, event: Attached) -> None:
        """The broker answered. A refusal follows as a detach."""
        if event.attach.source is not None and isinstance(event.link, ReceiverLink):
            event.link.grant(CREDIT)

    def incoming(self, event: Incoming) -> None:
        """Lists came; the last one counts."""
        link, run = event.link, event.run
        if not link.is_attached:
            return
        if not event.is_settled:
            link.session.accept(event.delivery_id, run.count)
        payload = bytes(run.payload(run.count - 1))
        link.session.connection.allowance -= len(payload) >> LIST_BYTES_SHIFT
        with suppress(MessageFault):  # what is known stays: it was true a moment ago
            self._learn(decode_message(payload).body)
        link.regrant()

    def _learn(self, told: object) -> None:
        machine = self._machine
        before = set(machine.places.known)
        machine.places.learn(told)
        known = machine.places.known
        if set(known) != before and machine.stage is Stage.UP:
            machine.effects.append(Told(f"brokers are now {', '.join(map(str, known))}", True))
