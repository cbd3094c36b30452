"""`mqctl operation release`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl import confirmation, operation
from mqctl.declare import InventoryOptions
from mqctl.exits import Exit
from mqctl.inventory_faults import checked
from mqctl.output import counted
from mqctl.remote.operation import GIVEN_UP, UNAWAITED
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class Options(InventoryOptions):
    """Of which cluster."""

    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait", help="Whoever comes next does not wait until no task of Ansible's is under way on the hosts."
        ),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False


def run(world: World, options: Options) -> int:
    """Give up the operation that holds the cluster: the number of each host grows, so the next step of it is refused.

    Nothing is ended or taken back by it: brokers that drain go on, and a host may be changed half. `mqctl plan` and
    `mqctl scale-down HOST --show` say what is so. To go on instead, say the command again with --resume.

    Whoever comes next waits until no task of Ansible's is under way on the hosts, and is refused while one is, which is
    named. Where those are none of this cluster's, or hang, --no-wait says that nobody waits for them; a run that lives
    after all restarts no broker any more.

    Only what is shown before the question is given up, none that begins meanwhile.

    Exit code 3 if a host is not reached, or is another one's by then: an operation that holds it goes on there.
    """
    cluster = checked(world, options)
    found, _ = operation.look(world, cluster.hosts)
    held = {name: note for name, note in found.items() if note and note["is_held"]}
    for name, note in held.items():
        world.note(f"{name}: {operation.told(note)}")
    if not held:
        world.note(f"no operation holds a host of cluster {cluster.name} that could be asked")
    confirmation.yes(world, f"Give up what is under way in cluster {cluster.name}?", is_sure=options.yes)
    note, faults = operation.give_up(world, cluster.hosts, found, UNAWAITED if options.no_wait else GIVEN_UP[0])
    for fault in faults.values():
        world.note(f"mqctl: {fault}")
    done = len(cluster.hosts) - len(faults)
    world.note(f"{counted(done, 'host')} of cluster {cluster.name} free, from number {note['number']} on")
    return Exit.DEGRADED if faults else Exit.DONE
