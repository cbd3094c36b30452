"""The coordinator as peers see it: requests, refusals, who may do what in which transaction."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp import events as told
from mqbroker.amqp.links import ReceiverLink, SenderLink
from mqbroker.base.time import NS_PER_MS
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster.remote_binding import cluster_name_of
from mqbroker.node.cluster.forwarding.forwarding_terms import ROUTE, SOURCE, STORE_AND_FORWARD
from mqbroker.node.cluster.membership.canary import ADDRESS as CANARY
from mqbroker.node.values.inputs import OptionsChanged
from mqbroker.wire.encode import encode_value
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode,
)
from mqbroker.wire.run import single
from mqbroker.wire.sections import Properties, build_message
from mqbroker.wire.types import Symbol

from tests.support import frames, transactions
from tests.support.stage import Stage, Talker, options_with


class Client:
    """A talker with the links that transactions need."""

    def __init__(self, stage: Stage, name: str = "c", outcomes: tuple[str, ...] | None = None) -> None:
        self.stage = stage
        self.talker: Talker = stage.connect(name)
        assert self.talker.session is not None
        self.session = self.talker.session
        self.control = self.session.attach_sender(transactions.coordinator_attach(outcomes=outcomes))
        stage.run()

    def sender(self, address: str, *, settled: bool = False) -> SenderLink:
        link = self.session.attach_sender(
            Attach(name=f"to-{address}", handle=0, role=False, snd_settle_mode=int(settled), source=Source(),
                   target=Target(address=address), initial_delivery_count=0)
        )  # fmt: skip
        link.send_settled = settled
        self.stage.run()
        return link

    def receiver(self, address: str, credit: int = 10) -> ReceiverLink:
        link = self.session.attach_receiver(
            Attach(name=f"from-{address}", handle=0, role=True, source=Source(address=address), target=Target())
        )
        self.stage.run()
        link.grant(credit)
        self.stage.run()
        return link

    def declare(self) -> bytes:
        transactions.declare(self.control, "declare")
        self.stage.run()
        state = self.outcomes("declare")[-1]
        assert isinstance(state, Declared)
        return bytes(state.txn_id)

    def discharge(self, txn_id: bytes, *, fail: bool = False) -> Any:
        transactions.discharge(self.control, txn_id, "discharge", fail=fail)
        self.stage.run()
        return self.outcomes("discharge")[-1]

    def post(self, link: SenderLink, txn_id: bytes, body: bytes = b"m") -> None:
        transactions.post(link, build_message(body, durable=True), "post", txn_id)
        self.stage.run()

    def retire(self, first: int, last: int, txn_id: bytes, *, settled: bool, outcome: Any = Accepted()) -> None:  # noqa: B008
        state = TransactionalState(txn_id=txn_id, outcome=outcome)
        if settled:
            self.session.dispose(first, last, state, as_receiver=True)
        else:
            self.session.outcome(first, last, state)
        self.stage.run()

    def outcomes(self, token: str) -> list[Any]:
        found = []
        for event in self.talker.events:
            if isinstance(event, told.Settled):
                found += [event.outcome for taken in event.taken if taken.token == token]
            elif isinstance(event, told.Retired):
                found += [event.state for _, taken in event.taken if taken.token == token]
        return found

    def ended(self, link: SenderLink | ReceiverLink) -> str | None:
        errors = [each.error for each in self.talker.events if isinstance(each, told.Detached) and each.link is link]
        return str(errors[-1].condition) if errors and errors[-1] is not None else None


def filled(count: int, **tables: Any) -> Stage:
    stage = Stage(options_with(**tables))
    messages = [{"body": f"m{number}", "durable": True} for number in range(count)]
    assert stage.admin("send", address="orders", messages=messages) == {"accepted": count}
    return stage


def row(stage: Stage, name: str = "orders") -> tuple[int, int]:
    """Messages in a queue, and how many of them are in delivery."""
    found = next(each for each in stage.admin("queues")["queues"] if each["name"] == name)
    return found["message_count"], found["delivering_count"]


def condition(state: Any) -> str:
    outcome = state.outcome if isinstance(state, TransactionalState) else state
    assert isinstance(outcome, Rejected)
    assert outcome.error is not None
    return str(outcome.error.condition)


# -- the coordinator --------------------------------------------------------------------------------------------------


def test_the_coordinator_says_what_it_can() -> None:
    client = Client(Stage())
    attached = next(each for each in client.talker.events if isinstance(each, told.Attached))
    assert isinstance(attached.attach.target, Coordinator)
    assert "amqp:local-transactions" in (attached.attach.target.capabilities or ())
    assert client.control.credit > 0


def test_credit_for_requests_does_not_end() -> None:
    client = Client(Stage())
    for _ in range(300):
        assert isinstance(client.discharge(client.declare()), Accepted)


BAD_REQUESTS = {
    "a body that is data": (build_message(b"declare", durable=False), "amqp:decode-error"),
    "no body": (b"\x00\x53\x70\x45", "amqp:decode-error"),
    "another value": (transactions.VALUE + encode_value("declare"), "amqp:decode-error"),
    "a value that is none of both": (transactions.VALUE + encode(Accepted()), "amqp:invalid-field"),
    "a distributed transaction": (transactions.VALUE + encode(Declare(global_id=b"g")), "amqp:not-implemented"),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
@pytest.mark.parametrize("can_reject", [True, False])
def test_bad_requests_are_rejected_or_end_the_link(name: str, can_reject: bool) -> None:
    payload, expected = BAD_REQUESTS[name]
    client = Client(Stage(), outcomes=None if can_reject else ("amqp:accepted:list",))
    client.session.send_run(client.control, single(payload), 0, 1, "bad")
    client.stage.run()
    if can_reject:
        assert condition(client.outcomes("bad")[0]) == expected
        assert client.declare()
    else:
        assert client.ended(client.control) == expected


def test_a_settled_request_ends_the_link_and_what_was_open() -> None:
    client = Client(filled(0))
    link, txn_id = client.sender("orders"), client.declare()
    client.post(link, txn_id)
    client.control.send_settled = True
    transactions.discharge(client.control, txn_id, "discharge")
    client.stage.run()
    assert client.ended(client.control) == "amqp:not-allowed"
    assert row(client.stage) == (0, 0)
    assert client.stage.broker.store.memory.held_bytes == 0


def test_a_request_inside_a_transaction_ends_the_link() -> None:
    client = Client(Stage())
    txn_id = client.declare()
    client.post(client.control, txn_id)
    assert client.ended(client.control) == "amqp:not-allowed"


@pytest.mark.parametrize("address", [CANARY, "orders"])
def test_what_another_node_forwards_is_part_of_no_transaction(address: str) -> None:
    stage = Stage(options_with(listener={"kind": "cluster"}))
    stage.admin("queue-create", name="orders")
    there = {Symbol(SOURCE): "other", Symbol(ROUTE): [cluster_name_of("orders", stage.broker.node_id)]}
    client = Client(stage)
    link = client.session.attach_sender(
        Attach(name="on", handle=0, role=False, source=Source(), initial_delivery_count=0, properties=there,
               target=Target(address=address, capabilities=(Symbol(STORE_AND_FORWARD),)))
    )  # fmt: skip
    stage.run()
    assert link.credit, "it is attached"
    client.post(link, client.declare())
    assert client.ended(link) == "amqp:not-allowed"
    assert client.declare(), "the connection goes on"


@pytest.mark.option("limits.transactions-per-connection-max")
def test_open_transactions_are_bounded() -> None:
    client = Client(Stage(options_with(limits={"transactions_per_connection_max": 2})))
    client.declare()
    second = client.declare()
    transactions.declare(client.control, "third")
    client.stage.run()
    assert condition(client.outcomes("third")[0]) == "amqp:resource-limit-exceeded"
    client.discharge(second)
    assert client.declare() not in (b"", second)


# -- posting ----------------------------------------------------------------------------------------------------------


def test_settled_messages_are_part_of_it_too() -> None:
    client = Client(filled(0))
    link, txn_id = client.sender("orders", settled=True), client.declare()
    client.post(link, txn_id)
    client.post(link, txn_id)
    assert row(client.stage) == (0, 0)
    assert isinstance(client.discharge(txn_id), Accepted)
    assert row(client.stage) == (2, 0)


def test_a_settled_message_of_no_transaction_ends_its_link() -> None:
    client = Client(Stage())
    link = client.sender("orders", settled=True)
    client.post(link, b"nothing")
    assert client.ended(link) == "amqp:transaction:unknown-id"


def test_a_message_in_pieces_belongs_to_it_and_must_be_whole_by_its_end() -> None:
    client = Client(filled(0))
    link, txn_id = client.sender("orders"), client.declare()
    client.talker.connection.peer_frame_size = 512
    client.post(link, txn_id, b"x" * 2000)
    assert isinstance(client.discharge(txn_id), Accepted)
    assert row(client.stage) == (1, 0)
    txn_id = client.declare()
    transactions.post(link, build_message(b"x" * 2000, durable=True), "post", txn_id)
    del client.talker.connection.out[2:]  # the first piece only: what is before the payload, and the payload
    transactions.discharge(client.control, txn_id, "discharge")
    client.stage.run()
    assert client.ended(client.control) == "amqp:transaction:rollback"
    assert row(client.stage) == (1, 0)


def test_the_pieces_of_a_message_name_one_transaction() -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender(handle=0))
    one, other = TransactionalState(txn_id=b"a"), TransactionalState(txn_id=b"b")
    first = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True, state=one)
    said = stage.talk(conn, frames.frame(first, b"\x00\x53") + frames.frame(Transfer(handle=0, state=other), b"\x75"))
    detach = frames.heard(said)[-1]
    assert str(detach.error.condition) == "amqp:invalid-field"


def test_messages_that_have_begun_are_counted_until_the_last_of_them_is_whole() -> None:
    """By transaction, on however many links they come."""
    stage = Stage()
    conn = stage.accept()
    links = frames.sender(handle=0) + frames.sender(handle=1) + frames.sender(handle=2)
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + links)
    begun = stage.broker.peers[conn].connection.posts_begun
    counts = []
    for number, txn_id in enumerate((b"a", b"a", b"b")):
        state = TransactionalState(txn_id=txn_id)
        first = Transfer(handle=number, delivery_id=number, delivery_tag=b"t", more=True, state=state)
        stage.talk(conn, frames.frame(first, b"\x00\x53"))
    counts.append(dict(begun))
    for end in (frames.frame(Transfer(handle=0, aborted=True)), frames.detach(2), frames.detach(1)):
        stage.talk(conn, end)
        counts.append(dict(begun))
    assert counts == [{b"a": 2, b"b": 1}, {b"a": 1, b"b": 1}, {b"a": 1}, {}]


@pytest.mark.option("limits.transactions-per-connection-max-size-bytes")
def test_all_transactions_of_a_connection_share_a_bound() -> None:
    client = Client(Stage(options_with(limits={"transactions_per_connection_max_size_bytes": 1500})))
    link, one, two = client.sender("orders"), client.declare(), client.declare()
    client.post(link, one, b"x" * 900)
    client.post(link, two, b"x" * 900)
    assert condition(client.outcomes("post")[-1]) == "amqp:transaction:rollback"
    assert condition(client.discharge(two)) == "amqp:resource-limit-exceeded"
    assert isinstance(client.discharge(one), Accepted)
    assert client.stage.broker.peers[client.talker.conn].transactions.open_count == 0


def test_a_commit_that_cannot_be_routed_rolls_back_as_a_whole() -> None:
    client = Client(filled(2, limits={"queues_max": 2}))
    gone, link = client.sender("gone"), client.sender("orders")
    client.receiver("orders", credit=2)
    txn_id = client.declare()
    client.post(link, txn_id)
    client.post(gone, txn_id)
    client.retire(0, 0, txn_id, settled=True)
    client.retire(1, 1, txn_id, settled=False)
    store = client.stage.broker.store
    store.delete_queue(store.queues["gone"], BROKER)
    client.sender("another")  # takes the place, so that the address cannot come back
    state = client.discharge(txn_id)
    assert condition(state) == "amqp:resource-limit-exceeded"
    assert "queues-max" in state.error.description
    assert row(client.stage) == (2, 1)
    assert client.ended(client.control) is None


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("policy", ["FAIL", "DROP"])
def test_what_it_retires_makes_room_for_what_it_posts_however_that_is_settled(policy: str, settled: bool) -> None:
    """Qpid Proton's clients settle after the commit: what they sent to the full address was refused, or dropped."""
    client = Client(filled(1, address_settings={"orders": {"max_size_messages": 1, "address_full_policy": policy}}))
    client.receiver("orders", credit=1)
    link = client.sender("orders")
    txn_id = client.declare()
    client.retire(0, 0, txn_id, settled=settled)
    client.post(link, txn_id)
    assert client.discharge(txn_id) == Accepted()
    assert row(client.stage) == (1, 0)


