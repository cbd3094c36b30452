"""The last notices of a node, and which requests of administrators have to be among them.

A ring of bounded size: each notice has a position that only grows, so a reader goes on behind the last one it saw and
can tell when it was too slow. Texts are cut, because some of them are what peers sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from mqbroker.base.notice import Notice
from mqbroker.node.values.inputs import AdminRequest

KEPT_MAX = 2000
TEXT_SIZE_MAX = 500
# What an audit names of a request; never messages, and nothing that a selector says of their content.
AUDITED_ARGUMENTS = (
    "queue", "name", "address", "connection", "user", "container_id", "node_id", "action", "force", "count_max", "tag",
    "outcome",
)  # fmt: skip


class Happening(NamedTuple):
    """One notice with its place and its wall time in ms."""

    position: int
    time_ms: int
    notice: Notice


class EventRing:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._ring: deque[Happening] = deque(maxlen=KEPT_MAX)
        self._audited: dict[int, dict[str, str | int]] = {}
        self.position = 0

    def add(self, notice: Notice, time_ms: int) -> None:
        """Keep a notice as the newest; where KEPT_MAX are there, the oldest goes."""
        self.position += 1
        fields = {
            name: value[:TEXT_SIZE_MAX] if isinstance(value, str) else value for name, value in notice.fields.items()
        }
        self._ring.append(Happening(self.position, time_ms, Notice(notice.level, notice.event, fields)))

    @property
    def first(self) -> int:
        """The position of the oldest one that is kept; the next one's where there is none."""
        return self._ring[0].position if self._ring else self.position + 1

    def after(self, position: int) -> Iterator[Happening]:
        """The notices behind this position that are kept, oldest first."""
        return (each for each in self._ring if each.position > position)

    # -- audit ---------------------------------------------------------------------------------------------------------

    def expect(self, request: AdminRequest) -> None:
        """The outcome of this request is to be noticed."""
        fields: dict[str, str | int] = {"session": request.session, "operation": request.operation}
        if request.uid is not None:
            fields["uid"] = request.uid
        for name in AUDITED_ARGUMENTS:
            value: Any = request.arguments.get(name)
            if isinstance(value, str | int):
                fields["settled_as" if name == "outcome" else name] = value
        self._audited[request.id] = fields

    def outcome(self, request_id: int, outcome: str) -> dict[str, str | int] | None:
        """The fields of the notice for a request that is answered now, None for one that needs none."""
        fields = self._audited.pop(request_id, None)
        return None if fields is None else fields | {"outcome": outcome}
