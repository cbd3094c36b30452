"""Checks the variables of all hosts before any host is touched, and reports everything that is wrong at once.

Values that only Ansible can know (templates, vaulted texts) are taken as present and right; the same rules meet them
again on the host. A fault that many hosts share, because a group sets the variable, is reported once with its hosts.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from pydantic import ValidationError

from mqbroker.base.errors import ConfigFault
from mqbroker.config.declarations import catalogue, clustering, grouping, routing
from mqbroker.config.declarations.declaration import OptionTable
from mqbroker.config.declarations.group_kinds import HAVE_LOCAL_ADDRESS
from mqbroker.config.declarations.options import ListenerTable
from mqbroker.config.declarations.variables import (
    CLUSTER_USER,
    LOOPBACK,
    METRICS_PORT,
    OWNED_BY_ROLE,
    SECRET_NAMES,
    WRITTEN_AS,
    HostVariables,
    default_listeners,
    tls_of,
)
from mqbroker.config.file import faults, suggestions
from mqbroker.config.file.faults import merged
from mqbroker.config.file.load import address_faults, overlap, tls_faults
from mqbroker.config.inventory import release_variables
from mqbroker.config.inventory.broker_findings import broker_faults
from mqbroker.config.inventory.hosts import second_names
from mqbroker.config.inventory.tables import has_cluster_certificate, tls_options
from mqbroker.config.matching import DELIMITER, same_for_all
from mqbroker.config.names import REPEATED_TABLES, toml_name, yaml_name
from mqbroker.config.users import WELL_KNOWN_PASSWORDS, check_roles, user_name

PREFIX = "mq_"
OPAQUE = "{{ known to Ansible only }}"
PORT_MAX = 65535
OPTION_NAME = re.compile(r"\b(?:tls|sasl)(?:-[a-z]+)+")
EVERYWHERE = frozenset({"0.0.0.0", "::"})
PLAINTEXT = (
    "makes listeners without TLS reachable from the network: passwords and messages would cross it unencrypted; set "
    "mq_tls: managed, or mq_allow_plaintext: true if that network is trusted"
)

Vars = Mapping[str, Any]


def check_inventory(hosts: Mapping[str, Vars]) -> list[ConfigFault]:
    """Everything that is wrong with these hosts: name -> variables, as `ansible-inventory --list` has them."""
    known = {host: own_variables(variables) for host, variables in hosts.items()}
    brokers = {host: variables for host, variables in known.items() if "mq_cluster_name" in variables}
    faults: list[tuple[str, ConfigFault]] = []
    for host, variables in known.items():
        faults += [(host, fault) for fault in _unknown_variables(variables)]
    for host, variables in brokers.items():
        faults += [(host, fault) for fault in release_variables.found_faults(hosts[host])]
        own = [fault for check in HOST_CHECKS for fault in check(variables)]
        faults += [(host, fault) for fault in own or broker_faults(variables, OPAQUE)]
    faults += [(one.host, ConfigFault("ansible_host", one.why)) for one in second_names({h: hosts[h] for h in brokers})]
    faults += [*_between_hosts(brokers), *grouping.between_hosts(brokers, OPAQUE), *clustering.between_hosts(brokers)]
    if not brokers:
        why = "is set for no host; set it for the group that is the cluster, then add secrets with `mqctl init`"
        return [*merged(faults), ConfigFault("mq_cluster_name", why)]
    return merged(faults)


def host_variables(variables: Vars) -> HostVariables:
    """The typed variables of one host. Raises ConfigFault with the first fault; use check_inventory to show all."""
    for check in HOST_CHECKS:
        for fault in check(own_variables(variables)):
            raise fault
    return HostVariables.model_validate(own_variables(variables))


def own_variables(variables: Vars) -> dict[str, Any]:
    """Those that are ours; what only Ansible knows is marked."""
    return {name: _without_opaque(value) for name, value in variables.items() if name.startswith(PREFIX)}


def _without_opaque(value: Any) -> Any:
    """Templates and vaulted values become one mark that every check leaves alone."""
    if isinstance(value, str) and ("{{" in value or "{%" in value):
        return OPAQUE
    if isinstance(value, Mapping):
        if "__ansible_vault" in value:
            return OPAQUE
        return {str(key): _without_opaque(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_opaque(item) for item in value]
    return value


def _unknown_variables(variables: Vars) -> list[ConfigFault]:
    known = HostVariables.model_fields
    return [ConfigFault(name, suggestions.unknown("variable", name, known)) for name in variables if name not in known]


def _types(variables: Vars) -> list[ConfigFault]:
    known = {name: value for name, value in variables.items() if name in HostVariables.model_fields}
    try:
        HostVariables.model_validate(known)
    except ValidationError as error:
        return faults.from_validation(HostVariables, error, what="variable", hidden=SECRET_NAMES, ignored=OPAQUE)
    return []


def _secrets(variables: Vars) -> list[ConfigFault]:
    faults = []
    if str(variables.get("mq_cluster_secret", "")).strip().lower() in WELL_KNOWN_PASSWORDS:
        faults.append(ConfigFault("mq_cluster_secret", "is a well-known default; `mqctl init` makes a random one"))
    for number, user in enumerate(_rows(variables, "mq_users")):
        if str(user.get("password", OPAQUE)).strip().lower() in WELL_KNOWN_PASSWORDS:
            path = f"mq_users.{number}.password"
            faults.append(ConfigFault(path, "is a well-known default; `mqctl init` makes a random one"))
    return faults


def _users(variables: Vars) -> list[ConfigFault]:
    faults = []
    seen: dict[str, int] = {}
    for number, user in enumerate(_rows(variables, "mq_users")):
        path = f"mq_users.{number}"
        name, roles = user.get("name"), user.get("roles", ["client"])
        if isinstance(name, str) and name != OPAQUE:
            faults += _user_name_faults(f"{path}.name", name, seen, number)
        if isinstance(roles, list) and OPAQUE not in roles:
            faults += _role_faults(f"{path}.roles", roles)
    return faults


def _user_name_faults(path: str, said: str, seen: dict[str, int], number: int) -> list[ConfigFault]:
    """As it is stored: two spellings of one name are one user."""
    try:
        name = user_name(said)
    except ConfigFault as fault:
        return [ConfigFault(path, fault.why)]
    first = seen.setdefault(name, number)
    if first != number:
        return [ConfigFault(path, f"user {name} is declared twice, first as mq_users.{first}; remove one of them")]
    if name == CLUSTER_USER:
        return [ConfigFault(path, f"{name} is the user of the nodes themselves; choose another name")]
    return []


def _role_faults(path: str, roles: list[Any]) -> list[ConfigFault]:
    try:
        if "cluster" in check_roles(tuple(roles)):
            return [ConfigFault(path, "the role cluster belongs to the nodes themselves; remove it")]
    except ConfigFault as fault:
        return [ConfigFault(path, fault.why)]
    return []


def _addresses(variables: Vars) -> list[ConfigFault]:
    explicit, card = variables.get("mq_local_bind_address"), variables.get("mq_cluster_interface")
    if explicit and card:
        return [ConfigFault("mq_local_bind_address", "is set beside mq_cluster_interface; keep one of the two")]
    common = "mq_cluster_interface" if card else "mq_local_bind_address"
    common_is_remote = bool(card) or not _is_loopback(explicit)
    places: dict[str, None] = {}
    for number, row in enumerate(_listener_rows(variables)):
        own = row.get("local_bind_address")
        is_remote = not _is_loopback(own) if own else common_is_remote
        if row.get("tls_certificate_file") or has_cluster_certificate(row, tls_of(variables)):
            continue
        if is_remote and _is_false(row.get("allow_plaintext", variables.get("mq_allow_plaintext", False))):
            places[f"mq_listeners.{number}.local_bind_address" if own else common] = None
    return [ConfigFault(place, PLAINTEXT) for place in places]


def _is_loopback(address: object) -> bool:
    try:
        return ipaddress.ip_address(str(address)).is_loopback
    except ValueError:
        return True  # No address at all: the check of types has said so, or Ansible will know it.


def _is_false(value: object) -> bool:
    return value is False or str(value).lower() in {"false", "no", "off", "n", "f", "0"}


def _tls(variables: Vars) -> list[ConfigFault]:
    """Provided certificates are whole, and nothing of them stands where it means nothing."""
    mode, names = tls_of(variables), ("mq_tls_certificate_file", "mq_tls_key_file", "mq_tls_ca_file")
    if mode != "provided":
        why = f"means nothing while mq_tls is {mode}; set mq_tls: provided, or remove this"
        return [ConfigFault(name, why) for name in names if variables.get(name)]
    faults = []
    for name in names:
        value = variables.get(name)
        if not value:
            faults.append(ConfigFault(name, "is missing: mq_tls is provided; set the path of the file on this machine"))
        elif value != OPAQUE and not str(value).startswith(("/", "~")):
            faults.append(ConfigFault(name, f"{value} must be an absolute path, or begin with ~"))
    return faults


def _firewall(variables: Vars) -> list[ConfigFault]:
    """Sources of one rule are of one family, as nftables has it."""
    faults = []
    for number, row in enumerate(_rows(variables, "mq_firewall_open")):
        sources = row.get("sources")
        families = {":" in str(one) for one in sources if one != OPAQUE} if isinstance(sources, list) else set()
        if len(families) > 1:
            why = "has IPv4 and IPv6; write an entry for each"
            faults.append(ConfigFault(f"mq_firewall_open.{number}.sources", why))
    return faults


def _broker_options(variables: Vars) -> list[ConfigFault]:
    given = variables.get("mq_broker_options", {})
    if not isinstance(given, Mapping):
        return []
    models = {name: model for name, model in catalogue.tables().items() if name not in REPEATED_TABLES}
    faults = []
    for table, row in given.items():
        path = f"mq_broker_options.{table}"
        if table in REPEATED_TABLES:
            faults.append(ConfigFault(path, f"is written as mq_{table}, a list"))
        elif table == "grouping_handler":
            faults.append(ConfigFault(path, "is written as mq_grouping_handler"))
        elif table not in models:
            known = {name: model for name, model in models.items() if name != "grouping_handler"}
            faults.append(ConfigFault(path, suggestions.unknown("table", table, known)))
        elif isinstance(row, Mapping):
            owned = OWNED_BY_ROLE.get(table, frozenset())
            faults += [ConfigFault(f"{path}.{name}", _owner(table, name)) for name in row if name in owned]
            faults += _row_faults(path, models[table], row)
    return faults


def _owner(table: str, name: str) -> str:
    variable = WRITTEN_AS.get((table, name))
    return f"is written as {variable}" if variable else "is set by the role; remove it"


def _listeners(variables: Vars) -> list[ConfigFault]:
    model = catalogue.tables()["listeners"]
    faults = []
    seen: dict[str, int] = {}
    for number, row in enumerate(_rows(variables, "mq_listeners")):
        path = f"mq_listeners.{number}"
        faulty = _row_faults(path, model, row)
        faults += faulty or _together_faults(path, tls_options(row, tls_of(variables), "default") | row)
        name = row.get("name")
        if not isinstance(name, str) or name == OPAQUE:
            continue
        if name in seen:
            faults.append(
                ConfigFault(f"{path}.name", f"listener {name} is declared twice, first as mq_listeners.{seen[name]}")
            )
        seen.setdefault(name, number)
    return faults


def _declared_addresses(variables: Vars) -> list[ConfigFault]:
    rows = [_toml_row(row) for row in _rows(variables, "mq_addresses")]
    matched = [row_fault for row_fault in _matched(variables, "addresses") if " is declared twice" not in row_fault.why]
    return matched + [
        ConfigFault(yaml_name(fault.path), fault.why.replace("routing-types", "routing_types"))
        for fault in address_faults(rows, "mq_addresses")
        if OPAQUE not in fault.why
    ]


def _toml_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A table as it is in the file, and tables in it."""
    return {toml_name(name): _toml_value(value) for name, value in row.items()}