@pytest.mark.parametrize(("count", "is_committed"), [(1, True), (2, False)])
def test_of_a_delivery_the_last_outcome_makes_room_and_once(count: int, is_committed: bool) -> None:
    client = Client(filled(3, address_settings={"orders": {"max_size_messages": 3, "address_full_policy": "FAIL"}}))
    client.receiver("orders", credit=3)
    link = client.sender("orders")
    txn_id = client.declare()
    client.retire(0, 2, txn_id, settled=False)
    client.retire(1, 2, txn_id, settled=False, outcome=Released())
    client.retire(0, 0, txn_id, settled=False)
    for _ in range(count):
        client.post(link, txn_id)
    state = client.discharge(txn_id)
    assert is_committed == (state == Accepted())
    assert row(client.stage) == ((3, 0) if is_committed else (3, 3))


# -- retiring ---------------------------------------------------------------------------------------------------------


def test_what_is_settled_later_keeps_its_outcome_and_leaves_the_client() -> None:
    """First an outcome, then the settlement without one: a rollback returns it to the queue."""
    client = Client(filled(1))
    client.receiver("orders", credit=1)
    txn_id = client.declare()
    client.retire(0, 0, txn_id, settled=False)
    client.session.dispose(0, 0, None, as_receiver=True)
    client.stage.run()
    assert row(client.stage) == (1, 1)
    client.discharge(txn_id, fail=True)
    assert row(client.stage) == (1, 0)


