"""Queues and addresses: shown, made, paused, deleted, and what is told to whom."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp import events as told
from mqbroker.core.cluster.remote_binding import RemoteBinding
from mqbroker.wire.performatives import Attach, Flow, Source, Target
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

from tests.support.stage import Talker
from tests.unit.admin.site import Site

NODE = "n" * 36


def consumer(site: Site, queue: str, credit: int = 10) -> Talker:
    """A client that consumes from a queue."""
    talker = site.stage.connect(f"c-{queue}")
    assert talker.session is not None
    link = talker.session.attach_receiver(
        Attach(name="r", handle=0, role=True, source=Source(address=queue), target=Target())
    )
    site.stage.run()
    link.grant(credit)
    site.stage.run()
    return talker


def detached(talker: Talker) -> list[str]:
    return [str(event.error.condition) for event in talker.events if isinstance(event, told.Detached) and event.error]


@pytest.mark.parametrize("target", ["orders", "orders::orders"])
def test_who_sends_to_a_queue_that_was_deleted_loses_nothing(target: str) -> None:
    site = Site({"#": {"auto_create_queues": False}})
    site.do("queue-create", name="orders")
    talker = site.stage.connect("p")
    assert talker.session is not None
    link = talker.session.attach_sender(
        Attach(name="s", handle=0, role=False, source=Source(), target=Target(address=target), initial_delivery_count=0)
    )
    site.stage.run()
    site.do("queue-delete", name="orders")
    link.session.send_run(link, single(build_message("lost?", durable=True)), 0, 1, "lost?")
    site.stage.run()
    assert [event for event in talker.events if isinstance(event, told.Settled)] == []
    assert detached(talker) == ["amqp:not-found"]
    assert site.counts() == {}


def test_a_queue_says_since_when_it_counts() -> None:
    site = Site()

    def since_ms() -> int:
        (row,) = site.do("queues")["queues"]
        return int(row["counted_from_ms"])

    site.do("queue-create", name="orders")
    made_ms = site.stage.at.wall_ms
    site.stage.wait(5)
    assert since_ms() == made_ms
    site.do("queue-delete", name="orders")
    site.do("queue-create", name="orders")
    assert since_ms() == made_ms + 5, "it is another queue"
    site.stage.wait(5)
    site.restart()
    assert since_ms() == made_ms + 10, "totals begin anew with the process"


# -- make and show ----------------------------------------------------------------------------------------------------

ALL = {
    "max_consumers": 3, "exclusive": True, "last_value": True, "non_destructive": True, "ring_size": 10,
    "consumers_before_dispatch": 2, "delay_before_dispatch_ms": 50, "group_rebalance": True, "group_buckets": 4,
    "purge_on_no_consumers": True, "selector": "a = 1", "paused": True, "last_value_key": "code",
    "group_first_key": "first",
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_every_attribute_can_be_chosen_and_survives_a_restart(name: str) -> None:
    site = Site()
    site.do("queue-create", name="plain", address="shop")
    site.do("queue-create", name="special", address="shop", routing_type="multicast", **{name: ALL[name]})
    site.restart()
    plain, special = site.do("queue-show", name="plain"), site.do("queue-show", name="special")
    differing = {key for key in plain if plain[key] != special[key]}
    assert differing == {"name", "routing_type", name} | ({"last_value"} if name == "last_value_key" else set())
    assert special[name] == ALL[name]


def test_what_is_not_said_is_as_the_settings_of_the_address_say() -> None:
    site = Site({"orders.#": {"default_max_consumers": 2, "default_ring_size": 7}})
    site.do("queue-create", name="q", address="orders.eu", ring_size=9)
    shown = site.do("queue-show", name="q")
    assert (shown["max_consumers"], shown["ring_size"], shown["auto_created"]) == (2, 9, False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "'name' is missing"),
        ({"name": ""}, "1 to 1024 characters"),
        ({"name": "q", "routing_type": "any"}, "is one of anycast, multicast, not 'any'"),
        ({"name": "q", "durable": 1}, "'durable' must be bool"),
        ({"name": "q", "ring_size": "9"}, "'ring_size' must be int"),
        ({"name": "q", "max_consumers": -2}, "'max_consumers' is a whole number from -1 to 9007199254740992"),
        (
            {"name": "q", "consumers_before_dispatch": -1},
            "'consumers_before_dispatch' is a whole number from 0 to 9007199254740992",
        ),
        ({"name": "q", "selector": "a = "}, "column"),
        ({"name": "q", "colour": "red"}, "unknown argument 'colour'"),
        ({"name": "shop::orders"}, "no name has ::"),
        ({"name": "orders", "address": "shop::orders"}, "no name has ::"),
        ({"name": "there"}, "queue 'there' exists"),
    ],
)
def test_a_queue_that_cannot_be_made(arguments: dict[str, Any], said: str) -> None:
    site = Site()
    site.do("queue-create", name="there")
    assert said in site.refused("queue-create", **arguments)[1]
    assert site.counts() == {"there": 0}


def test_addresses_with_their_queues_and_counts() -> None:
    site = Site()
    site.do("queue-create", name="a", address="news", routing_type="multicast")
    site.do("queue-create", name="b", address="news", routing_type="multicast", selector="x = 1")
    site.do("queue-create", name="c", address="news")
    site.send("news", "one")
    (row,) = site.do("addresses")["addresses"]
    assert row == {
        "name": "news", "routing_types": ["anycast", "multicast"], "queues": ["a", "b", "c"], "message_count": 2,
        "paged_count": 0, "paging": False, "can_page": True, "bytes": None, "paused": False, "auto_created": True,
        "configured": False, "routed": 1, "unrouted": 0,
    }  # fmt: skip
    shown = site.do("address-show", name="news")
    assert [(queue["name"], queue["message_count"]) for queue in shown["queues"]] == [("a", 1), ("b", 0), ("c", 1)]
    assert site.refused("address-show", name="nowhere")[0] == "amqp:not-found"


def test_settings_of_an_address_say_which_match_they_come_from() -> None:
    site = Site({"#": {"max_delivery_attempts": 3, "redelivery_delay": 5}, "orders.*": {"redelivery_delay": 9}})
    shown = site.do("address-settings-show", address="orders.eu")
    assert shown["matches"] == ["#", "orders.*"]
    said = {row["setting"]: (row["value"], row["match"]) for row in shown["settings"]}
    assert said["max-delivery-attempts"] == (3, "#")
    assert said["redelivery-delay"] == (9, "orders.*")
    assert said["auto-create-queues"] == (True, "")


# -- pause ------------------------------------------------------------------------------------------------------------


def test_a_paused_queue_hands_out_nothing_also_after_a_restart() -> None:
    site = Site()
    site.send("orders", "one")
    assert site.do("queue-pause", name="orders") == {"name": "orders", "paused": True, "changed": True}
    assert site.do("queue-pause", name="orders")["changed"] is False
    assert site.take("orders") == []
    site.restart()
    assert site.do("queue-show", name="orders")["paused"] is True
    site.send("orders", "two")
    assert site.take("orders") == []
    assert site.do("queue-resume", name="orders")["changed"] is True
    assert [message["body"] for message in site.take("orders")] == ["one", "two"]
    site.restart()
    assert site.do("queue-show", name="orders")["paused"] is False


def test_a_resumed_queue_serves_those_who_waited() -> None:
    site = Site()
    site.do("queue-create", name="orders", paused=True)
    talker = consumer(site, "orders")
    site.send("orders", "one")
    assert not [event for event in talker.events if isinstance(event, told.Incoming)]
    site.do("queue-resume", name="orders")
    assert [event.run.count for event in talker.events if isinstance(event, told.Incoming)] == [1]


def test_who_drains_a_paused_queue_is_told_that_nothing_comes() -> None:
    site = Site()
    site.send("orders", "one")
    site.do("queue-pause", name="orders")
    talker = consumer(site, "orders", credit=0)
    assert talker.session is not None
    (link,) = talker.session.by_handle.values()
    talker.session.send(Flow(next_incoming_id=0, incoming_window=100, next_outgoing_id=0, outgoing_window=100,
                             handle=link.handle, delivery_count=0, link_credit=5, drain=True))  # fmt: skip
    site.stage.run()
    (peer,) = site.stage.broker.peers.values()
    (ours,) = peer.connection.sessions[0].by_handle.values()
    assert (ours.credit, ours.delivery_count) == (0, 5)


def test_the_answer_to_a_pause_waits_for_the_disk() -> None:
    site = Site()
    site.do("queue-create", name="orders")
    site.stage.is_disk_held = True
    request = site.stage.ask("queue-pause", name="orders")
    assert request not in site.stage.replies
    site.restart()
    assert site.do("queue-show", name="orders")["paused"] is False


# -- delete -----------------------------------------------------------------------------------------------------------


def test_delete_drops_the_messages() -> None:
    site = Site()
    site.send("orders", "one", "two")
    assert site.do("queue-delete", name="orders") == {"name": "orders", "messages": 2}
    assert site.do("addresses") == {"addresses": []}
    site.restart()
    assert site.counts() == {}


def test_a_queue_in_use_stays_unless_it_is_forced() -> None:
    site = Site()
    site.send("orders", "one", "two", "three")
    talker = consumer(site, "orders", credit=1)
    condition, why = site.refused("queue-delete", name="orders")
    assert (condition, "use force" in why) == ("amqp:precondition-failed", True)
    assert site.do("queue-delete", name="orders", force=True) == {"name": "orders", "messages": 3}
    assert detached(talker) == ["amqp:resource-deleted"]
    assert not talker.is_closed
    site.restart()
    assert site.counts() == {}


@pytest.mark.parametrize("operation", ["queue-delete", "queue-purge"])
@pytest.mark.parametrize("force", [{}, {"force": True}])
def test_what_another_node_is_owed_is_not_dropped_by_mistake(operation: str, force: dict[str, bool]) -> None:
    site = Site()
    store = site.stage.broker.store
    binding = RemoteBinding("orders", "orders", "anycast", "", NODE, NODE, 1)
    binding.consumer_created("")
    store.remotes.connection("c").add(binding)
    site.send("orders", "one")
    (queue,) = store.remotes.queues_of(NODE)
    force = force if operation == "queue-delete" else {}
    condition, why = site.refused(operation, name=queue.kind.name, **force)
    assert condition == "amqp:precondition-failed"
    assert "cluster forget" in why
    assert site.counts()[queue.kind.name] == 1
    answer = site.do(operation, name=queue.kind.name, store_and_forward=True, **force)
    assert 1 in answer.values()


@pytest.mark.parametrize("said", [("messages-move", {"address": "elsewhere"}), ("dead-letters-retry", {})])
def test_what_another_node_may_have_is_not_moved(said: tuple[str, dict[str, str]]) -> None:
    operation, more = said
    site = Site()
    store = site.stage.broker.store
    binding = RemoteBinding("orders", "orders", "anycast", "", NODE, NODE, 1)
    binding.consumer_created("")
    store.remotes.connection("c").add(binding)
    site.do("queue-create", name="elsewhere")
    site.send("orders", "one")
    (queue,) = store.remotes.queues_of(NODE)
    condition, why = site.refused(operation, queue=queue.kind.name, **more)
    assert (condition, "cluster forget" in why) == ("amqp:precondition-failed", True)
    assert (site.counts()[queue.kind.name], site.counts().get("elsewhere", 0)) == (1, 0)


def test_force_ends_the_receives_of_administrators_too() -> None:
    site = Site()
    site.send("orders", "one")
    site.take("orders")
    site.do("queue-create", name="empty")
    waiting = site.stage.ask("receive", 4, address="empty", wait_ms=1000)
    assert site.refused("queue-delete", name="orders")[0] == "amqp:precondition-failed"
    assert site.do("queue-delete", name="orders", force=True)["messages"] == 1
    assert site.do("queue-delete", name="empty", force=True)["messages"] == 0
    error = site.stage.replies[waiting].error
    assert error is not None
    assert error["condition"] == "amqp:resource-deleted"


def test_a_consumer_that_waits_for_the_disk_is_detached_as_well() -> None:
    site = Site()
    site.do("queue-create", name="orders")
    site.stage.is_disk_held = True
    talker = consumer(site, "orders")
    request = site.stage.ask("queue-delete", name="orders", force=True)
    site.stage.is_disk_held = False
    site.stage.run()
    assert site.stage.replies[request].result == {"name": "orders", "messages": 0}
    assert detached(talker) == ["amqp:resource-deleted"]
    assert site.counts() == {}


# -- audit ------------------------------------------------------------------------------------------------------------


def test_what_changes_something_leaves_a_notice_with_its_outcome() -> None:
    site = Site()
    secret = "canary-body"
    site.send("orders", secret)
    site.do("queue-pause", name="orders")
    site.refused("queue-delete", name="nowhere")
    site.do("queues")
    notices = [notice.fields for notice in site.stage.notices if notice.event == "admin"]
    assert notices == [
        {"session": 1, "operation": "send", "address": "orders", "outcome": "done"},
        {"session": 1, "operation": "queue-pause", "name": "orders", "outcome": "done"},
        {"session": 1, "operation": "queue-delete", "name": "nowhere", "outcome": "amqp:not-found"},
    ]
    assert secret not in str(site.stage.notices)


def test_an_audit_names_what_was_meant() -> None:
    site = Site()
    site.refused("cluster-forget", node_id="node-7", action="drop")
    site.refused("queue-delete", name="\ud800", force=True)
    notices = [notice.fields for notice in site.stage.notices if notice.event == "admin"]
    assert [(one.get("node_id"), one.get("action"), one.get("force")) for one in notices] == [
        ("node-7", "drop", None), (None, None, True),
    ]  # fmt: skip