def _toml_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_toml_row(each) if isinstance(each, Mapping) else each for each in value]
    return value


def _matched(variables: Vars, table: str) -> list[ConfigFault]:
    """Tables that are told apart by one option."""
    model, key = catalogue.tables()[table], REPEATED_TABLES[table]
    faults = []
    seen: dict[str, int] = {}
    for number, row in enumerate(_rows(variables, f"mq_{table}")):
        path, said = f"mq_{table}.{number}", str(row.get(key))
        match = DELIMITER.join(same_for_all(said.split(DELIMITER))) if key == "match" else said
        faults += _row_faults(path, model, row)
        if match in seen and match != OPAQUE:
            first = f"mq_{table}.{seen[match]}"
            faults.append(ConfigFault(f"{path}.{key}", f"{said} is declared twice, first as {first}"))
        seen.setdefault(match, number)
    return faults


def _clustering(variables: Vars) -> list[ConfigFault]:
    """Connectors, groups and cluster connections, with the address of the host where they name none."""
    common = variables.get("mq_local_bind_address") or (OPAQUE if variables.get("mq_cluster_interface") else LOOPBACK)
    wrong, raw = [], dict[str, Any]()
    for table, added in (
        ("connectors", {"host": common}),
        ("broadcast_groups", {"local_bind_address": common}),
        ("discovery_groups", {"local_bind_address": common}),
        ("cluster_connections", {}),
    ):
        rows = [(added if _takes_address(table, row) else {}) | row for row in _rows(variables, f"mq_{table}")]
        for number, row in enumerate(rows):
            wrong += _row_faults(f"mq_{table}.{number}", catalogue.tables()[table], row)
        raw[toml_name(table)] = [{toml_name(name): value for name, value in row.items()} for row in rows]
    handler = variables.get("mq_grouping_handler")
    if isinstance(handler, Mapping):
        wrong += _row_faults("mq_grouping_handler", catalogue.tables()["grouping_handler"], handler)
        raw[grouping.HEAD] = {toml_name(name): value for name, value in handler.items()}
    wrong = [clustering.explained(one) for one in wrong]
    for number, row in enumerate(_rows(variables, "mq_connection_routers")):
        wrong += _row_faults(f"mq_connection_routers.{number}", catalogue.tables()["connection_routers"], row)
    for name, rows in (
        ("connection-routers", _rows(variables, "mq_connection_routers")),
        ("listeners", _listener_rows(variables)),
    ):
        raw[name] = [{toml_name(key): value for key, value in row.items()} for row in rows]
    for fault in (*clustering.faults(raw, unknown=OPAQUE), *routing.faults(raw, unknown=OPAQUE)):
        wrong.append(ConfigFault(f"mq_{yaml_name(fault.path)}", fault.why))
    return wrong + _connector_ports(variables)


