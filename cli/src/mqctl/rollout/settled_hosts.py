"""Hosts that are as the last rollout left them, by digests: of what went into it, and of what it left there.

Invariant: the playbook is left out only where it would have the same inputs as when it last ended well there, and
everything that it manages is as it was then, down to modes and owners (remote/footprint.py); what changes by itself
(services, processes, certificates that end) is compared by the plan. Packet filter rules can change without a file, so
hosts that have them always get the playbook.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from mqbroker.config.inventory.inventory import host_variables

from mqctl.bundle.manifest import Manifest
from mqctl.errors import CommandError
from mqctl.fanout import on_each
from mqctl.inventory import Host, InventoryCluster
from mqctl.nodes import shell
from mqctl.ssh import shell as remote
from mqctl.world import World

PARTS = ("roles", "playbooks", "plugins")
TIME_S = 60.0


@dataclass(frozen=True, slots=True)
class RolloutInputs:
    """What a rollout of any host is made from: the bundle, a digest of the collection, further files."""

    manifest: Manifest
    collection: str
    files: Sequence[Path] = ()


def inputs_of(cluster: InventoryCluster, host: Host, made: RolloutInputs) -> str:
    """A digest of all that a rollout of the host is made from: inventory, bundle, collection, and further files.

    The variables of all members count, since roles look at them. It holds no secret that can be guessed: the key is
    the cluster's secret.
    """
    key = str(host.variables.get("mq_cluster_secret") or cluster.name).encode()
    members = [[one.name, one.variables] for one in cluster.hosts]
    files = [[str(one), contents(one)] for one in made.files]
    given = [host.name, members, made.manifest.to_json(), made.collection, files]
    return hmac.digest(key, json.dumps(given, sort_keys=True, default=str).encode(), "sha256").hex()


def tree(collection: Path) -> str:
    """A digest of the roles, playbooks and modules."""
    files = [
        [str(path.relative_to(collection)), contents(path)]
        for part in PARTS
        for path in sorted((collection / part).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    return hashlib.sha256(json.dumps(files).encode()).hexdigest()


def contents(path: Path) -> str:
    """A digest of a file; empty where there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def is_skippable(host: Host) -> bool:
    """Whether files say all of what a rollout leaves on a host."""
    return not host_variables(host.variables).mq_firewall


def look(world: World, host: Host, inputs: str, *, marks: bool = False) -> bool:
    """Whether the host is as the rollout with these inputs left it; with `marks` that is noted there first."""
    program = resources.files("mqctl.remote").joinpath("footprint.py").read_bytes()
    words = ["--mark", inputs] if marks else []
    result = remote.run(shell(world, host.access), [host.access.python, "-", *words], program, TIME_S)
    try:
        return result.code == 0 and json.loads(result.out)["settled"] == inputs
    except (ValueError, LookupError, TypeError):
        return False


def all_settled(world: World, hosts: Sequence[Host], inputs: dict[str, str]) -> bool:
    """Whether every one of these hosts is."""
    if not all(map(is_skippable, hosts)):
        return False
    return all(outcome is True for _, outcome in on_each(hosts, lambda one: look(world, one, inputs[one.name])))


def mark(world: World, hosts: Sequence[Host], inputs: dict[str, str]) -> None:
    """Note that a rollout has ended well on these hosts. Where that cannot be noted, the next one goes all the way."""
    for host, outcome in on_each(hosts, lambda one: look(world, one, inputs[one.name], marks=True)):
        if isinstance(outcome, CommandError):
            world.note(f"{host.name}: {outcome.what}")
