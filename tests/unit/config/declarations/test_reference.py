"""The reference and the schema say what the declarations say."""

from __future__ import annotations

from mqbroker.config.declarations import catalogue, reference
from mqbroker.config.names import toml_name


def test_every_option_has_its_row() -> None:
    sections = reference.markdown().split("\n## ")[1:]
    tables = {section.split("`")[1].strip("[]"): section.splitlines() for section in sections}
    for entry in catalogue.entries():
        row = next(line for line in tables[toml_name(entry.table)] if line.startswith(f"| `{entry.name}` |"))
        assert entry.sentence in row
        assert ("| reload |" in row) == entry.reload


def test_schema_knows_tables_options_and_bounds() -> None:
    made = reference.schema()
    assert list(made["properties"]) == [toml_name(table) for table in catalogue.tables()]
    credit = made["$defs"]["LimitTable"]["properties"]["link-credit"]
    assert (credit["type"], credit["minimum"], credit["maximum"], credit["default"]) == ("integer", 1, 1_000_000, 2000)
    assert made["$defs"]["LimitTable"]["additionalProperties"] is False
