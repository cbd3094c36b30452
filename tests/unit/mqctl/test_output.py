"""Rows as table, JSON and CSV: nothing cut, nothing that drives a terminal."""

from __future__ import annotations

import csv
import io
import json

import pytest
from mqbroker.base.text import printable
from mqctl.errors import UsageError
from mqctl.output import Column, Format, OutputShape, Rows, data_console, write
from mqctl.world import colour_wanted
from rich.console import Console

ROWS = Rows(
    "mqctl.test/1",
    (Column("host"), Column("count", is_number=True), Column("more", wide_only=True)),
    [{"host": "mq1", "count": 1, "more": [1, 2]}, {"host": "x" * 300, "count": None, "more": True}],
    {"plan": "abc"},
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(shape: OutputShape, out: io.StringIO | None = None, *, has_colour: bool = True) -> str:
    out = out or io.StringIO()
    write(ROWS, shape, data_console(out, has_colour=has_colour))
    return out.getvalue()


def test_table_in_a_pipe_is_plain_and_whole() -> None:
    text = written(OutputShape())
    lines = text.splitlines()
    assert lines[0].split() == ["HOST", "COUNT"]
    assert "x" * 300 in lines[2]
    assert all(line == line.rstrip() for line in lines)
    assert "\x1b" not in text


def test_table_on_a_terminal_folds_and_has_colour_only_where_wanted() -> None:
    rows = Rows("mqctl.test/1", (Column("state"),), [{"state": "running"}])
    for has_colour in (True, False):
        out = Terminal()
        write(rows, OutputShape(), data_console(out, has_colour=has_colour))
        assert ("\x1b[32m" in out.getvalue()) is has_colour
        assert ("\x1b" in out.getvalue()) is has_colour
    assert written(OutputShape(), Terminal(), has_colour=False).count("x") == 300


def test_a_wide_table_loses_no_column() -> None:
    names = ("what", "before", "needs")
    row = {"what": "option of several words", "before": '"/etc/mq/default/tls/server.pem" and more', "needs": "restart"}
    out = io.StringIO()
    console = Console(file=out, width=40)
    write(Rows("mqctl.test/1", tuple(Column(name) for name in names), [row]), OutputShape(), console)
    head, line = out.getvalue().splitlines()
    assert head.split() == [name.upper() for name in names]
    assert all(value in line for value in row.values())


def test_columns_stand_below_each_other_and_the_last_one_folds_in_its_place() -> None:
    rows = [
        {"host": "東京", "count": 7, "note": "all of it is well and it goes on"},
        {"host": "mq1", "count": 12000, "note": None},
    ]
    columns = (Column("host"), Column("count", is_number=True), Column("note"))
    out = io.StringIO()
    write(Rows("mqctl.test/1", columns, rows), OutputShape(), Console(file=out, width=30))
    assert out.getvalue().splitlines() == [
        "HOST  COUNT  NOTE",
        "東京      7  all of it is well",
        "             and it goes on",
        "mq1   12000",
    ]


def test_json_carries_schema_extras_and_all_columns() -> None:
    document = json.loads(written(OutputShape(Format.JSON)))
    assert document["schema"] == "mqctl.test/1"
    assert document["plan"] == "abc"
    assert document["rows"][0] == {"host": "mq1", "count": 1, "more": [1, 2]}


def test_chosen_columns_in_their_order() -> None:
    assert written(OutputShape(Format.CSV, ("count", "host"))).splitlines()[:2] == ["count,host", "1,mq1"]
    assert json.loads(written(OutputShape(Format.JSON, ("count",))))["rows"] == [{"count": 1}, {"count": None}]


def test_an_unknown_column_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        written(OutputShape(columns=("hosts",)))
    assert caught.value.attempt == "--columns host,count,more"


def test_control_characters_are_shown_not_sent() -> None:
    assert printable("a\x1b[2Jb\u202ec\nd") == "a\\x1b[2Jb\\u202ec\nd"
    out = io.StringIO()
    rows = Rows("mqctl.test/1", (Column("note"),), [{"note": "[red]\x1b[31m[/red]"}])
    write(rows, OutputShape(), data_console(out, has_colour=False))
    assert out.getvalue() == "NOTE\n[red]\\x1b[31m[/red]\n"


def test_a_cell_is_one_line_and_as_wide_as_what_is_shown_of_it() -> None:
    rows = Rows(
        "mqctl.test/1",
        (Column("queue"), Column("user"), Column("note")),
        [
            {"queue": "a\nmq1 b", "user": "\x1b[2J\r", "note": ["one\ttwo", "\x85"]},
            {"queue": "orders", "user": "anna", "note": "plain"},
        ],
    )
    out = io.StringIO()
    write(rows, OutputShape(), data_console(out, has_colour=False))
    assert out.getvalue() == (
        "QUEUE     USER       NOTE\na\\nmq1 b  \\x1b[2J\\r  one\\ttwo \\x85\norders    anna       plain\n"
    )
    out = io.StringIO()
    write(rows, OutputShape(Format.JSON), data_console(out, has_colour=False))
    assert json.loads(out.getvalue())["rows"] == rows.rows, "JSON loses nothing"


@pytest.mark.parametrize(
    ("environ", "no_color", "is_wanted"),
    [
        ({}, False, True),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, False, True),
        ({"TERM": "dumb"}, False, False),
        ({}, True, False),
    ],
)
def test_colour(environ: dict[str, str], no_color: bool, is_wanted: bool) -> None:
    assert colour_wanted(environ, no_color=no_color) is is_wanted


@pytest.mark.parametrize("odd", ["\x1b[2J", "\x9b2J", "\x7f", "\u202ereversed", "\r", "\U000e0001"])
def test_nothing_that_others_have_named_drives_a_terminal(odd: str) -> None:
    rows = Rows("mqctl.test/1", (Column("queue"),), [{"queue": f"a{odd}b, c\nd"}])
    for shape in Format:
        out = io.StringIO()
        write(rows, OutputShape(shape), data_console(out, has_colour=False))
        text = out.getvalue()
        assert not [one for one in text if not one.isprintable() and one != "\n"], (shape, text)
        if shape is Format.JSON:
            assert json.loads(text)["rows"] == rows.rows
        if shape is Format.CSV:
            ((_,), (cell,)) = csv.reader(io.StringIO(text))
            assert cell == f"a{printable(odd)}b, c\nd"
