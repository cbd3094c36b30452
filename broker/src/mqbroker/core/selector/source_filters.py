"""Filters of a source: which of those that a consumer asks for hold, and what they say.

A filter is known by its descriptor; the key in the map is a name that the client chose. The answer to an attach repeats
the filters that hold, and leaves out the others: so a client that looks learns which of its filters do nothing. Source:
AMQP 1.0 §3.5.8; Apache filters (apache.org:selector-filter:string, apache.org:no-local-filter:list).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.core.selector.selector import Selector, compile_selector
from mqbroker.wire.types import Described, Symbol

SELECTOR_NAME: Final = "apache.org:selector-filter:string"
SELECTOR_CODE: Final = 0x0000468C_00000004
NO_LOCAL_NAME: Final = "apache.org:no-local-filter:list"
NO_LOCAL_CODE: Final = 0x0000468C_00000003

_KINDS: Final[dict[Any, str]] = {
    SELECTOR_NAME: SELECTOR_NAME, SELECTOR_CODE: SELECTOR_NAME,
    NO_LOCAL_NAME: NO_LOCAL_NAME, NO_LOCAL_CODE: NO_LOCAL_NAME,
}  # fmt: skip
# Some clients send a selector as a bare text, against §3.5.8. Its key says then what it is.
_BARE_KEYS: Final = (SELECTOR_NAME, "jms-selector")


@dataclass(frozen=True, slots=True)
class SourceFilter:
    """What a source lets through. `accepted` goes into the answer as it came."""

    selector: Selector | None = None
    no_local: bool = False
    accepted: dict[Symbol, Any] = field(default_factory=dict)


NO_FILTER: Final = SourceFilter()


def source_filter(filters: Mapping[Any, Any] | None, *, knows_no_local: bool) -> SourceFilter:
    """What the filter map of a source asks for, with the filters that hold. Raises Refused amqp:invalid-field.

    `knows_no_local` is False for queues, where no-local has no meaning (Jakarta Messaging 3.1, 4.5).
    """
    selector: Selector | None = None
    no_local = False
    accepted: dict[Symbol, Any] = {}
    LOOK.has_touched = True
    for key, value in (filters or {}).items():
        kind = _kind_of(key, value)
        if kind == SELECTOR_NAME:
            another = _selector_of(key, value)
            if selector is not None and another is not None:
                raise Refused(
                    "amqp:invalid-field", f"filter {str(key)[:80]!r} is a second selector; join them with AND"
                )
            selector = selector or another
        elif kind == NO_LOCAL_NAME and knows_no_local:
            no_local = True
        else:
            continue
        accepted[key] = value
    return SourceFilter(selector, no_local, accepted) if accepted else NO_FILTER


def _kind_of(key: Any, value: Any) -> str | None:
    if isinstance(value, Described):
        descriptor = value.descriptor
        return _KINDS.get(descriptor) if isinstance(descriptor, int | str) else None
    return SELECTOR_NAME if isinstance(value, str) and key in _BARE_KEYS else None


def _selector_of(key: Any, value: Any) -> Selector | None:
    """None for a blank selector, which is no selector (Jakarta Messaging 3.1, 3.8.1.1)."""
    text = value.value if isinstance(value, Described) else value
    if not isinstance(text, str):
        type_name = "null" if text is None else type(text).__name__
        raise Refused("amqp:invalid-field", f"filter {str(key)[:80]!r}: a selector is a string, not {type_name}")
    return compile_selector(text) if text.strip() else None
