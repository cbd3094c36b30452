"""`mqctl uninstall`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl import confirmation
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.exits import Exit
from mqctl.gate.gate import Force, require_served
from mqctl.inventory import InventoryCluster
from mqctl.inventory_faults import checked
from mqctl.operation import OperationScope, Resume, code_of, holding, hosts_of, look, numbers_of, typed
from mqctl.playbook.outcome import report, report_interrupted
from mqctl.playbook.run import Interrupted, Play, run_play
from mqctl.world import World

COMMAND = "mqctl uninstall"


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, InventoryOptions):
    """Which hosts lose their brokers, and whether their messages go too."""

    limit: Annotated[str, typer.Option(help="Only these hosts; names or wildcards, separated by commas.")] = ""
    data: Annotated[bool, typer.Option("--data", help="Delete messages and identities too.")] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
    resume: Resume = False
    force: Force = False
    check: Annotated[bool, typer.Option("--check", help="Change nothing; let Ansible say what it would change.")] = (
        False
    )


def run(world: World, options: Options) -> int:
    """Remove the brokers from the hosts. Messages and identities stay, unless --data is given.

    A broker with `[scale-down] enabled` is stopped like any other time: its messages go to another node first, where
    one is linked, and what cannot go stays.

    Nothing is removed that clients are served by and nobody else would serve, unless by `--force`.

    Exit code 1 if a host failed, 3 if hosts were not reached or one could not be given back.
    """
    cluster = checked(world, options)
    # It removes no more where it goes on.
    command = typed(COMMAND, options.limit, *(["--data"] if options.data else []))
    notes = look(world, cluster.hosts)[0]
    hosts = hosts_of(cluster, notes, command, options.limit, is_resumed=options.resume)
    names = ", ".join(one.name for one in hosts)
    scope = OperationScope({one.name for one in hosts}, {} if options.check else numbers_of(notes))
    what = "with all messages" if options.data else "messages stay"
    if not options.check:
        require_served(world, cluster, [hosts], is_forced=options.force)
        question = f"Remove the brokers of {names} ({what})."
        confirmation.name(world, question, cluster.name, is_sure=options.yes)
    variables = {"mq_uninstall_data": options.data}
    play = Play("uninstall", variables, ",".join(one.name for one in hosts), is_check=options.check, command=command)
    if options.check:
        return _played(world, options, cluster, play)
    with holding(world, cluster, command, is_resumed=options.resume, scope=scope) as own:
        code = _played(world, options, cluster, play)
        own.is_done = code is Exit.DONE
    return code_of(own, code)


def _played(world: World, options: Options, cluster: InventoryCluster, play: Play) -> Exit:
    try:
        return report(world, run_play(world, cluster, play), options.shape)
    except Interrupted as interrupted:
        return report_interrupted(world, cluster, interrupted.state, options.shape, play)
