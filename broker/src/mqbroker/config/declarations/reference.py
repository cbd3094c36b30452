"""Option reference as Markdown and JSON schema, both made from the declarations."""

from __future__ import annotations

import json
from inspect import cleandoc
from typing import Any

from mqbroker.config.declarations import catalogue
from mqbroker.config.declarations.catalogue import OptionEntry
from mqbroker.config.declarations.options import BrokerFile
from mqbroker.config.names import REPEATED_TABLES, toml_name

HEAD = """# Options of `broker.toml`

Every option with its type, default and bounds. `change` says what makes a new value hold in a running broker: `reload`
(`mqctl config reload`, `systemctl reload`) or `restart`. In an inventory the same names are written with underscores:
`[limits] link-credit` is `mq_broker_options: {limits: {link_credit: …}}`.
`mqbroker config check` finds every fault of a file at once; `mqbroker config diff OLD NEW` says what a change needs.
"""

COLUMNS = "| option | type | default | bounds | change | meaning |\n|---|---|---|---|---|---|"


def markdown() -> str:
    """The whole reference of options, as Markdown."""
    parts = [HEAD]
    rows = catalogue.entries()
    for table, model in catalogue.tables().items():
        repeated = table in REPEATED_TABLES
        title = f"[[{toml_name(table)}]]" if repeated else f"[{toml_name(table)}]"
        parts.append(f"## `{title}`\n\n{cleandoc(model.__doc__ or '')}\n")
        parts.append(COLUMNS)
        parts.extend(_row(entry) for entry in rows if entry.table == table)
        parts.append("")
        for inner, inner_model in catalogue.nested(table).items():
            parts.append(
                f"## `[[{toml_name(inner)}]]`, `[[addresses.multicast]]`\n\n{cleandoc(inner_model.__doc__ or '')}\n"
            )
            parts.append(COLUMNS)
            parts.extend(_row(entry) for entry in rows if entry.table == inner)
            parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of a whole file."""
    made = BrokerFile.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": "broker.toml"}


def bounds(entry: OptionEntry) -> str:
    """Choices or the range that an option allows, in words."""
    if entry.choices:
        return " \\| ".join(f"`{choice}`" for choice in entry.choices)
    if entry.minimum is None and entry.maximum is None:
        return ""
    return f"{entry.minimum} to {entry.maximum}"


def _row(entry: OptionEntry) -> str:
    unit = f", {entry.unit}" if entry.unit else ""
    default = "required" if entry.required else "none" if entry.default is None else f"`{json.dumps(entry.default)}`"
    change = "reload" if entry.reload else "restart"
    kind = "array of tables" if entry.kind == "tables" else entry.kind
    cells = [f"`{entry.name}`", f"{kind}{unit}", default, bounds(entry), change, entry.sentence]
    return "| " + " | ".join(cells) + " |"
