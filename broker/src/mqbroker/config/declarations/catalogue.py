"""The declared options as plain rows, for everything that is generated from them: reference, role, tests."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from mqbroker.config.declarations.address_options import QueueTable
from mqbroker.config.declarations.declaration import OptionTable
from mqbroker.config.declarations.options import BrokerFile
from mqbroker.config.names import toml_name, yaml_name


@dataclass(frozen=True, slots=True)
class OptionEntry:
    """One option. `name` is as in TOML; `default` is None where `required`, or where the settings of an address say.

    `kind` is the type in JSON's words, or `tables` for an array of tables.
    """

    table: str
    name: str
    kind: str
    default: Any
    required: bool
    choices: tuple[str, ...]
    minimum: float | None
    maximum: float | None
    unit: str
    reload: bool
    sentence: str

    @property
    def path(self) -> str:
        """How messages, tests and documents name it: `limits.link-credit`."""
        return f"{toml_name(self.table)}.{self.name}"

    @property
    def yaml_name(self) -> str:
        """The name in an inventory or in Python."""
        return yaml_name(self.name)


def tables() -> dict[str, type[OptionTable]]:
    """Name of each table and its model, in the order of the file."""
    models: dict[str, type[OptionTable]] = {}
    for name, info in BrokerFile.model_fields.items():
        annotation = info.annotation
        model = annotation if isinstance(annotation, type) else annotation.__args__[0]  # type: ignore[union-attr]
        models[name] = model
    return models


def nested(table: str) -> dict[str, type[OptionTable]]:
    """Tables inside of a table, by the first of the options that hold them."""
    return {"addresses.anycast": QueueTable} if table == "addresses" else {}


@functools.cache
def entries() -> tuple[OptionEntry, ...]:
    """All options, in the order of declaration; those of tables inside of a table behind its own.

    To find them takes as long as a thousand messages, and a broker compares options while it serves.
    """
    models = {name: model for table, own in tables().items() for name, model in {table: own, **nested(table)}.items()}
    return tuple(entry for name, model in models.items() for entry in _entries_of(name, model))


def _entries_of(table: str, model: type[OptionTable]) -> list[OptionEntry]:
    schema = model.model_json_schema(by_alias=True)
    required = set(schema.get("required", ()))
    return [_entry(table, name, row, name in required) for name, row in schema["properties"].items()]


def _entry(table: str, name: str, row: dict[str, Any], required: bool) -> OptionEntry:
    # A setting that may be left out is "this type or null"; its default is what holds where nobody says.
    typed = row["anyOf"][0] if "anyOf" in row else row
    holder = typed.get("items", typed)
    return OptionEntry(
        table=table,
        name=name,
        kind="tables" if "$ref" in typed.get("items", {}) else typed["type"],
        default=row.get("built_in", row.get("default")),
        required=required,
        choices=tuple(holder.get("enum", ())),
        minimum=typed.get("minimum"),
        maximum=typed.get("maximum"),
        unit=row["unit"],
        reload=row["reload"],
        sentence=row["description"],
    )
