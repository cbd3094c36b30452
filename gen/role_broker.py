"""Defaults and argument_specs of the role `broker`.

The variables `broker_options`, `broker_listeners` and those of the other repeated tables are made from the
declared options.
Variables that only the role knows stand in `role_broker_extra.yml`, each with its `default` (left out where the caller
must give it) and `spec`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
import yaml_text
from mqbroker.config.declarations import catalogue
from mqbroker.config.declarations.catalogue import OptionEntry
from mqbroker.config.declarations.variables import OWNED_BY_ROLE, default_address_settings, default_listeners
from mqbroker.config.inventory.tables import TABLE_ORDER

EXTRA = Path(__file__).parent / "role_broker_extra.yml"
DEFAULTS_PATH = "roles/broker/defaults/main.yml"
SPECS_PATH = "roles/broker/meta/argument_specs.yml"
HEAD = "# Made by `make gen` from the declared options and gen/role_broker_extra.yml; changes belong there.\n"
MATCHED_DEFAULTS = {"address_settings": default_address_settings()}
MATCHED = {
    "address_settings": (
        "What holds at the addresses that match, names with underscores.",
        "Option by option the most specific match wins.",
    ),
    "security_settings": (
        "Roles that have permissions at the addresses that match, names with underscores.",
        "The most specific match holds as a whole; without any, everybody who is logged in may do all.",
    ),
    "addresses": (
        "Addresses that are there from the start and their queues, names with underscores.",
        "What of a queue is left out is as the address settings say.",
    ),
    "diverts": ("Messages of an address that go to another as well, or instead; names with underscores.",),
    "connectors": (
        "How other nodes reach the instances, names with underscores.",
        "The instance's port_offset is added to each port.",
        "Where host is left out, it is the address that listeners are bound to.",
    ),
    "broadcast_groups": (
        "Where every instance announces itself, names with underscores.",
        "Where local_bind_address is left out, it is the address that listeners are bound to.",
    ),
    "discovery_groups": (
        "Where every instance listens for others, names with underscores.",
        "Where local_bind_address is left out, it is the address that listeners are bound to.",
    ),
    "cluster_connections": ("Links of every instance to the other nodes of the cluster; names with underscores.",),
    "connection_routers": ("Where clients are sent to by routers that listeners name, names with underscores.",),
}
# Options that need not be written for each host: the role knows them.
KNOWN_TO_ROLE = frozenset({("connectors", "host")})
KINDS = {"string": "str", "integer": "int", "boolean": "bool", "array": "list", "tables": "list", "number": "float"}


def files() -> dict[str, str]:
    """Both files of the role."""
    extra = yaml.safe_load(EXTRA.read_text(encoding="utf-8"))
    variables = {
        **extra["variables"],
        "broker_listeners": _listeners(),
        **{f"broker_{table}": _matched(table, *sentences) for table, sentences in MATCHED.items()},
        "broker_options": _options(),
    }
    defaults = {name: row["default"] for name, row in variables.items() if "default" in row}
    options = {name: _with_default(row) for name, row in variables.items()}
    main = {"short_description": extra["short_description"], "description": extra["description"], "options": options}
    specs = {"argument_specs": {"main": main}}
    return {
        DEFAULTS_PATH: HEAD + yaml_text.dump(defaults),
        SPECS_PATH: HEAD + yaml_text.dump(specs),
    }


def _with_default(row: dict[str, Any]) -> dict[str, Any]:
    """The spec of a variable."""
    spec = dict(row["spec"])
    if "default" in row:
        spec["default"] = row["default"]
    return spec


def _options() -> dict[str, Any]:
    """One dictionary for each table. What is left out keeps the default of the installed release."""
    rows = catalogue.entries()
    tables: dict[str, Any] = {}
    for name in TABLE_ORDER:
        owned = OWNED_BY_ROLE.get(name, frozenset())
        inner = {
            entry.yaml_name: _spec(entry) for entry in rows if entry.table == name and entry.yaml_name not in owned
        }
        doc = (catalogue.tables()[name].__doc__ or "").strip()
        tables[name] = {"type": "dict", "description": [f"Table [{name}] of broker.toml. {doc}"], "options": inner}
    description = [
        "Options of broker.toml by table, names with underscores.",
        "An option that is left out keeps the default that the installed release has.",
    ]
    return {"default": {}, "spec": {"type": "dict", "description": description, "options": tables}}


def _listeners() -> dict[str, Any]:
    inner = {entry.yaml_name: _spec(entry) for entry in catalogue.entries() if entry.table == "listeners"}
    description = [
        "Listeners of every instance, names with underscores; the instance's port_offset is added to each port.",
        "Where local_bind_address or allow_plaintext is left out, that of the host holds.",
    ]
    spec = {"type": "list", "elements": "dict", "description": description, "options": inner}
    return {"default": default_listeners("off"), "spec": spec}


def _matched(table: str, *description: str) -> dict[str, Any]:
    inner = {entry.yaml_name: _spec(entry) for entry in catalogue.entries() if entry.table == table}
    spec = {"type": "list", "elements": "dict", "description": list(description), "options": inner}
    return {"default": MATCHED_DEFAULTS.get(table, []), "spec": spec}


def _spec(entry: OptionEntry) -> dict[str, Any]:
    made: dict[str, Any] = {"type": KINDS[entry.kind]}
    if entry.kind == "array":
        made["elements"] = "str"
    elif entry.kind == "tables":
        made["elements"] = "dict"
        inner = next(iter(catalogue.nested(entry.table)))
        made["options"] = {each.yaml_name: _spec(each) for each in catalogue.entries() if each.table == inner}
    made["description"] = [_sentence(entry)]
    if entry.choices:
        made["choices"] = list(entry.choices)
    if entry.required and (entry.table, entry.yaml_name) not in KNOWN_TO_ROLE:
        made["required"] = True
    return made


def _sentence(entry: OptionEntry) -> str:
    """The declared sentence with default, unit and bounds, which argument_specs cannot express."""
    facts = []
    if entry.unit:
        facts.append(f"unit {entry.unit}")
    if entry.minimum is not None:
        facts.append(f"{entry.minimum} to {entry.maximum}")
    if not entry.required and entry.default is not None and entry.kind != "tables":
        default = ", ".join(entry.default) if isinstance(entry.default, list) else entry.default
        facts.append(f"default {str(default).lower() if isinstance(default, bool) else default}")
    return f"{entry.sentence} ({'; '.join(facts)})" if facts else entry.sentence
