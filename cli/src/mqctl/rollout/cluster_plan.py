"""The plan of a cluster: what is on its hosts now against what the inventory wants of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mqbroker.config.declarations.variables import LOOPBACK
from rich.console import Console

from mqctl.bundle.manifest import Manifest, read_whole
from mqctl.certificates.folder import Folder, no_authority
from mqctl.certificates.issuing import (
    CERTIFICATE,
    Missing,
    digests,
    folder_of,
    key_digest,
    missing_of,
    needs_certificate,
    provided_digests,
)
from mqctl.certificates.managed import managed
from mqctl.certificates.names import nodes_of
from mqctl.errors import CommandError
from mqctl.fanout import on_each
from mqctl.inventory import Host, InventoryCluster, variables_of
from mqctl.inventory_faults import doubts_in, tell
from mqctl.output import Column, OutputShape, Rows, counted, write
from mqctl.plan.leftovers import LeftOver, left_overs
from mqctl.plan.observation import observe
from mqctl.plan.places import Given, Rules
from mqctl.plan.plan import Change, Seen, diff_host, plan_hash
from mqctl.plan.wanted_host import address_of, unit_template, wanted_of
from mqctl.playbook.place import COLLECTION, collections_path
from mqctl.progress import counting
from mqctl.world import World

COLUMNS = (
    Column("host"),
    Column("instance"),
    Column("what"),
    Column("action"),
    Column("before"),
    Column("after"),
    Column("needs"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes, the hosts that could not be looked at, and the certificates that a rollout has to make first.

    `left_over`: what the inventory no longer names; `doubts`: what it says and hardly means. `unplanned`: of the blind
    those that answered, and that cannot have what the inventory wants of them.
    """

    cluster: str
    changes: list[Change]
    blind: dict[str, str]
    left_over: list[LeftOver]
    missing: list[Missing] = field(default_factory=list)
    doubts: list[dict[str, Any]] = field(default_factory=list)
    unplanned: set[str] = field(default_factory=set)

    @property
    def hash(self) -> str:
        """Names these changes: the same changes have the same hash."""
        return plan_hash(self.cluster, self.changes)


@dataclass(frozen=True, slots=True)
class Site:
    """What is the same for all hosts."""

    manifest: Manifest
    unit_file: str | None
    folder: Folder
    collection: Path
    cluster: InventoryCluster


@dataclass(frozen=True, slots=True)
class HostFindings:
    """What a look at one host came to."""

    changes: list[Change]
    left_over: list[LeftOver]
    missing: list[Missing]


def make_plan(world: World, cluster: InventoryCluster, hosts: Sequence[Host], bundle: Path) -> Plan:
    """Look at the hosts and compare each with what the inventory wants of it."""
    manifest = read_whole(bundle)
    root = collections_path(world.environ, world.cwd).split(":", 1)[0]
    unit_file = unit_template(Path(root) / COLLECTION)
    plan = Plan(cluster.name, [], {}, [], doubts=doubts_in(cluster))
    folder = folder_of(world, cluster)
    if any(managed(one) is not None for one in hosts) and not folder.has_authority:
        raise no_authority(folder.path)
    site = Site(manifest, unit_file, folder, Path(root) / COLLECTION, cluster)
    with counting(world, "hosts looked at", len(hosts)) as advance:
        work = on_each(members_of(cluster, hosts), lambda host: observe(world, host), lambda _: advance(1))
        looks = {host.name: look for host, look in work}
    looked = {name: look for name, look in looks.items() if isinstance(look, Seen)}
    for host, outcome in on_each(hosts, lambda host: compare(world, host, site, looks[host.name], looked)):
        if isinstance(outcome, CommandError):
            plan.blind[host.name] = outcome.what.removeprefix(f"{host.name}: ")
            plan.unplanned.update({host.name} & looked.keys())
            continue
        plan.changes.extend(outcome.changes)
        plan.missing.extend(outcome.missing)
        plan.left_over.extend(outcome.left_over)
    return plan


def members_of(cluster: InventoryCluster, hosts: Sequence[Host]) -> Sequence[Host]:
    """Whom to look at for a plan of these hosts: a packet filter lets in all members of the cluster."""
    return cluster.hosts if any(variables_of(one).mq_firewall for one in hosts) else hosts