@pytest.mark.parametrize("settled", [True, False])
def test_what_a_consumer_cannot_use_is_not_offered_to_it_again_after_the_commit(settled: bool) -> None:
    client = Client(filled(1))
    client.receiver("orders")
    txn_id = client.declare()
    client.retire(0, 0, txn_id, settled=settled, outcome=Modified(undeliverable_here=True))
    assert row(client.stage) == (1, 1)
    client.discharge(txn_id)
    assert row(client.stage) == (1, 0)
    other = Client(client.stage, "other")
    other.receiver("orders")
    assert row(client.stage) == (1, 1)


def test_the_last_outcome_that_was_said_holds() -> None:
    client = Client(filled(2))
    client.receiver("orders", credit=2)
    txn_id = client.declare()
    client.retire(0, 1, txn_id, settled=False)
    client.retire(0, 0, txn_id, settled=False, outcome=Released())
    client.retire(1, 1, txn_id, settled=False, outcome=None)
    client.discharge(txn_id)
    assert row(client.stage) == (1, 0)
    settled = [each for each in client.talker.events if isinstance(each, told.SenderSettled)]
    assert sorted((each.first, each.last) for each in settled) == [(0, 0), (1, 1)]


def test_neighbours_are_settled_by_one_disposition() -> None:
    client = Client(filled(5))
    client.receiver("orders", credit=5)
    txn_id = client.declare()
    for number in range(5):
        client.retire(number, number, txn_id, settled=False)
    client.discharge(txn_id)
    settled = [each for each in client.talker.events if isinstance(each, told.SenderSettled)]
    assert [(each.first, each.last) for each in settled] == [(0, 4)]
    assert row(client.stage) == (0, 0)


