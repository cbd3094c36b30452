"""The options that hold: as the process was started, with what a reload has changed since."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from mqbroker.config.compare import OptionsVerdict, changes
from mqbroker.config.names import REPEATED_TABLES, toml_name
from mqbroker.config.slices import AddressMatch, AddressSettingsOptions, BrokerOptions
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest


def show(broker: Broker, request: AdminRequest) -> None:
    """`config-show`: every option with its value, and what the file says since if that waits for a restart."""
    rows: dict[str, dict[str, Any]] = {
        path: {"option": path, "value": value, "pending": None} for path, value in _options(broker.options)
    }
    for change in changes(broker.options, broker.offered):
        row = rows.setdefault(change.path, {"option": change.path, "value": change.old, "pending": None})
        row["value" if change.needs is OptionsVerdict.RELOAD else "pending"] = change.new
    broker.reply(request.id, {"options": list(rows.values())})


def reload(broker: Broker, request: AdminRequest) -> None:
    """`config-reload`: read the files of options and users again; answered with what changed and what did not."""
    broker.reloads.ask(request.id)


def _options(options: BrokerOptions) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(options):
        table, head = getattr(options, field.name), toml_name(field.name)
        if field.name not in REPEATED_TABLES:
            yield from _values(head, dataclasses.asdict(table))
            continue
        for row in table.matches if isinstance(table, AddressSettingsOptions) else table:
            values = dict(row.values) if isinstance(row, AddressMatch) else dataclasses.asdict(row)
            yield from _values(f"{head}.{getattr(row, REPEATED_TABLES[field.name])}", values)


def _values(head: str, values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((f"{head}.{toml_name(name)}", value) for name, value in values.items())
