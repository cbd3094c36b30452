"""Declarations and slices agree, and every declaration says what a reader needs."""

from __future__ import annotations

import dataclasses
import typing

import pytest
from mqbroker.config import slices
from mqbroker.config.declarations import catalogue
from mqbroker.config.declarations.options import default_listener, defaults
from mqbroker.config.declarations.table_slices import slice_name
from mqbroker.config.names import toml_name, yaml_name

SLICES = {name: getattr(slices, slice_name(model)) for name, model in catalogue.tables().items()}
NESTED = {"addresses.anycast": slices.QueueOptions}
KINDS: dict[str, object] = {"string": str, "integer": int, "boolean": bool, "array": tuple[str, ...], "number": float,
         "tables": tuple[slices.QueueOptions, ...]}  # fmt: skip


def kind_of(entry: catalogue.OptionEntry) -> object:
    kind = KINDS[entry.kind]
    return kind if entry.required or entry.default is not None else kind | None  # what nobody need say


@pytest.mark.parametrize("table", SLICES)
def test_slice_mirrors_its_table(table: str) -> None:
    declared = [(entry.yaml_name, kind_of(entry)) for entry in catalogue.entries() if entry.table == table]
    hints = typing.get_type_hints(SLICES[table])
    fields = [(field.name, hints[field.name]) for field in dataclasses.fields(SLICES[table]) if field.name != "match"]
    # A pattern is no setting: it says where the settings hold.
    assert fields == [row for row in declared if row[0] != "match"]


def test_slices_of_tables_inside_of_tables_mirror_them_too() -> None:
    for table, slice_ in NESTED.items():
        hints = typing.get_type_hints(slice_)
        rows = [entry for entry in catalogue.entries() if entry.table == table]
        assert [field.name for field in dataclasses.fields(slice_)] == [entry.yaml_name for entry in rows]
        for entry in rows:
            kind = KINDS[entry.kind]
            is_left_out = entry.default is None and not entry.required
            assert hints[entry.yaml_name] == (typing.Optional[kind] if is_left_out else kind)  # noqa: UP045


def test_every_table_has_a_slice() -> None:
    assert [field.name for field in dataclasses.fields(slices.BrokerOptions)] == list(SLICES)


@pytest.mark.parametrize("entry", catalogue.entries(), ids=lambda entry: entry.path)
def test_declaration_is_complete(entry: catalogue.OptionEntry) -> None:
    assert entry.sentence.endswith(".")
    assert entry.name == toml_name(entry.yaml_name)
    assert entry.yaml_name == yaml_name(entry.name)
    if entry.kind == "integer":
        assert entry.minimum is not None
        assert entry.maximum is not None
        if entry.default is not None:
            assert entry.minimum <= entry.default <= entry.maximum
    if entry.table in (
        "address_settings", "addresses.anycast", "broadcast_groups", "discovery_groups", "cluster_connections",
        "connection_routers", "grouping_handler", "scale_down",
    ):  # fmt: skip
        return  # their names are Artemis's, which has units in its manual only
    for unit in ("ms", "bytes"):
        assert (f"-{unit}" in entry.name) == (entry.unit == unit)


def test_slices_are_frozen_and_slotted() -> None:
    limits = defaults().limits
    with pytest.raises(dataclasses.FrozenInstanceError):
        limits.link_credit = 1  # type: ignore[misc]
    assert not hasattr(limits, "__dict__")


def test_default_listener_is_on_loopback_with_passwords() -> None:
    listener = default_listener("x", 1234)
    assert (listener.name, listener.port, listener.local_bind_address) == ("x", 1234, "127.0.0.1")
    assert listener.sasl_mechanisms == ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
    assert not listener.allow_plaintext