def compare(
    world: World, host: Host, site: Site, seen: Seen | CommandError, looked: Mapping[str, Seen]
) -> HostFindings:
    """What is wanted of one host against what is there. `looked`: what is known of all."""
    if isinstance(seen, CommandError):
        raise seen
    missing, certificates = certificates_of(world, host, seen, site.folder)
    keys = keys_of(host, site.folder, missing, certificates)
    given = Given(certificates, keys, rules_for(host, site, seen, looked))
    wanted = wanted_of(host, site.manifest, site.unit_file, seen, given)
    return HostFindings(diff_host(host.name, wanted, seen), left_overs(host.name, wanted, seen), missing)


def rules_for(host: Host, site: Site, seen: Seen, looked: Mapping[str, Seen]) -> Rules | None:
    """The packet filter that the host is to have; None where it is to have none."""
    variables = variables_of(host)
    if not variables.mq_firewall:
        return None
    from mqctl.playbook.rules import HostFacts, rules_of

    own, loaded = bound_to(host, seen), seen.filter.loaded or ""
    addresses = known_addresses(site.cluster.hosts, looked)
    are_all = len(addresses) == len(site.cluster.hosts)
    facts = HostFacts(own, seen.filter.origin, addresses, are_all, loaded)
    return rules_of(site.collection, host.name, host.variables, facts)


def known_addresses(hosts: Sequence[Host], looked: Mapping[str, Seen]) -> list[str]:
    """Those of the hosts that say theirs. One that has none, as without its network card, is a fault of its own plan
    alone: to the others it is as unknown as one that does not answer."""
    addresses = []
    for one in hosts:
        with suppress(CommandError):
            addresses += [bound_to(one, looked[one.name])] if one.name in looked else []
    return addresses


def bound_to(host: Host, seen: Seen) -> str:
    """The address that listeners of a host are bound to."""
    variables = variables_of(host)
    return str(variables.mq_local_bind_address or address_of(host, variables, seen) or LOOPBACK)


def certificates_of(
    world: World, host: Host, seen: Seen, folder: Folder
) -> tuple[list[Missing], dict[str, dict[str, str | None]]]:
    """What has to be made for a host, and the hashes of what it is to have."""
    variables = variables_of(host)
    if variables.mq_tls == "off" or not needs_certificate(variables):
        return [], {}
    if variables.mq_tls == "provided":
        return [], {one.name: provided_digests(variables) for one in variables.mq_instances}
    nodes = nodes_of(host, variables, address_of(host, variables, seen))
    missing = missing_of(folder, nodes, world.now())
    late = {one.node.instance for one in missing}
    made = {one.instance: digests(folder, host.name, one.instance) for one in nodes}
    return missing, {name: hashes | ({CERTIFICATE: None} if name in late else {}) for name, hashes in made.items()}


def keys_of(host: Host, folder: Folder, missing: Sequence[Missing], instances: Iterable[str]) -> dict[str, str | None]:
    """Instance -> SHA-256 of its private key. None where it is still to be made, or only Ansible can open the file."""
    late = {one.node.instance for one in missing}
    variables = variables_of(host)
    provided = variables.mq_tls_key_file if variables.mq_tls == "provided" else None
    key_hashes: dict[str, str | None] = {}
    for one in instances:
        file = Path(str(provided)).expanduser() if provided else folder.node_files(host.name, one)[1]
        key_hashes[one] = None if one in late else key_digest(file)
    return key_hashes


def show_plan(world: World, plan: Plan, shape: OutputShape, console: Console) -> None:
    """The plan on `console`, what people should know about it on standard error."""
    left_over = [asdict(one) for one in plan.left_over]
    extra = {"cluster": plan.cluster, "plan": plan.hash, "unreachable": plan.blind, "left_over": left_over,
             "doubts": plan.doubts}  # fmt: skip
    write(Rows("mqctl.plan/1", COLUMNS, [asdict(one) for one in plan.changes], extra), shape, console)
    tell(world, plan.doubts)
    for host, why in plan.blind.items():
        world.note(f"{host}: {why}")
    for one in plan.left_over:
        remedy = f"a rollout leaves it alone, and there it is removed by: {one.remedy}"
        world.note(f"{one.host}: left over: {one.what}; {remedy}")
    hosts = len({one.host for one in plan.changes})
    some = f"{counted(len(plan.changes), 'change')} on {counted(hosts, 'host')}"
    idle = "nothing to do" if not plan.blind else "nothing to do on the hosts that could be looked at"
    summary = some if plan.changes else idle
    world.note(f"plan {plan.hash}: {summary}")
