"""A backup of a node that goes on: its files are held while somebody reads them (docs/adr/0030-backup.md)."""

from __future__ import annotations

from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest

HOLD_MS: int = 3_600_000


def begin(broker: Broker, request: AdminRequest) -> None:
    """`backup-begin`: the files of this position, which stay as they are until backup-end, the end of the session, or
    that time. Of a segment so many bytes count; behind them come zeros."""
    broker.snapshots.ask(request)


def end(broker: Broker, request: AdminRequest) -> None:
    """`backup-end`: all is read. Refused where the files were let go before: what was read counts for nothing."""
    broker.snapshots.end(request)
    broker.reply(request.id, {"held": True})
