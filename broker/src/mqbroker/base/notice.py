"""What a pure room wants logged. `io/` writes notices with their event name and fields; never bodies or secrets."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Level(enum.IntEnum):
    """Severity with the numbers of syslog, so that journald takes them as they are."""

    ERROR = 3
    WARNING = 4
    INFO = 6
    DEBUG = 7


@dataclass(frozen=True, slots=True)
class Notice:
    """`event` is stable and dash-separated (`login-failed`); `fields` are short values without secrets."""

    level: Level
    event: str
    fields: dict[str, str | int] = field(default_factory=dict)
