"""Reading what another node says as JSON: every field is checked to the letter, and nothing else can come of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

PORT_MAX: Final = 65_535
SCHEMES: Final = ("amqp", "amqps")

NODE_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
BOOT_ID: Final = re.compile(r"[0-9a-f]{32}")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
HOST: Final = re.compile(r"[A-Za-z0-9:][A-Za-z0-9:._-]{0,252}")
ANY: Final = re.compile(r".*", re.DOTALL)


class MalformedField(Exception):
    """Not what it should be; the text says what is wrong."""


class MalformedObject(MalformedField):
    """None of its fields is to blame: the text says what the whole is or has."""


@dataclass(frozen=True, slots=True)
class Connector:
    """How a node is reached. `scheme` is amqps where the listener has TLS."""

    name: str
    scheme: str
    host: str
    port: int

    @property
    def uri(self) -> str:
        """`scheme://host:port`, as people read and write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def place(self) -> tuple[str, str, int]:
        """Where it leads; two connectors with one place are the same, whatever their names."""
        return self.scheme, self.host, self.port


def object_in(text: bytes) -> dict[str, Any]:
    """The object that the text is. Raises MalformedObject, whatever the bytes are."""
    try:
        row = _DECODER.decode(text.decode())
    except (ValueError, RecursionError):
        raise MalformedObject("is not JSON") from None
    if not isinstance(row, dict):
        raise MalformedObject("is no object")
    return row


def text_of(row: dict[str, Any], key: str, form: re.Pattern[str] = ANY) -> str:
    """The text under a key, of this form as a whole; else MalformedField."""
    value = row.get(key)
    if not isinstance(value, str) or not form.fullmatch(value) or not _is_unicode(value):
        raise MalformedField(f"{key} is missing or not well-formed")
    return value


def number_of(row: dict[str, Any], key: str, maximum: int, minimum: int = 1) -> int:
    """A whole number within bounds."""
    value = row.get(key)
    # True is an int to Python, and a lie here.
    if type(value) is not int or not minimum <= value <= maximum:
        raise MalformedField(f"{key} must be a number from {minimum} to {maximum}")
    return value


def flag_of(row: dict[str, Any], key: str) -> bool:
    """Yes or no; no where it is not said."""
    value = row.get(key, False)
    if not isinstance(value, bool):
        raise MalformedField(f"{key} must be true or false")
    return value


def connectors_of(
    row: dict[str, Any], maximum: int, minimum: int = 1, key: str = "connectors"
) -> tuple[Connector, ...]:
    """The list of connectors under a key, `minimum` to `maximum` of them; else MalformedField."""
    rows = row.get(key)
    if not isinstance(rows, list) or not minimum <= len(rows) <= maximum:
        raise MalformedField(f"{key} must be a list of {minimum} to {maximum}")
    return tuple(_connector(one) for one in rows)


def connector_rows(connectors: tuple[Connector, ...]) -> list[dict[str, Any]]:
    """The way back of `connectors_of`."""
    return [{"name": one.name, "scheme": one.scheme, "host": one.host, "port": one.port} for one in connectors]


def _connector(row: Any) -> Connector:
    if not isinstance(row, dict):
        raise MalformedField("a connector must be an object")
    if row.get("scheme") not in SCHEMES:
        raise MalformedField(f"scheme must be one of {', '.join(SCHEMES)}")
    return Connector(
        text_of(row, "name", NAME), row["scheme"], text_of(row, "host", HOST), number_of(row, "port", PORT_MAX)
    )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key comes twice")
    return made


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_distinct)  # made once: that takes longer than to use it


def _is_unicode(value: str) -> bool:
    """JSON can say halves of characters, which no other text of ours can hold."""
    return value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value)
