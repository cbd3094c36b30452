"""Credit, windows, drain, settle modes: what a receiver is sent, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp import frame_costs
from mqbroker.base.serial import wrap
from mqbroker.node.amqp.peers.peer import OUT_BYTES_MIN
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)  # fmt: skip
from mqbroker.wire.run import encode_run, heading, single
from mqbroker.wire.sections import Header, Properties, body_values, build_message, decode_header, scan_sections
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with


def stage_with(count: int, body: str = "m", size: int = 0, **tables: Any) -> Stage:
    """A node with messages m0, m1, … in `orders`."""
    stage = Stage(options_with(**tables))
    messages = [{"body": f"{body}{n}".ljust(size, "."), "durable": False} for n in range(count)]
    assert stage.admin("send", address="orders", messages=messages) == {"accepted": count}
    return stage


def consumer(stage: Stage, credit: int, *, window: int = 2048, max_frame_size: int = 65536, **fields: Any) -> int:
    """A bare connection with one receiver."""
    conn = stage.accept()
    hello = frames.anonymous() + frames.opened(max_frame_size) + frames.begun(incoming_window=window)
    stage.talk(conn, hello + frames.receiver(handle=0, **fields))
    stage.sent[conn].clear()
    if credit:
        stage.talk(conn, frames.flow(0, credit, window=window))
    return conn


def bodies_in(data: bytes) -> list[str]:
    """Bodies of whole messages among what a node said, pieces put together."""
    found, parts = [], b""
    for each in frames.heard(data):
        if isinstance(each, tuple):
            transfer, payload = each
            parts += payload
            if not transfer.more:
                found.append(_body(parts))
                parts = b""
    return found


def _body(payload: bytes) -> str:
    (value,) = body_values(payload, scan_sections(payload, 0, len(payload)))[1]
    return (value.decode() if isinstance(value, bytes) else str(value)).rstrip(".")


def transfers_in(data: bytes) -> list[Transfer]:
    return [each[0] for each in frames.heard(data) if isinstance(each, tuple)]


def counts_in(data: bytes) -> list[int]:
    """Delivery counts of the messages."""
    payloads = [each[1] for each in frames.heard(data) if isinstance(each, tuple)]
    has = [scan_sections(payload, 0, len(payload)).header >= 0 for payload in payloads]
    return [(decode_header(payload, 0, len(payload))[0] if is_there else Header()).delivery_count or 0
            for payload, is_there in zip(payloads, has, strict=True)]  # fmt: skip


# -- credit -----------------------------------------------------------------------------------------------------------


def test_credit_counts_from_what_the_receiver_has_seen() -> None:
    stage = stage_with(10)
    conn = consumer(stage, 3)
    assert len(transfers_in(bytes(stage.sent[conn]))) == 3
    # It has seen one delivery when it says 3: two of the three are on their way, so one more may go.
    assert len(transfers_in(stage.talk(conn, frames.flow(0, 3, delivery_count=1)))) == 1
    assert transfers_in(stage.talk(conn, frames.flow(0, 0, delivery_count=2))) == []
    assert transfers_in(stage.talk(conn, frames.flow(0, 2, delivery_count=2))) == []
    assert len(transfers_in(stage.talk(conn, frames.flow(0, 2, delivery_count=4)))) == 2


@pytest.mark.parametrize("credit", [0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_credit_may_be_as_large_as_its_type(credit: int) -> None:
    stage = stage_with(3)
    conn = consumer(stage, 0)
    assert len(transfers_in(stage.talk(conn, frames.flow(0, credit)))) == 3
    assert stage.admin("send", address="orders", messages=[{"body": "late"}]) == {"accepted": 1}
    assert bodies_in(bytes(stage.sent[conn]))[3:] == ["late"]
    stage.talk(conn, frames.flow(0, 3, delivery_count=0))
    assert stage.admin("send", address="orders", messages=[{"body": "too late"}]) == {"accepted": 1}
    assert len(transfers_in(bytes(stage.sent[conn]))) == 4, "all that it grants was used before it said so"


def test_credit_wraps() -> None:
    stage = stage_with(6)
    conn = consumer(stage, 0)
    (link,) = [link for session in stage.broker.peers[conn].connection.sessions for link in session.by_handle.values()]
    link.delivery_count = 0xFFFFFFFE
    said = stage.talk(conn, frames.flow(0, 4, delivery_count=0xFFFFFFFE))
    assert len(transfers_in(said)) == 4
    assert link.delivery_count == 2
    assert len(transfers_in(stage.talk(conn, frames.flow(0, 1, delivery_count=2)))) == 1


@pytest.mark.option("limits.link-credit")
@pytest.mark.parametrize("credit", [1, 7, 2000])
def test_a_publisher_is_given_this_credit(credit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(options_with(limits={"link_credit": credit}))
    conn = stage.accept()
    said = stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
    assert [flow.link_credit for flow in frames.of_kind(said, Flow)] == [credit]
    # By turns it would be given more before it can run out.
    for cost, units in (("RUN", 0), ("TRANSFER", 0), ("MESSAGES_SHIFT", 20)):
        monkeypatch.setattr(frame_costs, cost, units)
    said = stage.talk(conn, b"".join(frames.transfer(n, settled=True) for n in range(credit + 1)))
    assert frames.errors(said) == [("Detach", "amqp:link:transfer-limit-exceeded")]


@pytest.mark.option("limits.links-per-session-max")
def test_links_of_a_session_are_bounded() -> None:
    stage = Stage(options_with(limits={"links_per_session_max": 3}))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun())
    for handle in range(3):
        assert frames.errors(stage.talk(conn, frames.sender(handle=handle))) == []
    # A handle of a link that is gone is free again.
    stage.talk(conn, frames.detach(1))
    assert frames.errors(stage.talk(conn, frames.sender(handle=1))) == []
    assert frames.errors(stage.talk(conn, frames.sender(handle=3))) == [("Close", "amqp:connection:framing-error")]


@pytest.mark.option("limits.sessions-per-connection-max")
def test_sessions_of_a_connection_are_bounded() -> None:
    stage = Stage(options_with(limits={"sessions_per_connection_max": 2}))
    conn = stage.accept()
    said = stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun(0) + frames.begun(1))
    assert [each.channel_max for each in frames.of_kind(said, Open)] == [1]
    stage.talk(conn, frames.end(0))
    assert frames.errors(stage.talk(conn, frames.begun(0))) == []
    assert frames.errors(stage.talk(conn, frames.begun(2))) == [("Close", "amqp:connection:framing-error")]


# -- drain and echo ---------------------------------------------------------------------------------------------------


def test_drain_uses_the_credit_up() -> None:
    stage = stage_with(2)
    conn = consumer(stage, 0)
    said = stage.talk(conn, frames.flow(0, 10, drain=True))
    assert len(transfers_in(said)) == 2
    (flow,) = frames.of_kind(said, Flow)
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (10, 0, True)
    assert isinstance(frames.heard(said)[-1], Flow), "the messages come first"


def test_a_drain_waits_for_a_consumer_that_waits_for_the_disk() -> None:
    """The first consumer of a durable queue has its answer before the journal knows of it."""
    stage = stage_with(2)
    stage.is_disk_held = True
    conn = consumer(stage, 0)
    assert frames.heard(stage.talk(conn, frames.flow(0, 10, drain=True))) == []
    before = len(stage.sent[conn])
    stage.is_disk_held = False
    stage.run()
    said = bytes(stage.sent[conn][before:])
    assert len(transfers_in(said)) == 2
    assert [flow.link_credit for flow in frames.of_kind(said, Flow)] == [0]


@pytest.mark.parametrize("window", [2048, 20])
def test_a_drain_of_a_paused_queue_waits_for_who_looks_on(window: int) -> None:
    """More than one step sends, or than the session's window lets through."""
    count = OUT_BYTES_MIN // 10_000 + 10
    stage = stage_with(count, size=10_000)
    stage.admin("queue-pause", name="orders")
    source = Source(address="orders", distribution_mode=Symbol("copy"))
    conn = stage.accept()
    attach = frames.frame(Attach(name="b", handle=0, role=True, source=source, target=Target()))
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun(incoming_window=window) + attach)
    said = stage.talk(conn, frames.flow(0, 1000, drain=True, window=window))
    said += stage.talk(conn, frames.flow(None, 0, window=2048))
    (flow,) = frames.of_kind(said, Flow)
    assert (flow.delivery_count, len(transfers_in(said)), flow.link_credit) == (1000, count, 0)
    assert isinstance(frames.heard(said)[-1], Flow)
    conn = consumer(stage, 0)
    (flow,) = frames.of_kind(stage.talk(conn, frames.flow(0, 5, drain=True)), Flow)
    assert (flow.delivery_count, flow.link_credit) == (5, 0), "a pause holds back from consumers"


