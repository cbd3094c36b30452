"""References for people and editors: options of broker.toml, variables of an inventory, JSON schema."""

from __future__ import annotations

import json
from typing import Any

from mqbroker.config.declarations import reference
from mqbroker.config.declarations.variables import HostVariables, Instance, InventoryUser, Opening
from pydantic import BaseModel

VARIABLES_HEAD = """# Variables of an inventory

What a user writes, once, for a group or a host. `mqctl inventory check` finds every fault before any host is touched.
Options of the broker itself: [options.md](options.md).

| variable | type | default | bounds | meaning |
|---|---|---|---|---|
"""

# What the entries of a list variable are.
ENTRIES: dict[str, type[BaseModel]] = {"mq_users": InventoryUser, "mq_instances": Instance, "mq_firewall_open": Opening}


def files() -> dict[str, str]:
    """All references."""
    return {
        "docs/reference/options.md": reference.markdown(),
        "docs/reference/broker.schema.json": json.dumps(reference.schema(), indent=2) + "\n",
        "docs/reference/variables.md": variables(),
    }


def variables() -> str:
    """The table of variables, entries of lists below their list."""
    schema = HostVariables.model_json_schema()
    rows: list[str] = []
    for name, row in schema["properties"].items():
        rows.append(_row(f"`{name}`", row, _default(HostVariables, name)))
        inner = ENTRIES.get(name)
        if inner is not None:
            properties = inner.model_json_schema()["properties"]
            rows.extend(_row(f"`{name}[].{key}`", item, _default(inner, key)) for key, item in properties.items())
    return VARIABLES_HEAD + "\n".join(rows) + "\n"


def _row(label: str, row: dict[str, Any], default: str) -> str:
    kind = row if "type" in row else next(item for item in row["anyOf"] if item["type"] != "null")
    return "| " + " | ".join([label, kind["type"], default, _bounds(kind), row["description"]]) + " |"


def _default(model: type[BaseModel], name: str) -> str:
    info = model.model_fields[name]
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if value is None:
        return "none"
    return f"`{json.dumps(value, default=BaseModel.model_dump)}`"


def _bounds(kind: dict[str, Any]) -> str:
    if "minimum" in kind:
        return f"{kind['minimum']} to {kind['maximum']}"
    if "pattern" in kind:
        return f"`{kind['pattern']}`"
    if "minLength" in kind:
        return f"{kind['minLength']} or more characters"
    return ""
