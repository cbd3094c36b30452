"""Values of Python's own that AMQP has under other names: `uuid.UUID` and `datetime` as AMQP's uuid and timestamp.

Only the types are used here: no id is made, and no clock is read.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from mqbroker.client.errors import MessageFault
from mqbroker.wire import codes
from mqbroker.wire.types import Described, Timestamp, Uuid

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MILLISECOND: Final = timedelta(milliseconds=1)


def amqp_value(value: Any, depth: int = 0) -> Any:
    """The same value in AMQP's types, also inside lists, maps and described values.

    A timestamp has milliseconds: what is finer is cut off. Raises MessageFault for a time without its zone.
    """
    if isinstance(value, UUID):
        return Uuid(value.bytes)
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            why = f"the time {value.isoformat()} has no time zone, so nobody can say when that is"
            raise MessageFault(f"{why}: make it with tzinfo, as in datetime.now(UTC)")
        return Timestamp((value - EPOCH) // MILLISECOND)
    if depth >= codes.DEPTH_MAX:
        return value  # whoever encodes it says so
    if isinstance(value, list | tuple):
        return [amqp_value(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {amqp_value(key, depth + 1): amqp_value(held, depth + 1) for key, held in value.items()}
    if isinstance(value, Described):
        return Described(value.descriptor, amqp_value(value.value, depth + 1))
    return value
