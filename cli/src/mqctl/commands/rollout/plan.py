"""`mqctl plan`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mqctl.bundle.choice import BundleOptions, bundle_of
from mqctl.declare import ReaderOptions
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory_faults import checked
from mqctl.output import counted
from mqctl.rollout.cluster_plan import make_plan, show_plan
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, BundleOptions):
    """Which hosts are compared, and with which bundle."""


def run(world: World, options: Options) -> int:
    """Show what a rollout would change, from what is on the hosts now. Exit code 0: nothing to do, 3: changes.

    What the inventory no longer names and no rollout touches, such as an instance with its messages, is shown as left
    over (`left_over` in JSON), each with the command that removes it. It does not count for the exit code.
    """
    cluster = checked(world, options)
    plan = make_plan(world, cluster, cluster.limited(options.limit), Path(bundle_of(world, options, cluster)))
    show_plan(world, plan, options.shape, world.data)
    if plan.blind:
        raise CommandError(f"{counted(len(plan.blind), 'host')} could not be looked at", "mqctl preflight")
    return Exit.DEGRADED if plan.changes else Exit.DONE