def test_a_sender_that_uses_credit_up_without_messages_is_given_more() -> None:
    """Only the sender moves its delivery-count, and may do so by a flow (§2.6.7)."""
    stage = Stage(options_with(limits={"link_credit": 10}))
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
    for count, granted in ((4, []), (10, [(10, 10)]), (10, [])):
        said = stage.talk(conn, frames.flow(0, 0, delivery_count=count))
        assert [(flow.delivery_count, flow.link_credit) for flow in frames.of_kind(said, Flow)] == granted
    assert frames.errors(stage.talk(conn, frames.transfer(0))) == []


@pytest.mark.parametrize("credit", [0, 5])
def test_a_drain_of_an_empty_queue_is_answered(credit: int) -> None:
    stage = stage_with(0)
    conn = consumer(stage, 0)
    said = stage.talk(conn, frames.flow(0, credit, drain=True, echo=True))
    assert [(flow.link_credit, flow.delivery_count) for flow in frames.of_kind(said, Flow)] == [(0, credit)]


def test_a_drain_without_credit_is_answered_unasked() -> None:
    """go-amqp waits for the answer, and takes the credit that it gave before back by the same flow."""
    stage = stage_with(0)
    conn = consumer(stage, 5)
    said = stage.talk(conn, frames.flow(0, 0, drain=True))
    assert [(flow.link_credit, flow.drain) for flow in frames.of_kind(said, Flow)] == [(0, True)]


