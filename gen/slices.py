"""`config/slices.py`: a frozen dataclass for each table of broker.toml, from the declarations of its options."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from mqbroker.config.declarations import catalogue
from mqbroker.config.declarations.address_options import AddressSettingsTable
from mqbroker.config.declarations.declaration import OptionTable
from mqbroker.config.declarations.options import BrokerFile, ListenerTable
from mqbroker.config.declarations.table_slices import slice_name
from mqbroker.config.names import REPEATED_TABLES, toml_name
from pydantic.fields import FieldInfo

HEAD = '''\
"""Options as the rooms see them: one frozen dataclass for each table of `broker.toml`, plain values, no defaults.

Made by `make gen` from the models in `options.py`, which alone know defaults and bounds; changes belong there. A unit
stands beside a name that does not say it. Whoever needs options without a file takes
`mqbroker.config.declarations.options.defaults()` and `dataclasses.replace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
'''
# What a slice has beside the options of its table.
BESIDE: dict[type[OptionTable], str] = {
    ListenerTable: '''
    @property
    def has_tls(self) -> bool:
        """Whether everything on this listener is encrypted."""
        return bool(self.tls_certificate_file)
'''
}
# Of address settings any table may say some; what holds at an address is all of them, after matching.
SETTINGS = '''

@dataclass(frozen=True, slots=True)
class AddressMatch:
    """One `[[address-settings]]` table: a pattern, and what it says."""

    match: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AddressSettingsOptions:
    """All of these tables, and what holds where none says anything."""

    built_in: AddressSettings
    matches: tuple[AddressMatch, ...]
'''
RELOADABLE_HEAD = """

# What a running broker takes on reload; all else is read at start only.
RELOADABLE = frozenset({
"""


def files() -> dict[str, str]:
    """The one file."""
    return {"broker/src/mqbroker/config/slices.py": text()}


def text() -> str:
    """Tables in their order, what is inside of a table before it."""
    parts = [HEAD]
    for name, model in catalogue.tables().items():
        for inner, places in _inside(name, model).items():
            parts.append(class_text(inner, f"One {' or '.join(f'`[[{place}]]`' for place in places)} table."))
        if model is AddressSettingsTable:
            parts += [class_text(model, "All settings of one address, after matching."), SETTINGS]
        elif name in REPEATED_TABLES:
            parts.append(class_text(model, f"One `[[{toml_name(name)}]]` table."))
        else:
            parts.append(class_text(model, f"Table `[{toml_name(name)}]`."))
    parts.append(class_text(BrokerFile, "A whole valid `broker.toml`. Only `app` holds it; a room is given its slice."))
    return "".join([*parts, _reloadable()])


def _reloadable() -> str:
    paths = "".join(f'    "{path}",\n' for path in sorted({one.path for one in catalogue.entries() if one.reload}))
    return f"{RELOADABLE_HEAD}{paths}}})  # fmt: skip\n"


def _inside(table: str, model: type[OptionTable]) -> dict[type[OptionTable], list[str]]:
    """Tables inside of a table, each with the options that hold it."""
    found: dict[type[OptionTable], list[str]] = {}
    for name, info in model.model_fields.items():
        for each in get_args(info.annotation):
            if isinstance(each, type) and issubclass(each, OptionTable):
                found.setdefault(each, []).append(f"{toml_name(table)}.{toml_name(name)}")
    return found


def class_text(model: type[OptionTable], sentence: str) -> str:
    """The slice of one table."""
    fields = "".join(f"    {line}\n" for line in _fields(model))
    none = " None: it was not said." if "| None" in fields else ""
    head = f'\n\n@dataclass(frozen=True, slots=True)\nclass {slice_name(model)}:\n    """{sentence}{none}"""\n\n'
    return head + fields + BESIDE.get(model, "")


def _fields(model: type[OptionTable]) -> Iterator[str]:
    for name, info in model.model_fields.items():
        if model is AddressSettingsTable:
            if name != "match":  # a pattern is no setting: it says where the settings hold
                yield f"{name}: {_kind(info.annotation).removesuffix(' | None')}{_unit(name, info)}"
        elif model is BrokerFile and name == "address_settings":
            yield f"{name}: AddressSettingsOptions"
        else:
            yield f"{name}: {_kind(info.annotation)}{_unit(name, info)}"


def _unit(name: str, info: FieldInfo) -> str:
    extra = info.json_schema_extra
    unit = str(extra.get("unit", "")) if isinstance(extra, dict) else ""
    return f"  # {unit}" if unit and unit not in name.split("_") else ""


def _kind(annotation: Any) -> str:
    """A type as it is written."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(inner[0])
    if origin is Literal:
        return type(inner[0]).__name__
    if origin is list:
        return f"tuple[{_kind(inner[0])}, ...]"
    if origin in (Union, types.UnionType):
        return " | ".join(_kind(each) for each in inner)
    if annotation is types.NoneType:
        return "None"
    return slice_name(annotation) if issubclass(annotation, OptionTable) else str(annotation.__name__)