def _takes_address(table: str, row: Mapping[str, Any]) -> bool:
    return table == "connectors" or row.get("discovery", "udp") in HAVE_LOCAL_ADDRESS


def _gossip_ports(variables: Vars, offset: int) -> list[tuple[int, str, str]]:
    """As _ports. A broadcast group and a discovery group may share one."""
    common = variables.get("mq_local_bind_address") or (OPAQUE if variables.get("mq_cluster_interface") else LOOPBACK)
    rows = _rows(variables, "mq_broadcast_groups") + _rows(variables, "mq_discovery_groups")
    ports = {
        (row["local_bind_port"] + offset, str(row.get("local_bind_address", common))): None
        for row in rows
        if row.get("discovery") == "gossip" and isinstance(row.get("local_bind_port"), int)
    }
    return [(port, address, "gossip") for port, address in ports]


def _connector_ports(variables: Vars) -> list[ConfigFault]:
    offsets = [row.get("port_offset", 0) for row in _rows(variables, "mq_instances")]
    offset = max((one for one in offsets if isinstance(one, int)), default=0)
    return [
        ConfigFault(f"mq_connectors.{number}.port", f"is above {PORT_MAX} with the port_offset {offset}")
        for number, row in enumerate(_rows(variables, "mq_connectors"))
        if isinstance(row.get("port"), int) and row["port"] <= PORT_MAX < row["port"] + offset
    ]