def test_an_outcome_outside_ends_the_transaction_and_holds() -> None:
    client = Client(filled(2))
    client.receiver("orders", credit=2)
    txn_id = client.declare()
    client.retire(0, 1, txn_id, settled=False)
    client.session.accept(0, 1)
    client.stage.run()
    assert client.ended(client.control) == "amqp:transaction:rollback"
    assert row(client.stage) == (1, 1)
    client.session.accept(1, 1)
    client.stage.run()
    assert row(client.stage) == (0, 0)


def test_a_delivery_is_in_one_transaction_only() -> None:
    client = Client(filled(1))
    client.receiver("orders", credit=1)
    one, two = client.declare(), client.declare()
    client.retire(0, 0, one, settled=False)
    client.retire(0, 0, two, settled=False)
    assert client.ended(client.control) == "amqp:transaction:rollback"
    assert row(client.stage) == (1, 1)
    client.session.accept(0, 1)
    client.stage.run()
    assert row(client.stage) == (0, 0)


@pytest.mark.parametrize("settled", [True, False])
def test_an_unknown_transaction_ends_the_receiver(settled: bool) -> None:
    client = Client(filled(2))
    link = client.receiver("orders", credit=2)
    client.retire(0, 0, b"nothing", settled=settled)
    assert client.ended(link) == "amqp:transaction:unknown-id"
    assert row(client.stage) == (2, 0)


