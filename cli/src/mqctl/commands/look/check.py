"""`mqctl check`: one line for Nagios, Icinga and whatever else knows their plugins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import typer
from mqbroker.base.text import one_line

from mqctl.certificates.endings import soon_ending
from mqctl.declare import CommonOptions
from mqctl.errors import CommandError, UsageError
from mqctl.exits import NagiosCode
from mqctl.fanout import on_each
from mqctl.nodes import Node, NodeCommandOptions, choose, nodes_of, open_admin
from mqctl.output import counted
from mqctl.world import World

OK, WARNING, CRITICAL, UNKNOWN = 0, 1, 2, 3
WORDS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


@dataclass(frozen=True, kw_only=True)
class Options(NodeCommandOptions, CommonOptions):
    """What is looked at, and from when on it is bad."""

    host: Annotated[str, typer.Option("--host", "-H", help="Only this node: a host, or host/instance.")] = ""
    queue: Annotated[str, typer.Option(help="Only this queue; it must exist on at least one node.")] = ""
    warning: Annotated[
        int, typer.Option("--warning", "-w", help="Messages in a queue from which on to warn; 0: never.", min=0)
    ] = 0
    critical: Annotated[
        int, typer.Option("--critical", "-c", help="Messages in a queue that are critical; 0: never.", min=0)
    ] = 0
    consumers_min: Annotated[int, typer.Option(help="Fewer consumers of the queue (--queue) are critical.", min=0)] = 0
    memory_warning: Annotated[
        int, typer.Option(help="Used memory in percent of global-max-size from which on to warn.", min=1, max=100)
    ] = 80
    memory_critical: Annotated[int, typer.Option(help="Used memory in percent that is critical.", min=1, max=100)] = 95
    timeout: Annotated[int, typer.Option("--timeout", "-t", help="Seconds that a host may take.", min=1, max=600)] = 15


class Finding(NamedTuple):
    """One thing that was looked at."""

    state: int
    text: str


def run(world: World, options: Options) -> int:
    """Look whether all nodes run and none is too full, for Nagios: one line, and performance data behind a bar.

    A certificate of a listener that ends within 30 days is a warning, within 7 days critical; one that was made for
    less than 90 days is a warning in the last third of its life, and critical in its last twelfth.
    Exit codes are those of Nagios: 0 ok, 1 warning, 2 critical, 3 unknown.
    """
    try:
        state, line = look(world, options)
    except CommandError as error:
        state, line = UNKNOWN, f"{error.what}; try: {error.attempt}" if error.attempt else error.what
    world.out.write(f"MQ {WORDS[state]} - {one_line(line)}\n")
    return NagiosCode(state)


def look(world: World, options: Options) -> tuple[int, str]:
    """The worst of what is found, and the line for it."""
    if options.consumers_min and not options.queue:
        raise UsageError("--consumers-min goes with --queue")
    nodes = nodes_of(world, options)
    if options.host:
        nodes = [choose(nodes, options.host)]
    if not nodes:
        raise UsageError("there is no node", "mqctl inventory check")
    findings: list[Finding] = []
    performance: list[str] = []
    queues: list[tuple[Node, dict[str, Any]]] = []
    for node, answer in on_each(nodes, lambda one: _ask(world, one, options.timeout)):
        if isinstance(answer, CommandError):
            findings.append(Finding(CRITICAL, answer.what))
            continue
        status, listed = answer
        findings += node_findings(node, status, options)
        queues += [(node, queue) for queue in listed if options.queue in ("", queue["name"])]
        performance += [
            f"'{node.name} messages'={status['messages']};;;0",
            f"'{node.name} memory'={status['held_bytes']}B;;;0;{status['global_max_size_bytes']}",
        ]
    findings += queue_findings(queues, options)
    performance += _queue_performance(queues, options) if options.queue else []
    return judged(findings, counted(len(nodes), "node"), performance)


def _ask(world: World, node: Node, timeout_s: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    with open_admin(world, node, timeout_s) as session:
        return session.call("status"), session.call("queues")["queues"]


def node_findings(node: Node, status: dict[str, Any], options: Options) -> Iterator[Finding]:
    """What is wrong with one node."""
    if status["state"] != "active":
        is_wanted = status["state"] == "cordoned"  # as somebody asked for it, and may have forgotten
        yield Finding(WARNING if is_wanted else CRITICAL, f"{node.name} is {status['state']}")
    percent = 100 * status["held_bytes"] // max(status["global_max_size_bytes"], 1)
    is_critical = percent >= options.memory_critical
    if is_critical or percent >= options.memory_warning:
        yield Finding(CRITICAL if is_critical else WARNING, f"{node.name} uses {percent} % of its memory for messages")
    for level, text in soon_ending(status):
        yield Finding(CRITICAL if level == "error" else WARNING, f"{node.name}: {text}")


def queue_findings(queues: list[tuple[Node, dict[str, Any]]], options: Options) -> Iterator[Finding]:
    """What is wrong with queues."""
    if options.queue and not queues:
        yield Finding(UNKNOWN, f"there is no queue {options.queue}")
    for node, queue in queues:
        count, place = queue["message_count"], f"{node.name} {queue['name']}"
        if options.critical and count >= options.critical:
            yield Finding(CRITICAL, f"{place} holds {counted(count, 'message')}")
        elif options.warning and count >= options.warning:
            yield Finding(WARNING, f"{place} holds {counted(count, 'message')}")
        if queue["consumer_count"] < options.consumers_min:
            yield Finding(CRITICAL, f"{place} has {counted(queue['consumer_count'], 'consumer')}")


def _queue_performance(queues: list[tuple[Node, dict[str, Any]]], options: Options) -> list[str]:
    limits = f"{options.warning or ''};{options.critical or ''};0"
    # A quote that is doubled is one of the label.
    named = ((f"{node.name} {queue['name']}".replace("'", "''"), queue) for node, queue in queues)
    return [f"'{label}'={queue['message_count']};{limits}" for label, queue in named]


def judged(findings: list[Finding], what: str, performance: list[str]) -> tuple[int, str]:
    """The worst state first in the line; what is certain beats what is unknown."""
    worst = max((finding.state for finding in findings), key=(OK, UNKNOWN, WARNING, CRITICAL).index, default=OK)
    texts = [finding.text for finding in sorted(findings, key=lambda one: one.state != worst)]
    # The first bar ends the text.
    line = "; ".join(texts).replace("|", "/") if texts else f"{what} well"
    return worst, f"{line} | {' '.join(performance)}" if performance else line
