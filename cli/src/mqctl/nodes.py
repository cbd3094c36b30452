"""Nodes that live commands talk to: an instance on a host of the inventory, or one of `mqctl dev`.

A node is named `host` where its instance is `default`, else `host/instance`; the same name is what `--host` takes.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from mqctl import inventory
from mqctl.admin import AdminClient, SocketStream
from mqctl.declare import InventoryOptions
from mqctl.dev import state
from mqctl.errors import UsageError
from mqctl.ssh.shell import CommandStream, Shell, open_stream
from mqctl.ssh.variables import Access
from mqctl.world import World

BROKER = "/opt/mq/current/bin/mqbroker"


@dataclass(frozen=True, kw_only=True)
class NodeCommandOptions(InventoryOptions):
    """A command that talks to running brokers, of an inventory or of `mqctl dev`."""

    dev: Annotated[bool, typer.Option("--dev", help="The brokers of `mqctl dev` instead of an inventory.")] = False
    directory: Annotated[Path | None, typer.Option(help="Directory of `mqctl dev`, where it is not the usual one.")] = (
        None
    )


@dataclass(frozen=True, slots=True)
class Node:
    """One broker. `access` is None for one of this machine that `socket` leads to."""

    host: str
    instance: str
    access: Access | None = None
    socket: str = ""

    @property
    def name(self) -> str:
        """For people and for --host."""
        return inventory.node_name(self.host, self.instance)


def nodes_of(world: World, options: NodeCommandOptions) -> list[Node]:
    """All nodes that the options are about, in the order of the inventory."""
    if options.dev:
        folder = state.folder(world.environ, options.directory)
        return [Node(one.name, "default", socket=str(one.socket)) for one in state.nodes(folder)]
    return nodes_in(inventory.load(world, options))


def nodes_in(cluster: inventory.InventoryCluster) -> list[Node]:
    """All nodes of one cluster."""
    return [Node(host.name, instance, host.access) for host in cluster.hosts for instance in host.instances]


def choose(nodes: Sequence[Node], name: str) -> Node:
    """The node of that name; without a name the first one."""
    if not nodes:
        raise UsageError("there is no node", "mqctl dev up")
    if not name:
        return nodes[0]
    for one in nodes:
        if name in {one.name, f"{one.host}/{one.instance}"}:
            return one
    raise UsageError(f"--host {name}: there is no such node", f"--host {nodes[0].name}")


def shell(world: World, access: Access) -> Shell:
    """A shell on a host: the one that was opened before, as long as its connection stands."""
    if world.connector is None:
        # Brokers of this machine need none of what this imports.
        from mqctl.ssh.pool import SshConnector

        world.connector = SshConnector(world.monotonic_s)
    return world.connector.shell(access)


def guarded(world: World, access: Access, command: Sequence[str]) -> list[str]:
    """The command as a step of the operation that is under way: a host that it has no more refuses it."""
    if world.operation is None:
        return list(command)
    from mqctl.remote.operation import PLACE  # only here: commands that look start without it

    program = resources.files("mqctl.remote").joinpath("guard.py").read_text(encoding="utf-8")
    note = world.operation.note
    has = "away" if access.name in {one.name for one in world.operation.away} else "held"
    return [access.python, "-c", program, PLACE, str(note["number"]), str(note["token"]), has, *command]


def open_admin(world: World, node: Node, answer_time_s: float = 30.0) -> AdminClient:
    """An admin session with a node."""
    if node.access is None:
        return AdminClient(node.name, SocketStream(node.socket), answer_time_s)
    command = [BROKER, "admin", "--stdio", "--instance", node.instance]
    steps = guarded(world, node.access, command)
    return AdminClient(node.name, open_stream(shell(world, node.access), steps), answer_time_s)


def open_broker_command(world: World, node: Node, words: Sequence[str]) -> CommandStream:
    """A sub-command of `mqbroker` where the node is, with the node's options and the rights to read its files."""
    if node.access is not None:
        command = guarded(world, node.access, [BROKER, *words, "--instance", node.instance])
        return open_stream(shell(world, node.access), command)
    from mqctl.dev.process import broker_program
    from mqctl.ssh.local import LocalStream

    options_file = Path(node.socket).parent / "broker.toml"
    return LocalStream(shlex.join([broker_program(), *words, "--config", str(options_file)]), b"")
