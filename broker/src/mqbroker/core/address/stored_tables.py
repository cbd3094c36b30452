"""What the journal says of queues, groups, routes and other nodes, read back at a start.

Its checksum vouches for each byte, not for whoever wrote it: that may have been a later release, or a bug. What this
release cannot read is told as damage is, with what to do, before anything is served of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from mqbroker.base.errors import Refused, StorageFault, Unusable
from mqbroker.core.queue.kinds import QueueKind, check_attributes
from mqbroker.core.selector.selector import compile_selector

if TYPE_CHECKING:
    from mqbroker.journal.recovered import Recovered

REMEDY: Final = "start the release that wrote it"


def unreadable(what: str, why: str) -> StorageFault:
    """The StorageFault that says that a record is not as this release writes it, and why."""
    return Unusable("journal", -1, f"{what} is not as this release writes it: {why}", REMEDY)


def kinds_in(recovered: Recovered) -> Iterator[tuple[int, QueueKind]]:
    """What its queues are, by their ids in the journal. Raises StorageFault."""
    names: dict[str, int] = {}
    for queue_id, attributes in recovered.queues.items():
        kind = _kind_in(queue_id, attributes)
        other = names.setdefault(kind.name, queue_id)
        if other != queue_id:
            raise unreadable(f"queue {queue_id}", f"it has the name of queue {other}, {kind.name!r}")
        yield queue_id, kind


def _kind_in(queue_id: int, attributes: dict[str, Any]) -> QueueKind:
    try:
        check_attributes(attributes)
        kind = QueueKind.of(attributes)
        if kind.selector:
            compile_selector(kind.selector)
    except (ValueError, Refused) as error:
        raise unreadable(f"queue {queue_id}", str(error)) from None
    return kind


def list_in(what: str, text: str | bytes, types: tuple[type, ...]) -> list[Any]:
    """A list in JSON of values of these types. Raises StorageFault."""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(what, f"no JSON, {error}") from None
    if not isinstance(items, list) or tuple(map(type, items)) != types:
        raise unreadable(what, f"no list of {', '.join(each.__name__ for each in types)}")
    return items


def text_in(what: str, data: bytes) -> str:
    """The text of a record that is UTF-8; raises StorageFault where it is not."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise unreadable(what, str(error)) from None
