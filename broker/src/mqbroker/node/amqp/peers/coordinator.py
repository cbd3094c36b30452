"""Transactions of a connection: coordinator links, what is enlisted, how it ends, when it times out (AMQP 1.0 part 4).

A commit that fails is answered by the condition of its cause. AMQP has `amqp:transaction:rollback` for that, which Qpid
JMS takes for doubt; any other is a transaction that was rolled back there, and says more everywhere.

A transaction belongs to the coordinator link on which it was declared and ends with it at the latest; any session of
the connection may work in it. The discharge is answered when the commit is on disk, after everything that it settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from mqbroker.amqp.events import Incoming, Posted, Retired, Settled, Unposted
from mqbroker.amqp.frame_costs import OTHER, TRANSFER
from mqbroker.amqp.links import LinkBase, ReceiverLink
from mqbroker.amqp.session import Session
from mqbroker.amqp.states import SessionState
from mqbroker.amqp.unsettled import Taken
from mqbroker.base.errors import NoRoom, PeerFault, Refused
from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.serial import wrap
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.address import FULLY_QUALIFIED
from mqbroker.core.address.gathering import is_taken_apart
from mqbroker.core.queue.queue import Queue, Segment
from mqbroker.core.store.transaction import Transaction
from mqbroker.node.amqp.peers.malformed import CONDITION, end_link
from mqbroker.node.amqp.peers.settlements import outcome_of
from mqbroker.node.values.ending import Ending
from mqbroker.node.values.link_ends import consumer_of, receiving_end
from mqbroker.node.values.open_transaction import Enlistment, OpenTransaction, Settlement, segment_of
from mqbroker.wire.performatives import (
    Declare,
    Declared,
    Discharge,
    Error,
    Modified,
    Rejected,
    TransactionalState,
    decode_coordination,
)
from mqbroker.wire.run import Run, single
from mqbroker.wire.scan import VALUE, scan_sections, section_at
from mqbroker.wire.types import Symbol

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.values.ends import ReceivingEndOf

# Messages of a transaction that come as a run: so many at most, as one may be taken apart, and so many times as many as
# those before.
POSTS_MAX: Final = 64
POSTS_GROWTH: Final = 4
CALLED_OFF: Final = "amqp:connection:forced"  # the close that follows says it, too
UNKNOWN, ROLLBACK, TIMEOUT = "amqp:transaction:unknown-id", "amqp:transaction:rollback", "amqp:transaction:timeout"


class Transactions:
    """All transactions of one connection that are not discharged. Has one deadline, that of the oldest."""

    __slots__ = ("_broker", "_conn", "_declared_count", "_endings", "_ongoing", "due_ns", "scheduled_ns")

    judges_others: ClassVar[bool] = True

    def __init__(self, peer: Peer) -> None:
        self._broker, self._conn = peer.broker, peer.conn
        self._ongoing: dict[bytes, OpenTransaction] = {}  # in the order of their deadlines
        self._endings: dict[Ending, Callable[[Refused], None]] = {}  # that are not over, and how to tell of them before
        self._declared_count = 0
        self.due_ns = 0
        self.scheduled_ns = 0

    @property
    def _peer(self) -> Peer:
        """Whose they are, while it is there. Looked up, as each of the two would keep the other one for ever."""
        return self._broker.peers[self._conn]

    @property
    def size_bytes(self) -> int:
        """Memory of what was posted in all of them."""
        return sum(each.work.size_bytes for each in self._all())

    @property
    def open_count(self) -> int:
        """Transactions that could still be committed."""
        return sum(each.work.is_open for each in self._ongoing.values()) + sum(each.is_commit for each in self._endings)

    # -- the coordinator -----------------------------------------------------------------------------------------------

    def requested(self, event: Incoming) -> None:
        """Messages to the coordinator: declare or discharge, each in a message of its own."""
        link = event.link
        if event.is_settled:
            link.detach("amqp:not-allowed", "requests to the coordinator must not be settled: their outcome is needed")
            return
        self._peer.connection.allowance -= event.run.count * OTHER
        for index in range(event.run.count):
            if link.is_attached:
                self._request(link, wrap(event.delivery_id + index), event.run, index)
        self._peer.replenish(link)

    def _request(self, link: ReceiverLink, delivery_id: int, run: Run, index: int) -> None:
        try:
            request = _request_in(bytes(run.payload(index)))
            if isinstance(request, Declare):
                txn_id = self._declare(link, request)
                link.session.dispose(delivery_id, delivery_id, Declared(txn_id=txn_id), as_receiver=True)
            else:
                self._discharge(link, delivery_id, request)
        except (Refused, PeerFault) as error:
            self._reject(link, delivery_id, Refused(error.condition, error.description))

    def _reject(self, link: ReceiverLink, delivery_id: int, error: Refused) -> None:
        """§4.2: by the outcome where the source has it, else by the end of the link."""
        if not link.is_attached:
            return
        if receiving_end(link).can_reject:
            link.session.dispose(delivery_id, delivery_id, Rejected(error=_told(error)), as_receiver=True)
        else:
            link.detach(error.condition, error.description)

    def _declare(self, link: ReceiverLink, declare: Declare) -> bytes:
        broker = self._broker
        if declare.global_id is not None:
            raise Refused("amqp:not-implemented", "distributed transactions (a declare with a global-id)")
        limits = broker.options.limits
        if len(self._ongoing) >= limits.transactions_per_connection_max:
            self._make_room(limits.transactions_per_connection_max)
        LOOK.has_touched = True
        self._declared_count += 1
        txn_id = self._declared_count.to_bytes(8, "big")
        deadline_ns = broker.at.monotonic_ns + limits.transaction_timeout_ms * NS_PER_MS
        self._ongoing[txn_id] = OpenTransaction(txn_id, link, Transaction(broker.store), deadline_ns)
        if not self.due_ns:
            self.due_ns = deadline_ns
            broker.timers.add(self)
        return txn_id

    def _make_room(self, count_max: int) -> None:
        """A failed transaction is remembered for its discharge only. Raises Refused where all are open."""
        failed = next((each for each in self._ongoing.values() if not each.work.is_open), None)
        if failed is None:
            raise Refused("amqp:resource-limit-exceeded",
                          f"{count_max} transactions are open, which is transactions-per-connection-max")  # fmt: skip
        LOOK.has_touched = True
        del self._ongoing[failed.id]

    # -- the end of a transaction --------------------------------------------------------------------------------------

    def _discharge(self, link: ReceiverLink, delivery_id: int, discharge: Discharge) -> None:
        LOOK.has_touched = True
        transaction = self._ongoing.pop(discharge.txn_id, None)
        if transaction is None:
            raise _unknown(discharge.txn_id)
        if transaction.id in self._peer.connection.posts_begun:
            why = "a message of the transaction was not complete when it was discharged (§4.4.1)"
            self._roll_back(transaction, lambda: _detach(link, why))
        elif discharge.fail:
            self._roll_back(transaction, lambda: self._accept(link, delivery_id))
        elif (failure := transaction.work.failure) is not None:
            self._roll_back(transaction, lambda: self._reject(link, delivery_id, failure))
        else:
            self._end(transaction, lambda: self._commit(transaction, link, delivery_id),
                      lambda refused: self._reject(link, delivery_id, refused))  # fmt: skip

    def _accept(self, link: ReceiverLink, delivery_id: int) -> None:
        if link.is_attached:
            link.session.accept(delivery_id, 1)

    def call_off(self, why: str) -> None:
        """Commits that have not had their turn are none, and who asked for them hears it. So does who waits for the
        end of a rollback, which is certain, however much there is of it."""
        LOOK.has_touched = True
        for ending, tell in list(self._endings.items()):
            if not ending.is_told:
                ending.call_off()
                tell(Refused(CALLED_OFF, why))
                self._peer.touch()

    def _end(
        self, transaction: OpenTransaction, then: Callable[[], None], refuse: Callable[[Refused], None] | None = None
    ) -> None:
        """It ends, by turns where there is much of it; what follows from that comes after, or before where the
        connection is closed. `refuse`: of a commit."""

        def done(ending: Ending) -> None:
            LOOK.has_touched = True
            del self._endings[ending]
            if not ending.is_told:
                then()
            self._peer.touch()

        LOOK.has_touched = True
        ending = Ending(self._peer.connection, transaction, done, is_commit=refuse is not None)
        self._endings[ending] = refuse or (lambda _: then())
        self._peer.connection.leave(ending)
        self._peer.touch()

    def _commit(self, transaction: OpenTransaction, link: ReceiverLink, delivery_id: int) -> None:
        work, broker = transaction.work, self._broker
        try:
            addresses = work.prepare(self._peer.actor, transaction.leaving())
        except Refused as refused:
            error = refused.without_trace()
            broker.counters.count_refused(error, work.posted_count)
            self._roll_back(transaction, lambda: self._reject(link, delivery_id, error))
            return
        settlements = transaction.take_over()
        rejected = work.rejected_count
        LOOK.has_touched = True
        if rejected:
            broker.counters.rejected += rejected
            broker.notice(Level.WARNING, "message-rejected", conn=self._conn, count=rejected)
        answer = transaction.id, link, delivery_id, settlements
        if work.commit(addresses, self._peer.origin):
            broker.store.decisions.wait(self._committed, *answer)
        else:
            self._committed(*answer)

    def _committed(self, txn_id: bytes, link: ReceiverLink, delivery_id: int, settlements: list[Settlement]) -> None:
        """It cannot be undone any more: settle what the peer left to us, then accept the discharge."""
        if link.session.connection.is_dead:
            return
        for session, first, last, outcome in settlements:
            if session.state is SessionState.MAPPED:
                state = TransactionalState(txn_id=txn_id, outcome=outcome)
                session.dispose(first, last, state, as_receiver=False)
        self._accept(link, delivery_id)
        self._peer.touch()

    def _roll_back(self, transaction: OpenTransaction, then: Callable[[], None] = lambda: None) -> None:
        transaction.work.roll_back(0)
        self._end(transaction, then)

    def _fail(self, transaction: OpenTransaction, failure: Refused) -> None:
        """It can only be rolled back from here on, and gives up what it holds now."""
        transaction.work.fail(failure, 0)
        self._end(transaction, lambda: None)
        self._broker.notice(Level.WARNING, "transaction-failed", conn=self._conn,
                                 condition=failure.condition, why=failure.description)  # fmt: skip

    def on_time(self, now_ns: int) -> None:
        """The oldest may have taken too long."""
        LOOK.has_touched = True
        self.due_ns = 0
        for transaction in self._ongoing.values():
            if transaction.work.is_open and transaction.deadline_ns > now_ns:
                self.due_ns = transaction.deadline_ns
                return
            if transaction.work.is_open:
                limit_ms = self._broker.options.limits.transaction_timeout_ms
                why = f"not discharged within {limit_ms} ms, transaction-timeout-ms"
                self._fail(transaction, Refused(TIMEOUT, why))

    # -- work ----------------------------------------------------------------------------------------------------------

    def post(self, event: Posted) -> None:
        """Messages of a transaction. The outcome that they are told is a provisional one and waits for nothing."""
        link, run, delivery_id, is_settled, txn_id = event
        if not link.is_attached:
            self.unposted(Unposted(txn_id))
            return
        if not receiving_end(link).takes_posts:
            # Requests to the coordinator, and what another node forwards: that is nobody's until it is taken in.
            link.detach("amqp:not-allowed", "only messages to an address can be part of a transaction")
            return
        malformed = link.forms.malformed(run)
        if malformed is not None:
            self.fail(txn_id, Refused(CONDITION, malformed.why))
            end_link(self._peer, link, malformed.why)
            return
        transaction = self._ongoing.get(txn_id)
        if transaction is None:
            self._refuse(event, _unknown(txn_id))
            return
        for each in self._runs_of(link, run) if transaction.work.is_open else ():
            if transaction.work.is_open:
                self._take_in(transaction, link, each)
        failure = transaction.work.failure
        if failure is not None:
            self._broker.counters.count_refused(failure, run.count)
        if not is_settled:
            state = transaction.accepted
            if failure is not None:
                state = TransactionalState(txn_id=txn_id, outcome=Rejected(error=_told(_provisional(failure))))
            link.session.dispose(delivery_id, delivery_id + run.count - 1, state, as_receiver=True)

    def _runs_of(self, link: ReceiverLink, run: Run) -> list[Run]:
        """The run, or its messages one by one where each may name a place of its own, says something special or is
        dealt with by itself where it goes. It decides as well how many may come at once after it."""
        end: ReceivingEndOf[Peer] = receiving_end(link)
        LOOK.has_touched = True
        is_whole = run.is_plain and end.has_one_place and not is_taken_apart(self._broker.store, end.address_name or "")
        link.posts_max = min(max(link.posts_max, POSTS_GROWTH * run.count), POSTS_MAX) if is_whole else 1
        if is_whole or run.count == 1:
            return [run]
        self._peer.connection.allowance -= run.count * TRANSFER
        runs = [single(bytes(run.payload(index))) for index in range(run.count)]
        for each in runs:
            link.forms.malformed(each)  # none is: it finds out which of them are plain
        return runs

    def unposted(self, event: Unposted) -> None:
        """Who posts settled hears of it by the discharge alone, so the rest must not be committed without it."""
        self.fail(event.txn_id, Refused("amqp:illegal-state", "a message of the transaction was lost with its link"))

    def fail(self, txn_id: bytes, refused: Refused) -> None:
        """Something that was to be posted cannot be."""
        transaction = self._ongoing.get(txn_id)
        if transaction is not None and transaction.work.is_open:
            self._fail(transaction, refused)

    def _refuse(self, event: Posted, refused: Refused) -> None:
        if event.is_settled:
            event.link.detach(refused.condition, refused.description)
        else:
            state = Rejected(error=_told(refused))
            last = event.delivery_id + event.run.count - 1
            event.link.session.dispose(event.delivery_id, last, state, as_receiver=True)

    def _take_in(self, transaction: OpenTransaction, link: ReceiverLink, run: Run) -> None:
        end: ReceivingEndOf[Peer] = receiving_end(link)
        place = end.place_of(run)
        address, routing = place
        limit = self._broker.options.limits.transactions_per_connection_max_size_bytes
        size = run.size_bytes(0, run.count)
        broker = self._broker
        LOOK.has_touched = True
        try:
            end.check_post(place, run, self._peer.actor)
            name = address.partition(FULLY_QUALIFIED)[0]
            memory = broker.store.memory
            may_page = memory.is_full and not memory.is_shut and broker.store.diverts.can_page(name)
            count, posted = transaction.enlisted_count, ((address, routing), run)
            transaction.work.check(size, count, posted=posted, may_page=may_page)
            if self.size_bytes + size > limit:
                why = f"over {limit} bytes in transactions, which is transactions-per-connection-max-size-bytes"
                raise NoRoom(why)
        except Refused as refused:
            self._fail(transaction, refused)
            return
        transaction.work.post(address, run, routing)

    def retire(self, event: Retired) -> None:
        """Deliveries of ours get an outcome as part of a transaction."""
        transaction = self._ongoing.get(event.state.txn_id)
        if transaction is not None and transaction.work.is_open:
            self._check_parts(transaction, event)
        for first, taken in event.taken:
            outcome, is_settled = event.state.outcome, event.is_settled or not taken.link.is_attached
            if isinstance(taken.token, Enlistment):
                outcome = outcome or taken.token.outcome
                taken = self._withdrawn(taken, transaction)
            if taken.token is None:
                self._settle_copies(event, first, taken.n)
            elif transaction is None or not transaction.work.is_open:
                self._leave(event.session, first, taken, is_settled=is_settled)
            elif is_settled:
                came_to = outcome_of(taken.link, outcome)
                transaction.work.retire(*segment_of(taken), came_to, consumer_of(taken.link))
            else:
                transaction.enlist(event.session, (first, taken), outcome)
        if transaction is None:
            unknown = _unknown(event.state.txn_id)
            for link in dict.fromkeys(taken.link for _, taken in event.taken):
                if link.is_attached:
                    link.detach(unknown.condition, unknown.description)

    def _check_parts(self, transaction: OpenTransaction, event: Retired) -> None:
        work, outcome, more = transaction.work, event.state.outcome, 0
        if isinstance(outcome, Rejected | Modified):
            held = (segment_of(taken) for _, taken in event.taken if taken.token is not None)
            more = sum(segment.n for queue, segment in held if work.moves_each(queue, segment, outcome))
        try:
            work.check(more_parts=transaction.enlisted_count + more)
        except Refused as refused:
            self._fail(transaction, refused)

    def _settle_copies(self, event: Retired, first: int, count: int) -> None:
        """What a browser was sent hangs on nothing."""
        if not event.is_settled:
            event.session.dispose(first, first + count - 1, event.state, as_receiver=False)

    def _leave(self, session: Session, first: int, taken: Taken, *, is_settled: bool) -> None:
        """The transaction will not happen: what the peer keeps is its own, what it has let go of returns."""
        if is_settled:
            self._broker.store.give_back(*segment_of(taken), was_delivered=True)
        else:
            session.unsettled.put_back(first, taken)

    def _withdrawn(self, taken: Taken, transaction: OpenTransaction | None) -> Taken:
        """An enlisted delivery without its transaction, which must be the one that it is named in again (§4.4.2)."""
        before = taken.token.transaction
        LOOK.has_touched = True
        if before is not transaction and before.work.is_open:
            del self._ongoing[before.id]
            self._roll_back(before)
            if before.link.is_attached:
                before.link.detach(ROLLBACK, "a delivery of the transaction got an outcome outside of it")
        return taken.with_token(taken.token.token)

    def settled(self, event: Settled) -> Settled:
        """What is left of a plain settlement: an enlisted delivery that is settled without a word keeps its outcome."""
        plain: list[Taken] = []
        for taken in event.taken:
            if not isinstance(taken.token, Enlistment):
                plain.append(taken)
            elif event.outcome is None and taken.token.transaction.work.is_open:
                consumer = consumer_of(taken.link)
                taken.token.transaction.work.retire(*segment_of(taken), taken.token.outcome, consumer)
            else:
                plain.append(self._withdrawn(taken, None))
        said = event.outcome, event.owes_settlement, event.first, event.last, event.has_more
        return Settled(event.session, plain, *said)

    def coordinator_detached(self, link: LinkBase) -> None:
        """A link to the coordinator is gone, and its transactions with it."""
        LOOK.has_touched = True
        self._abandon([each for each in self._ongoing.values() if each.link is link])

    def kept_out(self, unsettled: list[Taken]) -> list[Taken]:
        """What returns to its queue of deliveries whose link is over: what was retired in a transaction that goes on
        stays in it, also without its link."""
        LOOK.has_touched = True
        returned: list[Taken] = []
        for taken in unsettled:
            enlistment = taken.token
            if isinstance(enlistment, Enlistment) and enlistment.transaction.work.is_open:
                enlistment.transaction.work.retire(*segment_of(taken), enlistment.outcome)
            else:
                returned.append(taken)
        return returned

    def end_parted(self) -> None:
        """Those whose coordinator's link is over can never be committed: what they hold is back before that link's turn
        comes."""
        LOOK.has_touched = True
        self._abandon([each for each in self._ongoing.values() if not each.link.is_attached])
        for ending in self._endings:
            if not ending.transaction.link.is_attached:
                ending.hurry()

    def _abandon(self, those: list[OpenTransaction]) -> None:
        LOOK.has_touched = True
        for transaction in those:
            del self._ongoing[transaction.id]
            self._roll_back(transaction)

    def in_delivery(self) -> Iterator[tuple[Queue, Segment]]:
        """What the peer has let go of and transactions hold."""
        for transaction in self._all():
            yield from transaction.work.in_delivery()

    def _all(self) -> Iterable[OpenTransaction]:
        """Those that are not over."""
        if not self._endings:
            return self._ongoing.values()
        return dict.fromkeys([*self._ongoing.values(), *(each.transaction for each in self._endings)])


def _request_in(payload: bytes) -> Declare | Discharge:
    """The one value in the body of a message to the coordinator. Raises PeerFault."""
    sections = scan_sections(payload, 0, len(payload))
    if sections.body < 0:
        raise PeerFault(
            "amqp:decode-error", "a message to the coordinator has an amqp-value section, this one has none"
        )
    code, offset = section_at(payload, sections.body, len(payload))
    if code != VALUE:
        raise PeerFault(
            "amqp:decode-error", f"a message to the coordinator has an amqp-value section, not 0x{code:02x}"
        )
    return decode_coordination(payload, offset, sections.footer if sections.footer >= 0 else len(payload))


def _detach(link: ReceiverLink, why: str) -> None:
    if link.is_attached:
        link.detach(ROLLBACK, why)


def _unknown(txn_id: bytes) -> Refused:
    return Refused(UNKNOWN, f"there is no transaction {txn_id[:32].hex()}: never declared here, or at its end already")


def _provisional(failure: Refused) -> Refused:
    """What is said of a message whose transaction can only be rolled back, for whatever reason that is."""
    if failure.condition in (UNKNOWN, ROLLBACK, TIMEOUT):
        return failure
    return Refused(ROLLBACK, f"{failure.condition}: {failure.description}")


def _told(refused: Refused) -> Error:
    return Error(condition=Symbol(refused.condition), description=refused.description)
