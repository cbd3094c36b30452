"""pydantic's findings as ConfigFaults: every one of them, each with its path, in sentences that say what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mqbroker.base.errors import ConfigFault
from mqbroker.config import patterns
from mqbroker.config.file import suggestions

SHOWN_CHARACTERS_MAX = 60
HOSTS_NAMED_MAX = 3


def shown(value: object) -> str:
    """A value for an error message, as the reader wrote it and never longer than a line."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 1] + "…"


def _at_least(context: dict[str, Any]) -> str:
    return f"must be at least {context['ge']}"


def _at_most(context: dict[str, Any]) -> str:
    return f"must be at most {context['le']}"


def _one_of(context: dict[str, Any]) -> str:
    return f"must be one of {context['expected']}"


def _pattern(context: dict[str, Any]) -> str:
    return patterns.SENTENCES[context["pattern"]]


def _too_short(context: dict[str, Any]) -> str:
    return f"must have at least {context['min_length']} entries"


def _too_long(context: dict[str, Any]) -> str:
    return f"must have at most {context['max_length']} entries"


SENTENCES: dict[str, Callable[[dict[str, Any]], str]] = {
    "greater_than_equal": _at_least,
    "less_than_equal": _at_most,
    "literal_error": _one_of,
    "string_pattern_mismatch": _pattern,
    "too_short": _too_short,
    "too_long": _too_long,
    "string_too_short": lambda context: f"must have at least {context['min_length']} characters",
    "string_too_long": lambda context: f"must have at most {context['max_length']} characters",
    "int_type": lambda _: "must be a whole number",
    "int_from_float": lambda _: "must be a whole number",
    "bool_type": lambda _: "must be true or false",
    "string_type": lambda _: "must be a text in quotes",
    "list_type": lambda _: "must be a list",
    "dict_type": lambda _: "must be a table",
    "model_type": lambda _: "must be a table",
}


def _fields_at(model: type[BaseModel], location: Iterable[int | str]) -> set[str]:
    """Names that the table at `location` may have."""
    for part in location:
        if isinstance(part, int):
            continue
        fields = {info.alias or name: info for name, info in model.model_fields.items()}
        if part not in fields:
            break
        annotation = fields[part].annotation
        candidates = [annotation, *get_args(annotation)]
        tables = [item for item in candidates if isinstance(item, type) and issubclass(item, BaseModel)]
        if not tables:
            break
        model = tables[0]
    return {info.alias or name for name, info in model.model_fields.items()}


def _why(model: type[BaseModel], error: ErrorDetails, what: str, is_hidden: bool) -> str:
    kind, location = error["type"], error["loc"]
    if kind == "extra_forbidden":
        return suggestions.unknown(what, str(location[-1]), _fields_at(model, location[:-1]))
    if kind == "missing":
        return "is required and missing"
    sentence = SENTENCES.get(kind)
    why = sentence(error.get("ctx", {})) if sentence else error["msg"]
    return why if is_hidden else f"{why}, is {shown(error['input'])}"


def from_validation(
    model: type[BaseModel],
    error: ValidationError,
    *,
    what: str = "option",
    hidden: frozenset[str] = frozenset(),
    ignored: str | None = None,
) -> list[ConfigFault]:
    """Every finding. `what` is the noun for unknown names; inputs under a name in `hidden` are never shown.

    Findings about the very value `ignored` are left out.
    """
    faults = []
    for details in error.errors(include_url=False):
        if ignored is not None and details["input"] == ignored and details["type"] != "extra_forbidden":
            continue
        path = ".".join(str(part) for part in details["loc"])
        is_hidden = not hidden.isdisjoint(str(part) for part in details["loc"])
        faults.append(ConfigFault(path or "file", _why(model, details, what, is_hidden)))
    return faults


def merged(of_hosts: list[tuple[str, ConfigFault]]) -> list[ConfigFault]:
    """One fault for all hosts that share it, with their names."""
    groups: dict[tuple[str, str], list[str]] = {}
    for host, fault in of_hosts:
        groups.setdefault((fault.path, fault.why), []).append(host)
    return [ConfigFault(path, f"{why} ({_named(hosts)})") for (path, why), hosts in groups.items()]


def _named(hosts: list[str]) -> str:
    if len(hosts) == 1:
        return f"host {hosts[0]}"
    more = len(hosts) - HOSTS_NAMED_MAX
    tail = f" and {more} more" if more > 0 else ""
    return f"hosts {', '.join(hosts[:HOSTS_NAMED_MAX])}{tail}"