@pytest.mark.parametrize("echo", [False, True])
def test_a_drain_that_messages_end_is_told_to_who_asks(echo: bool) -> None:
    stage = stage_with(3)
    conn = consumer(stage, 0)
    said = stage.talk(conn, frames.flow(0, 2, drain=True, echo=echo))
    assert len(transfers_in(said)) == 2
    assert [(flow.link_credit, flow.delivery_count) for flow in frames.of_kind(said, Flow)] == [(0, 2)] * echo
    assert frames.of_kind(stage.talk(conn, frames.flow(0, 1, delivery_count=2)), Flow) == [], "it was answered"


def test_an_echo_is_answered_once() -> None:
    stage = stage_with(0)
    conn = consumer(stage, 0)
    said = stage.talk(conn, frames.flow(0, 5, echo=True))
    assert [(flow.handle, flow.link_credit) for flow in frames.of_kind(said, Flow)] == [(0, 5)]
    session_only = frames.frame(
        Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9, echo=True)
    )
    (flow,) = frames.of_kind(stage.talk(conn, session_only), Flow)
    assert flow.handle is None


# -- session windows --------------------------------------------------------------------------------------------------


def test_the_session_window_holds_messages_back() -> None:
    stage = stage_with(10)
    conn = consumer(stage, 100, window=3)
    assert len(transfers_in(bytes(stage.sent[conn]))) == 3
    wider = Flow(next_incoming_id=3, incoming_window=4, next_outgoing_id=0, outgoing_window=9)
    assert len(transfers_in(stage.talk(conn, frames.frame(wider)))) == 4
    assert stage.talk(conn, frames.frame(wider)) == b""


def test_who_has_not_seen_the_begin_yet_widens_no_window() -> None:
    """All that it says is sent ahead, so what it was sent meanwhile is in the window that it tells (§2.5.6)."""
    stage = stage_with(9)
    conn = consumer(stage, 0, window=3)
    ahead = [Flow(next_incoming_id=None, incoming_window=window, next_outgoing_id=0, outgoing_window=9, handle=0,
                  delivery_count=0, link_credit=9) for window in (3, 3, 5)]  # fmt: skip
    assert [len(transfers_in(stage.talk(conn, frames.frame(flow)))) for flow in ahead] == [3, 0, 2]


def test_a_large_message_goes_in_pieces_as_the_window_opens() -> None:
    stage = stage_with(3, size=5000)
    conn = consumer(stage, 100, window=5, max_frame_size=512)
    said = bytes(stage.sent[conn])
    assert len(transfers_in(said)) == 5
    seen = 5
    for _ in range(20):
        more = stage.talk(conn, frames.frame(Flow(next_incoming_id=seen, incoming_window=5, next_outgoing_id=0,
                                                  outgoing_window=9)))  # fmt: skip
        assert len(transfers_in(more)) <= 5
        seen += len(transfers_in(more))
        said += more
    assert bodies_in(said) == ["m0", "m1", "m2"]
    assert max(len(part) for part in _frames(said)) <= 512


