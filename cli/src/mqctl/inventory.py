"""The inventory as a model: clusters, their hosts, the instances on each, and how each host is reached.

A cluster is the set of hosts with the same `mq_cluster_name`. The control node keeps no state: everything here is
read from the inventory on every run. Variables may hold secrets: they have no representation and are never printed.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqbroker.base.errors import ConfigFault

from mqctl import ansible_cli
from mqctl.declare import InventoryOptions, names_in
from mqctl.errors import CommandError, UsageError
from mqctl.opaque_values import is_open
from mqctl.ssh.variables import Access, access_of
from mqctl.world import World

if TYPE_CHECKING:
    from mqbroker.config.declarations.variables import HostVariables

DEFAULT_FILE = "inventory.yml"
DEFAULT_INSTANCES: list[dict[str, Any]] = [{"name": "default"}]


def node_name(host: str, instance: str) -> str:
    """A node for people and for --host: an instance of a host."""
    return host if instance == "default" else f"{host}/{instance}"


@dataclass(frozen=True, slots=True)
class Host:
    """A host with all variables that groups and the host itself give it."""

    name: str
    cluster: str
    variables: Mapping[str, Any] = field(repr=False)
    settings: Mapping[str, Any] = field(repr=False)

    @property
    def instances(self) -> list[str]:
        """Names of the broker instances on this host."""
        return [str(one.get("name", "")) for one in self.variables.get("mq_instances") or DEFAULT_INSTANCES]

    @property
    def node_names(self) -> list[str]:
        """The names of its nodes, one for each instance."""
        return [node_name(self.name, instance) for instance in self.instances]

    @property
    def access(self) -> Access:
        """How it is reached over SSH: address, user, port, jump hosts."""
        return access_of(self.name, self.variables, self.settings)


@dataclass(frozen=True, slots=True)
class InventoryCluster:
    """One cluster. `hosts` are in the order of the inventory."""

    name: str
    hosts: tuple[Host, ...]
    sources: tuple[Path, ...] = ()
    vault_arguments: tuple[str, ...] = ()

    def host(self, name: str) -> Host:
        """The host of this name; raises UsageError where the cluster has none."""
        for one in self.hosts:
            if one.name == name:
                return one
        known = ", ".join(one.name for one in self.hosts)
        raise UsageError(f"{name} is not a host of cluster {self.name}, which has {known}", "mqctl inventory check")

    def known(self, limit: str) -> str:
        """What of a `limit` that was noted still matches a host: one of then may have left the cluster since."""
        return ",".join(
            one for one in names_in(limit) if any(fnmatch.fnmatchcase(host.name, one) for host in self.hosts)
        )

    def limited(self, limit: str) -> list[Host]:
        """Hosts whose names match one of the wildcards in `limit`; all without any."""
        patterns = names_in(limit)
        for one in patterns:
            if not any(fnmatch.fnmatchcase(host.name, one) for host in self.hosts):
                known = ", ".join(host.name for host in self.hosts)
                raise UsageError(f"--limit {one}: no host of cluster {self.name} matches; it has {known}")
        return [
            host for host in self.hosts if not patterns or any(fnmatch.fnmatchcase(host.name, one) for one in patterns)
        ]


def sources_of(world: World, options: InventoryOptions) -> tuple[Path, ...]:
    """Inventory sources: -i, else MQCTL_INVENTORY, else inventory.yml here."""
    named = [str(one) for one in options.inventory or []]
    if not named and world.environ.get("MQCTL_INVENTORY"):
        named = [world.environ["MQCTL_INVENTORY"]]
    paths = []
    for one in named or [DEFAULT_FILE]:
        path = world.cwd / one
        if "," in one:
            paths.append(Path(one))
        elif path.exists():
            paths.append(path)
        else:
            attempt = "mqctl init" if not named else "mqctl inventory check -i INVENTORY"
            raise UsageError(f"inventory {one}: there is no such file", attempt)
    return tuple(paths)


def load_all(world: World, options: InventoryOptions) -> list[InventoryCluster]:
    """Every cluster of the inventory, by name."""
    sources = sources_of(world, options)
    secret = options.vault_password_file
    vault = ("--vault-password-file", str(world.cwd / secret)) if secret else ()
    listing, settings = ansible_cli.read_all(sources, vault, world.environ)
    _fill_in(world, listing, sources, vault)
    return clusters_of(listing, settings, sources, vault)


def _fill_in(world: World, listing: Mapping[str, Any], sources: tuple[Path, ...], vault: tuple[str, ...]) -> None:
    """Put values where the listing has templates or encrypted texts, for hosts of clusters."""
    hostvars = listing.get("_meta", {}).get("hostvars", {})
    members = {host: own for host, own in hostvars.items() if "mq_cluster_name" in own}
    if any(is_open(value) for own in members.values() for value in own.values()):
        # Only then: what this imports takes as long as the rest of a short command.
        from mqctl.playbook.resolve import resolved

        for host, values in resolved(world, sources, vault, members).items():
            hostvars[host].update(values)


def load(world: World, options: InventoryOptions) -> InventoryCluster:
    """The one cluster that the command is about."""
    return choose(load_all(world, options), options.cluster)


def choose(clusters: Sequence[InventoryCluster], name: str) -> InventoryCluster:
    """By name, or the only one."""
    names = ", ".join(one.name for one in clusters)
    if name:
        for one in clusters:
            if one.name == name:
                return one
        raise UsageError(f"--cluster {name}: the inventory has {names or 'no cluster'}", "mqctl inventory check")
    if len(clusters) == 1:
        return clusters[0]
    if not clusters:
        raise UsageError("the inventory has no cluster: no host has the variable mq_cluster_name", "mqctl init")
    raise UsageError(f"the inventory has several clusters: {names}", f"--cluster {clusters[0].name}")


def clusters_of(
    listing: Mapping[str, Any],
    settings: Mapping[str, Any],
    sources: tuple[Path, ...] = (),
    vault_arguments: tuple[str, ...] = (),
) -> list[InventoryCluster]:
    """Clusters out of what `ansible-inventory --list` says. Pure."""
    variables: Mapping[str, Mapping[str, Any]] = listing.get("_meta", {}).get("hostvars", {})
    hosts: dict[str, list[Host]] = {}
    for name in ordered_hosts(listing):
        own = variables.get(name, {})
        cluster = own.get("mq_cluster_name")
        if cluster:
            hosts.setdefault(str(cluster), []).append(Host(name, str(cluster), own, settings))
    return [InventoryCluster(name, tuple(members), sources, vault_arguments) for name, members in sorted(hosts.items())]


def ordered_hosts(listing: Mapping[str, Any]) -> list[str]:
    """All hosts, each once, in the order in which their groups name them."""
    names: dict[str, None] = {}

    def visit(group: str, depth: int) -> None:
        content = listing.get(group, {})
        for host in content.get("hosts", []):
            names.setdefault(host)
        for child in content.get("children", []) if depth else []:
            visit(child, depth - 1)

    visit("all", 64)
    for host in listing.get("_meta", {}).get("hostvars", {}):
        names.setdefault(host)
    return list(names)


def variables_of(host: Host) -> HostVariables:
    """The typed variables of a host."""
    try:
        # Only then: to import the models of all options takes as long as the rest of a command that asks brokers.
        from mqbroker.config.inventory.inventory import host_variables

        return host_variables(host.variables)
    except ConfigFault as fault:
        raise CommandError(f"{host.name}: {fault}", "mqctl inventory check") from None
