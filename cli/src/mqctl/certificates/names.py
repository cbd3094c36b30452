"""What the certificate of a node is for: its name, and every name and address that others reach it by."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mqbroker.config.declarations.variables import HostVariables
from mqbroker.config.inventory.tables import tables_of

from mqctl.certificates.authority import DNS_NAME
from mqctl.inventory import Host


@dataclass(frozen=True, slots=True)
class InstanceNames:
    """One broker instance of a host, and the names that its certificate must have."""

    host: str
    instance: str
    names: tuple[str, ...]

    @property
    def common_name(self) -> str:
        """The common name of its certificate's subject: `host/instance`."""
        return f"{self.host}/{self.instance}"


def nodes_of(host: Host, variables: HostVariables, card_address: str | None) -> list[InstanceNames]:
    """All instances of a host. `card_address`: what mq_cluster_interface has, None where the inventory names none."""
    made = []
    for instance in variables.mq_instances:
        tables = tables_of(variables, instance, host.name, card_address)
        wanted = dict.fromkeys([host.name, str(host.variables.get("ansible_host") or ""), *_of_tables(tables)])
        wanted |= dict.fromkeys(variables.mq_tls_names)
        made.append(InstanceNames(host.name, instance.name, tuple(one for one in wanted if _can_be_named(one))))
    return made


def _of_tables(tables: dict[str, Any]) -> Iterator[str]:
    """Where listeners are bound, and what connectors say."""
    for row in tables["listeners"]:
        address = str(row["local_bind_address"])
        yield address
        if _is_loopback(address):
            yield "localhost"
    for row in tables["connectors"]:
        yield str(row["host"])


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _can_be_named(text: str) -> bool:
    """An address of one card, or a DNS name; what an inventory calls a host need be neither."""
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return DNS_NAME.fullmatch(text) is not None