def _frames(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append(data[at : at + size])
        at += size
    return found


def test_redeliveries_keep_to_the_window() -> None:
    """They go the general way, one by one and in pieces; what the window does not let through stays in the queue."""
    stage = stage_with(50, size=3000)
    first = consumer(stage, 50)
    stage.drop_bare(first)
    conn = consumer(stage, 50, window=4, max_frame_size=512)
    assert len(transfers_in(bytes(stage.sent[conn]))) == 4
    (session,) = stage.broker.peers[conn].connection.sessions
    assert session.unsettled.count == 1
    assert len(session._held) == 3


def test_a_message_that_is_cut_off_by_its_detach_goes_no_further() -> None:
    stage = stage_with(1, size=5000)
    conn = consumer(stage, 1, window=2, max_frame_size=512)
    said = stage.talk(conn, frames.detach(0))
    assert [type(each) for each in frames.heard(said)] == [Detach]
    more = stage.talk(
        conn, frames.frame(Flow(next_incoming_id=2, incoming_window=50, next_outgoing_id=0, outgoing_window=9))
    )
    assert more == b""
    other = consumer(stage, 1)
    assert counts_in(bytes(stage.sent[other])) == [0]


# -- outcomes ---------------------------------------------------------------------------------------------------------


def test_each_outcome() -> None:
    stage = stage_with(5)
    conn = consumer(stage, 5)
    for number, state in enumerate((Accepted(), Rejected(), Released(), Modified(delivery_failed=True), Modified())):
        stage.talk(conn, frames.disposition(number, number, state))
    row = stage.admin("queues")["queues"][0]
    assert (row["message_count"], row["delivering_count"], row["messages_acknowledged"]) == (3, 0, 1)
    said = stage.talk(conn, frames.flow(0, 9, delivery_count=5))
    assert bodies_in(said) == ["m2", "m3", "m4"]
    assert counts_in(said) == [0, 1, 0]


def test_settled_without_an_outcome_has_the_default_one() -> None:
    """Which is modified, delivery failed, where the consumer asked for no other (§3.5.3)."""
    stage = stage_with(2)
    conn = consumer(stage, 2)
    stage.talk(conn, frames.disposition(0, 1, None))
    assert stage.admin("queues")["queues"][0]["message_count"] == 2
    said = stage.talk(conn, frames.flow(0, 9, delivery_count=2))
    assert (bodies_in(said), counts_in(said)) == (["m0", "m1"], [1, 1])


def test_ranges_across_links_and_out_of_order() -> None:
    stage = stage_with(9)
    conn = consumer(stage, 3)
    stage.talk(conn, frames.receiver(handle=1, credit=3))
    for first, last in ((4, 4), (2, 3), (0, 9 - 4)):
        stage.talk(conn, frames.disposition(first, last, Accepted()))
    row = stage.admin("queues")["queues"][0]
    assert (row["message_count"], row["delivering_count"]) == (3, 0)
    assert frames.errors(stage.talk(conn, frames.disposition(0, 5, Accepted()))) == [], "a second time is no fault"


@pytest.mark.parametrize("state", [Accepted(), Released(), Rejected(), Modified(delivery_failed=True)])
def test_a_receiver_that_settles_second_is_answered(state: Any) -> None:
    stage = stage_with(1)
    conn = consumer(stage, 1, rcv_settle_mode=1)
    (answer,) = frames.of_kind(stage.talk(conn, frames.disposition(0, 0, state, settled=False)), Disposition)
    assert (answer.role, answer.first, answer.settled, type(answer.state)) == (False, 0, True, type(state))


@pytest.mark.parametrize("ends", [frames.end(), frames.flow(77, 1)], ids=["in order", "by a fault"])
def test_a_session_that_ends_before_the_disk_has_the_outcome_hears_nothing_more(ends: bytes) -> None:
    stage = Stage()
    stage.admin("send", address="orders", messages=[{"body": "m", "durable": True}])
    conn = consumer(stage, 1, rcv_settle_mode=1)
    said = stage.talk(conn, frames.disposition(0, 0, Accepted(), settled=False) + ends)
    assert [type(each) for each in frames.heard(said)] == [End]
    assert stage.admin("queues")["queues"][0]["message_count"] == 0, "what it said of the message holds"


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_the_settle_mode_that_a_receiver_wants_is_what_it_hears(mode: int) -> None:
    """Mixed too: a client may take any other answer for a refusal."""
    stage = stage_with(0)
    conn = stage.accept()
    hello = frames.anonymous() + frames.opened() + frames.begun()
    said = stage.talk(conn, hello + frames.receiver(handle=0, snd_settle_mode=mode))
    assert [attach.snd_settle_mode for attach in frames.of_kind(said, Attach)] == [mode]


def test_presettled_deliveries_are_gone_when_they_are_sent() -> None:
    stage = stage_with(3)
    conn = consumer(stage, 2, snd_settle_mode=1)
    assert [each.settled for each in transfers_in(bytes(stage.sent[conn]))] == [True, True]
    row = stage.admin("queues")["queues"][0]
    assert (row["message_count"], row["delivering_count"]) == (1, 0)


def test_one_disposition_answers_what_one_read_brought() -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
    said = stage.talk(conn, b"".join(frames.transfer(n) for n in range(1000, 1100)))
    assert [(each.first, each.last) for each in frames.of_kind(said, Disposition)] == [(1000, 1099)]


def test_delivery_ids_wrap_in_both_directions() -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
    said = stage.talk(conn, b"".join(frames.transfer(wrap(0xFFFFFFFD + n), b"m%d" % n) for n in range(6)))
    answered = [(each.first, each.last if each.last is not None else each.first)
                for each in frames.of_kind(said, Disposition)]  # fmt: skip
    assert sum(wrap(last - first) + 1 for first, last in answered) == 6
    stage.talk(conn, frames.receiver())
    (session,) = stage.broker.peers[conn].connection.sessions
    session.next_delivery_id = 0xFFFFFFFE
    said = stage.talk(conn, frames.flow(1, 6))
    assert [each.delivery_id for each in transfers_in(said)] == [wrap(0xFFFFFFFE + n) for n in range(6)]
    stage.talk(conn, frames.disposition(0xFFFFFFFE, 3, Accepted()))
    assert stage.admin("queues")["queues"][0]["message_count"] == 0


@pytest.mark.parametrize("place", range(1, 6))
@pytest.mark.parametrize("is_relayed", [True, False])
def test_ids_may_wrap_within_what_is_accepted_in_parts(is_relayed: bool, place: int) -> None:
    """Whose ids have four bytes each, so that one run crosses 2^32: to several addresses, and to one that drops."""
    full = {"max_size_messages": place, "address_full_policy": "DROP"}
    stage = Stage(options_with(address_settings={"orders": full}))
    conn = stage.accept()
    target = Target(address=None if is_relayed else "orders")
    attach = Attach(name="s", handle=0, role=False, source=Source(), target=target, initial_delivery_count=0)
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.frame(attach))
    places = [Properties(to="orders" if number < place else "others") for number in range(6)]
    runs = [single(build_message(b"m", properties=each)) for each in places]
    sent = b"".join(encode_run(run, 0, 1, heading(0, 0, False), wrap(0xFFFFFFFD + n)) for n, run in enumerate(runs))
    answered = frames.of_kind(stage.talk(conn, sent), Disposition)
    ids = {wrap(each.first + n) for each in answered
           for n in range(wrap((each.first if each.last is None else each.last) - each.first) + 1)}  # fmt: skip
    assert ids == {wrap(0xFFFFFFFD + n) for n in range(6)}
    assert all(each.state == Accepted() and each.settled for each in answered)
    assert stage.broker.store.queues["orders"].message_count == place


