"""The controller's half of transactions (AMQP 1.0 part 4): what a client attaches and sends to the coordinator."""

from __future__ import annotations

from typing import Any

from mqbroker.amqp.links import SenderLink
from mqbroker.wire.performatives import (
    Attach,
    Coordinator,
    Declare,
    Discharge,
    Source,
    TransactionalState,
    Transfer,
    encode,
)
from mqbroker.wire.run import single
from mqbroker.wire.types import Symbol

from tests.support import frames

VALUE = b"\x00\x53\x77"
NAME = "coordinator"


def coordinator_attach(name: str = NAME, outcomes: tuple[str, ...] | None = None) -> Attach:
    """A link to the coordinator, as clients ask for it."""
    source = Source(outcomes=None if outcomes is None else tuple(map(Symbol, outcomes)))
    target = Coordinator(capabilities=(Symbol("amqp:local-transactions"),))
    return Attach(name=name, handle=0, role=False, snd_settle_mode=0, source=source, target=target,
                  initial_delivery_count=0)  # fmt: skip


def request(number: int, value: Declare | Discharge, handle: int = 0) -> bytes:
    """The frame with which a client asks the coordinator, as its delivery `number`."""
    head = Transfer(handle=handle, delivery_id=number, delivery_tag=bytes([number]), message_format=0, settled=False)
    return frames.frame(head, VALUE + encode(value))


def declare(link: SenderLink, token: Any, global_id: Any = None) -> None:
    """Ask for a transaction."""
    link.session.send_run(link, single(VALUE + encode(Declare(global_id=global_id))), 0, 1, token)


def discharge(link: SenderLink, txn_id: bytes, token: Any, *, fail: bool = False) -> None:
    """Ask for its end."""
    link.session.send_run(link, single(VALUE + encode(Discharge(txn_id=txn_id, fail=fail))), 0, 1, token)


def post(link: SenderLink, payload: bytes, token: Any, txn_id: bytes) -> None:
    """Send a message as part of a transaction."""
    link.session.send_message(link, [payload], token, TransactionalState(txn_id=txn_id))