def _together_faults(path: str, row: Mapping[str, Any]) -> list[ConfigFault]:
    """Faults between options of a listener, where Ansible need not be asked for one of them."""
    if any(value == OPAQUE for value in row.values()):
        return []
    table = ListenerTable.model_validate({toml_name(name): value for name, value in row.items()})
    return [
        ConfigFault(f"{path}.{yaml_name(option)}", OPTION_NAME.sub(lambda match: yaml_name(match[0]), why))
        for option, why in tls_faults(table)
    ]


def _row_faults(path: str, model: type[OptionTable], row: Mapping[str, Any]) -> list[ConfigFault]:
    """Faults of a table that is written with underscores."""
    wrong = [ConfigFault(f"{path}.{name}", f"is written {yaml_name(name)} here") for name in row if "-" in name]
    try:
        model.model_validate(_toml_row(row))
    except ValidationError as error:
        wrong += [
            ConfigFault(f"{path}.{yaml_name(fault.path)}", _yaml_suggestion(fault.why))
            for fault in faults.from_validation(model, error, ignored=OPAQUE)
        ]
    return wrong


def _yaml_suggestion(why: str) -> str:
    """The sentence with the suggested name as YAML has it."""
    head, mark, name = why.partition("did you mean ")
    return head + mark + yaml_name(name)


