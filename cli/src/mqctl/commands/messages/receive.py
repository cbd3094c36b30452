"""`mqctl receive`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl.admin import AdminClient, AdminError
from mqctl.brokers.message_output import writer_of
from mqctl.declare import ReaderOptions
from mqctl.exits import Exit
from mqctl.nodes import NodeCommandOptions, choose, nodes_of, open_admin
from mqctl.progress import counting
from mqctl.world import World

BATCH_COUNT_MAX = 500
WAIT_MS_MAX = 2000
NOT_FOUND = "amqp:not-found"


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, NodeCommandOptions):
    """What to receive, from which node, and when to stop."""

    address: Annotated[str, typer.Argument(help="Address to receive from.")]
    count: Annotated[int, typer.Option(help="Stop after so many; 0: when nothing comes any more.", min=0)] = 0
    timeout: Annotated[float, typer.Option(help="Seconds without a message after which to stop.", min=0)] = 2.0
    selector: Annotated[str, typer.Option(help="Only messages that this selector matches: \"color = 'red'\".")] = ""
    host: Annotated[
        str,
        typer.Option("--host", "--from", help="Node to receive from: a host, or host/instance. [default: the first]"),
    ] = ""


def run(world: World, options: Options) -> int:
    """Receive messages of an address from one node, bodies one a line, -o json as JSON lines with everything.

    A message leaves its queue only after it was written to standard output; whatever ends the command before puts it
    back. Exit code 3 if fewer came than --count asked for.
    """
    nodes = nodes_of(world, options)
    node = choose(nodes, options.host)
    if not options.host and len(nodes) > 1:
        world.note(f"from {node.name}, the first of {len(nodes)} nodes (--host chooses another)")
    emit = writer_of(world, options.shape)
    with (
        counting(world, f"receiving from {options.address}", options.count or None) as advance,
        open_admin(world, node) as session,
    ):
        received = drain(world, session, options, lambda batch: _deliver(world, batch, emit, advance))
    world.note(f"{received} received from {options.address} on {node.name}")
    return Exit.DEGRADED if received < options.count else Exit.DONE


def _deliver(
    world: World, batch: list[dict[str, Any]], emit: Callable[[dict[str, Any]], None], advance: Callable[[int], None]
) -> None:
    for message in batch:
        emit(message)
    world.out.flush()
    advance(len(batch))


def drain(world: World, session: AdminClient, options: Options, deliver: Callable[[list[dict[str, Any]]], None]) -> int:
    """Receive, deliver, settle, until there are enough or nothing has come for long enough."""
    received = 0
    quiet_since_s = world.monotonic_s()
    while not options.count or received < options.count:
        left_s = max(0.0, options.timeout - (world.monotonic_s() - quiet_since_s))
        wanted = min(BATCH_COUNT_MAX, options.count - received) if options.count else BATCH_COUNT_MAX
        wait_ms = round(min(WAIT_MS_MAX, left_s * 1000))  # the time may be infinite
        try:
            answer = session.call(
                "receive", wait_ms / 1000, address=options.address, count_max=wanted, wait_ms=wait_ms,
                selector=options.selector,
            )  # fmt: skip
        except AdminError as error:
            if received and error.condition == NOT_FOUND:
                break  # a queue that nobody made by hand goes when it is empty
            raise
        batch = answer.get("messages") or []
        if batch:
            deliver(batch)
            session.call("settle", tag=answer["tag"], outcome="accepted")
            received += len(batch)
            quiet_since_s = world.monotonic_s()
        elif left_s <= 0 or wait_ms >= left_s * 1000:
            break
    return received
