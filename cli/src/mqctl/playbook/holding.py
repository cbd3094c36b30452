"""Hosts that a run has held to its end: they are given back where it failed, was stopped, or was ended by somebody.

A run that ends well gives its hosts back by itself (playbooks/tasks/unlock.yml). One that fails does not come to that,
and its process is known to be gone on this machine alone: elsewhere everybody would be refused. Where mqctl itself is
killed the note stays. Source: docs/adr/0018-one-run-at-a-time.md.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Annotated, Any

import typer

from mqctl.errors import CommandError
from mqctl.fanout import on_each
from mqctl.inventory import Host, InventoryCluster
from mqctl.nodes import shell
from mqctl.playbook.events import RunState
from mqctl.ssh import shell as remote
from mqctl.world import World

IDLE_S = 10
TIME_S = 30.0
TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="Take the place of another run that holds the hosts and is gone for certain."),
]
REMEDY = "mqctl from this machine goes on all the same, from another one with --take-over"


def let_go(world: World, cluster: InventoryCluster, state: RunState) -> None:
    """Give back what the run has not. Another Ctrl-C ends this."""
    holder = next((one.held_as for one in state.hosts.values() if one.held_as), None)
    if holder is None:
        return
    # Who was about to be taken may have been.
    held = {one.name: one for one in state.hosts.values() if one.held_as or one.doing}
    hosts = [one for one in cluster.hosts if one.name in held]
    try:
        for host, outcome in on_each(
            hosts, lambda one: _give_back(world, one, holder, is_sure=not held[one.name].doing)
        ):
            if isinstance(outcome, CommandError):
                world.note(
                    f"{host.name}: it stays held for this run, as it could not be given back: {outcome.what}; {REMEDY}"
                )
            elif outcome == "busy":
                world.note(f"{host.name}: a task is still under way there, so it stays held for this run; {REMEDY}")
    except KeyboardInterrupt:
        world.note(f"interrupted: not every host was given back; {REMEDY}")


def _give_back(world: World, host: Host, holder: dict[str, Any], *, is_sure: bool) -> str:
    """What came of it; where a task may be under way, that is waited for."""
    program = resources.files("mqctl.remote").joinpath("give_back.py").read_bytes()
    words = [json.dumps(holder), *([] if is_sure else ["--idle", str(IDLE_S)])]
    result = remote.run(shell(world, host.access), [host.access.python, "-", *words], program, TIME_S)
    try:
        return str(json.loads(result.out)["state"])
    except (ValueError, LookupError, TypeError):
        raise CommandError(result.complaint) from None
