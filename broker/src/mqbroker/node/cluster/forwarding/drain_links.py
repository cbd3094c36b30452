"""What the two ends of a link over which a queue drains tell each other of how much of it has come.

Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from dataclasses import replace

from mqbroker.core.cluster.forwarding import Remotes
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.core.queue.queue import Queue
from mqbroker.journal.records import as_json
from mqbroker.node.cluster.forwarding.forwarding_terms import ADDRESS, arrived_in, attach_for, has_come, paused_in
from mqbroker.node.values.subscriptions import is_of_subscribers
from mqbroker.wire.performatives import Attach


def attach_of(remotes: Remotes, queue: Queue, node_id: str, *, is_numbered: bool) -> Attach:
    """What this node says for a queue, which is remembered where it drains."""
    # The other node may have ended a subscription since, of which it had all once.
    may_be_over = is_of_subscribers(queue.kind) and not queue.kind.drain_ends
    is_here = has_come(queue, remotes.scale_down.held.apart_count(queue))
    came_before = may_be_over and (remotes.scale_down.has_come(queue) or remotes.drains.has_come(queue))
    kind = _kind_there(remotes, queue)
    remotes.drains.said_come(queue, has_come=is_here)
    remotes.drains.said_pause(queue, is_paused=kind.paused)
    attach = attach_for(kind, node_id, is_numbered=is_numbered, has_come=is_here, came_before=came_before)
    said = remotes.said_of(queue.kind.address)
    if not said:
        return attach
    return replace(attach, properties={**(attach.properties or {}), ADDRESS: as_json(said)})


def _kind_there(remotes: Remotes, queue: Queue) -> QueueKind:
    """What it is where the other node makes it. What is not handed out here, for the sake of its address too, is not
    there either: also where the queue is empty, as more may be on its way to it, until the first link that said so was
    let in, and then as long as some of it is still to come. A queue that is made once all has gone, as the one before
    was resumed there and emptied, is for what clients send there. What waits apart ends as well: a node that is
    cordoned or leaves itself lets in what it may have."""
    of = queue if queue.part_of is None else queue.part_of
    if not queue.kind.is_draining:
        return queue.kind
    is_theirs = queue.part_of is not None or remotes.drains.knows_pause(queue)  # what waits apart has been there
    is_paused = of.is_paused and (queue.message_count > 0 or not is_theirs)
    return replace(queue.kind, paused=is_paused, drain_ends=queue.kind.drain_ends or queue.part_of is not None)


def pause_told(remotes: Remotes, queue: Queue, answer: Attach) -> bool | None:
    """Of a queue that is paused here or there: whether it is there, where the other node says so for the first time;
    else None."""
    is_paused = paused_in(answer)
    if is_paused is not None:
        remotes.scale_down.heard_pause(queue, is_paused=is_paused)
    is_news = is_paused is not None and remotes.drains.heard_pause(queue, is_paused=is_paused)
    return is_paused if is_news and (is_paused or queue.is_paused) else None


def heard(remotes: Remotes, queue: Queue, answer: Attach) -> bool:
    """The other node has, or has made, a queue for what drains; whether nothing may go before this step's append is on
    disk."""
    remotes.drains.let_in(queue)
    if remotes.drains.has_said_come(queue):
        remotes.scale_down.heard_come(queue)
        if queue.kind.name not in remotes.scale_down.tallies and is_of_subscribers(queue.kind):
            remotes.drains.heard_come(queue)
    return remotes.scale_down.heard(queue, arrived_in(answer))