def _instances(variables: Vars) -> list[ConfigFault]:
    """Names once, ports of one host once."""
    rows = _rows(variables, "mq_instances") or [{"name": "default"}]
    faults = []
    names: dict[str, int] = {}
    taken: list[tuple[int, str, str]] = []
    for number, row in enumerate(rows):
        path, name, offset = f"mq_instances.{number}", str(row.get("name")), row.get("port_offset", 0)
        if name in names:
            faults.append(
                ConfigFault(f"{path}.name", f"instance {name} is declared twice, first as mq_instances.{names[name]}")
            )
        names.setdefault(name, number)
        if isinstance(offset, int):
            faults += _port_faults(path, name, _ports(variables, offset), taken)
    return faults


def _ports(variables: Vars, offset: int) -> list[tuple[int, str, str]]:
    """(port, address, whose) of one instance. The address of a card is not known yet, but it is one."""
    common = variables.get("mq_local_bind_address") or (OPAQUE if variables.get("mq_cluster_interface") else LOOPBACK)
    ports = [
        (row["port"] + offset, str(row.get("local_bind_address", common)), f"listener {row.get('name')}")
        for row in _listener_rows(variables)
        if isinstance(row.get("port"), int)
    ]
    metrics_port = _whole_number(variables.get("mq_metrics_port", METRICS_PORT))
    if metrics_port:
        address = str(variables.get("mq_metrics_local_bind_address", LOOPBACK))
        ports.append((metrics_port + offset, address, "metrics"))
    return ports + _gossip_ports(variables, offset)


def _whole_number(value: object) -> int:
    """The number, which inventories may write as text; 0 for what is none: the check of types has said so."""
    text = str(value).strip()
    return int(text) if text.isascii() and text.isdigit() else 0


def _listener_rows(variables: Vars) -> list[dict[str, Any]]:
    return _rows(variables, "mq_listeners") if "mq_listeners" in variables else default_listeners(tls_of(variables))


def _port_faults(
    path: str, instance: str, ports: list[tuple[int, str, str]], taken: list[tuple[int, str, str]]
) -> list[ConfigFault]:
    faults = []
    for port, address, whose in ports:
        owner = f"{whose} of instance {instance}"
        other = next((who for used, where, who in taken if used == port and _may_overlap(where, address)), None)
        if other is not None:
            why = f"port {port} of {owner} is taken by {other}; choose another port_offset"
            faults.append(ConfigFault(f"{path}.port_offset", why))
        if port > PORT_MAX:
            faults.append(ConfigFault(f"{path}.port_offset", f"makes port {port} for {owner}, above {PORT_MAX}"))
        taken.append((port, address, owner))
    return faults


def _may_overlap(one: str, other: str) -> bool:
    try:
        return overlap(one, other)
    except ValueError:
        return one == other or EVERYWHERE.issuperset({one, other} - {OPAQUE})


def _between_hosts(brokers: Mapping[str, Vars]) -> list[tuple[str, ConfigFault]]:
    """One secret in a cluster, one host for an address."""
    faults: list[tuple[str, ConfigFault]] = []
    secrets: dict[str, tuple[str, Any]] = {}
    addresses: dict[str, str] = {}
    for host, variables in brokers.items():
        cluster, secret = str(variables["mq_cluster_name"]), variables.get("mq_cluster_secret", OPAQUE)
        first_host, first = secrets.setdefault(cluster, (host, secret))
        if OPAQUE not in (secret, first) and secret != first:
            why = f"differs from that of {first_host} in the same cluster {cluster}; set it for the group"
            faults.append((host, ConfigFault("mq_cluster_secret", why)))
        address = str(variables.get("mq_local_bind_address") or OPAQUE)
        if address == OPAQUE or _is_loopback(address) or ipaddress.ip_address(address).is_unspecified:
            continue
        owner = addresses.setdefault(address, host)
        if owner != host:
            why = f"{address} is the address of {owner} already; set it for each host, or use mq_cluster_interface"
            faults.append((host, ConfigFault("mq_local_bind_address", why)))
    return faults


def _rows(variables: Vars, name: str) -> list[dict[str, Any]]:
    """Those entries of a list variable that are tables; types are complained about elsewhere."""
    value = variables.get(name, [])
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


HOST_CHECKS: tuple[Callable[[Vars], list[ConfigFault]], ...] = (
    _types,
    _secrets,
    _users,
    _addresses,
    _tls,
    _firewall,
    _broker_options,
    _listeners,
    partial(_matched, table="address_settings"),
    partial(_matched, table="security_settings"),
    _declared_addresses,
    partial(_matched, table="diverts"),
    _clustering,
    _instances,
)
