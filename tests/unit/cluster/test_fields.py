"""Fields of JSON: what is not exactly what it should be is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.cluster import fields
from mqbroker.cluster.fields import Connector, MalformedField, MalformedObject

ROW = {"name": "own", "scheme": "amqp", "host": "192.0.2.11", "port": 5673}


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"5", b"\xff", b'{"a":1,"a":1}', b"[" * 100_000, b'{"a":' + b"9" * 5000]
)
def test_what_is_no_object(text: bytes) -> None:
    with pytest.raises(MalformedObject):
        fields.object_in(text)


@pytest.mark.parametrize("name", ["name", "issuer", "hash"])
def test_a_field_is_to_blame_whatever_it_is_called(name: str) -> None:
    with pytest.raises(MalformedField, match=f"{name} is missing") as found:
        fields.text_of({}, name)
    assert type(found.value) is MalformedField


@given(st.binary(max_size=50))
def test_bytes_are_an_object_or_malformed(text: bytes) -> None:
    found: object
    try:
        found = fields.object_in(text)
    except MalformedField as fault:
        found = str(fault)
    assert isinstance(found, dict) or found in ("is not JSON", "is no object")


@pytest.mark.parametrize("value", [None, 5, True, [], "", "a/b", "x" * 64])
def test_texts(value: Any) -> None:
    with pytest.raises(MalformedField, match="name is missing or not well-formed"):
        fields.text_of({"name": value}, "name", fields.NAME)


def test_any_text_is_whole_characters() -> None:
    assert fields.text_of({"x": "ä\n𐀀"}, "x") == "ä\n𐀀"
    with pytest.raises(MalformedField):
        fields.text_of(fields.object_in(b'{"x":"\\ud800"}'), "x")


@pytest.mark.parametrize("value", [None, "5", 5.0, True, 0, 11])
def test_numbers(value: Any) -> None:
    with pytest.raises(MalformedField, match="x must be a number from 1 to 10"):
        fields.number_of({"x": value}, "x", 10)
    assert [fields.number_of({"x": good}, "x", 10) for good in (1, 10)] == [1, 10]
    assert fields.number_of({"x": 0}, "x", 10, 0) == 0


@pytest.mark.parametrize(
    "rows", [None, {}, [], [5], [ROW] * 3, [ROW | {"port": 0}], [ROW | {"scheme": "http"}], [ROW | {"host": "a b"}]]
)
def test_what_are_no_connectors(rows: Any) -> None:
    with pytest.raises(MalformedField):
        fields.connectors_of({"connectors": rows}, 2)


def test_connectors_come_back() -> None:
    found = fields.connectors_of({"connectors": [ROW]}, 2)
    assert found == (Connector("own", "amqp", "192.0.2.11", 5673),)
    assert fields.connector_rows(found) == [ROW]
    assert fields.connectors_of({"connectors": []}, 2, 0) == ()


def test_connectors_with_one_place_are_the_same() -> None:
    one = Connector("own", "amqp", "2001:db8::5", 5673)
    assert one.uri == "amqp://[2001:db8::5]:5673"
    assert one.place == Connector("other", "amqp", "2001:db8::5", 5673).place
    assert one.place != Connector("own", "amqps", "2001:db8::5", 5673).place
