"""What an inventory implies, as things and what connects them: hosts, instances, cards, groups, connectors. Pure.

A row is one thing of an instance. Groups with one `place` are one, and instances meet there: at an address and port of
multicast, in a directory, under names in DNS, or through the same peers of gossip. Instances with a list of first nodes
meet nowhere, and lead to those of the list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mqbroker.config.declarations.variables import LOOPBACK, HostVariables, Instance

from mqctl.inventory import node_name

GraphRow = dict[str, Any]
SENDS, HEARS, LINKS = "broadcast-group", "discovery-group", "cluster-connection"


def rows_of(cluster: str, host: str, address: str, variables: HostVariables) -> Iterator[GraphRow]:
    """Everything of one host. `on` is the network card or address that a thing is bound to."""
    common = str(variables.mq_local_bind_address or variables.mq_cluster_interface or LOOPBACK)
    for instance in variables.mq_instances:
        place = {"cluster": cluster, "host": host, "address": address, "instance": instance.name}
        for thing in _things(variables, instance, common):
            yield {**place, **thing}


def _things(variables: HostVariables, instance: Instance, common: str) -> Iterator[GraphRow]:
    for row in variables.mq_listeners:
        on = str(row.get("local_bind_address", common))
        yield _thing("listener", row["name"], _port(row, instance), on)
    if variables.mq_metrics_port:
        port = str(variables.mq_metrics_port + instance.port_offset)
        yield _thing("metrics", "metrics", port, str(variables.mq_metrics_local_bind_address))
    for row in variables.mq_connectors:
        yield _thing("connector", row["name"], _port(row, instance), str(row.get("host", common)))
    for what, rows in ((SENDS, variables.mq_broadcast_groups), (HEARS, variables.mq_discovery_groups)):
        for row in rows:
            place, on = _meeting_place(row, common, instance)
            yield {**_thing(what, row["name"], place, on), "connector": row.get("connector_ref")}
    connectors = {row["name"]: f"{row.get('host', common)}:{_port(row, instance)}" for row in variables.mq_connectors}
    for row in variables.mq_cluster_connections:
        first = [connectors[name] for name in row.get("static_connectors", []) if name in connectors]
        place = ", ".join(first) or str(row.get("discovery_group_ref", ""))
        own = row.get("connector_ref")
        yield {**_thing(LINKS, row["name"], place, connectors.get(own, "")), "connector": own}


def _meeting_place(row: Mapping[str, Any], common: str, instance: Instance) -> tuple[str, str]:
    """Where a group meets others, and what of this host it is bound to; files and names are bound to nothing."""
    bound_to = str(row.get("local_bind_address", common))
    match row.get("discovery", "udp"):
        case "file":
            return str(row.get("directory", "")), ""
        case "dns":
            return ", ".join(map(str, row.get("names", []))), ""
        case "gossip":
            port = int(row.get("local_bind_port", 0)) + instance.port_offset
            return ", ".join(map(str, row.get("peers", []))), f"{bound_to}:{port}"
    return f"{row.get('group_address')}:{row.get('group_port')}", bound_to or "routes of the host"


def _thing(what: str, name: Any, place: str, on: str) -> GraphRow:
    return {"what": what, "name": str(name), "place": place, "on": on, "connector": None}


def _port(row: Mapping[str, Any], instance: Instance) -> str:
    return str(int(row["port"]) + instance.port_offset)


def meetings(rows: Sequence[GraphRow]) -> list[GraphRow]:
    """The places where instances meet, with who announces itself there and who listens."""
    by_place: dict[tuple[str, str], GraphRow] = {}
    for row in rows:
        if row["what"] in (SENDS, HEARS):
            empty: GraphRow = {
                "cluster": row["cluster"],
                "place": row["place"],
                "names": [],
                "senders": [],
                "receivers": [],
            }
            one = by_place.setdefault((row["cluster"], row["place"]), empty)
            if row["name"] not in one["names"]:
                one["names"].append(row["name"])
            one["senders" if row["what"] == SENDS else "receivers"].append(node_of(row))
    return list(by_place.values())


def node_of(row: GraphRow) -> str:
    """A node as `--host` takes it."""
    return node_name(str(row["host"]), str(row["instance"]))


def dot(rows: Sequence[GraphRow]) -> str:
    """The same for Graphviz: a box for each cluster and host, an ellipse for each place where nodes meet."""
    lines = ["graph inventory {", "  rankdir=LR;", "  node [shape=box];"]
    for number, cluster in enumerate(dict.fromkeys(row["cluster"] for row in rows)):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(cluster)};"]
        own = [row for row in rows if row["cluster"] == cluster]
        for name in dict.fromkeys(map(node_of, own)):
            lines.append(f"    {_quoted(f'{cluster} {name}')} [label={_quoted(_label(name, own))}];")
        lines.append("  }")
    for one in meetings(rows):
        # Two clusters on one place meet there, whether they mean to or not.
        place = _quoted(one["place"])
        lines.append(f"  {place} [shape=ellipse];")
        edges: dict[tuple[str, str], set[str]] = {}
        for row in rows:
            if (row["cluster"], row["place"]) == (one["cluster"], one["place"]) and row["what"] in (SENDS, HEARS):
                edges.setdefault((node_of(row), row["on"]), set()).add(row["what"])
        for (name, on), kinds in edges.items():
            way = "both" if len(kinds) == 2 else "forward" if kinds == {SENDS} else "back"
            node = _quoted(f"{one['cluster']} {name}")
            lines.append(f"  {node} -- {place} [dir={way}, label={_quoted(on)}];")
    lines += _lists(rows)
    return "\n".join([*lines, "}"]) + "\n"


def _lists(rows: Sequence[GraphRow]) -> Iterator[str]:
    """From each node to those of its lists of first nodes; who is none of the inventory is the place itself."""
    groups = {(row["cluster"], node_of(row), row["name"]) for row in rows if row["what"] == HEARS}
    at: dict[str, str] = {}
    for row in rows:
        if row["what"] == LINKS:
            # A list may name a node by its card's address, by what Ansible calls it, or by how Ansible reaches it.
            port = row["on"].rpartition(":")[2]
            key = f"{row['cluster']} {node_of(row)}"
            at |= dict.fromkeys((row["on"], f"{row['host']}:{port}", f"{row['address']}:{port}"), key)
    for row in rows:
        key = f"{row['cluster']} {node_of(row)}"
        if row["what"] != LINKS or (row["cluster"], node_of(row), row["place"]) in groups:
            continue
        for place in row["place"].split(", "):
            if (target := at.get(place, place)) != key:
                yield f"  {_quoted(key)} -- {_quoted(target)} [dir=forward, label={_quoted(row['name'])}];"


def _label(name: str, rows: Sequence[GraphRow]) -> str:
    own = [row for row in rows if node_of(row) == name]
    lines = [name, *dict.fromkeys(row["address"] for row in own)]
    lines += [f"{row['what']} {row['name']} {row['on']}:{row['place']}" for row in own if row["what"] in _PORTS]
    return "\n".join(lines)


_PORTS = ("listener", "connector")


def _quoted(text: str) -> str:
    """A string of DOT: as in JSON, but for line ends, which DOT writes the same way."""
    return json.dumps(text, ensure_ascii=False)
