"""Messages that are none end the link that brought them, wherever they stand, and reach nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.core.cluster.remote_binding import cluster_name_of
from mqbroker.node.cluster.forwarding.forwarding_terms import NUMBERED, ROUTE, SOURCE, STORE_AND_FORWARD
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Declare,
    Detach,
    Discharge,
    Disposition,
    Rejected,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message
from mqbroker.wire.wellformed import Forms

from tests.support import frames, transactions
from tests.support.large_messages import SIZE_MIN, stage_of
from tests.support.malformed import BODY, HEADERS, MALFORMED, MESSAGES, listed, section
from tests.support.stage import Stage, options_with

CONDITION = "amqp:decode-error"
GOOD = 40  # more than a run needs to be looked at by columns


def sender_on(stage: Stage, address: str | None = "orders") -> int:
    """A connection that sends on handle 0 to that address, and on handle 5 to another."""
    conn = stage.accept()
    attach = Attach(name="s0", handle=0, role=False, snd_settle_mode=2, source=Source(),
                    target=Target(address=address), initial_delivery_count=0)  # fmt: skip
    said = frames.anonymous() + frames.opened() + frames.begun() + frames.frame(attach)
    stage.talk(conn, said + frames.sender("others", 5))
    return conn


def transfer(number: int, payload: bytes, *, settled: bool = False, handle: int = 0, **fields: Any) -> bytes:
    head = Transfer(handle=handle, delivery_id=number, delivery_tag=number.to_bytes(4, "big"), message_format=0,
                    settled=settled)  # fmt: skip
    return frames.frame(replace(head, **fields), payload)


def count_at(stage: Stage, name: str = "orders") -> int:
    queue = stage.broker.store.queues.get(name)
    return queue.message_count if queue is not None else 0


def assert_refused(stage: Stage, conn: int, said: bytes, taken: int) -> None:
    """The link has ended with a reason that names a byte, and everything else goes on."""
    (detach,) = frames.of_kind(said, Detach)
    assert (detach.handle, detach.closed) == (0, True)
    assert str(detach.error.condition) == CONDITION
    assert "at byte" in detach.error.description
    assert count_at(stage) == taken
    assert stage.broker.counters.malformed == 1
    assert [notice.event for notice in stage.notices].count("message-malformed") == 1
    answer = stage.talk(conn, transfer(1000, build_message(b"on another link"), handle=5))
    assert [type(each.state) for each in frames.of_kind(answer, Disposition)] == [Accepted]
    assert count_at(stage, "others") == 1
    assert conn not in stage.closed


@pytest.mark.slow
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("name", MALFORMED)
def test_one_alone(name: str, header: str, settled: bool) -> None:
    stage = Stage(options_with())
    conn = sender_on(stage)
    said = stage.talk(conn, transfer(0, HEADERS[header] + MALFORMED[name], settled=settled))
    assert_refused(stage, conn, said, 0)


@pytest.mark.slow
@pytest.mark.parametrize("address", ["orders", None])
@pytest.mark.parametrize("name", MALFORMED)
def test_one_among_good_ones_of_its_size(name: str, address: str | None) -> None:
    """Those before it are taken in, it and those behind it are not; also on a link without an address."""
    stage = Stage(options_with(limits={"max_message_size_bytes": 1 << 20}))
    conn = sender_on(stage, address)
    bad = HEADERS["durable"] + MALFORMED[name]
    to = b"\x00\x53\x73\xc0\x0b\x03\x40\x40\xa1\x06orders"
    room = max(len(bad) - len(HEADERS["durable"] + to) - 8, 0)
    good = HEADERS["durable"] + to + b"\x00\x53\x75\xb0" + room.to_bytes(4, "big") + b"x" * room
    block = [transfer(number, bad if number == GOOD else good) for number in range(GOOD + 20)]
    said = stage.talk(conn, b"".join(block))
    assert_refused(stage, conn, said, GOOD)


@pytest.mark.slow
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("name", MALFORMED)
def test_one_in_pieces(name: str, settled: bool) -> None:
    stage = Stage(options_with())
    conn = sender_on(stage)
    payload = HEADERS["durable"] + MALFORMED[name]
    said = stage.talk(
        conn,
        transfer(0, payload[:9], settled=settled, more=True)
        + frames.frame(Transfer(handle=0, settled=settled, more=True), payload[9:10])
        + frames.frame(Transfer(handle=0, settled=settled), payload[10:]),
    )
    assert_refused(stage, conn, said, 0)


@pytest.mark.slow
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("address", ["orders", None])
@pytest.mark.parametrize("name", MALFORMED)
def test_one_of_a_transaction_fails_it(name: str, address: str | None, settled: bool) -> None:
    stage = Stage(options_with())
    conn = sender_on(stage, address)
    stage.talk(conn, frames.frame(replace(transactions.coordinator_attach(), handle=9)))
    stage.talk(conn, transactions.request(0, Declare(), 9))
    state = TransactionalState(txn_id=(1).to_bytes(8, "big"))
    to = b"\x00\x53\x73\xc0\x0b\x03\x40\x40\xa1\x06orders"
    stage.talk(conn, transfer(1, to + MESSAGES["data"], settled=settled, state=state))
    said = stage.talk(conn, transfer(2, MALFORMED[name], settled=settled, state=state))
    (detach,) = frames.of_kind(said, Detach)
    assert str(detach.error.condition) == CONDITION
    end = stage.talk(conn, transactions.request(3, Discharge(txn_id=state.txn_id), 9))
    (answer,) = (each for each in frames.of_kind(end, Disposition) if each.first == 3)
    assert isinstance(answer.state, Rejected)
    assert answer.state.error is not None
    assert str(answer.state.error.condition) == CONDITION
    assert "at byte" in str(answer.state.error.description)
    assert count_at(stage) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_odd_and_a_message_is_passed_on_byte_for_byte(name: str) -> None:
    stage = Stage(options_with())
    conn = sender_on(stage)
    said = stage.talk(conn, b"".join(transfer(number, MESSAGES[name]) for number in range(GOOD)))
    assert {type(each.state) for each in frames.of_kind(said, Disposition)} == {Accepted}
    got = stage.talk(conn, frames.receiver("orders", credit=GOOD))
    payloads = [each[1] for each in frames.heard(got) if isinstance(each, tuple)]
    assert payloads == [MESSAGES[name]] * GOOD


def test_the_header_section_says_where_it_is_wrong() -> None:
    stage = Stage(options_with())
    conn = sender_on(stage)
    said = stage.talk(conn, transfer(0, b"\x00\x53\x70\xc0\x02\x01\xff" + MESSAGES["data"]))
    (detach,) = frames.of_kind(said, Detach)
    assert str(detach.error.condition) == CONDITION
    assert detach.error.description.endswith("at byte 6")


def test_a_peer_that_sends_many_is_logged_once() -> None:
    stage = Stage(options_with())
    conn = sender_on(stage)
    for number in range(5):
        stage.talk(conn, transfer(number, MALFORMED["a body cut short"]) + frames.detach() + frames.sender())
    assert stage.broker.counters.malformed == 5
    assert [notice.event for notice in stage.notices].count("message-malformed") == 1


FILLER = b"x" * SIZE_MIN * 2
WIDE = len(FILLER).to_bytes(4, "big")
LARGE = {
    **{
        name: payload.removesuffix(BODY) + section(0x75, b"\xb0" + WIDE + FILLER)
        for name, payload in MALFORMED.items() if payload.endswith(BODY) and payload != BODY
    },
    **{
        f"{name}, behind much": section(0x75, b"\xb0" + WIDE + FILLER) + payload
        for name, payload in MALFORMED.items() if not payload.endswith(BODY)
    },
    "text that is not UTF-8 at its end": section(0x77, b"\xb1" + WIDE + FILLER[:-1] + b"\xff"),
    "text that ends within a character": section(0x77, b"\xb1" + WIDE + FILLER[:-1] + b"\xc3"),
    "a body of which the last byte is missing": section(0x75, b"\xb0" + WIDE + FILLER[:-1]),
    "text in a list that is not UTF-8": section(0x77, listed(b"\xb1" + WIDE + FILLER, b"\xa1\x01\xff")),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("name", LARGE)
def test_one_that_goes_into_a_file(name: str, settled: bool) -> None:
    """A good one before it is kept, and of it no file is left."""
    stage = stage_of()
    conn = sender_on(stage)
    good = HEADERS["durable"] + section(0x75, b"\xb0" + WIDE + FILLER)
    stage.talk(conn, b"".join(pieces_of(0, good, settled)))
    assert len(stage.large_files.sizes) == 1
    bad = HEADERS["durable"] + LARGE[name]
    said = b"".join(stage.talk(conn, piece) for piece in pieces_of(1, bad, settled))
    assert_refused(stage, conn, said, 1)
    stage.run()
    assert len(stage.large_files.sizes) == 1
    got = stage.talk(conn, frames.receiver("orders", credit=9))
    payload = b"".join(each[1] for each in frames.heard(got) if isinstance(each, tuple))
    assert payload == good


def pieces_of(number: int, payload: bytes, settled: bool) -> list[bytes]:
    """The transfers of one message."""
    cuts = range(900, len(payload), 900)
    first = transfer(number, payload[:900], settled=settled, more=True)
    rest = [
        frames.frame(Transfer(handle=0, settled=settled, more=at + 900 < len(payload)), payload[at : at + 900])
        for at in cuts
    ]
    return [first, *rest]


def test_all_of_a_large_one_in_one_read() -> None:
    stage = stage_of()
    conn = sender_on(stage)
    for number, name in enumerate(LARGE):
        said = stage.talk(conn, b"".join(pieces_of(number, HEADERS["durable"] + LARGE[name], False)))
        (detach,) = frames.of_kind(said, Detach)
        assert str(detach.error.condition) == CONDITION
        stage.talk(conn, frames.detach() + frames.sender(name=name))
    assert stage.large_files.sizes == {}
    assert stage.broker.counters.malformed == len(LARGE)


def test_what_another_node_forwards_is_taken_as_it_comes() -> None:
    """An older release took it in: it is delivered once, and the link between the nodes stands."""
    stage = Stage(options_with({"kind": "cluster"}))
    stage.admin("queue-create", name="orders")
    route = [cluster_name_of("orders", stage.broker.node_id)]
    target = Target(address="orders", capabilities=(STORE_AND_FORWARD,))
    attach = Attach(name="route", handle=0, role=False, snd_settle_mode=0, source=Source(), target=target,
                    initial_delivery_count=0, properties={SOURCE: "other", ROUTE: route, NUMBERED: False})  # fmt: skip
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.frame(attach))
    said = stage.talk(conn, transfer(0, MALFORMED["properties behind the body"]))
    assert frames.of_kind(said, Detach) == []
    assert count_at(stage) == 1


def test_what_an_older_release_stored_is_there_as_before() -> None:
    """Through recovery, a look, a selector, a dead letter and a delivery, byte for byte; the node goes on."""
    settings = {"#": {"dead_letter_address": "dead", "expiry_address": "expired"}}
    stage = Stage(options_with(address_settings=settings, limits={"link_credit": 1000}))
    stage.admin("queue-create", name="orders")
    store = stage.broker.store
    payloads = [HEADERS["durable"] + payload for payload in MALFORMED.values()]
    for payload in payloads:
        stage.broker.at = store.at = stage.at
        store.publish(store.addresses["orders"], single(payload))
    stage.step()
    stage.sync()
    stage.run()
    stage.crash()
    stage.start()
    assert count_at(stage) == len(payloads)
    found = stage.admin("browse", queue="orders", limit=1000)
    assert len(found["messages"]) == len(payloads)
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun())
    got = stage.talk(conn, frames.receiver("orders", credit=len(payloads)))
    assert [each[1] for each in frames.heard(got) if isinstance(each, tuple)] == payloads
    stage.talk(conn, frames.disposition(0, len(payloads) - 1, Rejected()))
    assert count_at(stage, "orders") == 0
    assert count_at(stage, "dead") == len(payloads)
    assert stage.is_up


@pytest.mark.parametrize(("said", "is_good"), [(5, True), (1 << 63, True), (-5, False), (1 << 64, False)])
def test_an_id_that_an_administrator_sends_as_a_number_is_a_ulong(said: int, is_good: bool) -> None:
    stage = Stage(options_with())
    stage.admin("queue-create", name="orders")
    message = {"body": "x", "properties": {"message_id": said, "correlation_id": said}}
    answer = stage.admin("send", address="orders", messages=[message])
    assert (answer == {"accepted": 1}) == is_good
    assert count_at(stage) == is_good
    if is_good:
        (segment,) = stage.broker.store.queues["orders"].segments()
        assert Forms().malformed(segment.run) is None
    else:
        assert answer["condition"] == "amqp:invalid-field"
