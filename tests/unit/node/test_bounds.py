"""What one step may do, how many consumers there may be, and messages that are too large for one consumer."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.node.amqp.peers.peer import OUT_BYTES_MAX, OUT_BYTES_MIN
from mqbroker.node.broker.broker import DISPATCH_MAX, PIECE_COST
from mqbroker.node.values import inputs as given
from mqbroker.node.values.effects import Send
from mqbroker.wire.frames import AMQP_HEADER
from mqbroker.wire.performatives import Attach, Close, End, Flow, Open, Source, Target, Transfer
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with

GO = frames.anonymous() + frames.opened() + frames.begun(incoming_window=1 << 30)


FIRST, RUN = 1000, 100  # ids of which all are spelt alike, and how many messages come in one piece


def filled(count: int, size: int) -> Stage:
    stage = Stage()
    sender = stage.accept()
    stage.talk(sender, GO + frames.sender())
    for start in range(FIRST, FIRST + count, RUN):
        numbers = range(start, min(start + RUN, FIRST + count))
        stage.talk(sender, b"".join(frames.transfer(number, b"x" * size, settled=True) for number in numbers))
    stage.drop_bare(sender)
    assert stage.broker.store.queues["orders"].ready_count == count
    return stage


def sent_by_step(stage: Stage) -> list[int]:
    """Bytes of each Send of the latest conversation."""
    return [
        sum(map(len, effect.chunks)) for batch in stage.batches for effect in batch.effects if isinstance(effect, Send)
    ]


def transfers(data: bytes) -> int:
    return sum(isinstance(each, tuple) and isinstance(each[0], Transfer) for each in frames.heard(data))


def test_names_that_a_peer_gives_are_bounded() -> None:
    """Each link keeps its own, and a connection may have a quarter of a million links."""
    stage = Stage()
    conn = stage.accept()
    said = stage.talk(conn, GO + frames.sender(name="n" * 2048) + frames.sender(name="n" * 2049, handle=1))
    ended = [each for each in frames.heard(said) if isinstance(each, End)]
    assert [(one.error.condition, one.error.description) for one in ended] == [
        ("amqp:invalid-field", "a link's name has 2049 characters, at most 2048 are possible")
    ]
    said = stage.talk(stage.accept(), frames.anonymous() + frames.opened(container_id="c" * 1025))
    closed = [each for each in frames.heard(said) if isinstance(each, Close)]
    assert [one.error.description for one in closed] == [
        "the container id has 1025 characters, at most 1024 are possible"
    ]


def test_what_a_peer_says_of_itself_is_not_kept() -> None:
    stage = Stage()
    said = {Symbol("many"): [[] for _ in range(1000)]}
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + AMQP_HEADER + frames.frame(Open(container_id="c", properties=said)))
    assert stage.broker.peers[conn].connection.peer_open == Open(container_id="c")


@pytest.mark.parametrize("is_redelivery", [False, True])
def test_one_step_makes_no_more_than_its_share_of_output(is_redelivery: bool) -> None:
    stage = filled(5000, 3000)
    if is_redelivery:
        first = stage.accept()
        stage.talk(first, GO + frames.receiver(credit=5000))
        stage.drop_bare(first)
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver())
    stage.batches.clear()
    said = stage.talk(conn, frames.flow(1, 100_000, window=1 << 30))
    assert transfers(said) == 5000
    assert max(sent_by_step(stage)) < OUT_BYTES_MIN + 200_000
    assert len(sent_by_step(stage)) > 3


def test_who_reads_is_given_more_at_once() -> None:
    stage = filled(5000, 3000)
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver())
    largest = []
    for credit in (500, 1500, 4500):
        stage.batches.clear()
        stage.talk(conn, frames.flow(1, credit, window=1 << 30))
        largest.append(max(sent_by_step(stage)))
        for is_blocked in (True, False, True, False):
            stage.give(given.WriteBlocked(conn, is_blocked))
            stage.run()
    assert largest[0] < OUT_BYTES_MIN + 200_000
    assert 3 * OUT_BYTES_MIN < largest[1] < 4 * OUT_BYTES_MIN + 200_000
    assert largest[1] < largest[2] <= OUT_BYTES_MAX + 200_000


def test_a_blocked_connection_is_passed_over_until_it_is_free() -> None:
    stage = filled(10, 10)
    conn = stage.accept()
    stage.talk(conn, GO + frames.receiver())
    stage.give(given.WriteBlocked(conn, True))
    assert transfers(stage.talk(conn, frames.flow(1, 100))) == 0
    before = len(stage.sent[conn])
    stage.give(given.WriteBlocked(conn, False))
    stage.run()
    assert transfers(bytes(stage.sent[conn][before:])) == 10


READERS = 1000
BROWSING = Attach(name="r", handle=1, role=True, snd_settle_mode=1, target=Target(),
                  source=Source(address="orders", distribution_mode=Symbol("copy")))  # fmt: skip


def with_bystanders(count: int, size: int) -> tuple[Stage, int, int]:
    """A node with messages in `orders`, and a sender to and a receiver of `others`, apart from them."""
    stage = filled(count, size)
    sender, receiver = stage.accept(), stage.accept()
    stage.talk(receiver, GO + frames.receiver("others", credit=1000))
    stage.talk(sender, GO + frames.sender("others"))
    return stage, sender, receiver


def steps_of(stage: Stage) -> list[dict[int, int]]:
    """For each step so far, the messages that it sent, by connection."""
    steps = []
    for batch in stage.batches:
        sent = {each.conn: transfers(b"".join(each.chunks)) for each in batch.effects if isinstance(each, Send)}
        steps.append({conn: count for conn, count in sent.items() if count})
    return steps


def steps_of_messages(stage: Stage, sender: int, count: int) -> list[dict[int, int]]:
    """The steps in which so many messages go from the sender to the receiver, one after the other."""
    stage.batches.clear()
    for number in range(count):
        stage.talk(sender, frames.transfer(number + 1, b"x"))
    return steps_of(stage)


@pytest.mark.slow
def test_readers_that_do_not_read_take_no_steps_of_others() -> None:
    """What a bystander is sent, and in which step, is the same with a thousand of them as with none."""
    alone, sender, receiver = with_bystanders(400, 8000)
    stage, *same = with_bystanders(400, 8000)
    assert same == [sender, receiver]
    readers = [stage.accept() for _ in range(READERS)]
    for conn in readers:
        stage.talk(conn, GO + frames.frame(BROWSING))
    stage.batches.clear()
    # All ask in one step for all that there is, and the bystander's message comes last. Their transports are full after
    # the first bytes, and say so before the next step.
    asked = [given.BytesReceived(conn, frames.flow(1, 100_000, window=1 << 30)) for conn in readers]
    first = stage.broker.step([*asked, given.BytesReceived(sender, frames.transfer(0, b"x"))], stage.at)
    second = stage.broker.step([given.WriteBlocked(conn, True) for conn in readers], stage.at)
    stage.batches += [first, second]
    assert max(sent_by_step(stage)) < OUT_BYTES_MIN + 200_000
    burst, after = steps_of(stage)
    pieces_max = DISPATCH_MAX // PIECE_COST
    assert pieces_max // 2 < burst.pop(receiver, 0) + sum(burst.values()) <= pieces_max
    assert after.pop(receiver, 0) + steps_of(stage)[0].get(receiver, 0) == 1, "one step of theirs comes before it"
    assert after == {}, "who does not read gets nothing more"
    alone.talk(sender, frames.transfer(0, b"x"))
    stage.run()
    steps = steps_of_messages(stage, sender, 50)
    assert steps == steps_of_messages(alone, sender, 50)
    assert sum(step.get(receiver, 0) for step in steps) == 50


@pytest.mark.option("limits.consumers-per-queue-max")
@pytest.mark.parametrize("bound", [1, 3])
@pytest.mark.parametrize("is_one_read", [False, True])
def test_consumers_of_a_queue_are_bounded(bound: int, is_one_read: bool) -> None:
    """Also while the first of them still wait for the disk."""
    stage = Stage(options_with(limits={"consumers_per_queue_max": bound}))
    stage.is_disk_held = True
    conn = stage.accept()
    attaches = [frames.receiver(handle=handle) for handle in range(bound + 2)]
    said = stage.talk(conn, GO)
    for part in [b"".join(attaches)] if is_one_read else attaches:
        said += stage.talk(conn, part)
    assert frames.errors(said) == [("Detach", "amqp:resource-limit-exceeded")] * 2
    assert sum(each.source is not None for each in frames.of_kind(said, Attach)) == bound
    stage.is_disk_held = False
    stage.run()
    assert stage.admin("queues")["queues"][0]["consumer_count"] == bound
    stage.talk(conn, frames.detach(0))
    assert frames.errors(stage.talk(conn, frames.receiver(handle=100))) == []


def test_a_consumer_is_sent_what_fits_before_what_does_not() -> None:
    stage = Stage()
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender())
    stage.talk(conn, b"".join(frames.transfer(n, b"y" * size) for n, size in enumerate((50, 60, 5000, 50))))
    said = stage.talk(conn, frames.receiver(max_message_size=1000, credit=10))
    assert transfers(said) == 2
    assert frames.errors(said) == [("Detach", "amqp:link:message-size-exceeded")]
    other = stage.accept()
    assert transfers(stage.talk(other, GO + frames.receiver(credit=10))) == 4, (
        "all came back without the first's answer"
    )


def test_messages_in_one_read_are_taken_up_to_the_one_that_is_too_large() -> None:
    stage = Stage(options_with(limits={"max_message_size_bytes": 1024}))
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender())
    said = stage.talk(conn, b"".join(frames.transfer(n, b"y" * size) for n, size in enumerate((50, 60, 5000, 50))))
    assert frames.errors(said) == [("Detach", "amqp:link:message-size-exceeded")]
    assert stage.admin("queues")["queues"][0]["message_count"] == 2


@pytest.mark.option("limits.global-max-size-bytes")
@pytest.mark.parametrize("is_settled", [False, True])
def test_a_full_node_refuses_and_gives_credit_when_there_is_room(is_settled: bool) -> None:
    limits = {"global_max_size_bytes": 10_000, "link_credit": 4}
    stage = Stage(options_with(limits=limits, address_settings={"#": {"address_full_policy": "BLOCK"}}))
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender())
    for number in range(3):
        stage.talk(conn, frames.transfer(number, b"z" * 5000, settled=False))
    assert stage.broker.store.memory.is_full is True
    said = stage.talk(conn, frames.transfer(3, b"z" * 5000, settled=is_settled))
    if is_settled:
        assert frames.errors(said) == [("Detach", "amqp:resource-limit-exceeded")]
        return
    row = stage.admin("queues")["queues"][0]
    assert row["message_count"] == 2
    assert frames.of_kind(said, Flow) == []
    before = len(stage.sent[conn])
    answer = stage.admin("receive", address="orders", count_max=10)
    assert [len(message["body"]) for message in answer["messages"]] == [5000, 5000]
    stage.admin("settle", tag=answer["tag"])
    assert [each.link_credit for each in frames.of_kind(bytes(stage.sent[conn][before:]), Flow)] == [4]


@pytest.mark.parametrize("policy", ["BLOCK", "PAGE"])
def test_a_disk_that_is_nearly_full_takes_nothing_in_and_gives_everything_out(policy: str) -> None:
    stage = Stage(options_with(limits={"link_credit": 4}, address_settings={"#": {"address_full_policy": policy}}))
    conn = stage.accept()
    stage.talk(conn, GO + frames.sender())
    stage.talk(conn, frames.transfer(0, b"first", settled=False))
    stage.give(given.JournalSpace(True, 1000))
    stage.run()
    before = len(stage.sent[conn])
    said = stage.talk(conn, b"".join(frames.transfer(n, b"more", settled=False) for n in (1, 2, 3)))
    assert frames.of_kind(said, Flow) == []
    refused = stage.admin("send", address="orders", messages=[{"body": "more"}])
    assert "the disk is nearly full" in refused["description"]
    assert stage.admin("queues")["queues"][0]["message_count"] == 1
    answer = stage.admin("receive", address="orders")
    assert stage.admin("settle", tag=answer["tag"]) == {}
    stage.give(given.JournalSpace(False, 1 << 40))
    stage.run()
    assert frames.of_kind(bytes(stage.sent[conn][before:]), Flow)[-1].link_credit == 4
    assert stage.admin("send", address="orders", messages=[{"body": "more"}]) == {"accepted": 1}
    assert [notice.event for notice in stage.notices if notice.event.startswith("disk")] == [
        "disk-nearly-full", "disk-has-room",
    ]  # fmt: skip


# -- admin ------------------------------------------------------------------------------------------------------------

BAD: list[tuple[str, dict[str, Any]]] = [
    ("nothing", {}), ("send", {}), ("send", {"address": 5, "messages": []}), ("send", {"address": "a", "messages": {}}),
    ("send", {"address": "a", "messages": [5]}), ("send", {"address": "a", "messages": [{}]}),
    ("send", {"address": "a", "messages": [{"body": "x", "body_base64": "eA=="}]}),
    ("send", {"address": "a", "messages": [{"body_base64": "!"}]}),
    ("send", {"address": "a", "messages": [{"body": "x", "properties": {"nonsense": 1}}]}),
    ("send", {"address": "a", "messages": [{"body": "x", "properties": [1]}]}),
    ("send", {"address": "a", "messages": [{"body": "x", "properties": {"subject": 5}}]}),
    ("send", {"address": "a", "messages": [{"body": "x", "application_properties": [1]}]}),
    ("send", {"address": "a", "messages": [{"body": "x", "application_properties": {"a": {"b": 1}}}]}),
    ("send", {"address": "a", "messages": [{"body": "x", "application_properties": {"a": 1 << 70}}]}),
    ("send", {"address": "a", "messages": [{"body": "\ud800"}]}),
    ("send", {"address": "a", "messages": [{"body": None}]}),
    ("send", {"address": "a", "messages": [{"body": "x", "properties": {"message_id": {"a": 1}}}]}),
    ("send", {"address": "a", "messages": [{"body": "x", "properties": {"correlation_id": True}}]}),
    ("send", {"address": "a", "messages": [{"body": "x", "ttl": 5}]}),
    ("send", {"address": "\ud800", "messages": [{"body": "x"}]}),
    ("send", {"address": "", "messages": [{"body": "x"}]}),
    ("receive", {}),
    ("receive", {"address": "a", "count_max": 0}), ("receive", {"address": "a", "count_max": "1"}),
    ("receive", {"address": "a", "count_max": True}), ("receive", {"address": "a", "wait_ms": -1}),
    ("receive", {"address": "a", "wait_ms": 60_001}), ("receive", {"address": "x" * 2000}),
    ("settle", {}), ("settle", {"tag": 1}), ("settle", {"tag": "1"}), ("settle", {"tag": 1, "outcome": "eaten"}),
    ("queue-create", {}), ("queue-create", {"name": ""}), ("queue-create", {"name": "a", "routing_type": "x"}),
    ("queue-create", {"name": "a", "durable": "yes"}), ("queue-create", {"name": "a", "address": ""}),
    ("queue-create", {"name": "\ud800"}), ("address-create", {"name": "\ud800"}), ("\ud800", {}),
    ("queues", {"\udc00": 1}), ("connection-close", {"user": "\ud800"}),
]  # fmt: skip


@pytest.mark.parametrize(("operation", "arguments"), BAD)
def test_a_wrong_request_is_an_answer_and_changes_nothing(operation: str, arguments: dict[str, Any]) -> None:
    stage = Stage()
    answer = stage.admin(operation, **arguments)
    assert set(answer) == {"condition", "description"}
    assert answer["condition"] in ("amqp:invalid-field", "amqp:not-found", "amqp:decode-error")
    assert answer["description"]
    assert sum(row["message_count"] for row in stage.admin("queues")["queues"]) == 0
    assert stage.broker.store.memory.held_bytes == 0


@pytest.mark.parametrize("operation", ["queue-delete", "queue-pause", "queue-resume", "send", "receive", "settle"])
def test_a_word_that_does_nothing_is_named(operation: str) -> None:
    assert "unknown argument 'forced'" in Stage().admin(operation, forced=True)["description"]


def test_a_send_with_one_bad_message_sends_none() -> None:
    stage = Stage(options_with(limits={"max_message_size_bytes": 1024}))
    answer = stage.admin("send", address="orders", messages=[{"body": "fine"}, {"body": "x" * 2000}])
    assert answer["condition"] == "amqp:link:message-size-exceeded"
    assert sum(row["message_count"] for row in stage.admin("queues")["queues"]) == 0


def test_nothing_is_taken_in_while_the_node_stops() -> None:
    stage = Stage()
    stage.is_disk_held = True
    stage.ask("send", address="orders", messages=[{"body": "x"}])
    stage.give(given.Stop())
    stage.run()
    for operation, arguments in (("send", {"address": "a", "messages": [{"body": "x"}]}), ("receive", {"address": "a"}),
                                 ("queue-create", {"name": "a"}), ("settle", {"tag": 1})):  # fmt: skip
        answer = stage.admin(operation, **arguments)
        assert answer["condition"] == "amqp:connection:forced"
    assert stage.admin("status")["state"] == "stopping"
    stage.is_disk_held = False
    stage.run()
    assert stage.halted == 0
    stage.start()
    assert stage.admin("queues")["queues"][0]["message_count"] == 1


def test_tags_that_are_not_settled_are_bounded_and_answers_too() -> None:
    stage = Stage()
    stage.admin("send", address="orders", messages=[{"body": "x" * 100_000, "durable": False}] * 200)
    answer = stage.admin("receive", address="orders", count_max=1000)
    assert 40 <= len(answer["messages"]) <= 43, "4 MiB in one answer"
    for _ in range(63):
        stage.admin("receive", address="orders", count_max=1)
    assert stage.admin("receive", address="orders")["condition"] == "amqp:resource-limit-exceeded"


def test_a_drain_that_came_before_the_disk_was_ready_is_answered_by_it() -> None:
    """The consumer waits for the disk, and the step that lets it in has nothing else for its connection."""
    stage = Stage()
    stage.is_disk_held = True
    conn = stage.accept()
    said = stage.talk(conn, GO + frames.receiver() + frames.flow(1, 10, drain=True))
    assert frames.of_kind(said, Flow) == []
    before = len(stage.sent[conn])
    stage.is_disk_held = False
    stage.run()
    (answer,) = frames.of_kind(bytes(stage.sent[conn][before:]), Flow)
    assert (answer.link_credit, answer.delivery_count) == (0, 10)
