"""From the variables of a host to the tables of its `broker.toml`, and from tables to text.

This is the reference for the role's template: a contract test renders both and compares them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from mqbroker.config.declarations.group_kinds import HAVE_LOCAL_ADDRESS
from mqbroker.config.declarations.variables import LOOPBACK, HostVariables, Instance, is_true
from mqbroker.config.names import toml_name

TABLE_ORDER = ("node", "journal", "limits", "grouping_handler", "scale_down", "metrics")
REPEATED_ORDER = (
    "listeners", "address_settings", "security_settings", "addresses", "diverts", "connectors",
    "broadcast_groups", "discovery_groups", "cluster_connections", "connection_routers",
)  # fmt: skip
NAME_CHARACTERS_MAX = 63


def tables_of(variables: HostVariables, instance: Instance, host: str, address: str | None = None) -> dict[str, Any]:
    """The tables of one instance, names as in YAML. `address`: what mq_cluster_interface resolved to on the host."""
    options = variables.mq_broker_options
    node = {
        "name": node_name(instance, host),
        "data_directory": f"/var/lib/mq/{instance.name}",
        "admin_socket": f"/run/mq/{instance.name}/admin.sock",
        "users_file": f"/var/lib/mq/{instance.name}/users.json",
    }
    made: dict[str, Any] = {"node": {**node, **options.get("node", {})}}
    for name in TABLE_ORDER[1:]:
        if options.get(name):
            made[name] = dict(options[name])
    if variables.mq_grouping_handler:
        made["grouping_handler"] = dict(variables.mq_grouping_handler)
    made["metrics"] = {**_metrics(variables, instance), **options.get("metrics", {})}
    bound_to = variables.mq_local_bind_address or address or LOOPBACK
    made["listeners"] = [_listener(row, variables, instance, bound_to) for row in variables.mq_listeners]
    made["address_settings"] = [dict(row) for row in variables.mq_address_settings]
    made["security_settings"] = [dict(row) for row in variables.mq_security_settings]
    made["addresses"] = [dict(row) for row in variables.mq_addresses]
    made["diverts"] = [dict(row) for row in variables.mq_diverts]
    made["connectors"] = [_connector(row, made["listeners"], instance, bound_to) for row in variables.mq_connectors]
    made["broadcast_groups"] = [_group(row, instance, bound_to) for row in variables.mq_broadcast_groups]
    made["discovery_groups"] = [_group(row, instance, bound_to) for row in variables.mq_discovery_groups]
    made["cluster_connections"] = [dict(row) for row in variables.mq_cluster_connections]
    made["connection_routers"] = [dict(row) for row in variables.mq_connection_routers]
    return made


def node_name(instance: Instance, host: str) -> str:
    """What the inventory calls the host, as far as a node may be called so: it may be an IPv6 address, or long."""
    if instance.node_name:
        return instance.node_name
    behind = "" if instance.name == "default" else f"-{instance.name}"
    return re.sub("[^A-Za-z0-9._-]", "-", host).lstrip("._-")[: NAME_CHARACTERS_MAX - len(behind)] + behind


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
    return common | tls_options(row, variables.mq_tls, instance.name) | _shifted(row, instance)


def has_cluster_certificate(row: Mapping[str, Any], tls: str) -> bool:
    """Whether a listener gets the certificate of its node: not where it names its own, or is to have none."""
    return tls != "off" and not row.get("tls_certificate_file") and not is_true(row.get("allow_plaintext", False))


def tls_options(row: Mapping[str, Any], tls: str, instance: str) -> dict[str, Any]:
    """The files that the role `tls` puts on the host. Nodes prove by certificate that they belong to the cluster."""
    if not has_cluster_certificate(row, tls):
        return {}
    place = f"/etc/mq/{instance}/tls"
    made = {"tls_certificate_file": f"{place}/server.pem", "tls_key_file": f"{place}/server.key"}
    auth = row.get("tls_client_auth", "required" if row.get("kind") == "cluster" else "none")
    return made | ({"tls_client_auth": auth, "tls_client_ca_file": f"{place}/ca.pem"} if auth != "none" else {})


def _connector(
    row: Mapping[str, Any], listeners: list[dict[str, Any]], instance: Instance, bound_to: str
) -> dict[str, Any]:
    """Others are told whether the listener that it leads to has TLS."""
    made = _shifted(row, instance)
    has_tls = any(one["port"] == made["port"] and one.get("tls_certificate_file") for one in listeners)
    return {"host": bound_to, **({"tls_enabled": True} if has_tls else {}), **made}


def _shifted(row: Mapping[str, Any], instance: Instance) -> dict[str, Any]:
    port = row.get("port", 0)
    return {**row, "port": port + instance.port_offset if isinstance(port, int) else port}


def toml_text(tables: Mapping[str, Any]) -> str:
    """The text of `broker.toml`: tables in their order, those that repeat last.

    JSON literals of such values are TOML as long as nothing beyond ASCII is escaped (TOML knows no surrogates).
    """
    parts = [_block(f"[{toml_name(name)}]", tables[name]) for name in TABLE_ORDER if tables.get(name)]
    for name in REPEATED_ORDER:
        parts += [_block(f"[[{toml_name(name)}]]", row) for row in tables.get(name, [])]
    return "\n".join(parts)


def _block(head: str, row: Mapping[str, Any]) -> str:
    return "".join(
        [
            f"{head}\n",
            *(f"{toml_name(name)} = {_literal(value)}\n" for name, value in row.items()),
        ]
    )


def _literal(value: Any) -> str:
    """A value, on one line: tables inside of a table are inline tables."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_name(name)} = {_literal(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def render_toml(variables: HostVariables, instance: Instance, host: str, address: str | None = None) -> str:
    """`broker.toml` of one instance as the role writes it, without the role's heading."""
    return toml_text(tables_of(variables, instance, host, address))
