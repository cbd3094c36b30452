"""From the variables of a host to the tables of its `broker.toml`, and from tables to text.

This is the reference for the role's template: a contract test renders both and compares them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mqbroker.config.declaring import toml_name
from mqbroker.config.group_kinds import HAVE_LOCAL_ADDRESS
from mqbroker.config.variables import LOOPBACK, HostVariables, Instance

TABLE_ORDER = ("node", "journal", "limits", "metrics")
REPEATED_ORDER = (
    "listeners", "address_settings", "security_settings", "diverts", "connectors", "broadcast_groups",
    "discovery_groups", "connection_routers",
)  # fmt: skip


def tables_of(variables: HostVariables, instance: Instance, address: str | None = None) -> dict[str, Any]:
    """The tables of one instance, names as in YAML. `address`: what mq_cluster_interface resolved to on the host."""
    options = variables.mq_broker_options
    node = {
        "name": instance.name,
        "data_directory": f"/var/lib/mq/{instance.name}",
        "admin_socket": f"/run/mq/{instance.name}/admin.sock",
        "users_file": f"/var/lib/mq/{instance.name}/users.json",
    }
    made: dict[str, Any] = {"node": {**node, **options.get("node", {})}}
    for name in TABLE_ORDER[1:]:
        if options.get(name):
            made[name] = dict(options[name])
    made["metrics"] = {**_metrics(variables, instance), **options.get("metrics", {})}
    bound_to = variables.mq_local_bind_address or address or LOOPBACK
    made["listeners"] = [_listener(row, variables, instance, bound_to) for row in variables.mq_listeners]
    made["address_settings"] = [dict(row) for row in variables.mq_address_settings]
    made["security_settings"] = [dict(row) for row in variables.mq_security_settings]
    made["diverts"] = [dict(row) for row in variables.mq_diverts]
    made["connectors"] = [{"host": bound_to, **_shifted(row, instance)} for row in variables.mq_connectors]
    made["broadcast_groups"] = [_group(row, instance, bound_to) for row in variables.mq_broadcast_groups]
    made["discovery_groups"] = [_group(row, instance, bound_to) for row in variables.mq_discovery_groups]
    made["connection_routers"] = [dict(row) for row in variables.mq_connection_routers]
    return made


def _group(row: Mapping[str, Any], instance: Instance, bound_to: str) -> dict[str, Any]:
    """Only gossip has a port of this host that others connect to, which each instance needs for itself."""
    kind, port = row.get("discovery", "udp"), row.get("local_bind_port")
    made = {**({"local_bind_address": bound_to} if kind in HAVE_LOCAL_ADDRESS else {}), **row}
    if kind == "gossip" and isinstance(port, int):
        made["local_bind_port"] = port + instance.port_offset
    return made


def _metrics(variables: HostVariables, instance: Instance) -> dict[str, Any]:
    port = variables.mq_metrics_port
    shifted = port + instance.port_offset if port else 0
    return {"local_bind_address": variables.mq_metrics_local_bind_address, "port": shifted}


def _listener(row: Mapping[str, Any], variables: HostVariables, instance: Instance, bound_to: str) -> dict[str, Any]:
    common = {"local_bind_address": bound_to, "allow_plaintext": variables.mq_allow_plaintext}
    return common | _shifted(row, instance)


def _shifted(row: Mapping[str, Any], instance: Instance) -> dict[str, Any]:
    port = row.get("port", 0)
    return {**row, "port": port + instance.port_offset if isinstance(port, int) else port}


def toml_text(tables: Mapping[str, Any]) -> str:
    """The text of `broker.toml`: tables in their order, those that repeat last.

    JSON literals of such values are TOML as long as nothing beyond ASCII is escaped (TOML knows no surrogates).
    """
    parts = [_block(f"[{name}]", tables[name]) for name in TABLE_ORDER if tables.get(name)]
    for name in REPEATED_ORDER:
        parts += [_block(f"[[{toml_name(name)}]]", row) for row in tables.get(name, [])]
    return "\n".join(parts)


def _block(head: str, row: Mapping[str, Any]) -> str:
    return "".join(
        [
            f"{head}\n",
            *(f"{toml_name(name)} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in row.items()),
        ]
    )


def render_toml(variables: HostVariables, instance: Instance, address: str | None = None) -> str:
    """`broker.toml` of one instance as the role writes it, without the role's heading."""
    return toml_text(tables_of(variables, instance, address))
