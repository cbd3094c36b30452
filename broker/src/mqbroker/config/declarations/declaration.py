"""How options are declared: types that several share, and what a declaration says besides its type.

A table of `broker.toml` is a model in options.py; its base is here.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from mqbroker.config import patterns
from mqbroker.config.names import toml_name

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
SOCKET_PATH_BYTES_MAX = 107  # sun_path of Linux less its final zero byte

Word = TypeVar("Word", bound=str)
SaslMechanism = Literal["EXTERNAL", "SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS"]


def _ip_address(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        raise PydanticCustomError("ip_address", "must be an IP address such as 192.0.2.11 or ::1") from None
    return value


def _ip_network(value: str) -> str:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        sentence = "must be an IP address or a network such as 192.0.2.0/24"
        raise PydanticCustomError("ip_network", sentence) from None
    return value


def distinct(values: list[Word]) -> list[Word]:
    """For lists in which nothing may be named twice."""
    if len(set(values)) != len(values):
        raise PydanticCustomError("distinct", "must not name anything twice")
    return values


def qualified(value: str) -> str:
    """For addresses that may name one queue of theirs as well: `address::queue`."""
    address, mark, queue = value.partition("::")
    if mark and (not address or not queue):
        raise PydanticCustomError("qualified", "must be an address, or address::queue with both of its names")
    return value


def _parted(value: object) -> object:
    """One text may stand for a list: its parts between commas."""
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",")] if value else []


NodeName = Annotated[str, Field(pattern=patterns.NODE_NAME)]
OptionalPath = Annotated[str, Field(pattern=patterns.OPTIONAL_PATH, max_length=4000)]
AbsolutePath = Annotated[str, Field(pattern=patterns.ABSOLUTE_PATH, max_length=4000)]
IpAddress = Annotated[str, AfterValidator(_ip_address)]
IpNetwork = Annotated[str, AfterValidator(_ip_network)]
RoleName = Annotated[str, Field(pattern=patterns.ROLE)]
Roles = Annotated[list[RoleName], Field(max_length=1000)]
PlaceList = Annotated[list[Annotated[str, Field(pattern=patterns.PLACE)]], Field(max_length=64)]
PrefixList = Annotated[
    list[Annotated[str, Field(pattern=patterns.PREFIX)]],
    Field(max_length=16),
    AfterValidator(distinct),
    BeforeValidator(_parted),
    WithJsonSchema(
        {"anyOf": [{"type": "array", "items": {"type": "string", "pattern": patterns.PREFIX}}, {"type": "string"}]}
    ),
]
OptionalPlace = Annotated[str, Field(pattern=patterns.OPTIONAL_PLACE)]
SaslMechanismList = Annotated[list[SaslMechanism], Field(min_length=1), AfterValidator(distinct)]


def option(default: Any, sentence: str, *, unit: str = "", reload: bool = False, **bounds: Any) -> Any:
    """Declare one option. `reload`: a running broker takes the new value on reload, else it needs a restart."""
    return Field(default, description=sentence, json_schema_extra={"unit": unit, "reload": reload}, **bounds)


class OptionTable(BaseModel):
    """What all tables share: hyphens in TOML, no unknown keys, no silent conversions."""

    model_config = ConfigDict(alias_generator=toml_name, extra="forbid", strict=True, frozen=True)


def setting(built_in: Any, sentence: str, *, unit: str = "", reload: bool = True, **bounds: Any) -> Any:
    """Declare one address setting. None: this match does not say; `built_in` holds where no match says."""
    extra = {"unit": unit, "reload": reload, "built_in": built_in}
    return Field(None, description=sentence, json_schema_extra=extra, **bounds)
