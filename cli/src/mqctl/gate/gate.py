"""Nothing is stopped, restarted, drained or removed whose absence would cost clients their service, unless by force.

The look is taken before the first host is touched, and judges each batch by itself: those of a batch are away together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Annotated

import typer

from mqctl.errors import CommandError
from mqctl.gate.batches import batches
from mqctl.gate.facts import standings
from mqctl.gate.losses import losses
from mqctl.inventory import Host, InventoryCluster
from mqctl.nodes import nodes_in
from mqctl.output import counted
from mqctl.plan.plan import Change
from mqctl.world import World

Force = Annotated[
    bool,
    typer.Option("--force", help="Also where somebody is not served meanwhile; what is given up is told."),
]


def require_served(
    world: World,
    cluster: InventoryCluster,
    turns: Iterable[Sequence[Host]],
    *,
    is_forced: bool,
    is_restart: bool = False,
) -> None:
    """Everybody is served while the hosts of each turn are away, at a restart for a moment. Raises CommandError that
    names what is not."""
    turns = [turn for turn in turns if turn]
    if not turns:
        return
    names = [[name for host in turn for name in host.node_names] for turn in turns]
    said = lost(world, cluster, names, is_restart=is_restart)
    if said and not is_forced:
        raise CommandError(
            f"{counted(len(said), 'thing')} would not be served meanwhile: {'; '.join(said)}; nothing was changed",
            "put that right, or --force, which gives it up for that time",
        )
    for text in said:
        world.note(f"given up: {text}")


def lost(
    world: World,
    cluster: InventoryCluster,
    turns: Sequence[Collection[str]],
    sent_to: Collection[str] = (),
    *,
    is_restart: bool = False,
) -> list[str]:
    """What nobody serves while the nodes of one of these turns are away, in words, each once."""
    nodes = standings(world, nodes_in(cluster))
    gone = {name for away in turns for name in away}
    for one in nodes:
        if one.name not in gone and not one.answers:
            world.note(f"{'; '.join(one.faults) or f'{one.name} does not run'}; it stands in for nobody")
    return list(
        dict.fromkeys(one.text for away in turns for one in losses(nodes, away, sent_to, is_restart=is_restart))
    )


def restarts(
    cluster: InventoryCluster, changes: Iterable[Change], batch: str, *, is_canary_first: bool = False
) -> list[list[Host]]:
    """The hosts whose brokers restart, in the batches of the playbook `rollout`."""
    names = {one.host for one in changes if one.needs == "restart"}
    return turns_of(cluster, names, batch, is_canary_first=is_canary_first)


def turns_of(
    cluster: InventoryCluster, names: Collection[str], batch: str, *, is_canary_first: bool
) -> list[list[Host]]:
    """These hosts, in the batches that playbooks cut."""
    hosts = sorted((one for one in cluster.hosts if one.name in names), key=lambda one: one.name)
    racks = {one.name: str(one.variables.get("mq_rack") or "") for one in hosts}
    turns, start = [], 0
    for count in batches([one.name for one in hosts], racks, batch, is_canary_first=is_canary_first):
        turns.append(hosts[start : start + count])
        start += count
    return turns
