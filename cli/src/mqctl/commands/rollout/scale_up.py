"""`mqctl scale-up`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from mqctl import confirmation
from mqctl.brokers.multicast import draw, probe
from mqctl.bundle.choice import BundleOptions, bundle_of
from mqctl.certificates.issuing import folder_of, make_missing
from mqctl.declare import ReaderOptions
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.inventory_faults import checked
from mqctl.operation import (
    OperationScope,
    Resume,
    code_of,
    give_back,
    holding,
    hosts_of,
    is_held_by,
    look,
    numbers_of,
    typed,
)
from mqctl.output import OutputShape, counted
from mqctl.playbook.outcome import carry_out
from mqctl.playbook.rollout import batch_of, require_no_hand, rollout_play, untouched
from mqctl.rollout.cluster_plan import Plan, make_plan, show_plan
from mqctl.world import World

COMMAND: Final = "mqctl scale-up"


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, BundleOptions):
    """How many hosts at a time, and whether it asks."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    resume: Resume = False
    batch: Annotated[str, typer.Option(help="Hosts that are added at a time, N or P%. [default: all]")] = ""


def run(world: World, options: Options) -> int:
    """Roll out hosts that were added to the inventory, and leave all others alone: none is changed or restarted.

    Shows the plan of the added hosts, and probes multicast between them and the others before anything is changed.
    Exit code 1 if a host failed, 3 if hosts were not reached or one could not be given back, 4 if a broker still
    starts.
    """
    batch, command = batch_of(options.batch), typed(COMMAND, options.limit)
    with untouched(world):
        cluster = checked(world, options)
        notes = look(world, cluster.hosts)[0]
        hosts = hosts_of(cluster, notes, command, options.limit, is_resumed=options.resume)
        bundle = bundle_of(world, options, cluster)
        plan = make_plan(world, cluster, hosts, Path(bundle))
        added = [one for one in hosts if is_added(plan, one)]
        _show(world, plan, added)
        require_no_hand([one for one in plan.changes if one.host in {host.name for host in added}])
        unseen = Exit.DEGRADED if plan.blind else Exit.DONE
        if not added:
            world.note("no host was added: on each that could be looked at, brokers were rolled out before")
            return _end(world, cluster, command, unseen) if options.resume else unseen
        _check_multicast(world, cluster, added, plan)
        names = ",".join(one.name for one in added)
        confirmation.yes(world, f"Add {names} to cluster {cluster.name}?", is_sure=options.yes)
    folder = folder_of(world, cluster)
    changed = {host.name for host in added}
    missing = [one for one in plan.missing if one.node.host in changed]
    play = replace(rollout_play(folder, bundle, added, batch), command=command)
    scope = OperationScope(changed, numbers_of(notes))
    with holding(world, cluster, command, is_resumed=options.resume, scope=scope) as own:
        make_missing(world, folder, missing)
        code = carry_out(world, options, cluster, added, play)
        own.is_done = code is Exit.DONE
    return code if code is Exit.FAILED else code_of(own, max(code, unseen))


def _end(world: World, cluster: InventoryCluster, command: str, code: Exit) -> Exit:
    """Of a run that was cut off behind its last host: only the hosts are to be given back. Raises CommandError where
    it was for others."""
    if not is_held_by(world, cluster, COMMAND):
        return code
    return code_of(give_back(world, cluster, command, OperationScope(())), code)


def is_added(plan: Plan, host: Host) -> bool:
    """Whether no rollout has ended well there: there is no release, or no instance was ever set to start at boot."""
    own = [one for one in plan.changes if one.host == host.name]
    if any(one.what == "release" and one.action == "create" for one in own):
        return True
    unstarted = {one.instance for one in own if one.what == "service at boot"}
    idle = {one.instance for one in own if one.what == "service"}
    return set(host.instances) <= unstarted & idle


def _show(world: World, plan: Plan, added: Sequence[Host]) -> None:
    names = {one.name for one in added}
    own = [one for one in plan.changes if one.host in names]
    show_plan(world, Plan(plan.cluster, own, plan.blind, []), OutputShape(), world.err)
    others = sorted({one.host for one in plan.changes} - names)
    if others:
        world.note(f"{', '.join(others)} also differ from the inventory and stay as they are; see: mqctl plan")


def _check_multicast(world: World, cluster: InventoryCluster, added: Sequence[Host], plan: Plan) -> None:
    """The added hosts have to hear the others and be heard by them."""
    heard = probe(world, cluster, cluster.hosts, set(plan.blind))
    names = {one.name for one in added}
    errors = [one for one in heard.findings if one["level"] == "error"]
    for one in heard.findings:
        world.note(f"{one['host']}: {one['level']}: {one['message']}")
    if any(one["host"] in names for one in errors):
        draw(heard, world.err.file)
        raise CommandError(f"{counted(len(errors), 'error')} of multicast; nothing was changed", "mqctl preflight")