def test_what_is_said_of_deliveries_that_are_gone_is_passed_over() -> None:
    """Proton settles what it enlisted after the commit, under the transaction that has ended."""
    client = Client(filled(1))
    link = client.receiver("orders", credit=1)
    txn_id = client.declare()
    client.retire(0, 0, txn_id, settled=False)
    client.discharge(txn_id)
    client.retire(0, 0, txn_id, settled=True)
    assert link.is_attached
    assert row(client.stage) == (0, 0)


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("ends", ["link", "connection"])
def test_the_end_of_a_consumer_and_of_everything(settled: bool, ends: str) -> None:
    client = Client(filled(1))
    link = client.receiver("orders", credit=1)
    txn_id = client.declare()
    client.retire(0, 0, txn_id, settled=settled)
    if ends == "connection":
        client.stage.drop(client.talker)
        assert row(client.stage) == (1, 0)
        return
    link.detach()
    client.stage.run()
    assert row(client.stage) == (1, 1)
    assert isinstance(client.discharge(txn_id), Accepted)
    assert row(client.stage) == (0, 0)


def test_everything_in_one_read_keeps_its_order() -> None:
    client = Client(filled(2))
    client.receiver("orders", credit=2)
    link, txn_id = client.sender("other"), client.declare()
    state = TransactionalState(txn_id=txn_id, outcome=Accepted())
    client.session.outcome(0, 0, state)
    transactions.post(link, build_message(b"m", durable=True), "post", txn_id)
    client.session.outcome(1, 1, state)
    transactions.discharge(client.control, txn_id, "discharge")
    client.session.dispose(0, 1, state, as_receiver=True)
    client.stage.run()
    assert isinstance(client.outcomes("discharge")[0], Accepted)
    assert row(client.stage) == (0, 0)
    assert row(client.stage, "other") == (1, 0)


def test_acquisition_in_a_transaction_is_refused() -> None:
    stage = filled(1)
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.receiver(handle=0))
    detach = frames.heard(stage.talk(conn, frames.flow(0, 1, properties={frames.Symbol("txn-id"): b"t"})))[-1]
    assert str(detach.error.condition) == "amqp:not-implemented"


# -- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.option("limits.transaction-timeout-ms")
@pytest.mark.parametrize("settled", [True, False])
def test_a_transaction_that_takes_too_long(settled: bool) -> None:
    client = Client(filled(1, limits={"transaction_timeout_ms": 1000}))
    client.receiver("orders", credit=1)
    early = client.declare()
    client.stage.wait(600)
    late = client.declare()
    client.retire(0, 0, early, settled=settled)
    client.stage.wait(500)
    assert row(client.stage) == (1, int(not settled))
    assert condition(client.discharge(early)) == "amqp:transaction:timeout"
    assert isinstance(client.discharge(late), Accepted)
    client.stage.wait(2000)
    assert [each.event for each in client.stage.notices].count("transaction-failed") == 1


def test_a_discharge_that_came_while_the_node_stood_still_is_in_time() -> None:
    client = Client(filled(1, limits={"transaction_timeout_ms": 1000}))
    client.receiver("orders", credit=1)
    txn_id = client.declare()
    client.retire(0, 0, txn_id, settled=True)
    client.stage.now_ns += 5_000 * NS_PER_MS
    client.stage.step()
    assert client.discharge(txn_id) == Accepted()
    assert row(client.stage) == (0, 0)


def test_work_in_a_failed_transaction_comes_to_nothing() -> None:
    client = Client(filled(2, limits={"transaction_timeout_ms": 1000}))
    client.receiver("orders", credit=2)
    txn_id = client.declare()
    client.stage.wait(1000)
    client.retire(0, 0, txn_id, settled=True)
    client.retire(1, 1, txn_id, settled=False)
    assert row(client.stage) == (2, 1)
    assert isinstance(client.discharge(txn_id, fail=True), Accepted)


