"""`mqctl plan`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from mqctl.bundle.manifest import Manifest, read
from mqctl.commands.inventory_check import checked
from mqctl.commands.preflight import BundleOptions, bundle_of
from mqctl.declare import ReaderOptions
from mqctl.desired import unit_template, wanted_of
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.inventory import Cluster, Host
from mqctl.observe import observe
from mqctl.output import Column, Rows, Shape, counted, write
from mqctl.plan import Change, diff_host, plan_hash
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


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, BundleOptions):
    """Which hosts."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes, and the hosts that could not be looked at."""

    cluster: str
    changes: list[Change]
    blind: dict[str, str]
    foreign: dict[str, list[str]]

    @property
    def hash(self) -> str:
        """Stands for the changes."""
        return plan_hash(self.cluster, self.changes)


def run(world: World, options: Options) -> int:
    """Show what a rollout would change, from what is on the hosts now. Exit code 0: nothing to do, 3: changes."""
    cluster = checked(world, options)
    plan = make(world, cluster, cluster.limited(options.limit), Path(bundle_of(world, options, cluster)))
    show(world, plan, options.shape, world.data)
    if plan.blind:
        raise CommandError(f"{counted(len(plan.blind), 'host')} could not be looked at", "mqctl preflight")
    return Exit.DEGRADED if plan.changes else Exit.DONE


def make(world: World, cluster: Cluster, hosts: Sequence[Host], bundle: Path) -> Plan:
    """Look at the hosts and compare."""
    manifest = read(bundle)
    root = collections_path(world.environ, world.cwd).split(":", 1)[0]
    unit_file = unit_template(Path(root) / COLLECTION)
    plan = Plan(cluster.name, [], {}, {})
    with counting(world, "hosts looked at", len(hosts)) as advance:
        work = on_each(hosts, lambda host: look(world, host, manifest, unit_file), lambda _: advance(1))
        for host, found in work:
            if isinstance(found, CommandError):
                plan.blind[host.name] = found.what.removeprefix(f"{host.name}: ")
                continue
            plan.changes.extend(found[0])
            if found[1]:
                plan.foreign[host.name] = found[1]
    return plan


def look(world: World, host: Host, manifest: Manifest, unit_file: str | None) -> tuple[list[Change], list[str]]:
    """The changes of one host, and instances there that the inventory does not have."""
    seen = observe(world, host)
    wanted = wanted_of(host, manifest, unit_file, seen)
    foreign = [name for name in seen.present if name not in wanted.instances]
    return diff_host(host.name, wanted, seen), foreign


def show(world: World, plan: Plan, shape: Shape, console: Console) -> None:
    """The plan on `console`, what people should know about it on standard error."""
    extra = {"cluster": plan.cluster, "plan": plan.hash, "unreachable": plan.blind}
    write(Rows("mqctl.plan/1", COLUMNS, [asdict(one) for one in plan.changes], extra), shape, console)
    for host, why in plan.blind.items():
        world.note(f"{host}: {why}")
    for host, names in plan.foreign.items():
        world.note(f"{host}: {' '.join(names)} under /etc/mq is not in the inventory; a rollout leaves it alone")
    hosts = len({one.host for one in plan.changes})
    some = f"{counted(len(plan.changes), 'change')} on {counted(hosts, 'host')}"
    idle = "nothing to do" if not plan.blind else "nothing to do on the hosts that could be looked at"
    summary = some if plan.changes else idle
    world.note(f"plan {plan.hash}: {summary}")
