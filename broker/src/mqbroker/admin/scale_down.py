"""A node that leaves: all that it has drains to another one, and a receipt says what became of it.

Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from mqbroker.admin import drains
from mqbroker.base.errors import Refused
from mqbroker.base.time import NS_PER_S
from mqbroker.core.cluster.drains import hindrance_of
from mqbroker.core.cluster.scale_down import QueueTally
from mqbroker.core.queue.kinds import FORWARD, TEMPORARY_PREFIX
from mqbroker.core.queue.queue import Queue
from mqbroker.node.broker.broker import Broker
from mqbroker.node.cluster.cluster_connection import ClusterConnection
from mqbroker.node.values.bridge_states import BridgeState
from mqbroker.node.values.inputs import AdminRequest

REFUSED: Final = "amqp:precondition-failed"
SOON_MS: Final = 60_000  # messages that come due within this time are waited for
NODE_ID_SIZE: Final = 36  # with which the name of a source begins
NAMED_MAX: Final = 10  # hindrances that a refusal names
NONE, MOVING, MOVED, ENDS, FAILED = "none", "moving", "moved", "ends", "failed"

Hindrance = dict[str, str]


def begin(broker: Broker, request: AdminRequest) -> None:
    """`scale-down`: all that this node has goes to another one, named or by its id, and no client is let in here; who
    is here is sent there. `dry_run`: only says what hinders. `force`: what cannot move stays."""
    record = broker.store.remotes.scale_down
    connection, node_id = drains.linked(broker, request)
    if record.is_ending:
        raise Refused(REFUSED, f"{request.operation}: the one to node {record.target} is being called off")
    if record.is_on and record.target != node_id:
        raise Refused(
            REFUSED, f"{request.operation}: this node scales down to node {record.target}; call that off first"
        )
    found = list(hindrances(broker, connection, node_id))
    if request.arguments["dry_run"]:
        broker.reply(request.id, _plan(broker, connection, node_id, found))
        return
    if found and not record.is_on and not request.arguments["force"]:
        raise Refused(REFUSED, f"{request.operation}: {_named(found)}; with force these stay here")
    if not record.is_on:
        broker.scaling_down.begin(connection.options.name, node_id, is_forced=request.arguments["force"])
        broker.store.decisions.wait(_show, broker, request.id)
    else:
        broker.store.decisions.wait_for_earlier(_show, broker, request.id)


def show(broker: Broker, request: AdminRequest) -> None:
    """`scale-down-show`: how far it is, what hinders, and the receipt; rate is messages in a second."""
    _show(broker, request.id)


def cancel(broker: Broker, request: AdminRequest) -> None:
    """`scale-down-cancel`: what is here stays, and is served again once the other node has answered for what it may
    have; `force`: at once, and that may come twice."""
    if not broker.store.remotes.scale_down.is_on:
        raise Refused(REFUSED, f"{request.operation}: this node does not scale down")
    decisions, was_ending = broker.store.decisions, broker.store.remotes.scale_down.is_ending
    broker.scaling_down.call_off(is_forced=request.arguments["force"])
    (decisions.wait_for_earlier if was_ending else decisions.wait)(_show, broker, request.id)


# -- what hinders ------------------------------------------------------------------------------------------------------


def hindrances(broker: Broker, connection: ClusterConnection | None, node_id: str) -> Iterator[Hindrance]:
    """What of this node would stay here, and why."""
    bridge = None if connection is None else connection.bridges.get(node_id)
    if bridge is None or bridge.state is not BridgeState.UP:
        yield _hindrance("node", node_id, "no link to it stands")
    elif not broker.store.remotes.scale_down.is_on and (heir := drains.heir_of(bridge.of, node_id)):
        yield _hindrance("node", node_id, f"leaves itself, to node {heir}")
    if broker.options.grouping_handler.type == "LOCAL":
        yield _hindrance("grouping-handler", broker.options.node.name, "is the one that decides who owns groups")
    sources = [] if broker.store.remotes.scale_down.is_on else broker.store.arrivals.drained_here()
    for node in dict.fromkeys(source[:NODE_ID_SIZE] for source in sources):
        yield _hindrance("node", node, "has queues that drain to this one: wait until it has left, or call that off")
    for queue in sorted(broker.store.queues.values(), key=lambda each: each.kind.name):
        if why := _why_it_stays(broker, queue):
            yield _hindrance("queue", queue.kind.name, why)


def _hindrance(kind: str, name: str, why: str) -> Hindrance:
    return {"kind": kind, "name": name, "why": why}


def _why_it_stays(broker: Broker, queue: Queue) -> str:
    """Empty where nothing of a queue would stay here."""
    kind, count, remotes = queue.kind, queue.message_count, broker.store.remotes
    if kind.is_draining:
        progress = remotes.drains.progress[kind.name]
        if kind.name in remotes.scale_down.tallies:
            return progress.why if progress.why and _has_anything(broker, queue) else _why_it_waits(broker, queue)
        return f"drains to node {kind.forwards_to} already: call that off, or let it end"
    if kind.routing == FORWARD:
        why = f"holds {count} messages for node {kind.forwards_to}, to which no link stands"
        return why if count and not _is_linked(broker, kind.connection, kind.forwards_to) else ""
    what = hindrance_of(kind)
    if not what:
        return _why_it_waits(broker, queue)
    if kind.name.startswith(TEMPORARY_PREFIX) and not kind.is_durable:
        return ""
    return f"{what}, and such queues do not drain yet: it holds {count} messages" if count else ""


def _why_it_waits(broker: Broker, queue: Queue) -> str:
    count = _far_count(broker, queue)
    return f"{count} messages of it were delivered in vain, and go when their time has come" if count else ""


def _far_count(broker: Broker, queue: Queue) -> int:
    """Messages that come again so late that nobody waits for it; those that are new go with their time."""
    soon_ms = broker.at.wall_ms + SOON_MS
    far = (each for due_ms, _, each in queue.scheduled if due_ms > soon_ms and due_ms != each.run.deliver_at_ms)
    return sum(segment.n for segment in far)


def _is_linked(broker: Broker, connection: str, node_id: str) -> bool:
    known = broker.cluster.connections.get(connection)
    return known is not None and known.is_linked(node_id) is True


def _named(found: list[Hindrance]) -> str:
    said = [f"{each['kind']} {each['name']!r} {each['why']}" for each in found[:NAMED_MAX]]
    more = len(found) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more else "")


# -- what is shown -----------------------------------------------------------------------------------------------------


def _plan(broker: Broker, connection: ClusterConnection, node_id: str, found: list[Hindrance]) -> dict[str, Any]:
    """What would happen."""
    member = connection.topology.get(node_id)
    going = [queue for queue in _public(broker) if not hindrance_of(queue.kind)]
    rows = [drains.row_of(broker, queue) | _where(queue) for queue in going]
    return _shown(broker) | {
        "node_id": node_id, "node": None if member is None else member.name, "hindrances": found, "queues": rows,
        "left": sum(queue.message_count for queue in broker.store.queues.values()),
    }  # fmt: skip


def _public(broker: Broker) -> list[Queue]:
    queues = (queue for queue in broker.store.queues.values() if not queue.kind.is_internal)
    return sorted(queues, key=lambda each: each.kind.name)


def _where(queue: Queue) -> dict[str, str]:
    return {"address": queue.kind.address, "routing_type": queue.kind.routing}


def _show(broker: Broker, request_id: int) -> None:
    broker.reply(request_id, _shown(broker))


def _shown(broker: Broker) -> dict[str, Any]:
    record, scaling = broker.store.remotes.scale_down, broker.scaling_down
    clients = sum(1 for _ in scaling.clients())
    if not record.is_on:
        return {
            "state": NONE, "node_id": None, "node": None, "since": None, "left": 0, "moved": 0, "rate": 0.0,
            "connections": clients, "hindrances": [], "queues": [], "receipt": None,
        }  # fmt: skip
    member, queues = scaling.member, scaling.queues()
    found = list(hindrances(broker, broker.cluster.connections.get(record.connection), record.target))
    left = sum(queue.message_count for queue in broker.store.queues.values())
    moved = sum(tally.went.count for tally in record.tallies.values())
    elapsed_ns = max(broker.at.wall_ms - record.since_ms, 1) * (NS_PER_S // 1000)
    return {
        "state": _state(broker, queues, found, clients), "node_id": record.target,
        "node": None if member is None else member.name,
        "since": datetime.fromtimestamp(record.since_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        "left": left, "moved": moved, "rate": round(moved * NS_PER_S / elapsed_ns, 1),
        "connections": clients, "hindrances": found,
        "queues": [drains.row_of(broker, queue) | _where(queue) for queue in sorted(queues, key=_name)],
        "receipt": _receipt(broker),
    }  # fmt: skip


def _name(queue: Queue) -> str:
    return queue.kind.name


def _state(broker: Broker, queues: list[Queue], found: list[Hindrance], clients: int) -> str:
    record = broker.store.remotes.scale_down
    if record.is_ending:
        return ENDS
    is_begun = broker.scaling_down.is_moving and not record.pending and not clients
    drains_of = broker.store.remotes.drains.progress
    is_stuck = any(drains_of[queue.kind.name].why and _has_anything(broker, queue) for queue in queues)
    if is_stuck or (found and not record.is_forced):
        return FAILED if is_begun and not any(queue.delivering_count for queue in queues) else MOVING
    forwarding = (queue for queue in broker.store.remotes.queues.values() if queue.message_count)
    is_empty = is_begun and not any(_has_anything(broker, queue) for queue in queues)
    is_whole = all(hindrance_of(queue.kind) or queue.kind.is_draining for queue in _public(broker))
    return MOVED if is_empty and is_whole and (record.is_forced or not any(forwarding)) else MOVING


def _has_anything(broker: Broker, queue: Queue) -> bool:
    """Whether something of it is to go, or without an answer that is on disk, or the other node was not asked."""
    handed_over, record = queue.handed_over, broker.store.remotes.scale_down
    is_under_way = handed_over is not None and handed_over.ids.count > 0
    stays = _far_count(broker, queue) if record.is_forced else 0
    has_to_say = broker.store.remotes.drains.has_to_say(queue)
    return queue.message_count > stays or is_under_way or record.has_to_ask(queue) or has_to_say


# -- the receipt -------------------------------------------------------------------------------------------------------


def _receipt(broker: Broker) -> dict[str, Any]:
    tallies = sorted(broker.store.remotes.scale_down.tallies.values(), key=lambda each: each.name)
    rows = [_receipt_row(broker, tally) for tally in tallies]
    difference = [text for row, tally in zip(rows, tallies, strict=True) for text in _differences(row, tally)]
    return {"balances": not difference, "difference": difference, "queues": rows}


def _receipt_row(broker: Broker, tally: QueueTally) -> dict[str, Any]:
    queue = broker.store.queues.get(tally.name)
    arrived = tally.arrived
    return {
        "queue": tally.name, "address": tally.address, "before": dict(tally.before), "came": tally.came,
        "consumed": tally.consumed, "moved": tally.went.count,
        "left": 0 if queue is None else broker.store.remotes.scale_down.left_in(queue),
        "moved_digest": str(tally.went), "arrived": None if arrived is None else arrived.count,
        "arrived_digest": None if arrived is None else str(arrived), "not_durable": _not_durable(tally),
    }  # fmt: skip


def _not_durable(tally: QueueTally) -> dict[str, int]:
    """Of what no journal has; a crash takes it, and counts begin anew."""
    came, moved, left = tally.volatile_came, tally.volatile_went, tally.volatile.count
    return {"came": came, "consumed": came - moved - left, "moved": moved, "left": left}


def _differences(row: dict[str, Any], tally: QueueTally) -> Iterator[str]:
    name = tally.name
    if tally.left != row["left"]:
        yield f"queue {name!r} should have {tally.left} messages here, and has {row['left']}"
    if tally.arrived is None:
        if tally.went.count:
            yield f"queue {name!r}: the other node did not say what has arrived"
    elif tally.arrived != tally.went:
        yield f"queue {name!r}: {tally.went} went, and {tally.arrived} arrived"
