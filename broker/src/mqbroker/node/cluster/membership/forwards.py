"""Messages on their way to another node: one link for each store-and-forward queue of a bridge.

What leaves on such a link is said where its consumer is (forward_consumer.py); here they begin and end. What the other
node has no queue for is routed again. Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from mqbroker.amqp.events import Settled
from mqbroker.amqp.links import SenderLink
from mqbroker.base.errors import PeerFault
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.config.slices import ClusterConnectionOptions
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.core.queue.unanswered_forwards import ANSWERED_MAX
from mqbroker.node.amqp.links.ends import set_sending_end
from mqbroker.node.cluster.forwarding.competing_queues import competing_at
from mqbroker.node.cluster.forwarding.drain_links import attach_of, heard, pause_told
from mqbroker.node.cluster.forwarding.forward_consumer import ForwardConsumer
from mqbroker.node.cluster.forwarding.forwarding_terms import ENDED, NOT_FOUND, OLDER, has_made
from mqbroker.node.values.link_ends import sending_end
from mqbroker.node.values.open_transaction import segment_of
from mqbroker.node.values.subscriptions import is_of_subscribers
from mqbroker.wire.performatives import Accepted, Attach, Error, Rejected

if TYPE_CHECKING:
    from mqbroker.node.cluster.forwarding.competing_queues import CompetingWaits
    from mqbroker.node.cluster.membership.bridge_peer import BridgePeer
    from mqbroker.node.values.ends import SendingEndOf


class Forwards:
    """The links of one bridge. They begin when the other node has told which queues it has."""

    def __init__(self, peer: BridgePeer) -> None:
        self.broker, self._conn = peer.bridge.of.broker, peer.conn
        self.bridge = peer.bridge
        self.is_begun = False
        self.consumers: dict[Queue, ForwardConsumer] = {}

    @property
    def peer(self) -> BridgePeer:
        """Whose they are, while it is there. Looked up, as each of the two would keep the other one for ever."""
        return cast("BridgePeer", self.broker.peers[self._conn])

    @property
    def options(self) -> ClusterConnectionOptions:
        """Of the cluster connection."""
        return self.bridge.of.options

    @property
    def competing_waits(self) -> CompetingWaits:
        """Those of the node, over all its bridges."""
        return self.bridge.of.cluster.competing_waits

    def begin(self) -> None:
        """Ask for a link for each queue that is there."""
        LOOK.has_touched = True
        self.is_begun = True
        of = self.bridge.of
        for queue in self.broker.store.remotes.handed_on(of.options.name, owner=self.bridge.node_id):
            of.turn_back(queue, is_there=True)
        for queue in of.queues_for(self.bridge.node_id):
            self.attach(queue)

    def attach(self, queue: Queue) -> None:
        """A queue that this bridge serves."""
        peer, session, remotes = self.peer, self.peer.session, self.broker.store.remotes
        if not self.is_begun or queue in self.consumers or session is None or peer.connection.is_dead:
            return
        is_numbered = peer.bridge.of.options.use_duplicate_detection or queue.kind.is_draining
        try:
            link = session.attach_sender(attach_of(remotes, queue, peer.broker.node_id, is_numbered=is_numbered))
        except PeerFault as fault:
            self._refused(queue, fault.description)
            return
        LOOK.has_touched = True
        consumer = self.consumers[queue] = set_sending_end(link, ForwardConsumer(self, link, queue))
        consumer.is_arriving = True
        queue.arriving_count += 1
        self._look(queue)
        peer.touch()

    def attached(self, consumer: ForwardConsumer, answer: Attach) -> None:
        """The other node answered. A refusal follows as a detach."""
        if self.consumers.get(consumer.queue) is not consumer:
            if consumer.link.is_attached:
                self.peer.detach(consumer.link, is_closed=False)  # it was let go meanwhile: its queue goes elsewhere
            return
        if consumer.queue.kind.is_draining:
            if answer.target is None:
                return  # it was not let in, and has nothing to ask for
            self.stuck(consumer.queue, "" if has_made(answer) else OLDER)
            self._tell_of_pause(consumer.queue, answer)
            if not has_made(answer):
                self.peer.detach(consumer.link, is_closed=False)
            elif heard(self.broker.store.remotes, consumer.queue, answer):
                self.broker.store.decisions.wait(self._join, consumer)
                return
        if consumer.is_arriving and consumer.link.is_attached:
            # Nothing leaves before it is on disk how far ids go (core/cluster/forwarding.py).
            self.broker.store.decisions.wait_for_earlier(self._join, consumer)

    def _tell_of_pause(self, queue: Queue, answer: Attach) -> None:
        """What is paused here may be handed out there, where there was a queue; else whoever ends the pause has to do
        so there. What is served here may stand there."""
        is_paused = pause_told(self.broker.store.remotes, queue, answer)
        if is_paused is not None:
            level = Level.INFO if is_paused and queue.is_paused else Level.WARNING
            event = "drain-paused" if is_paused else "drain-unpaused"
            self.broker.notice(level, event, queue=queue.kind.name, node_id=self.bridge.node_id)

    def _join(self, consumer: ForwardConsumer) -> None:
        LOOK.has_touched = True
        if consumer.is_arriving and consumer.link.is_attached:
            consumer.is_arriving = False
            consumer.queue.arriving_count -= 1
            self.broker.store.join(consumer.queue, consumer)
            self._look_at_drain(consumer)

    def detached(self, consumer: ForwardConsumer, error: Error | None) -> None:
        """Its link is gone, and what was on it is back in its queue."""
        queue, broker = consumer.queue, self.broker
        condition, description = ("", "") if error is None else (str(error.condition), error.description or "")
        was_let_go = self.consumers.get(queue) is not consumer
        LOOK.has_touched = True
        if not was_let_go:
            del self.consumers[queue]
            self._look(queue)
        broker.store.remotes.drains.look(queue)
        if self.peer.connection.is_dead or queue.is_deleted:
            return
        if condition == ENDED and queue.kind.is_draining and not self._is_kept_apart(queue):
            self._over(queue)
            return
        if condition and queue in broker.canaries.waiting:
            broker.canaries.refused(queue, condition, description)
        if condition == NOT_FOUND and self._come_back(queue):
            return
        if condition == NOT_FOUND and not queue.kind.is_draining and not broker.store.remotes.is_owed_beyond(queue):
            self._route_again(queue, consumer.link)
        elif condition:
            self._refused(queue, f"{condition}: {description[:200]}")
        elif was_let_go:
            self._look_again(queue)

    def _over(self, queue: Queue) -> None:
        """Its subscriber has ended it at the other node: what has come to it since is for nobody."""
        if queue.message_count:
            self.broker.notice(Level.WARNING, "subscription-ended-elsewhere", queue=queue.kind.name,
                               node_id=self.bridge.node_id, messages=queue.message_count)  # fmt: skip
        self.broker.store.delete_queue(queue, BROKER)

    def _look_again(self, queue: Queue) -> None:
        """A link was let go before it was answered, as nobody needed it. The queue could not go before that; where
        somebody needs it by now it has a link."""
        kind, remotes = queue.kind, self.broker.store.remotes
        if kind.is_draining or queue.part_of is not None or kind.forwards_to != self.bridge.node_id:
            return
        remotes.tidy([queue])
        if not queue.is_deleted:
            self.attach(queue)

    def _come_back(self, queue: Queue) -> bool:
        """A queue that was handed on was refused, by a node which has taken none of it: it waits for its owner again.
        False: that is gone for good."""
        remotes = self.broker.store.remotes
        if not remotes.is_turned_back(queue):
            return False
        LOOK.has_touched = True
        if queue.part_of is not None:
            remotes.scale_down.held.refused(queue, is_all=True)
        else:
            remotes.refused_by[queue.journal_id, queue.kind.forwards_to] = None
            self.bridge.of.turn_back(queue, is_there=False)
        return True

    def _is_kept_apart(self, queue: Queue) -> bool:
        """Whether something of it waits for the answer of another node: then it stays until that has come."""
        return queue.kind.name in self.broker.store.remotes.scale_down.held.by_name

    def _refused(self, queue: Queue, why: str) -> None:
        """It has no link, and one is asked for again."""
        if queue.kind.is_draining:
            self.stuck(queue, why)
        else:
            self.broker.notice(Level.WARNING, "forwarding-refused", queue=queue.kind.name, why=why)
            self.bridge.again_soon()

    def _route_again(self, queue: Queue, link: SenderLink) -> None:
        """The other node has none of the queues any more: what is for them takes the ways that are open now."""
        store, refused = self.broker.store, ForwardConsumer(self, link, queue)
        refused.is_refused = True
        self.consumers[queue] = refused
        store.join(queue, refused)
        self.bridge.again_soon()

    def told(self, name: str) -> None:
        """The other node tells of a queue. A link that it refused for want of it is asked for anew before anything goes
        there: routed again, messages would take with them what is known of the queue by now."""
        for queue, consumer in list(self.consumers.items()):
            if consumer.is_refused and name in queue.kind.route:
                self.leave(consumer)
                self.attach(queue)

    def settled(self, event: Settled) -> bool:
        """Whether the outcome was ours to act on: there was no queue for the messages."""
        for taken in event.taken:
            end: SendingEndOf[BridgePeer] | None = sending_end(taken.link)
            if taken.token is not None and end is not None:
                end.told_of(segment_of(taken)[1])
        if self.broker.canaries.waiting and isinstance(event.outcome, Accepted):
            for taken in event.taken:
                if taken.token is not None:
                    self.broker.canaries.accepted(segment_of(taken)[0])
        error = event.outcome.error if isinstance(event.outcome, Rejected) else None
        if error is None or error.condition != NOT_FOUND:
            return False
        remotes, back = self.broker.store.remotes, dict[Queue, None]()
        LOOK.has_touched = True
        for queue, segment in [segment_of(taken) for taken in event.taken if taken.token is not None]:
            if remotes.is_turned_back(queue):
                self._hold(queue, segment)
                back[queue] = None
            elif queue.kind.is_draining or remotes.is_owed_beyond(queue):
                self._hold(queue, segment)
            else:
                remotes.reroute(queue, segment)
        for queue in back:
            if queue.part_of is not None:
                remotes.scale_down.held.refused(queue, is_all=False)
            else:
                remotes.refused_by[queue.journal_id, queue.kind.forwards_to] = None
                self.bridge.of.turn_back(queue, is_there=True)
        return True

    def _hold(self, queue: Queue, segment: Segment) -> None:
        """The other node has forgotten the way to a subscription beyond it: it is asked again when it may know it."""
        if queue.handed_over is not None:
            queue.handed_over.refused(segment.first_id, segment.first_id + segment.n)
        self.broker.store.give_back(queue, segment, was_delivered=False)
        consumer = self.consumers.get(queue)
        if consumer is not None and consumer.link.is_attached:
            self.peer.detach(consumer.link, is_closed=False)
        self.bridge.again_soon()

    def look(self, consumer: ForwardConsumer) -> None:
        """The other node has answered for some of its messages, and that is done."""
        handed_over = consumer.handed_over
        if handed_over.answered.count >= ANSWERED_MAX or handed_over.room < ANSWERED_MAX:
            self.wait_for_disk(consumer, handed_over.take_answered())
        self.tidy(consumer)

    def wait_for_disk(self, consumer: ForwardConsumer, gone: list[tuple[int, int]]) -> None:
        """Messages that have left the queue are not sent again once their settlement is on disk."""
        store = self.broker.store
        if not gone:
            return
        may_say = store.journal.latest_position == store.journal.position  # what this step appends may say it
        wait = store.decisions.wait if may_say else store.decisions.wait_for_earlier
        wait(self._settled_on_disk, consumer, gone)

    def _settled_on_disk(self, consumer: ForwardConsumer, gone: list[tuple[int, int]]) -> None:
        for first, end in gone:
            consumer.handed_over.settled(first, end)
        LOOK.has_touched = True
        self.broker.store.dirty[consumer.queue] = None
        self.tidy(consumer)
        self.broker.store.remotes.drains.look(consumer.queue)

    def tidy(self, consumer: ForwardConsumer) -> None:
        """A queue that is empty, and whose bindings are gone, needs no link, and nobody needs the queue.

        The other node forgets what came from it when the link is closed, so nothing may be sent again by then.
        """
        queue, remotes = consumer.queue, self.broker.store.remotes
        if queue.kind.is_draining:
            self._look_at_drain(consumer)
            return
        if queue.part_of is not None and not queue.message_count and consumer.handed_over.ids.count:
            self.wait_for_disk(consumer, list(consumer.handed_over.ids))
            return
        is_known = all(name in remotes.by_name for name in queue.kind.route)
        if queue.message_count or (is_known and not consumer.is_refused) or self.consumers.get(queue) is not consumer:
            return
        if consumer.handed_over.ids.count:
            self.wait_for_disk(consumer, list(consumer.handed_over.ids))
            return
        if consumer.link.is_attached:
            self.peer.detach(consumer.link)
        else:
            self.leave(consumer)
        remotes.tidy([queue])

    def _look_at_drain(self, consumer: ForwardConsumer) -> None:
        """A drain that was called off ends when all that went out is answered, and that is on disk."""
        queue, handed_over = consumer.queue, consumer.handed_over
        apart = self.broker.store.remotes.scale_down.held.apart_count(queue)
        is_empty = queue.message_count == queue.scheduled_count + apart  # but for what waits for its time, or elsewhere
        is_asked = self.broker.store.remotes.scale_down.is_on or is_of_subscribers(queue.kind)
        if is_empty and not queue.kind.drain_ends and is_asked:
            self._look_at_receipt(consumer)
        if not queue.kind.drain_ends or self.consumers.get(queue) is not consumer:
            return
        if handed_over.ids.count and is_empty:
            self.wait_for_disk(consumer, list(handed_over.ids))
        elif handed_over.answered.count:
            self.wait_for_disk(consumer, handed_over.take_answered())
        elif self.broker.store.remotes.drains.is_answered(queue):
            self.peer.detach(consumer.link)  # for good: the other node forgets what came

    def _look_at_receipt(self, consumer: ForwardConsumer) -> None:
        """A queue is empty: once that is on disk the other node is asked what has arrived, by a link that is new."""
        queue, handed_over, remotes = consumer.queue, consumer.handed_over, self.broker.store.remotes
        if self.consumers.get(queue) is not consumer or consumer.is_arriving:
            return
        if handed_over.ids.count:
            self.wait_for_disk(consumer, list(handed_over.ids))
        elif consumer.link.is_attached and (remotes.scale_down.has_to_ask(queue) or remotes.drains.has_to_say(queue)):
            self.peer.detach(consumer.link, is_closed=False)
            self.attach(queue)

    def called_off(self, queue: Queue, *, is_forced: bool) -> None:
        """A drain is to end; `is_forced`: whatever is without an answer."""
        consumer = self.consumers.get(queue)
        if consumer is not None and is_forced:
            self.peer.detach(consumer.link, is_closed=False)
        elif consumer is not None:
            consumer.keep_to_old()
            self.tidy(consumer)

    def let_go(self, consumer: ForwardConsumer, *, is_closed: bool) -> None:
        """A queue that drains goes elsewhere: what is on its link is in it again."""
        if consumer.link.is_attached:
            self.peer.detach(consumer.link, is_closed=is_closed)
        else:
            self.leave(consumer)

    def stuck(self, queue: Queue, why: str) -> None:
        """What keeps a queue from draining, empty: nothing."""
        if why:
            self.bridge.again_soon()
        if queue.part_of is not None:
            self.broker.store.remotes.scale_down.held.stuck(queue, why)
        if self.broker.store.remotes.drains.stuck(queue, why) and why:
            self.broker.notice(Level.WARNING, "drain-stuck", queue=queue.kind.name, node_id=self.bridge.node_id,
                               why=why[:200])  # fmt: skip

    def leave(self, consumer: ForwardConsumer) -> None:
        """The consumer serves its queue no more."""
        LOOK.has_touched = True
        if self.consumers.get(consumer.queue) is consumer:
            del self.consumers[consumer.queue]
        if consumer in consumer.queue.consumers:
            self.broker.store.leave(consumer.queue, consumer)
        self._look(consumer.queue)

    def tidy_all(self) -> None:
        """Bindings are gone: look at each consumer, whether it is needed still."""
        for consumer in list(self.consumers.values()):
            self.tidy(consumer)

    def again(self) -> None:
        """Links that were refused are asked for once more."""
        self.tidy_all()
        if any(consumer.is_refused for consumer in self.consumers.values()):
            self.bridge.again_soon()
        self.begin()

    def end(self) -> None:
        """The connection is gone: consumers without a link go with it."""
        for consumer in list(self.consumers.values()):
            self.leave(consumer)

    def _look(self, changed: Queue) -> None:
        """Which queues have to take turns: only those of one address may."""
        address = self.broker.store.addresses.get(changed.kind.address)
        for queue, competing in competing_at(address, self.consumers).items():
            self.consumers[queue].competing = competing
            self.broker.store.dirty[queue] = None
