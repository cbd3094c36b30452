"""A node that leaves: all that it has drains to another one, and a receipt says what became of it.

Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from mqbroker.admin import drains
from mqbroker.base.errors import Refused
from mqbroker.base.time import NS_PER_S
from mqbroker.cluster.fields import NODE_ID
from mqbroker.core.cluster.drains import hindrance_of, terms_of
from mqbroker.core.cluster.id_digest import sum_of
from mqbroker.core.cluster.queue_tally import HeirShare, QueueTally
from mqbroker.core.cluster.scale_down import OWED_MAX, ScaleDown
from mqbroker.core.queue.kinds import NODE_ID_SIZE
from mqbroker.core.queue.queue import Queue
from mqbroker.node.broker.broker import Broker
from mqbroker.node.cluster.departure.scale_down_progress import (
    NONE,
    differences,
    moving_queues,
    state_of,
    why_apart,
    why_it_stays,
)
from mqbroker.node.cluster.membership.cluster_connection import ClusterConnection
from mqbroker.node.values.bridge_states import BridgeState
from mqbroker.node.values.inputs import AdminRequest

REFUSED: Final = "amqp:precondition-failed"
NAMED_MAX: Final = 10  # hindrances that a refusal names, and clients that are waited for
CORDONED: Final = "cordoned"  # a state beside those of a scale-down: nothing moves (cordon.py)

Hindrance = dict[str, Any]  # kind, name, why; of a queue: messages, all that are in it


def begin(broker: Broker, request: AdminRequest) -> None:
    """`scale-down`: all that this node has goes to another one, named or by its id, and no client is let in here; who
    is here is sent there. While it leaves, another node: what is here and was not sent goes to that one, and what the
    one before may have waits for its answer. `dry_run`: only says what hinders. `force`: what cannot move stays, which
    may be said later, too, whether the other node is linked or not. `not_to`: ids, between commas, of nodes that are to
    leave as well: none of them takes the place of the other node where that falls out. That may be said later as force
    may; empty: nobody is passed over any more; left out: who was before."""
    record, is_forced = broker.store.remotes.scale_down, request.arguments["force"]
    passed_over = _passed_over(request)
    has_more = is_forced or passed_over is not None
    if has_more and not request.arguments["dry_run"] and _leaves_to(broker, request.arguments["node"]):
        _say_more(broker, request, passed_over)
        return
    connection, node_id = drains.linked(broker, request)
    if record.is_ending:
        raise Refused(REFUSED, f"{request.operation}: the one to node {record.target} is being called off")
    hindering = list(hindrances(broker, connection, node_id))
    if request.arguments["dry_run"]:
        broker.reply(request.id, _plan(broker, connection, node_id, hindering))
        return
    if record.is_on and (record.connection, record.target) != (connection.options.name, node_id):
        if why := drains.why_it_takes_nothing(connection, node_id):
            raise Refused(REFUSED, f"{request.operation}: node {node_id} {why}")
        if (why := _why_of_others(connection, node_id)) and not is_forced:
            raise Refused(REFUSED, f"{request.operation}: node {node_id} {why}; with force it goes there")
        if is_forced:
            record.force()
        broker.scaling_down.go_on_to(connection.options.name, node_id)
        _pass_over(record, passed_over)
        broker.store.decisions.wait(show_to, broker, request.id)
        return
    if hindering and not record.is_on and not is_forced:
        raise Refused(REFUSED, f"{request.operation}: {_named(hindering)}; with force it begins all the same")
    if not record.is_on:
        broker.scaling_down.begin(connection.options.name, node_id, is_forced=is_forced)
        _pass_over(record, passed_over)
        broker.store.decisions.wait(show_to, broker, request.id)
    else:
        broker.store.decisions.wait_for_earlier(show_to, broker, request.id)


def _passed_over(request: AdminRequest) -> list[str] | None:
    """The ids that it names, for so many of which the record has room; None: it says nothing of them. Raises
    Refused."""
    said: str | None = request.arguments["not_to"]
    if said is None:
        return None
    ids = [each for each in said.split(",") if each]
    if wrong := next((each for each in ids if not NODE_ID.fullmatch(each)), ""):
        why = f"not_to has {wrong[:NODE_ID_SIZE]!r}, which is no id of a node"
        raise Refused("amqp:invalid-field", f"{request.operation}: {why}")
    if len(ids) > OWED_MAX:
        raise Refused("amqp:invalid-field", f"{request.operation}: not_to has {len(ids)} ids, {OWED_MAX} at most")
    return ids


def _pass_over(record: ScaleDown, node_ids: list[str] | None) -> bool:
    """Whether that is another word than before, which stays where nothing is said."""
    if node_ids is None or tuple(node_ids) == record.passed_over:
        return False
    record.pass_over(node_ids)
    return True


def _leaves_to(broker: Broker, node: str) -> bool:
    """Whether this one leaves already, and that is its heir, by its name or its id; it need not be there."""
    record, member = broker.store.remotes.scale_down, broker.scaling_down.member
    names = (record.target, "" if member is None else member.name)
    return record.is_on and not record.is_ending and node in names


def _say_more(broker: Broker, request: AdminRequest, passed_over: list[str] | None) -> None:
    """Of the one that is on: it goes where it does."""
    record, decisions = broker.store.remotes.scale_down, broker.store.decisions
    is_new = _pass_over(record, passed_over)
    if request.arguments["force"] and not record.is_forced:
        record.force()
        is_new = True
    (decisions.wait if is_new else decisions.wait_for_earlier)(show_to, broker, request.id)


def show(broker: Broker, request: AdminRequest) -> None:
    """`scale-down-show`: how far it is, what hinders, and the receipt; rate is messages in a second, `stands_s` for how
    many seconds nothing has gone, to the node that takes them or another one."""
    show_to(broker, request.id)


def cancel(broker: Broker, request: AdminRequest) -> None:
    """`scale-down-cancel`: what is here stays, and is served again once the other node has answered for what it may
    have; `force`: at once, and that may come twice."""
    if not broker.store.remotes.scale_down.is_on:
        raise Refused(REFUSED, f"{request.operation}: this node does not scale down")
    decisions, was_ending = broker.store.decisions, broker.store.remotes.scale_down.is_ending
    before = [(queue, queue.kind) for queue in broker.scaling_down.queues()]
    broker.scaling_down.call_off(is_forced=request.arguments["force"])
    is_said = was_ending and all(queue.kind is kind for queue, kind in before)
    (decisions.wait_for_earlier if is_said else decisions.wait)(show_to, broker, request.id)


# -- what hinders ------------------------------------------------------------------------------------------------------


def hindrances(broker: Broker, connection: ClusterConnection | None, node_id: str) -> Iterator[Hindrance]:
    """What of this node would stay here, and why."""
    record = broker.store.remotes.scale_down
    bridge = None if connection is None else connection.bridges.get(node_id)
    if bridge is None or bridge.state is not BridgeState.UP:
        yield _hindrance("node", node_id, "no link to it stands")
    elif not record.is_on and (why := drains.why_it_takes_nothing(bridge.of, node_id)):
        yield _hindrance("node", node_id, why)
    if connection is not None and node_id != record.target and (why := _why_of_others(connection, node_id)):
        yield _hindrance("node", node_id, why)
    if why := _why_groups_stay(broker):
        yield _hindrance("grouping-handler", broker.options.node.name, why)
    for node in [] if record.is_on else nodes_that_drain_here(broker):
        yield _hindrance("node", node, "has queues that drain to this one: wait until it has left, or call that off")
    for queue in sorted(broker.store.queues.values(), key=lambda each: each.kind.name):
        if why := why_it_stays(broker, queue):
            yield _hindrance("queue", queue.kind.name, why) | {"messages": queue.message_count}
    for held in record.held:
        if why := why_apart(broker, held):
            yield _hindrance("queue", held.kind.name, why) | {"messages": held.of.message_count}


def _why_of_others(connection: ClusterConnection, node_id: str) -> str:
    """Why a node is to take nothing of this one, but by force, as at a stop (cluster/heirs.py); empty where it may."""
    own, member = connection.broker.options.scale_down.group_name, connection.topology.get(node_id)
    if not own or member is None or member.scale_down_group == own:
        return ""
    theirs = f"scale-down group {member.scale_down_group!r}" if member.scale_down_group else "no scale-down group"
    return f"is of {theirs}, and this node of {own!r}"


def _why_groups_stay(broker: Broker) -> str:
    """What keeps this node from leaving of what it has decided of groups; empty where nothing does."""
    if broker.options.grouping_handler.type == "LOCAL":
        what = "make another node LOCAL and this one REMOTE, which hands over what it has decided"
        return f"is the one that decides who owns groups: {what}"
    return "" if broker.grouping is None else broker.grouping.why_not_handed_over()


def nodes_that_drain_here(broker: Broker) -> list[str]:
    """The ids of the nodes of which queues drain to this one, each once."""
    return list(dict.fromkeys(source[:NODE_ID_SIZE] for source in broker.store.arrivals.drained_here()))


def _hindrance(kind: str, name: str, why: str) -> Hindrance:
    return {"kind": kind, "name": name, "why": why}


def _named(hindering: list[Hindrance]) -> str:
    said = [f"{each['kind']} {each['name']!r} {each['why']}" for each in hindering[:NAMED_MAX]]
    more = len(hindering) - len(said)
    return "; ".join(said) + (f"; and {more} more" if more else "")


# -- what is shown -----------------------------------------------------------------------------------------------------


def _plan(broker: Broker, connection: ClusterConnection, node_id: str, hindering: list[Hindrance]) -> dict[str, Any]:
    """What would happen."""
    member = connection.topology.get(node_id)
    going = [queue for queue in moving_queues(broker) if not hindrance_of(queue.kind)]
    rows = [drains.row_of(broker, queue) | _where(queue) | _held(broker, queue) for queue in going]
    return _shown(broker) | {
        "node_id": node_id, "node": None if member is None else member.name, "hindrances": hindering, "queues": rows,
        "left": sum(queue.message_count for queue in broker.store.queues.values()),
    }  # fmt: skip


def _held(broker: Broker, queue: Queue) -> dict[str, Any]:
    """What an address has to hold, in memory, in pages and in files, whether this one hands it out, and what a queue of
    the same name there has to be like."""
    is_paused = broker.store.addresses[queue.kind.address].is_paused
    large = sum(each.n for each in queue.segments() if each.run.large is not None)
    return {
        "bytes": _size_bytes(queue), "paged": queue.paged_count, "large": large,
        "can_page": queue.kind.may_page, "address_paused": is_paused, "terms": terms_of(queue.kind),
    }  # fmt: skip


def _size_bytes(queue: Queue) -> int:
    """Of all that is in it."""
    held = sum(each.run.size_bytes(each.start, each.n) for each in queue.segments())
    return held if queue.pages is None else held + queue.pages.size_bytes


def _where(queue: Queue) -> dict[str, str]:
    return {"address": queue.kind.address, "routing_type": queue.kind.routing}


def show_to(broker: Broker, request_id: int) -> None:
    """Answer with how far it is."""
    broker.reply(request_id, _shown(broker))


def _shown(broker: Broker) -> dict[str, Any]:
    record, scaling = broker.store.remotes.scale_down, broker.scaling_down
    clients = sum(1 for _ in broker.departing.clients())
    if not record.is_on:
        return _shown_where_nothing_moves(broker, clients)
    member, queues = scaling.member, scaling.queues()
    hindering = list(hindrances(broker, broker.cluster.connections.get(record.connection), record.target))
    left = sum(queue.message_count for queue in broker.store.queues.values())
    moved = sum(tally.went_count for tally in record.tallies.values())
    elapsed_ns = max(broker.at.wall_ms - record.since_ms, 1) * (NS_PER_S // 1000)
    return {
        "state": state_of(broker, is_hindered=bool(hindering)), "node_id": record.target,
        "node": None if member is None else member.name,
        "since": _time_of(record.since_ms),
        "left": left, "moved": moved, "rate": round(moved * NS_PER_S / elapsed_ns, 1),
        "stands_s": scaling.stands_ns // NS_PER_S, "passed_over": list(record.passed_over),
        "connections": clients, "staying": _staying(broker), "hindrances": hindering,
        "queues": [drains.row_of(broker, queue) | _where(queue) for queue in sorted(queues, key=_name)],
        "receipt": _receipt(broker),
    }  # fmt: skip


def _shown_where_nothing_moves(broker: Broker, clients: int) -> dict[str, Any]:
    """Of a node that is cordoned, what it keeps is `left`."""
    cordon = broker.store.remotes.cordon
    kept = sum(queue.message_count for queue in broker.store.queues.values()) if cordon.is_on else 0
    return {
        "state": CORDONED if cordon.is_on else NONE, "node_id": None, "node": None,
        "since": _time_of(cordon.since_ms) if cordon.is_on else None, "left": kept, "moved": 0, "rate": 0.0,
        "stands_s": 0, "passed_over": [], "connections": clients, "staying": _staying(broker), "hindrances": [],
        "queues": [], "receipt": None,
    }  # fmt: skip


def _staying(broker: Broker) -> list[dict[str, Any]]:
    """Clients that are waited for, the first of them."""
    clients = islice(broker.departing.staying(), NAMED_MAX)
    return [{"conn": peer.conn, "peer": peer.far, "why": why, "for_s": for_s} for peer, why, for_s in clients]


def _time_of(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _name(queue: Queue) -> str:
    return queue.kind.name


# -- the receipt -------------------------------------------------------------------------------------------------------


def _receipt(broker: Broker) -> dict[str, Any]:
    tallies = sorted(broker.store.remotes.scale_down.tallies.values(), key=lambda each: each.name)
    rows = [_receipt_row(broker, tally) for tally in tallies]
    difference = list(differences(broker))
    return {"balances": not difference, "difference": difference, "queues": rows, "others": _owed_rows(broker)}


def _owed_rows(broker: Broker) -> list[dict[str, Any]]:
    """What waited here to be sent to other nodes when this one began to leave, and what does now."""
    record = broker.store.remotes.scale_down
    owed = record.owed()
    return [
        {"node_id": node_id, "node": _name_of(broker, node_id), "before": record.owed_before.get(node_id, 0),
         "left": owed.get(node_id, 0)}
        for node_id in sorted({*record.owed_before, *owed})
    ]  # fmt: skip


def _name_of(broker: Broker, node_id: str) -> str | None:
    members = (connection.topology.get(node_id) for connection in broker.cluster.connections.values())
    return next((member.name for member in members if member is not None), None)


def _receipt_row(broker: Broker, tally: QueueTally) -> dict[str, Any]:
    queue = broker.store.queues.get(tally.name)
    confirmed = [share for share in tally.shares if not share.is_unconfirmed]
    said = [share.arrived for share in confirmed if share.arrived is not None]
    arrived = sum_of(said) if said else None
    return {
        "queue": tally.name, "address": tally.address, "before": dict(tally.before), "came": tally.came,
        "consumed": tally.consumed, "moved": tally.went_count, "paused": queue is not None and queue.is_paused,
        "left": 0 if queue is None else broker.store.remotes.scale_down.left_in(queue), "after": _after(queue),
        "moved_digest": str(sum_of(share.went for share in confirmed)),
        "arrived": None if arrived is None else arrived.count,
        "arrived_digest": None if arrived is None else str(arrived), "not_durable": _not_durable(tally),
        "unconfirmed": sum(share.went.count for share in tally.shares if share.is_unconfirmed),
        "heirs": [_share_row(broker, tally.name, share) for share in tally.shares],
    }  # fmt: skip


def _after(queue: Queue | None) -> dict[str, int]:
    """Of all that is in it, durable or not, as `before` has it, but what would take a walk over all of it."""
    if queue is None:
        return {"delivering": 0, "scheduled": 0, "paged": 0}
    return {"delivering": queue.delivering_count, "scheduled": queue.scheduled_count, "paged": queue.paged_count}


def _share_row(broker: Broker, name: str, share: HeirShare) -> dict[str, Any]:
    """What went to one heir of those that there were, and what it said of it."""
    apart = broker.store.remotes.scale_down.held.by_name.get(name, ())
    connection = broker.cluster.connections.get(share.connection)
    member = None if connection is None else connection.topology.get(share.target)
    return {
        "node_id": share.target, "node": None if member is None else member.name,
        "moved": share.went.count, "moved_digest": str(share.went), "paused_there": share.is_paused_there,
        "arrived": None if share.arrived is None else share.arrived.count,
        "arrived_digest": None if share.arrived is None else str(share.arrived), "given_up": share.is_given_up,
        "unanswered": sum(each.message_count for each in apart if each.kind.drains_as == share.link),
    }  # fmt: skip


def _not_durable(tally: QueueTally) -> dict[str, int]:
    """Of what no journal has; a crash takes it, and counts begin anew."""
    came, moved, left = tally.volatile_came, tally.volatile_went, tally.volatile.count
    return {"came": came, "consumed": came - moved - left, "moved": moved, "left": left}
