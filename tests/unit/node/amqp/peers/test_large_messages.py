"""Files of large messages through restarts and everything that can happen to a message: none lost, none left behind."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.base.errors import StorageFault
from mqbroker.core.queue.message_view import MessageView
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Accepted, Modified
from mqbroker.wire.scan import DATA
from mqbroker.wire.sections import Header, Properties, build_message, decode_header, encode_section
from mqbroker.wire.types import Described, Symbol

from tests.support import frames
from tests.support.large_messages import (
    BIG,
    Consumer,
    Producer,
    content,
    header_of,
    is_clean,
    pieces,
    restart,
    stage_of,
)
from tests.support.stage import options_with
from tests.support.transactions import coordinator_attach, declare, discharge, post


def test_a_subscription_without_its_own_messages_is_not_given_large_ones_either() -> None:
    stage = stage_of()
    terms = {"address": "news", "source": {"capabilities": (Symbol("topic"),)}}
    no_local = {Symbol("no-local"): Described(Symbol("apache.org:no-local-filter:list"), [])}
    own, other = Consumer(stage, "app", filter=no_local, **terms), Consumer(stage, "web", **terms)
    Producer(stage, "app", "news").publish(content(1))
    assert (own.bodies, other.bodies) == ([], [content(1)])


# -- restarts ---------------------------------------------------------------------------------------------------------


def test_after_a_crash_the_durable_ones_are_there_and_no_file_too_many() -> None:
    stage = stage_of()
    producer = Producer(stage)
    producer.publish(content(1))
    producer.publish(content(2), durable=False)
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender())
    stage.talk(conn, pieces(build_message(content(3), durable=True), 500, end=20_000))
    assert len(stage.large_files.sizes) == 3
    restart(stage)
    assert len(stage.large_files.sizes) == 1
    consumer = Consumer(stage)
    assert consumer.bodies == [content(1)]
    Producer(stage).publish(content(4))
    assert consumer.bodies == [content(1), content(4)]
    consumer.settle(0)
    consumer.settle(1)
    assert is_clean(stage)


def test_a_file_outlives_a_settlement_that_is_not_on_disk() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1))
    consumer = Consumer(stage)
    stage.is_disk_held = True
    consumer.settle(0)
    assert len(stage.large_files.sizes) == 1
    restart(stage)
    stage.is_disk_held = False
    stage.run()
    again = Consumer(stage)
    assert again.bodies == [content(1)]
    assert header_of(again.incoming[0]).delivery_count == 1
    again.settle(0)
    assert is_clean(stage)
    restart(stage)
    assert Consumer(stage).bodies == []


def test_a_crash_between_file_and_journal_leaves_neither() -> None:
    stage = stage_of()
    producer = Producer(stage)
    stage.is_disk_held = True
    producer.publish(content(1))
    assert len(stage.large_files.sizes) == 1
    restart(stage)
    assert is_clean(stage)


@pytest.mark.parametrize("unless", [{"journal_on_damage": "truncate"}, {"journal_sync": False}])
def test_a_file_that_is_gone_stops_the_start_unless_damage_is_given_up_or_nothing_is_synced(unless: Any) -> None:
    stage = stage_of()
    producer = Producer(stage)
    producer.publish(content(1))
    producer.publish(b"small")
    (file,) = stage.large_files.sizes
    stage.crash()
    del stage.large_files._files[file]
    with pytest.raises(StorageFault, match=rf"large-messages/{file}.msg.* and is not there; .*truncate"):
        stage.start()
    stage.options = options_with(journal=unless)
    stage.start()
    assert [notice.event for notice in stage.notices if "large" in notice.event] == ["large-message-given-up"]
    assert Consumer(stage).bodies == [b"small"]
    stage.options = options_with()
    restart(stage)


def test_a_file_that_was_cut_short_stops_the_start() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1))
    (file,) = stage.large_files.sizes
    stage.crash()
    del stage.large_files._files[file].cached[-1:]
    with pytest.raises(StorageFault, match="and has "):
        stage.start()


def test_compaction_keeps_it() -> None:
    journal = {"journal_file_size_bytes": 65536, "journal_compact_min_files": 3, "journal_compact_percentage": 30}
    stage = stage_of(journal=journal)
    Producer(stage).publish(content(1))
    filler, sink = Producer(stage, "filler", "filler"), Consumer(stage, "sink", "filler", credit=1000)
    for number in range(300):
        filler.publish(bytes(1500))
        sink.settle(number)
    assert stage.broker.journal.segments_count < 4
    restart(stage)
    assert Consumer(stage).bodies == [content(1)]


# -- features ---------------------------------------------------------------------------------------------------------


def test_copies_share_the_file_until_the_last_is_settled() -> None:
    stage = stage_of()
    topic = {"source": {"capabilities": (Symbol("topic"),)}}
    consumers = [Consumer(stage, f"c{number}", "news", **topic) for number in range(2)]
    Producer(stage, address="news").publish(content(1))
    assert [each.bodies for each in consumers] == [[content(1)]] * 2
    consumers[0].settle(0)
    assert len(stage.large_files.sizes) == 1
    consumers[1].settle(0)
    assert is_clean(stage)


def test_a_browser_s_copy_outlives_the_message() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1))
    stage.is_large_held = True
    browser = Consumer(stage, "browser", source={"distribution_mode": Symbol("copy")})
    stage.admin("queue-purge", name="orders")
    stage.run()
    assert len(stage.large_files.sizes) == 1
    stage.is_large_held = False
    stage.run()
    assert browser.bodies == [content(1)]
    assert is_clean(stage)


def test_a_dead_letter_keeps_its_body() -> None:
    settings = {"orders": {"dead_letter_address": "dead", "max_delivery_attempts": 1}}
    stage = stage_of(address_settings=settings)
    producer, consumer = Producer(stage), Consumer(stage)
    producer.publish(content(1), application_properties={"key": "value"})
    consumer.settle(0, Modified(delivery_failed=True))
    restart(stage)
    dead = Consumer(stage, address="dead")
    assert dead.bodies == [content(1)]
    dead.settle(0)
    assert is_clean(stage)


def test_moves_and_retries_of_administrators_keep_the_body() -> None:
    settings = {"orders": {"dead_letter_address": "dead", "max_delivery_attempts": 1}}
    stage = stage_of(address_settings=settings)
    producer, consumer = Producer(stage), Consumer(stage, credit=1)
    producer.publish(content(1))
    consumer.settle(0, Modified(delivery_failed=True))
    assert stage.admin("dead-letters-retry", queue="dead") == {"retried": 1, "left": 0}
    stage.admin("queue-create", name="other", address="other")
    assert stage.admin("messages-move", queue="orders", address="other") == {"moved": 1, "left": 0}
    restart(stage)
    found = Consumer(stage, address="other")
    assert found.bodies == [content(1)]
    found.settle(0)
    assert is_clean(stage)


def test_selectors_look_at_the_head_and_the_size() -> None:
    stage = stage_of()
    producer = Producer(stage)
    for number in range(4):
        producer.publish(content(number), application_properties={"number": number})
    text = f"number > 1 AND AMQSize > {BIG}"
    selector = {Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), text)}
    assert Consumer(stage, filter=selector).bodies == [content(2), content(3)]


def test_one_of_a_transaction_stays_in_memory() -> None:
    stage = stage_of()
    producer = Producer(stage)
    session = producer.link.session
    coordinator = session.attach_sender(coordinator_attach())
    stage.run()
    declare(coordinator, "declare")
    stage.run()
    (declared,) = producer.outcomes
    post(producer.link, build_message(content(1), durable=True), "post", declared.txn_id)
    stage.run()
    assert is_clean(stage)
    discharge(coordinator, declared.txn_id, "discharge")
    stage.run()
    assert Consumer(stage).bodies == [content(1)]
    assert is_clean(stage)


def test_it_is_shown_without_its_body() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1))
    (row,) = stage.admin("browse", queue="orders")["messages"]
    assert row["body"] is None
    assert row["body_encoding"] == "omitted"
    assert row["size_bytes"] > BIG


def test_a_deleted_queue_takes_its_files_with_it() -> None:
    stage = stage_of()
    Producer(stage).publish(content(1))
    stage.is_disk_held = True
    stage.admin("queue-delete", name="orders")
    stage.run()
    assert len(stage.large_files.sizes) == 1, "the deletion of the queue is not on disk"
    stage.is_disk_held = False
    stage.run()
    assert is_clean(stage)


def test_administrators_receive_what_is_before_it_and_are_told_of_it() -> None:
    stage = stage_of()
    producer = Producer(stage)
    producer.publish(b"before")
    producer.publish(content(1))
    assert [row["body"] for row in stage.admin("receive", address="orders", count_max=10)["messages"]] == ["before"]
    answer = stage.admin("receive", address="orders", count_max=10)
    assert answer["condition"] == "amqp:not-implemented"
    assert "message 2 is large" in answer["description"]
    assert Consumer(stage).bodies == [content(1)]


@pytest.mark.option("address-settings.default-group-first-key")
@pytest.mark.parametrize(("key", "wanted"), [("first", [True, None, True]), ("", [None] * 3)])
def test_the_first_of_a_group_is_marked_as_any_other(key: str, wanted: list[bool | None]) -> None:
    stage = stage_of(address_settings={"#": {"default_group_first_key": key}})
    producer = Producer(stage)
    for number, group in enumerate("aab"):
        producer.publish(content(number), properties=Properties(group_id=group), application_properties={"n": number})
    for deliveries in (0, 1):
        consumer = Consumer(stage)
        views = [MessageView(bytes(event.run.payload(0))) for event in consumer.incoming]
        assert [view.value_of("first") for view in views] == wanted
        assert [view.value_of("n") for view in views] == [0, 1, 2]
        assert consumer.bodies == [content(number) for number in range(3)]
        assert {header_of(event).delivery_count or 0 for event in consumer.incoming} == {deliveries}
        stage.drop(consumer.talker)  # so they come again, with a count


@pytest.mark.parametrize("properties", [b"", b"\x00\x53\x73\x45"], ids=["body only", "properties"])
def test_no_transfer_of_it_is_empty_also_where_it_has_nothing_before_its_body(properties: bytes) -> None:
    stage, sent = stage_of(), properties + encode_section(DATA, content(1))
    producer = Producer(stage)
    assert producer.link.session.send_message(producer.link, [sent], "token")
    stage.run()
    conn = stage.accept()
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun())
    stage.talk(conn, frames.receiver("orders", handle=0, credit=1))
    stage.run()
    parts = [each[1] for each in frames.heard(bytes(stage.sent[conn])) if isinstance(each, tuple)]
    assert len(parts) > 1
    assert all(parts)
    got = b"".join(parts)
    assert got.endswith(sent)
    if not properties:
        assert decode_header(got, 0, len(got))[0] == Header()
    stage.talk(conn, frames.disposition(0, 0, Accepted()))
    assert is_clean(stage)


def test_what_waited_for_a_file_and_is_taken_in_then_has_its_socket_read_again() -> None:
    """Much of it waited, so the socket was not read; it is no turn that takes it in, but the end of the file."""
    stage = stage_of(frame_size=65536)
    producer = Producer(stage)
    stage.is_large_held = True
    for number, size in enumerate((400_000, 150_000)):
        producer.send(content(number, size))
    data = producer.talker.take_out()
    for at in range(0, len(data), 1 << 18):
        stage.give(given.BytesReceived(producer.talker.conn, data[at : at + (1 << 18)]))
        stage.run()
    peer = stage.broker.peers[producer.talker.conn]
    assert (peer.is_full, stage.paused[peer.conn]) == (True, True)
    stage.is_large_held = False
    stage.run()
    assert (peer.is_full, stage.paused[peer.conn]) == (False, False)
    assert len(producer.outcomes) == 2
