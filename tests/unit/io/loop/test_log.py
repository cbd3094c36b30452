"""Lines of the log: shapes, escaping, levels."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

from mqbroker.base.notice import Level, Notice
from mqbroker.io.loop.log import Log, LogShape, line_of, shape_for

NOTICE = Notice(Level.WARNING, "login-failed", {"user": "app", "peer": "127.0.0.1:40000", "tries": 3})


def test_journal_lines_start_with_the_priority_of_syslog() -> None:
    assert line_of(NOTICE, LogShape.JOURNAL, 0) == "<4>login-failed user=app peer=127.0.0.1:40000 tries=3\n"


def test_plain_lines_have_a_time_and_a_level() -> None:
    line = line_of(NOTICE, LogShape.PLAIN, 1.25)
    assert line == "1970-01-01T00:00:01.250Z WARNING login-failed user=app peer=127.0.0.1:40000 tries=3\n"


def test_json_lines_keep_fields_apart_from_their_own_keys() -> None:
    row = json.loads(line_of(Notice(Level.INFO, "ready", {"event": "mine", "n": 1}), LogShape.JSON, 0))
    assert row == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "info",
        "event": "ready",
        "field_event": "mine",
        "n": 1,
    }


def test_no_value_makes_a_second_line_or_a_second_field() -> None:
    for value in ("a\nready", "a b", 'say "x"', "a=b", "\x1b[31m", "\u2028x", "\u202ex", "", "é", "\x00"):
        line = line_of(Notice(Level.INFO, "peer", {"name": value}), LogShape.JOURNAL, 0)
        assert re.fullmatch(r'<6>peer name="[\x20-\x7e]*"\n', line), line
        assert json.loads(line.partition("=")[2]) == value


def test_long_values_are_cut() -> None:
    line = line_of(Notice(Level.INFO, "peer", {"name": "x" * 100_000}), LogShape.JOURNAL, 0)
    assert 2000 < len(line) < 2100


def test_levels_above_the_bound_are_left_out() -> None:
    stream = io.StringIO()
    log = Log(stream, LogShape.JOURNAL)
    log.emit(Notice(Level.DEBUG, "detail"))
    log.info("ready")
    assert stream.getvalue() == "<6>ready\n"


def test_log_format_changes_while_it_runs() -> None:
    stream = io.StringIO()
    log = Log(stream, LogShape.JOURNAL)
    log.change("json")
    log.error("broken", why="x")
    log.change("text")
    log.error("broken", why="x")
    first, second = stream.getvalue().splitlines()
    assert json.loads(first)["why"] == "x"
    assert second == "<3>broken why=x"


def test_a_log_that_nobody_reads_stops_nothing() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        os.close(reader)
        Log(stream, LogShape.PLAIN).info("ready")
        # The text stays in the buffer of the stream and would fail again at its close.
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)


def test_the_shape_follows_the_stream_that_systemd_names(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        stat = os.fstat(stream.fileno())
        assert shape_for(stream, {"JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino}"}) is LogShape.JOURNAL
        assert shape_for(stream, {"JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino + 1}"}) is LogShape.PLAIN
        assert shape_for(stream, {}) is LogShape.PLAIN
    assert shape_for(io.StringIO(), {"JOURNAL_STREAM": "1:1"}) is LogShape.PLAIN
