"""Runs one playbook of the collection to its end and says how each host fared."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner  # type: ignore[import-untyped]

from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory import InventoryCluster
from mqctl.playbook.display import Display
from mqctl.playbook.events import PlayProgress
from mqctl.playbook.place import collections_path, run_folder
from mqctl.playbook.redact import Redactor
from mqctl.world import World

VERBOSITY_MAX = 4
CANCEL_S = 1  # so often it is asked whether the run is to end
# What a user may have set for playbooks of his own, and how each host fared could not be read with. What roles keep
# secret stays so, and all that is shown is cleaned of secrets.
READABLE = {
    "ANSIBLE_FORCE_COLOR": "false",
    "ANSIBLE_NOCOLOR": "true",
    "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
    "ANSIBLE_NO_LOG": "false",
    "ANSIBLE_RUN_TAGS": "all",
    "ANSIBLE_SKIP_TAGS": "",
    "ANSIBLE_ENABLE_TASK_DEBUGGER": "false",
    "RUNNER_OMIT_EVENTS": "false",
    "RUNNER_ONLY_FAILED_EVENTS": "false",
}


@dataclass(frozen=True, slots=True)
class Play:
    """What to run: the name of a playbook in the collection, and what it is told.

    `mark` is the fact that its last task sets on each host that has come so far, where it does. `command`: what a user
    says to run it, where that is not its name. `left_out`: hosts that it was to be for and is not -> why.
    """

    name: str
    variables: Mapping[str, Any] = field(default_factory=dict)
    limit: str = ""
    is_check: bool = False
    is_diff: bool = False
    mark: str = ""
    command: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or another signal that ends, in the middle of a playbook. `state`: how far each host has come."""

    def __init__(self, state: PlayProgress) -> None:
        super().__init__()
        self.state = state


def run_play(world: World, cluster: InventoryCluster, play: Play) -> PlayProgress:
    """Run it; the state of all hosts. Raises where Ansible itself could not run, and Interrupted."""
    redact = Redactor(host.variables for host in cluster.hosts)
    state = PlayProgress(redact)
    with run_folder(world.environ) as folder, Display(world, play.name, redact) as display:
        ended = _run(world, cluster, play, folder, lambda event: _take(state, display, event))
        said = redact(_last_words(folder)) if ended.rc not in (0, 2, 4) or not state.hosts else ""
    if ended.status == "canceled":
        state.interrupt(play.limit.split(",") if play.limit else [one.name for one in cluster.hosts], play.mark)
    if world.operation:
        world.operation.busy |= may_be_busy(state)
        world.operation.came_to |= came_to(state)
    state.put_in_order(host.name for host in cluster.hosts)
    if ended.status == "canceled":
        raise Interrupted(state)
    if said and not state.failed and not state.unreachable:
        raise CommandError(f"the playbook mqops.cluster.{play.name} could not run: {said}", f"mqctl {play.name} -vvv")
    if play.mark:
        state.end(play.mark)
    return state


def may_be_busy(state: PlayProgress) -> set[str]:
    """Hosts where a task may be under way yet: it was not over here, or its answer was lost."""
    return {one.name for one in state.hosts.values() if one.doing or one.state == "unreachable"}


def came_to(state: PlayProgress) -> set[str]:
    """Hosts that were reached. One that fell out may not have been, and is told as that."""
    return {one.name for one in state.hosts.values() if one.state != "unreachable"}


def _take(state: PlayProgress, display: Display, event: dict[str, Any]) -> bool:
    for happened in state.apply(event):
        display.happened(happened, state)
    display.said(str(event.get("stdout") or ""))
    return False  # ansible-runner need not keep the file of the event


def _run(
    world: World, cluster: InventoryCluster, play: Play, folder: Path, take: Callable[[dict[str, Any]], bool]
) -> Any:
    stopped = Stopped()
    arguments = [
        *cluster.vault_arguments,
        *(["--check"] if play.is_check else []),
        *(["--diff"] if play.is_diff else []),
    ]
    with stopped:
        return ansible_runner.run(
            private_data_dir=str(folder),
            project_dir=str(world.cwd),
            playbook=f"mqops.cluster.{play.name}",
            inventory=[str(one) for one in cluster.sources],
            limit=play.limit or None,
            extravars={**play.variables, **({"mq_operation": world.operation.note} if world.operation else {})},
            envvars={
                **ansible_environment(world),
                "ANSIBLE_COLLECTIONS_PATH": collections_path(world.environ, world.cwd),
            },
            cmdline=shlex.join(arguments) or None,
            verbosity=min(world.verbosity, VERBOSITY_MAX) or None,
            quiet=True,
            suppress_env_files=True,
            event_handler=take,
            settings={"pexpect_timeout": CANCEL_S},
            cancel_callback=lambda: stopped.is_set,
        )


def ansible_environment(world: World) -> dict[str, str]:
    """What Ansible needs to find: itself and the user's settings, but for those that would hide how hosts fared."""
    path = os.pathsep.join([str(Path(sys.executable).parent), world.environ.get("PATH", os.defpath)])
    made = {"PATH": path, **READABLE}
    settings = world.cwd / "ansible.cfg"
    if "ANSIBLE_CONFIG" not in world.environ and settings.is_file():
        made["ANSIBLE_CONFIG"] = str(settings)
    return made


class Stopped:
    """Ctrl-C and SIGTERM end the playbook first, so that the folder can be removed after it."""

    def __init__(self) -> None:
        self.is_set = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stopped:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._stop)
        return self

    def _stop(self, *_: object) -> None:
        self.is_set = True

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _last_words(folder: Path) -> str:
    """The last lines that Ansible printed, where it gave up before any task."""
    for path in sorted((folder / "artifacts").glob("*/stdout")):
        lines = [one.strip() for one in path.read_text(errors="replace").splitlines() if one.strip()]
        errors = [one for one in lines if one.startswith(("[ERROR]", "ERROR", "fatal"))] or lines
        return " / ".join(errors[-3:])
    return ""


def verdict(state: PlayProgress) -> Exit:
    """1 if a task failed anywhere or the run ended early, 3 if hosts were only not reached, else 0."""
    if state.failed:
        return Exit.FAILED
    return Exit.DEGRADED if state.unreachable else Exit.DONE
