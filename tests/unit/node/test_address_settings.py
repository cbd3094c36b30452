"""Each address setting changes what happens at an address."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.base.errors import Refused
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.message_view import MessageView
from mqbroker.core.queue.queue import Filter, Queue, Segment
from mqbroker.node.values import inputs as given

from tests.golden.conversation import Conversation, ScriptStage
from tests.support import frames
from tests.support.stage import Stage, options_with


class Site:
    """A node with settings for all addresses but those of dead letters and expired messages."""

    def __init__(self, **settings: Any) -> None:
        self.stage = Stage(options_with(address_settings={"#": settings, "moved.#": {"expiry_delay": -1}}))

    def send(self, *bodies: str, to: str = "orders", **fields: Any) -> None:
        messages = [{"body": body, **fields} for body in bodies]
        assert self.stage.admin("send", address=to, messages=messages) == {"accepted": len(bodies)}

    def take(self, count: int = 1, of: str = "orders", session: int = 1) -> tuple[list[str], int | None]:
        """Bodies, and the tag under which they are in delivery."""
        request = self.stage.ask("receive", session, address=of, count_max=count, wait_ms=1)
        self.stage.wait(2)
        answer = self.stage.replies[request].result
        return [message["body"] for message in answer["messages"]], answer["tag"]

    def use(self) -> None:
        """The queue has had a message, which is gone."""
        self.send("used", durable=False)
        self.settle(self.take()[1])

    def settle(self, tag: int | None, outcome: str = "accepted", session: int = 1) -> None:
        assert self.stage.admin("settle", session, tag=tag, outcome=outcome) == {}

    def fail(self) -> str:
        """A delivery in vain; the body."""
        (body,), tag = self.take()
        self.settle(tag, "modified")
        return body

    def queues(self) -> dict[str, int]:
        return {row["name"]: row["message_count"] for row in self.stage.admin("queues")["queues"]}

    def annotations(self, of: str) -> dict[str, Any]:
        request = self.stage.ask("receive", address=of, wait_ms=1)
        self.stage.wait(2)
        (message,) = self.stage.replies[request].result["messages"]
        found: dict[str, Any] = message["message_annotations"]
        return found


# -- queues that come and go by themselves ----------------------------------------------------------------------------


@pytest.mark.option("address-settings.auto-delete-queues")
@pytest.mark.parametrize(("is_on", "left"), [(True, {}), (False, {"orders": 0})])
def test_a_used_and_empty_queue_is_deleted(is_on: bool, left: dict[str, int]) -> None:
    site = Site(auto_delete_queues=is_on)
    site.send("one")
    site.settle(site.take()[1])
    assert site.queues() == {"orders": 0}
    site.stage.wait(31_000)
    assert site.queues() == left


def test_a_queue_that_empties_by_itself_is_deleted_then() -> None:
    site = Site()
    site.send("short", "long", ttl_ms=100_000)
    site.settle(site.take()[1])
    site.stage.wait(60_000)
    assert site.queues() == {"orders": 1}
    site.stage.wait(41_000)
    assert site.queues() == {"orders": 0}  # who comes back at once finds it
    site.stage.wait(31_000)
    assert site.queues() == {}


def reload(site: Site, **settings: Any) -> None:
    site.stage.give(given.OptionsChanged(options_with(address_settings={"#": settings})))
    site.stage.run()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"auto_delete_queues": False}, {}),
        ({"auto_delete_queues_delay": 3_600_000}, {}),
        ({}, {"auto_delete_queues_message_count": 1}),
    ],
)
def test_a_reload_lets_queues_go_that_are_idle_already(before: dict[str, Any], after: dict[str, Any]) -> None:
    site = Site(**before)
    site.send(*["one", "two"][: 1 + len(after)])
    site.settle(site.take()[1])
    site.stage.wait(31_000)
    assert site.queues() == {"orders": len(after)}
    reload(site, **after)
    site.stage.wait(29_000)
    assert site.queues() == {"orders": len(after)}
    reload(site, **after)
    site.stage.wait(2_000)
    assert site.queues() == {}


def test_a_reload_lets_addresses_go_that_nobody_uses_already() -> None:
    site = Site(auto_delete_addresses=False)
    site.send("one")
    site.settle(site.take()[1])
    site.stage.wait(31_000)
    addresses = site.stage.broker.store.addresses
    assert list(addresses) == ["orders"]
    reload(site)
    site.stage.wait(31_000)
    assert list(addresses) == []


def test_a_reload_deletes_no_queue_that_is_to_stay_or_in_use() -> None:
    site = Site(auto_delete_queues=False)
    site.send("one", to="held")
    site.send("two", to="unused")
    site.take(of="held")
    site.send("three", to="kept")
    site.settle(site.take(of="kept", session=2)[1], session=2)
    reload(site, auto_delete_queues=False)
    site.stage.wait(100_000)
    assert site.queues() == {"held": 1, "unused": 1, "kept": 0}


def test_a_queue_that_nobody_used_or_somebody_made_stays() -> None:
    site = Site()
    site.send("one", to="unused")
    site.stage.admin("queue-create", name="made")
    site.take(of="made")
    site.stage.wait(100_000)
    assert site.queues() == {"unused": 1, "made": 0}


@pytest.mark.option("address-settings.auto-delete-created-queues")
@pytest.mark.parametrize("is_on", [True, False])
def test_queues_that_somebody_made_may_go_by_themselves_too(is_on: bool) -> None:
    site = Site(auto_delete_created_queues=is_on, auto_delete_queues=False)
    for name in ("made", "held", "unused"):
        site.stage.admin("queue-create", name=name)
    site.send("one", to="held")
    site.send("two", to="own")
    site.take(of="made")
    site.settle(site.take(of="held")[1], "released")
    site.settle(site.take(of="own")[1])
    site.stage.wait(31_000)
    assert site.queues() == {"held": 1, "unused": 0, "own": 0} | ({} if is_on else {"made": 0})


def test_queues_that_are_there_for_a_link_end_with_it_and_not_before() -> None:
    script = Conversation()
    said = {"#": {"auto_delete_created_queues": True}}
    script.stage = ScriptStage(script, listener={"idle_timeout_ms": 3_600_000}, address_settings=said)
    for command in ("connect c", "attach c from temporary", "attach c from prices topic durable as=s",
                    "suspend c prices"):  # fmt: skip
        script.run(command)
    queues = script.stage.broker.store.queues
    (name,) = (name for name in queues if name.startswith("temporary"))
    queue = queues[name]
    script.stage.broker.store.auto_delete.left(queue)
    script.stage.wait(31_000)
    assert list(queues) == [name], "a durable subscription is a queue that somebody made"


@pytest.mark.option("address-settings.auto-delete-queues-delay")
def test_it_may_be_idle_for_longer() -> None:
    site = Site(auto_delete_queues_delay=60_000)
    site.use()
    site.stage.wait(45_000)
    assert site.queues() == {"orders": 0}
    site.stage.wait(20_000)
    assert site.queues() == {}


@pytest.mark.option("address-settings.auto-delete-queues-message-count")
@pytest.mark.parametrize(("allowed", "left"), [(0, {"orders": 2}), (2, {}), (-1, {})])
def test_it_may_hold_some_messages(allowed: int, left: dict[str, int]) -> None:
    site = Site(auto_delete_queues_message_count=allowed)
    site.send("one", "two")
    site.settle(site.take()[1], "released")
    site.stage.wait(31_000)
    assert site.queues() == left
    site.stage.crash()
    site.stage.start()
    assert site.queues() == left


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("paused_after_ms", [0, 20_000])
def test_a_queue_that_is_paused_stays_so_and_goes_after_its_pause(paused_after_ms: int, restarts: bool) -> None:
    site = Site(auto_delete_queues_message_count=-1)
    site.use()
    site.stage.wait(paused_after_ms)
    site.stage.admin("queue-pause", name="orders")
    if restarts:
        site.stage.crash()
        site.stage.start()
    site.stage.wait(100_000)
    assert site.queues() == {"orders": 0}
    site.send("late")
    reload(site, auto_delete_queues_message_count=-1)
    site.stage.wait(100_000)
    assert (site.queues(), site.take()[0]) == ({"orders": 1}, []), "it is paused, and so who takes waits"
    site.stage.admin("queue-resume", name="orders")
    site.stage.wait(29_000)
    assert site.queues() == {"orders": 1}
    site.stage.wait(2_000)
    assert site.queues() == {}


def test_the_time_of_a_queue_begins_when_it_is_resumed_though_its_pause_was_short() -> None:
    site = Site()
    site.use()
    site.stage.wait(20_000)
    site.stage.admin("queue-pause", name="orders")
    site.stage.wait(9_000)
    site.stage.admin("queue-resume", name="orders")
    site.stage.wait(29_000)
    assert site.queues() == {"orders": 0}
    site.stage.wait(2_000)
    assert site.queues() == {}


def test_a_restart_counts_idle_queues_again() -> None:
    site = Site()
    site.use()
    site.send("one", to="held")
    site.stage.admin("queue-create", name="made")
    site.stage.crash()
    site.stage.start()
    site.stage.wait(29_000)
    assert site.queues() == {"orders": 0, "held": 1, "made": 0}, "who comes back finds it"
    site.stage.wait(2_000)
    assert site.queues() == {"held": 1, "made": 0}
    assert site.stage.admin("queue-purge", name="held") == {"purged": 1}
    site.stage.wait(31_000)
    assert site.queues() == {"made": 0}


def test_who_comes_back_after_a_restart_keeps_the_queue() -> None:
    site = Site()
    site.use()
    site.stage.crash()
    site.stage.start()
    site.stage.ask("receive", address="orders", wait_ms=60_000)
    site.stage.wait(40_000)
    assert site.queues() == {"orders": 0}


def test_a_purge_of_what_is_paged_counts_an_idle_queue_again() -> None:
    site = Site(max_size_messages=0)
    site.send("one")
    site.settle(site.take()[1])
    site.send("two", "three")
    site.stage.wait(40_000)
    (row,) = site.stage.admin("queues")["queues"]
    assert (row["message_count"], row["paged_count"]) == (2, 2)
    assert site.stage.admin("queue-purge", name="orders") == {"purged": 2}
    site.stage.wait(31_000)
    assert site.queues() == {}


def test_who_sends_to_a_deleted_queue_has_it_again() -> None:
    site = Site()
    talker = site.stage.connect("p")
    assert talker.session is not None
    site.use()
    site.stage.wait(31_000)
    assert site.queues() == {}
    site.send("one")
    assert site.queues() == {"orders": 1}


@pytest.mark.option("address-settings.default-address-routing-type")
@pytest.mark.parametrize(("kind", "left"), [("ANYCAST", {"orders": 1}), ("MULTICAST", {})])
def test_what_an_address_is_where_nobody_says(kind: str, left: dict[str, int]) -> None:
    site = Site(default_address_routing_type=kind)
    site.send("one")
    assert site.queues() == left


# -- kinds of queues --------------------------------------------------------------------------------------------------


@pytest.mark.option("address-settings.default-max-consumers")
def test_queues_may_bound_their_consumers() -> None:
    site = Site(default_max_consumers=1)
    store = site.stage.broker.store
    store.check_consumers(store.queue_for("orders", BROKER))
    site.stage.ask("receive", address="orders", wait_ms=1000)
    with pytest.raises(Refused, match="max-consumers"):
        store.check_consumers(store.queue_for("orders", BROKER))


@pytest.mark.option("address-settings.default-exclusive-queue")
@pytest.mark.parametrize(("is_exclusive", "of_second"), [(True, []), (False, ["two"])])
def test_an_exclusive_queue_has_one_consumer_at_a_time(is_exclusive: bool, of_second: list[str]) -> None:
    site = Site(default_exclusive_queue=is_exclusive)
    site.stage.admin("queue-create", name="orders")
    first = site.stage.ask("receive", 1, address="orders", count_max=1, wait_ms=500)
    second = site.stage.ask("receive", 2, address="orders", count_max=1, wait_ms=1000)
    site.send("one", "two", durable=False)
    bodies = [message["body"] for message in site.stage.replies[first].result["messages"]]
    assert bodies == ["one"]
    site.stage.wait(0)
    answer = site.stage.replies.get(second)
    assert [message["body"] for message in (answer.result["messages"] if answer else [])] in (of_second, ["two"])


@pytest.mark.option("address-settings.default-last-value-queue")
@pytest.mark.parametrize(("is_on", "bodies"), [(True, ["b1", "a2"]), (False, ["a1", "b1", "a2"])])
def test_a_last_value_queue_keeps_the_last_of_each_key(is_on: bool, bodies: list[str]) -> None:
    site = Site(default_last_value_queue=is_on)
    for body in ("a1", "b1", "a2"):
        site.send(body, application_properties={"_AMQ_LVQ_NAME": body[0]})
    site.stage.crash()
    site.stage.start()
    assert site.take(10)[0] == bodies


@pytest.mark.option("address-settings.default-last-value-key")
@pytest.mark.parametrize(("key", "bodies"), [("sym", ["b1", "a3", "none"]), ("", ["a1", "b1", "a2", "a3", "none"])])
def test_a_property_of_its_own_may_be_the_key(key: str, bodies: list[str]) -> None:
    site = Site(default_last_value_key=key)
    rows = [{"body": body, "application_properties": {"sym": body[0]}} for body in ("a1", "b1", "a2", "a3")]
    assert site.stage.admin("send", address="orders", messages=[*rows, {"body": "none"}]) == {"accepted": 5}
    site.stage.crash()
    site.stage.start()
    found, tag = site.take(10)
    assert found == bodies
    if not key:
        return
    # What comes back is the last value no more where another has come meanwhile.
    site.send("b2", application_properties={"sym": "b"})
    site.settle(tag, "released")
    assert site.take(10)[0] == ["a3", "none", "b2"]


def test_messages_of_one_run_have_keys_of_their_own() -> None:
    """They lie as one range when they come, and when they come back."""
    site = Site(default_last_value_key="JMSPriority")
    conn = site.stage.accept()
    hello = frames.anonymous() + frames.opened() + frames.begun() + frames.sender()
    site.stage.talk(conn, hello + b"".join(frames.transfer(number) for number in range(5)))
    assert site.queues() == {"orders": 1}


@pytest.mark.option("address-settings.default-group-first-key")
@pytest.mark.parametrize(("key", "wanted"), [("first", [True, None, True, None]), ("", [None] * 4)])
def test_the_first_message_of_a_group_may_be_marked(key: str, wanted: list[bool | None]) -> None:
    site = Site(default_group_first_key=key)
    for group in "aabb":
        site.send(group, properties={"group_id": group})
    for _ in range(2):
        conn = site.stage.accept()
        hello = frames.anonymous() + frames.opened() + frames.begun()
        said = site.stage.talk(conn, hello + frames.receiver(credit=10))
        messages = [each[1] for each in frames.heard(said) if isinstance(each, tuple)]
        assert [MessageView(payload).value_of("first") for payload in messages] == wanted
        site.stage.drop_bare(conn)  # so they come again to another consumer, with a count
    assert site.queues() == {"orders": 4}


@pytest.mark.option("address-settings.default-non-destructive")
@pytest.mark.parametrize(("is_on", "left"), [(True, {"orders": 2}), (False, {"orders": 0})])
def test_a_non_destructive_queue_gives_copies(is_on: bool, left: dict[str, int]) -> None:
    site = Site(default_non_destructive=is_on)
    site.send("one", "two")
    bodies, tag = site.take(2)
    site.settle(tag)
    assert bodies == ["one", "two"]
    assert site.queues() == left


@pytest.mark.option("address-settings.default-ring-size")
@pytest.mark.parametrize(("size", "bodies"), [(2, ["3", "4"]), (-1, ["1", "2", "3", "4"])])
def test_a_ring_keeps_the_newest(size: int, bodies: list[str]) -> None:
    site = Site(default_ring_size=size)
    site.send("1", "2", "3")
    site.send("4")
    site.stage.crash()
    site.stage.start()
    assert site.take(10)[0] == bodies


@pytest.mark.option("address-settings.default-consumers-before-dispatch")
@pytest.mark.option("address-settings.default-delay-before-dispatch")
@pytest.mark.parametrize(("needed", "delay_ms", "after"), [(0, -1, 0), (2, -1, 0), (2, 300, 300)])
def test_dispatch_waits_for_consumers_or_for_a_while(needed: int, delay_ms: int, after: int) -> None:
    site = Site(default_consumers_before_dispatch=needed, default_delay_before_dispatch=delay_ms)
    site.send("one")
    first = site.stage.ask("receive", 1, address="orders", wait_ms=10_000)
    site.stage.wait(after)
    if needed and not after:
        assert first not in site.stage.replies
        site.stage.ask("receive", 2, address="orders", wait_ms=10_000)
    assert [message["body"] for message in site.stage.replies[first].result["messages"]] == ["one"]


def test_a_queue_may_have_a_time_of_its_own_to_wait_for_consumers() -> None:
    site = Site(default_delay_before_dispatch=10)
    site.stage.admin("queue-create", name="orders", consumers_before_dispatch=2, delay_before_dispatch_ms=300)
    site.send("one")
    first = site.stage.ask("receive", 1, address="orders", wait_ms=10_000)
    site.stage.wait(290)
    assert first not in site.stage.replies
    site.stage.wait(20)
    assert [message["body"] for message in site.stage.replies[first].result["messages"]] == ["one"]


@pytest.mark.option("address-settings.default-purge-on-no-consumers")
@pytest.mark.parametrize(("is_on", "left"), [(True, {"orders": 1}), (False, {"orders": 2})])
def test_the_last_consumer_may_take_the_rest_with_it(is_on: bool, left: dict[str, int]) -> None:
    site = Site(default_purge_on_no_consumers=is_on)
    site.send("one", "two")
    assert site.take()[0] == ["one"]  # which is still in delivery
    assert site.queues() == left


class Link:
    """A consumer with endless credit."""

    priority: int = 0
    filter: Filter | None = None
    is_browser: bool = False
    client = None

    def __init__(self, site: Site) -> None:
        self.groups: list[str] = []
        store = site.stage.broker.store
        store.join(store.queue_for("orders", BROKER), self)

    def capacity(self) -> int:
        return 100

    def deliver(self, queue: Queue, segment: Segment) -> int:
        self.groups += [segment.run.traits.group_id] * segment.n
        return segment.n


def send_groups(site: Site, groups: str) -> None:
    for group in groups:
        site.send(group, properties={"group_id": group})


def test_a_group_stays_with_its_consumer_until_that_leaves() -> None:
    site = Site()
    one, two = Link(site), Link(site)
    send_groups(site, "abcabcaabbcc")
    assert not set(one.groups) & set(two.groups)
    assert len(one.groups) + len(two.groups) == 12
    assert one.groups
    assert two.groups
    store = site.stage.broker.store
    store.leave(store.queues["orders"], two)
    before = len(one.groups)
    send_groups(site, "abc")
    assert len(one.groups) == before + 3


def test_a_closed_group_is_given_away_anew() -> None:
    site = Site()
    one, two = Link(site), Link(site)
    for _ in range(4):
        site.send("last", properties={"group_id": "a", "group_sequence": 2**32 - 1})
    assert (len(one.groups), len(two.groups)) == (2, 2)


@pytest.mark.option("address-settings.default-group-rebalance")
@pytest.mark.parametrize(("is_on", "of_newcomer"), [(True, {"a", "b"}), (False, set())])
def test_groups_may_be_given_away_anew_when_a_consumer_comes(is_on: bool, of_newcomer: set[str]) -> None:
    site = Site(default_group_rebalance=is_on)
    Link(site)
    send_groups(site, "ab")
    newcomer = Link(site)
    send_groups(site, "abab")
    assert bool(newcomer.groups) is is_on
    assert set(newcomer.groups) <= of_newcomer


@pytest.mark.option("address-settings.default-group-buckets")
@pytest.mark.parametrize(("buckets", "known"), [(3, 3), (-1, 26)])
def test_groups_may_be_put_into_classes(buckets: int, known: int) -> None:
    site = Site(default_group_buckets=buckets)
    Link(site)
    send_groups(site, "abcdefghijklmnopqrstuvwxyz")
    assert len(site.stage.broker.store.queues["orders"].dispatcher.groups) == known


# -- dead letters -----------------------------------------------------------------------------------------------------


@pytest.mark.option("address-settings.dead-letter-address")
@pytest.mark.option("address-settings.max-delivery-attempts")
@pytest.mark.parametrize(("address", "left"), [("moved.dead", {"orders": 0, "moved.dead": 1}), ("", {"orders": 0})])
def test_deliveries_in_vain_make_a_dead_letter(address: str, left: dict[str, int]) -> None:
    site = Site(dead_letter_address=address, max_delivery_attempts=3)
    site.send("one")
    assert [site.fail() for _ in range(3)] == ["one"] * 3
    assert site.queues() == left
    site.stage.crash()
    site.stage.start()
    assert site.queues() == left
    if address:
        notes = site.annotations(address)
        assert notes["x-opt-ORIG-ADDRESS"] == notes["x-opt-ORIG-QUEUE"] == "orders"
        assert notes["x-opt-CAUSE"] == "delivered 3 times in vain"


@pytest.mark.option("address-settings.send-to-dla-on-no-route")
@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("own", [True, False])
def test_messages_that_reach_no_queue(is_on: bool, own: bool) -> None:
    site = Site(send_to_dla_on_no_route=is_on, dead_letter_address="moved.dead", auto_create_dead_letter_resources=own)
    site.stage.admin("queue-create", name="q", address="orders", selector="color = 'red'")
    messages = [{"body": color, "application_properties": {"color": color}} for color in ("red", "blue", "red", "grey")]
    assert site.stage.admin("send", address="orders", messages=messages) == {"accepted": 4}
    dead = "DLQ.orders" if own else "moved.dead"
    left = {"q": 2} | ({dead: 2} if is_on else {})
    assert site.queues() == left
    assert site.stage.broker.store.unrouted_total == 2
    site.stage.crash()
    site.stage.start()
    assert site.queues() == left
    assert site.take(4, "q")[0] == ["red", "red"]
    if is_on:
        notes = site.annotations(dead)
        assert (notes["x-opt-ORIG-ADDRESS"], notes["x-opt-CAUSE"]) == ("orders", "no queue of its address takes it")
        assert "x-opt-ORIG-QUEUE" not in notes


def test_a_run_of_which_some_reach_no_queue_is_whole_after_a_crash_and_accepted_when_it_is_on_disk() -> None:
    script = Conversation()
    said = {"#": {"send_to_dla_on_no_route": True, "dead_letter_address": "dead"}}
    script.stage = ScriptStage(script, address_settings=said)
    stage = script.stage
    stage.admin("queue-create", name="q", address="orders", selector="color = 'red'")
    script.run("connect c")
    script.run("attach c to orders")
    script.run("hold disk")
    assert script.run("publish c orders count=3 durable") == []
    assert script.run("sync") == ["c learns accepted: m1 m2 m3"]
    script.run("publish c orders count=2 durable color=red")
    script.run("publish c orders durable")
    script.run("sync")
    script.run("crash")
    script.run("start")
    counts = {row["name"]: row["message_count"] for row in stage.admin("queues")["queues"]}
    assert counts == {"q": 2, "dead": 4}


@pytest.mark.parametrize("dead", ["orders", "", "dead.topic"])
def test_a_message_that_reaches_no_queue_there_either_is_dropped(dead: str) -> None:
    site = Site(send_to_dla_on_no_route=True, dead_letter_address=dead, default_address_routing_type="MULTICAST")
    site.send("one")
    assert site.queues() == {}
    assert site.stage.broker.store.unrouted_total == (2 if dead == "dead.topic" else 1)


def test_without_a_bound_a_message_is_never_dead() -> None:
    site = Site(dead_letter_address="moved.dead", max_delivery_attempts=-1)
    site.send("one")
    assert {site.fail() for _ in range(30)} == {"one"}
    assert site.queues() == {"orders": 1}


def test_a_rejected_message_is_a_dead_letter_at_once() -> None:
    site = Site(dead_letter_address="moved.dead")
    site.send("one")
    site.settle(site.take()[1], "rejected")
    assert site.queues() == {"orders": 0, "moved.dead": 1}


def test_a_dead_letter_that_is_rejected_stays_among_them() -> None:
    site = Site(dead_letter_address="orders")
    site.send("one")
    site.settle(site.take()[1], "rejected")
    assert site.queues() == {"orders": 1}


@pytest.mark.option("address-settings.auto-create-dead-letter-resources")
@pytest.mark.option("address-settings.dead-letter-queue-prefix")
@pytest.mark.option("address-settings.dead-letter-queue-suffix")
def test_dead_letters_of_each_address_may_have_a_queue_of_their_own() -> None:
    names = {"dead_letter_queue_prefix": "D.", "dead_letter_queue_suffix": ".end"}
    site = Site(dead_letter_address="moved.dead", auto_create_dead_letter_resources=True, **names)
    for address in ("orders", "orders", "invoices"):
        site.send("one", to=address)
        site.settle(site.take(of=address)[1], "rejected")
    assert site.queues() == {"orders": 0, "invoices": 0, "D.orders.end": 2, "D.invoices.end": 1}
    site.stage.crash()
    site.stage.start()
    assert site.queues() == {"orders": 0, "invoices": 0, "D.orders.end": 2, "D.invoices.end": 1}


# -- redelivery -------------------------------------------------------------------------------------------------------


def gaps(site: Site, count: int) -> list[int]:
    """How long the message stays away after each delivery in vain, in ms (searched in steps)."""
    found = []
    for _ in range(count):
        site.fail()
        start_ms = site.stage.at.wall_ms
        while not site.stage.broker.store.queues["orders"].ready_count:
            site.stage.wait(10)
            assert site.stage.at.wall_ms < start_ms + 100_000
        found.append(site.stage.at.wall_ms - start_ms)
    return found


@pytest.mark.option("address-settings.redelivery-delay")
@pytest.mark.parametrize(("delay_ms", "longest"), [(0, 0), (500, 510)])
def test_a_message_may_have_to_wait(delay_ms: int, longest: int) -> None:
    site = Site(redelivery_delay=delay_ms)
    site.send("one")
    (gap,) = gaps(site, 1)
    assert delay_ms <= gap + 2 <= longest + 2


@pytest.mark.option("address-settings.redelivery-delay-multiplier")
@pytest.mark.option("address-settings.max-redelivery-delay")
def test_the_wait_grows_up_to_a_bound() -> None:
    site = Site(redelivery_delay=100, redelivery_delay_multiplier=3.0, max_redelivery_delay=500)
    site.send("one")
    assert [round(gap, -2) for gap in gaps(site, 4)] == [100, 300, 500, 500]


@pytest.mark.option("address-settings.redelivery-collision-avoidance-factor")
def test_messages_do_not_come_back_together() -> None:
    site = Site(redelivery_delay=1000, redelivery_collision_avoidance_factor=0.5)
    site.send(*(str(number) for number in range(20)))
    site.settle(site.take(20)[1], "modified")
    queue = site.stage.broker.store.queues["orders"]
    counts = []
    for _ in range(20):
        counts.append(queue.ready_count)
        site.stage.wait(100)
    assert counts[4] == 0
    assert len(set(counts)) > 5
    assert queue.ready_count == 20


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_wait_goes_on_after_a_restart_and_ends_when_it_would_have_ended(is_clean: bool) -> None:
    site = Site(redelivery_delay=10_000)
    site.send("one", "two", "three")
    site.fail()
    site.stage.wait(4_000)
    site.fail()
    for _ in range(2):  # what one start found, the next one finds too
        if is_clean:
            site.stage.stop()
        else:
            site.stage.crash()
        site.stage.start()
    queue = site.stage.broker.store.queues["orders"]
    assert (queue.ready_count, queue.scheduled_count) == (1, 2)
    assert site.take(3)[0] == ["three"]
    site.stage.wait(5_900)
    assert site.take(3)[0] == []
    site.stage.wait(100)
    assert site.take(3)[0] == ["one"]
    site.stage.wait(3_900)
    assert site.take(3)[0] == []
    site.stage.wait(100)
    assert site.take(3)[0] == ["two"]


def test_a_wait_that_ended_while_the_node_was_down_is_over() -> None:
    site = Site(redelivery_delay=10_000)
    site.send("one", "two")
    site.fail()
    site.stage.stop()
    site.stage.now_ns += 10_000 * 1_000_000
    site.stage.start()
    assert site.take(3)[0] == ["one", "two"]


def test_a_wait_is_not_kept_for_the_next_delivery() -> None:
    site = Site(redelivery_delay=10_000)
    site.send("one")
    site.fail()
    site.stage.wait(10_000)
    (_, tag) = site.take()
    site.settle(tag, "released")
    site.stage.crash()
    site.stage.start()
    assert site.take()[0] == ["one"]


# -- expiry -----------------------------------------------------------------------------------------------------------


def test_a_time_to_live_ends_by_itself_and_survives_a_crash() -> None:
    site = Site()
    site.send("short", ttl_ms=1000)
    site.send("long", ttl_ms=60_000)
    site.send("for ever")
    site.stage.crash()
    site.stage.start()
    site.stage.wait(1100)
    assert site.queues() == {"orders": 2}
    site.stage.wait(60_000)
    assert site.queues() == {"orders": 1}


@pytest.mark.option("address-settings.expiry-address")
def test_expired_messages_may_go_to_an_address_where_they_stay() -> None:
    site = Site(expiry_address="moved.expired")
    site.send("one", ttl_ms=1000)
    site.stage.wait(1100)
    assert site.queues() == {"orders": 0, "moved.expired": 1}
    site.stage.wait(10_000)
    site.stage.crash()
    site.stage.start()
    assert site.queues() == {"orders": 0, "moved.expired": 1}
    assert site.annotations("moved.expired")["x-opt-CAUSE"] == "expired"


@pytest.mark.option("address-settings.auto-create-expiry-resources")
@pytest.mark.option("address-settings.expiry-queue-prefix")
@pytest.mark.option("address-settings.expiry-queue-suffix")
def test_expired_messages_of_each_address_may_have_a_queue_of_their_own() -> None:
    names = {"expiry_queue_prefix": "E.", "expiry_queue_suffix": ".end"}
    site = Site(expiry_address="moved.expired", auto_create_expiry_resources=True, **names)
    site.send("one", ttl_ms=1000)
    site.stage.wait(1100)
    assert site.queues() == {"orders": 0, "E.orders.end": 1}


@pytest.mark.option("address-settings.expiry-delay")
@pytest.mark.option("address-settings.min-expiry-delay")
@pytest.mark.option("address-settings.max-expiry-delay")
@pytest.mark.parametrize(
    ("settings", "ttl_ms", "lives_ms"),
    [
        ({}, None, None),
        ({"expiry_delay": 500}, None, 500),
        ({"expiry_delay": 500}, 2000, 2000),
        ({"min_expiry_delay": 700}, 100, 700),
        ({"min_expiry_delay": 700}, None, None),
        ({"max_expiry_delay": 900}, 5000, 900),
        ({"max_expiry_delay": 900}, None, 900),
    ],
)
def test_settings_bound_the_time_to_live(settings: dict[str, int], ttl_ms: int | None, lives_ms: int | None) -> None:
    site = Site(**settings)
    site.send("one", ttl_ms=ttl_ms)
    if lives_ms is not None:
        site.stage.wait(lives_ms - 50)
        assert site.queues() == {"orders": 1}
        site.stage.wait(100)
        assert site.queues() == {"orders": 0}
    else:
        site.stage.wait(1_000_000)
        assert site.queues() == {"orders": 1}


def test_what_expires_while_nobody_looks_is_not_delivered() -> None:
    site = Site()
    site.send("one", ttl_ms=10)
    site.send("two")
    site.stage.now_ns += 11_000_000
    assert site.take(5)[0] == ["two"]


def test_settings_are_reloaded_without_a_restart() -> None:
    site = Site(dead_letter_address="")
    site.send("one", "two")
    site.settle(site.take()[1], "rejected")
    assert site.queues() == {"orders": 1}
    site.stage.give(given.OptionsChanged(options_with(address_settings={"#": {"dead_letter_address": "moved.dead"}})))
    site.stage.run()
    site.settle(site.take()[1], "rejected")
    assert site.queues() == {"orders": 0, "moved.dead": 1}
