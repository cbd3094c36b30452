"""`mqctl tls rotate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.certificates.authority import Span, new_authority
from mqctl.certificates.folder import NEXT, Folder, Phase, Step, no_authority
from mqctl.certificates.issuing import AUTHORITY_DAYS, digests, folder_of
from mqctl.certificates.managed import issue_for, managed
from mqctl.certificates.options import HostsOptions, Permit
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.inventory import Host, InventoryCluster
from mqctl.inventory_faults import checked
from mqctl.plan.observation import observe
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class Options(HostsOptions):
    """Whether nodes or the CA get new certificates, and on what conditions."""

    ca: Annotated[Step | None, typer.Option(help="Change the CA, in three steps with a rollout after each.")] = None
    permit: Permit = None
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Take the step although hosts may not have what was rolled out before.")
    ] = False


def run(world: World, options: Options) -> int:
    """Make new certificates and keys for all nodes; a rollout then has brokers reload them, and no client is dropped.

    With --ca the CA itself is changed. `begin` makes a new one that everybody trusts beside the old one, `switch` lets
    it sign all nodes anew, `finish` ends the trust in the old one. After each: mqctl rollout, and hand trust.pem to
    clients after the first. A step is refused while a host does not have what the one before made.
    """
    cluster = checked(world, options)
    folder = folder_of(world, cluster)
    if not folder.has_authority:
        raise no_authority(folder.path)
    if options.ca is None:
        return issue_for(world, cluster, options, is_all=True)
    if options.limit:
        raise UsageError("--ca and --limit exclude each other: a CA is that of the whole cluster", "mqctl tls rotate")
    _refuse_wrong_step(folder.phase, options.ca)
    if options.ca is Step.BEGIN:
        return _begin(world, cluster, folder, options)
    if not options.unseen:
        _refuse_before_rollout(world, cluster, folder)
    return _switch(world, cluster, folder, options) if options.ca is Step.SWITCH else _finish(world, folder)


def _refuse_wrong_step(phase: Phase, step: Step) -> None:
    if (phase, step) in NEXT:
        return
    possible = next(one for at, one in NEXT if at is phase)
    raise UsageError(f"--ca {step}: the next step is {possible}", f"mqctl tls rotate --ca {possible}")


def _begin(world: World, cluster: InventoryCluster, folder: Folder, options: Options) -> Exit:
    made = new_authority(cluster.name, Span(world.now(), AUTHORITY_DAYS), options.permit or [])
    folder.write_authority(made, "ca-next")
    world.note(f"{folder.trust_file} has both CAs now: hand it to clients")
    world.note("next: mqctl rollout, then mqctl tls rotate --ca switch")
    return Exit.DONE


def _switch(world: World, cluster: InventoryCluster, folder: Folder, options: Options) -> Exit:
    folder.switch()
    world.note("the new CA signs from now on; the old one is trusted until the end")
    code = issue_for(world, cluster, options, is_all=False)
    world.note("then: mqctl tls rotate --ca finish")
    return code


def _finish(world: World, folder: Folder) -> Exit:
    folder.finish()
    world.note(f"{folder.trust_file} has the new CA alone: hand it to clients")
    world.note("next: mqctl rollout")
    return Exit.DONE


def _refuse_before_rollout(world: World, cluster: InventoryCluster, folder: Folder) -> None:
    """Every broker has loaded what is in the folder: else nodes or clients would meet a certificate of a stranger."""
    hosts = [one for one in cluster.hosts if managed(one) is not None]
    behind = []
    for host, why in on_each(hosts, lambda one: _behind(world, one, folder)):
        said = why.what.removeprefix(f"{host.name}: ") if isinstance(why, CommandError) else why
        behind += [f"{host.name}: {said}"] if said else []
    for one in behind:
        world.note(one)
    if behind:
        raise CommandError(f"{len(behind)} of {len(hosts)} hosts are not ready for this step", "mqctl rollout")


def _behind(world: World, host: Host, folder: Folder) -> str:
    seen = observe(world, host)
    for instance in host.instances:
        running = seen.instances[instance]
        wanted = digests(folder, host.name, instance)
        loaded = running.loaded.files if running.loaded else {}
        if any(loaded.get(f"/etc/mq/{instance}/tls/{name}") != digest for name, digest in wanted.items()):
            return f"{instance} does not run with the certificates that are in {folder.path}"
    return ""
