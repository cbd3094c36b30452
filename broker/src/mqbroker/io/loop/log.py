"""Notices become lines on stderr: the one place that writes the log.

Owns the shape of a line. Invariant: one notice is one line, whatever its fields hold (control characters are escaped,
so no peer can forge a line), and it never raises into the loop. Source: sd-daemon(3), the `<N>` priority prefixes.
"""

from __future__ import annotations

import enum
import json
import os
import re
import time
from typing import TextIO

from mqbroker.base.notice import Level, Notice
from mqbroker.base.text import safe_json

_BARE = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+\Z")
VALUE_CHARS_MAX = 2000


class LogShape(enum.Enum):
    """How a line of the log looks: for the systemd journal, plain, or JSON."""

    JOURNAL = "journal"
    PLAIN = "plain"
    JSON = "json"


def shape_for(stream: TextIO, environment: dict[str, str]) -> LogShape:
    """JOURNAL when systemd connected this very stream to journald (`JOURNAL_STREAM` names device and inode)."""
    try:
        stat = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return LogShape.PLAIN
    is_journal = environment.get("JOURNAL_STREAM") == f"{stat.st_dev}:{stat.st_ino}"
    return LogShape.JOURNAL if is_journal else LogShape.PLAIN


class Log:
    """Writes notices. `level_max` is the most talkative level that is still written."""

    def __init__(self, stream: TextIO, text_shape: LogShape, level_max: Level = Level.INFO) -> None:
        self._stream = stream
        self._text_shape = text_shape
        self._shape = text_shape
        self._level_max = level_max

    def change(self, log_format: str) -> None:
        """Take option `node.log-format`: json, or text in the shape that fits the stream."""
        self._shape = LogShape.JSON if log_format == "json" else self._text_shape

    def emit(self, notice: Notice) -> None:
        if notice.level > self._level_max:
            return
        try:
            self._stream.write(line_of(notice, self._shape, time.time()))
            self._stream.flush()
        except (OSError, ValueError):
            # A log that nobody can read any more (journald restarts, a closed terminal) must not stop the broker.
            return

    def error(self, event: str, **fields: str | int) -> None:
        self.emit(Notice(Level.ERROR, event, fields))

    def warning(self, event: str, **fields: str | int) -> None:
        self.emit(Notice(Level.WARNING, event, fields))

    def info(self, event: str, **fields: str | int) -> None:
        self.emit(Notice(Level.INFO, event, fields))


def line_of(notice: Notice, shape: LogShape, at_s: float) -> str:
    """One line with its line feed. `at_s` is wall time since 1970; journald has its own, so JOURNAL leaves it out."""
    if shape is LogShape.JSON:
        row = {"time": _time_of(at_s), "level": notice.level.name.lower(), "event": notice.event}
        fields = {f"field_{k}" if k in row else k: v for k, v in notice.fields.items()}
        return safe_json(json.dumps(row | fields)) + "\n"
    text = " ".join([notice.event, *(f"{key}={_value_of(value)}" for key, value in notice.fields.items())])
    if shape is LogShape.JOURNAL:
        return f"<{int(notice.level)}>{text}\n"
    return f"{_time_of(at_s)} {notice.level.name:<7} {text}\n"


def _time_of(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s)) + f".{int(at_s * 1000) % 1000:03d}Z"


def _value_of(value: str | int) -> str:
    if isinstance(value, int):
        return str(value)
    if len(value) > VALUE_CHARS_MAX:
        value = value[:VALUE_CHARS_MAX] + "…"
    # ensure_ascii also turns line separators and bidirectional marks into visible escapes.
    return value if _BARE.match(value) and value.isascii() else safe_json(json.dumps(value))
