"""What others said, made visible: no terminal is driven, nothing is hidden."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.text import one_line, printable, safe_json


def test_what_drives_a_terminal_becomes_visible() -> None:
    assert printable("a\x1b[2Jb\u202ec\nd") == "a\\x1b[2Jb\\u202ec\nd"
    assert one_line("a\nb\tc\r\x9b\x7f\u2028\ud800") == "a\\nb\\tc\\r\\x9b\\x7f\\u2028\\ud800"


@given(st.text(st.characters(exclude_categories=())))
def test_one_line_is_one_line_whatever_is_in_it(text: str) -> None:
    assert one_line(text).isprintable()


@given(st.text(st.characters(exclude_categories=())))
def test_json_means_the_same_and_is_printable(text: str) -> None:
    made = safe_json(json.dumps(text))
    assert made.isprintable()
    assert json.loads(made) == text