# -- what an attach says ----------------------------------------------------------------------------------------------


def test_answers_of_an_attach() -> None:
    stage = Stage(options_with(limits={"max_message_size_bytes": 4096}))
    conn = stage.accept()
    source = Source(address="orders", distribution_mode=Symbol("move"))
    attach = Attach(name="r", handle=5, role=True, snd_settle_mode=0, rcv_settle_mode=1, source=source, target=Target())
    said = stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender(handle=3)
                      + frames.frame(attach))  # fmt: skip
    to_us, from_us = frames.of_kind(said, Attach)
    assert (to_us.role, to_us.max_message_size, to_us.target.address) == (True, 4096, "orders")
    assert (from_us.role, from_us.initial_delivery_count, from_us.rcv_settle_mode) == (False, 0, 1)
    assert (from_us.name, from_us.source.address) == ("r", "orders")
    with_filter = replace(attach, name="f", handle=6, source=replace(source, filter={Symbol("selector"): "x"}))
    assert frames.errors(stage.talk(conn, frames.frame(with_filter))) == [("Detach", "amqp:not-implemented")]


def test_what_an_open_says() -> None:
    stage = Stage(options_with({"idle_timeout_ms": 5000}))
    conn = stage.accept()
    (open_,) = frames.of_kind(stage.talk(conn, frames.anonymous() + frames.opened()), Open)
    assert open_.idle_time_out == 2500, "half of what we allow: peers send at the last moment"
    assert open_.container_id == "stage"
