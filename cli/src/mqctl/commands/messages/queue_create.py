"""`mqctl queue create`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.brokers.requests import ActOptions, act, report, the_node
from mqctl.output import Column, Rows
from mqctl.world import World

COLUMNS = (Column("name"), Column("address"), Column("routing_type"), Column("durable"), Column("paused"))
# Options that are passed on as they are; what is not said is as the settings of the address say.
PASSED = (
    "address", "max_consumers", "exclusive", "last_value", "last_value_key", "non_destructive", "ring_size",
    "consumers_before_dispatch", "delay_before_dispatch_ms", "group_rebalance", "group_buckets", "group_first_key",
    "purge_on_no_consumers", "selector",
)  # fmt: skip


class QueueRouting(enum.StrEnum):
    """How the queues of an address share its messages."""

    ANYCAST = "anycast"
    MULTICAST = "multicast"


@dataclass(frozen=True, kw_only=True)
class Options(ActOptions):
    """What the queue is."""

    queue: Annotated[str, typer.Argument(help="Name of the queue.")]
    address: Annotated[str | None, typer.Option(help="Address that it is bound to. [default: its name]")] = None
    routing: Annotated[
        QueueRouting, typer.Option(help="anycast: queues share the messages; multicast: each gets all.")
    ] = QueueRouting.ANYCAST
    durable: Annotated[bool, typer.Option(help="It and its durable messages survive restarts.")] = True
    max_consumers: Annotated[int | None, typer.Option(help="Consumers at a time; -1: any.")] = None
    exclusive: Annotated[bool | None, typer.Option(help="All messages to one consumer at a time.")] = None
    last_value: Annotated[bool | None, typer.Option(help="Keep only the last message of each key.")] = None
    last_value_key: Annotated[str | None, typer.Option(help="Property that is that key; makes it last-value.")] = None
    non_destructive: Annotated[bool | None, typer.Option(help="Consumers get copies, messages stay.")] = None
    ring_size: Annotated[int | None, typer.Option(help="Keep the newest so many; -1: all.")] = None
    consumers_before_dispatch: Annotated[int | None, typer.Option(help="Wait for so many consumers.")] = None
    delay_before_dispatch_ms: Annotated[int | None, typer.Option(help="But no longer than this; -1: for ever.")] = None
    group_rebalance: Annotated[bool | None, typer.Option(help="Deal groups out anew when a consumer comes.")] = None
    group_buckets: Annotated[int | None, typer.Option(help="Hash groups into so many; -1: each for itself.")] = None
    group_first_key: Annotated[str | None, typer.Option(help="Property set to true on the first of a group.")] = None
    purge_on_no_consumers: Annotated[bool | None, typer.Option(help="Drop messages with the last consumer.")] = None
    selector: Annotated[str | None, typer.Option(help="Take only messages that this selector matches.")] = None
    paused: Annotated[bool, typer.Option("--paused", help="Hand out nothing before `mqctl queue resume`.")] = False


def run(world: World, options: Options) -> int:
    """Make a queue on a node. What is not said is as the settings of its address say."""
    node = the_node(world, options)
    passed = {name: getattr(options, name) for name in PASSED}
    answer = act(
        world, node, "queue-create", name=options.queue, routing_type=options.routing.value, durable=options.durable,
        paused=options.paused or None, **passed,
    )  # fmt: skip
    return report(world, options, node, Rows("mqctl.queue-create/1", COLUMNS, [answer]))