def test_compaction_knows_what_transactions_hold() -> None:
    """Live messages are stored again, also those that only a transaction holds; a crash then finds them."""
    client = Client(filled(40, journal={"journal_file_size_bytes": 4096, "journal_compact_min_files": 2}))
    client.receiver("orders", credit=40)
    txn_id = client.declare()
    client.retire(0, 0, txn_id, settled=True)
    link = client.sender("other")
    for number in range(1, 40):
        client.session.accept(number, 1)
        client.session.send_run(link, single(build_message(b"x" * 300, durable=True)), 0, 1, "fill")
        client.stage.run()
    client.stage.crash()
    client.stage.start()
    assert row(client.stage)[0] == 1


def test_what_was_posted_before_its_permission_was_taken_away_is_not_committed() -> None:
    def tables(*senders: str) -> dict[str, Any]:
        make = {name: ["shop"] for name in ("create_address", "create_durable_queue")}
        return {"#": {**make, "send": list(senders)}}

    stage = Stage(options_with(listener={"anonymous_role": "shop"}, security_settings=tables("shop")))
    stage.admin("queue-create", name="orders")
    client = Client(stage)
    link = client.sender("orders")
    for senders, is_taken in (("ledger", False), ("shop", True)):
        stage.give(OptionsChanged(options_with(
            listener={"anonymous_role": "shop"}, security_settings=tables("shop")), None))  # fmt: skip
        stage.run()
        txn_id = client.declare()
        client.post(link, txn_id)
        stage.give(OptionsChanged(options_with(
            listener={"anonymous_role": "shop"}, security_settings=tables(senders)), None))  # fmt: skip
        stage.run()
        outcome = client.discharge(txn_id)
        assert isinstance(outcome, Accepted if is_taken else Rejected)
        if not is_taken:
            assert "no permission send at address 'orders'" in str(outcome.error.description)
        assert stage.broker.store.queues["orders"].message_count == int(is_taken)


def _posts(numbers: range, settled: bool = False, handle: int = 1, payload: bytes = b"") -> bytes:
    """Frames of messages of the first transaction of a connection."""
    state, told = TransactionalState(txn_id=(1).to_bytes(8, "big")), []
    for n in numbers:
        head = Transfer(handle=handle, delivery_id=n, delivery_tag=b"%d" % n, message_format=0, settled=settled,
                        state=state)  # fmt: skip
        told.append(frames.frame(head, payload or build_message(b"m%03d" % n, durable=True)))
    return b"".join(told)


def test_what_comes_at_once_is_answered_at_once_and_in_order() -> None:
    stage = Stage()
    conn = stage.accept()
    control = frames.frame(transactions.coordinator_attach())
    links = control + frames.sender(handle=1, name="sender")
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + links)
    stage.talk(conn, transactions.request(0, Declare()))
    said = frames.of_kind(stage.talk(conn, _posts(range(1, 101))), Disposition)
    assert len(said) <= 10, "a run each, of 1, 1, 4, 4, 16, ..."
    accepted = TransactionalState(txn_id=(1).to_bytes(8, "big"), outcome=Accepted())
    assert all((each.role, each.settled, each.state) == (True, True, accepted) for each in said)
    told = [n for each in said for n in range(each.first, (each.first if each.last is None else each.last) + 1)]
    assert told == list(range(1, 101))
    stage.talk(conn, transactions.request(101, Discharge(txn_id=(1).to_bytes(8, "big"))))
    queue = stage.broker.store.queues["orders"]
    bodies = [
        bytes(each.run.payload(n))[-4:] for each in queue.segments() for n in range(each.start, each.start + each.n)
    ]
    assert bodies == [b"m%03d" % n for n in range(1, 101)]


def test_on_a_link_without_an_address_each_goes_where_it_says() -> None:
    stage = Stage()
    conn = stage.accept()
    relay = Attach(name="relay", handle=1, role=False, source=Source(), target=Target(), initial_delivery_count=0)
    links = frames.frame(transactions.coordinator_attach()) + frames.frame(relay)
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + links)
    stage.talk(conn, transactions.request(0, Declare()))
    names = ("orders", "invoices")
    told = b"".join(
        _posts(
            range(n, n + 1), payload=build_message(b"m%03d" % n, durable=True, properties=Properties(to=names[n % 2]))
        )
        for n in range(1, 41)
    )
    said = frames.of_kind(stage.talk(conn, told), Disposition)
    assert sum((each.last or each.first) - each.first + 1 for each in said) == 40
    stage.talk(conn, transactions.request(101, Discharge(txn_id=(1).to_bytes(8, "big"))))
    assert [row(stage, name)[0] for name in names] == [20, 20]
