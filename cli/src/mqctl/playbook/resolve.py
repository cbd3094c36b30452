"""Variables that only Ansible can know: templates and values that are encrypted one by one.

`ansible-inventory` gives both as they are written. Where a host needs one of them, Ansible is asked for its value, the
way it would use it in a playbook. That takes a second or two, so it is done only where it must be.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ansible_runner  # type: ignore[import-untyped]

from mqctl.errors import UsageError
from mqctl.opaque_values import open_names
from mqctl.playbook.events import reason_of
from mqctl.playbook.place import run_folder
from mqctl.playbook.run import ansible_environment
from mqctl.world import World

RESOLVE_TIME_S_MAX = 120


def resolved(
    world: World, sources: Sequence[Path], vault_arguments: Sequence[str], hosts: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Host -> its open variables with their values."""
    wanted = {host: names for host, variables in hosts.items() if (names := open_names(variables))}
    if not wanted:
        return {}
    resolved: dict[str, dict[str, Any]] = {}
    faults: dict[str, str] = {}

    def take(event: dict[str, Any]) -> bool:
        data = event.get("event_data") or {}
        host, result = str(data.get("host", "")), data.get("res") or {}
        if event.get("event") == "runner_on_ok" and "msg" in result:
            resolved[host] = dict(zip(wanted[host], result["msg"], strict=True))
        elif event.get("event") == "runner_on_failed":
            faults[host] = reason_of(result)
        return False

    with run_folder(world.environ) as folder:
        _run(world, folder, (sources, vault_arguments), wanted, take)
    missing = sorted(set(wanted) - set(resolved))
    if missing:
        host = missing[0]
        why = faults.get(host, "Ansible gave no value")
        raise UsageError(f"{host}: {', '.join(wanted[host])}: {why}", f"ansible-inventory --host {host}")
    return resolved


def _run(
    world: World,
    folder: Path,
    inventory: tuple[Sequence[Path], Sequence[str]],
    wanted: Mapping[str, list[str]],
    take: Any,
) -> None:
    sources, vault_arguments = inventory
    ask = {"ansible.builtin.debug": {"msg": "{{ query('ansible.builtin.vars', *mqctl_wanted[inventory_hostname]) }}"}}
    play = {"hosts": list(wanted), "gather_facts": False, "tasks": [ask]}
    ansible_runner.run(
        private_data_dir=str(folder),
        host_cwd=str(world.cwd),
        playbook=[play],
        inventory=[str(one) for one in sources],
        extravars={"mqctl_wanted": dict(wanted)},
        envvars=ansible_environment(world),
        cmdline=shlex.join(vault_arguments) or None,
        timeout=RESOLVE_TIME_S_MAX,
        quiet=True,
        suppress_env_files=True,
        event_handler=take,
    )
