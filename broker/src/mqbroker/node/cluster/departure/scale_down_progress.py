"""How far a node is that leaves: what stays here and why, and whether the receipt balances.

Source: docs/adr/0027-scale-down.md, its table of states.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from mqbroker.base.time import NS_PER_S
from mqbroker.core.cluster.drains import hindrance_of
from mqbroker.core.queue.kinds import FORWARD
from mqbroker.node.amqp.peers.clients import clients_of
from mqbroker.node.values.subscriptions import is_of_subscribers

if TYPE_CHECKING:
    from mqbroker.core.cluster.held_back import Held
    from mqbroker.core.cluster.scale_down import ScaleDown
    from mqbroker.core.queue.queue import Queue
    from mqbroker.node.cluster.membership.cluster_broker import ClusterBroker

SOON_MS: Final = 60_000  # messages that come due within this time are waited for
NONE, MOVING, MOVED, ENDS, FAILED = "none", "moving", "moved", "ends", "failed"


def state_of(broker: ClusterBroker, *, is_hindered: bool) -> str:
    """One of the five. `is_hindered`: something of this node would stay here."""
    record, queues = broker.store.remotes.scale_down, broker.scaling_down.queues()
    if not record.is_on:
        return NONE
    if record.is_ending:
        return ENDS
    is_begun, idle = _is_under_way(broker), broker.scaling_down.idle
    drains_of = broker.store.remotes.drains.progress
    is_stuck = any(
        (drains_of[each.kind.name].why and has_anything(broker, each)) or idle.is_late(each) for each in queues
    )
    if is_stuck or (is_hindered and not record.is_forced):
        on_link = (each for each in queues if each.delivering_count > record.held.apart_count(each))
        is_going = any(not idle.is_late(queue) for queue in on_link)
        return FAILED if is_begun and not is_going else MOVING
    is_empty = has_begun(broker) and not any(has_anything(broker, queue) for queue in queues)
    is_all = not _is_on_its_way(broker) if record.is_forced else not (_owed(broker) or record.held.by_name)
    return MOVED if is_empty and is_all else MOVING


def _owed(broker: ClusterBroker) -> list[Queue]:
    """Store-and-forward queues that hold something."""
    return [queue for queue in broker.store.remotes.queues.values() if queue.message_count]


def _is_on_its_way(broker: ClusterBroker) -> bool:
    """Whether something of what may stay goes to a node all the same, or is asked of it, which is there, lets it in and
    takes it."""
    record, idle, soon_ms = broker.store.remotes.scale_down, broker.scaling_down.idle, broker.at.wall_ms + SOON_MS
    apart = (held.queue for held in record.held if not held.why and _is_due_apart(record, held, soon_ms))
    owed = (queue for queue in _owed(broker) if queue.message_count > record.held.apart_count(queue))
    going = (*apart, *(queue for queue in owed if queue.consumers))
    linked = (each for each in going if is_linked(broker, each.kind.connection, each.kind.forwards_to))
    return any(not idle.is_late(queue) for queue in linked)


def _is_due_apart(record: ScaleDown, held: Held, soon_ms: int) -> bool:
    """Whether something is to go to a node before, or to be asked of it, and not only when its time has come."""
    return held.has_due(soon_ms) or record.has_to_ask(held.queue) or not held.has_any


def _is_under_way(broker: ClusterBroker) -> bool:
    """Whether no client is here any more, and each queue was looked at."""
    is_looked_at = broker.scaling_down.is_moving and not broker.store.remotes.scale_down.pending
    return is_looked_at and not any(broker.departing.clients())


def has_begun(broker: ClusterBroker) -> bool:
    """Whether all drain that can."""
    queues = moving_queues(broker)
    return _is_under_way(broker) and all(hindrance_of(each.kind) or each.kind.is_draining for each in queues)


def moving_queues(broker: ClusterBroker) -> list[Queue]:
    """Those that go to the heir, or would: of clients, and what addresses keep for later ones, but that not at a stop.
    By their names."""
    queues = [queue for queue in broker.store.queues.values() if not queue.kind.is_forwarding]
    if broker.store.remotes.scale_down.is_at_stop:
        queues = [queue for queue in queues if not queue.kind.is_ring]
    return sorted(queues, key=lambda each: each.kind.name)


def has_anything(broker: ClusterBroker, queue: Queue) -> bool:
    """Whether something of it is to go, or without an answer that is on disk, or the other node was not asked."""
    handed_over, record = queue.handed_over, broker.store.remotes.scale_down
    is_under_way = handed_over is not None and handed_over.ids.count > 0
    stays = _far_count(broker, queue) + record.held.apart_count(queue) if record.is_forced else 0
    has_to_say = broker.store.remotes.drains.has_to_say(queue)
    return queue.message_count > stays or is_under_way or record.has_to_ask(queue) or has_to_say


def why_it_stays(broker: ClusterBroker, queue: Queue) -> str:
    """Empty where nothing of a queue would stay here."""
    kind, count, remotes = queue.kind, queue.message_count, broker.store.remotes
    if kind.is_draining:
        progress = remotes.drains.progress[kind.name]
        if kind.name in remotes.scale_down.tallies:
            stuck = progress.why if has_anything(broker, queue) else ""
            return stuck or _why_nothing_goes(broker, queue) or _why_it_waits(broker, queue)
        return f"drains to node {kind.forwards_to} already: call that off, or let it end"
    if kind.routing == FORWARD:
        return _why_it_is_owed(broker, queue)
    what = hindrance_of(kind)
    if not what:
        return _why_it_waits(broker, queue)
    if kind.is_temporary or _ends_with_clients(queue):
        return ""
    return f"{what}, and such queues do not drain yet: it holds {count} messages" if count else ""


def _ends_with_clients(queue: Queue) -> bool:
    """Whether it is gone once those are who subscribe by it: clients of this node, which leave it, and subscribe anew
    elsewhere. One that may be come back to for a time stays here, whether somebody has it now or not."""
    clients = clients_of(queue) if is_of_subscribers(queue.kind) else []
    return queue.is_ending or (any(one.ends_queue for one in clients) and not any(one.may_return for one in clients))


def _why_it_is_owed(broker: ClusterBroker, queue: Queue) -> str:
    """Of a store-and-forward queue: what the node that it is for cannot have goes over the heir."""
    kind, count = queue.kind, queue.message_count - broker.store.remotes.scale_down.held.apart_count(queue)
    if not count:
        return ""
    if is_linked(broker, kind.connection, kind.forwards_to):
        is_refused = not (kind.route[0].endswith(kind.forwards_to) or queue.consumers or queue.arriving_count)
        if is_refused:
            return f"holds {count} messages, to which node {kind.forwards_to} knows no way"
        return _why_nothing_goes(broker, queue)
    record, remotes = broker.store.remotes.scale_down, broker.store.remotes
    what = f"holds {count} messages for node {kind.forwards_to}, to which no link stands"
    if record.is_at_stop or record.is_ending or (record.is_on and kind.connection != record.connection):
        return what
    apart = queue.unanswered_count
    why = remotes.why_not_handed_on(queue, record.target) or (f"it may have {apart} of them" if apart else "")
    return f"{what}: {why}" if why else ""


def why_apart(broker: ClusterBroker, held: Held) -> str:
    """Why what waits for the answer of an heir before does so still; empty where it is on its way."""
    kind, count = held.kind, held.message_count
    if is_linked(broker, kind.connection, kind.forwards_to):
        if not held.why:
            return _why_nothing_goes(broker, held.queue)
        return f"{count} messages of it may be at node {kind.forwards_to}, which refuses: {held.why}"
    what = f"{count} messages of it may be at" if count else "what has gone to"
    then = "they go there" if count else "is not confirmed"
    return f"{what} node {kind.forwards_to}, to which no link stands: {then} until it answers, or is forgotten"


def _why_it_waits(broker: ClusterBroker, queue: Queue) -> str:
    count = _far_count(broker, queue)
    return f"{count} messages of it were delivered in vain, and go when their time has come" if count else ""


def _why_nothing_goes(broker: ClusterBroker, queue: Queue) -> str:
    """Of a queue of which nothing has gone for so long that another node would have taken over, if there were one."""
    idle = broker.scaling_down.idle
    if not idle.is_late(queue):
        return ""
    node, count, for_s = queue.kind.forwards_to, idle.due_count(queue), idle.idle_ns(queue) // NS_PER_S
    what = f"{count} messages of it wait" if count > 0 else "what has gone is not confirmed"
    if idle.is_without_credit(queue):
        return f"{what}: node {node} gives its link no credit, as where its address is full, for {for_s} s"
    return f"{what}: node {node} has answered for none for {for_s} s"


def _far_count(broker: ClusterBroker, queue: Queue) -> int:
    """Messages that come again so late that nobody waits for it; those that are new go with their time."""
    soon_ms = broker.at.wall_ms + SOON_MS
    far = (each for due_ms, _, each in queue.scheduled if due_ms > soon_ms and due_ms != each.run.deliver_at_ms)
    return sum(segment.n for segment in far)


def is_linked(broker: ClusterBroker, connection: str, node_id: str) -> bool:
    """Whether a link of this cluster connection to the node stands."""
    known = broker.cluster.connections.get(connection)
    return known is not None and known.is_linked(node_id) is True


def differences(broker: ClusterBroker) -> Iterator[str]:
    """What of the receipt does not balance."""
    record = broker.store.remotes.scale_down
    for name, tally in sorted(record.tallies.items()):
        queue = broker.store.queues.get(name)
        left = 0 if queue is None else record.left_in(queue)
        if tally.left != left:
            yield f"queue {name!r} should have {tally.left} messages here, and has {left}"
        for share in tally.shares:
            of = f" at node {share.target}" if len(tally.shares) > 1 else ""
            if share.is_unconfirmed:
                continue
            if share.arrived is None:
                if share.went.count:
                    yield f"queue {name!r}: the other node did not say what has arrived{of}"
            elif share.has_to_ask:
                yield f"queue {name!r}: the other node did not say yet that all of {share.went.count} have arrived{of}"
            elif share.arrived != share.went:
                yield f"queue {name!r}: {share.went} went, and {share.arrived} arrived{of}"
