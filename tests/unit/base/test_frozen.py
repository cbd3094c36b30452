"""Frozen values: equal, hashed and shown by their fields, without a place for others; who sets one is told by mypy."""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import Path

import pytest
from mqbroker.base.frozen import frozen
from mypy import api


@frozen()
class Point:
    x: int
    y: int = 0
    secret: str = field(default="", repr=False)


def test_a_value_is_its_fields() -> None:
    point = Point(1, secret="s")
    assert point == Point(1, 0, "s") != Point(1)
    assert len({point, Point(1, 0, "s"), Point(2)}) == 2
    assert repr(point) == "Point(x=1, y=0)"
    assert replace(point, y=3) == Point(1, 3, "s")


def test_there_is_no_place_for_other_fields() -> None:
    with pytest.raises(AttributeError):
        Point(1).z = 2  # type: ignore[attr-defined]


@pytest.mark.slow
def test_who_sets_a_field_is_told(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from mqbroker.wire.performatives import Close\nClose().error = None\n")
    said, _, code = api.run([str(wrong), "--cache-dir", str(tmp_path / "cache"), "--follow-imports=silent"])
    assert code == 1
    assert 'Property "error" defined in "Close" is read-only' in said
