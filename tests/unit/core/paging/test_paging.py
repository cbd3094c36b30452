"""Paging as clients see it: nothing is refused, order holds, and it ends by itself. See docs/adr/0008-paging.md."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.admin import metrics
from mqbroker.config.slices import DivertOptions
from mqbroker.core.address.diverts import Diverts

from tests.golden.conversation import Conversation, ScriptStage
from tests.support.stage import Stage, options_with

BOUND = {"max_size_messages": 8}  # PAGE is what an address does where nothing else is said


def talk(*clients: str, limits: dict[str, Any] | None = None, **settings: Any) -> Conversation:
    script = Conversation()
    tables = {"limits": {"link_credit": 1000, **(limits or {})}, "journal": {"journal_file_size_bytes": 16384}}
    script.stage = ScriptStage(script, address_settings={"orders": BOUND | settings}, **tables)
    for name in clients or ("p", "c"):
        script.run(f"connect {name}")
    return script


def queue(stage: Stage, name: str = "orders") -> Any:
    return stage.broker.store.queues[name]


def pins(stage: Stage) -> int:
    return sum(segment.pins for segment in stage.broker.journal._ledger.segments)


def consumed(script: Conversation, count: int, who: str = "c", address: str = "orders") -> list[str]:
    """Names in the order in which they came, each accepted before the next one."""
    names: list[str] = []
    for _ in range(count):
        before = set(script.held)
        script.run(f"credit {who} {address} 1")
        got = [name for each, name in script.held if each == who and (each, name) not in before]
        if not got:
            break
        names += got
        script.run(f"accept {who} {' '.join(got)}")
    return names


def names(first: int, last: int) -> list[str]:
    return [f"m{number}" for number in range(first, last + 1)]


@pytest.mark.option("address-settings.address-full-policy")
@pytest.mark.parametrize("durable", ["durable", ""])
def test_paging_starts_and_ends_by_itself_and_keeps_the_order(durable: str) -> None:
    script = talk()
    script.run("attach p to orders")
    for _ in range(10):
        said = script.run(f"publish p orders count=3 {durable}")
        assert said[0].startswith("p learns accepted")
    orders = queue(script.stage)
    assert (orders.message_count, orders.paged_count) == (30, 21)
    assert orders.meter.count == 9
    assert script.stage.broker.store.memory.held_bytes < 9 * 300
    script.run("attach c from orders")
    assert consumed(script, 30) == names(1, 30)
    assert (orders.message_count, orders.pages, orders.added_total) == (0, None, 30)
    assert script.stage.broker.store.memory.held_bytes == 0
    assert pins(script.stage) == 0
    script.run(f"publish p orders {durable}")
    assert (orders.paged_count, orders.ready_count) == (0, 1)


def test_what_comes_while_there_are_pages_goes_behind_them() -> None:
    script = talk()
    script.run("attach p to orders")
    script.run("publish p orders count=20 durable")
    script.run("publish p orders count=20 durable")
    script.run("attach c from orders")
    got: list[str] = []
    for _ in range(39):
        got += consumed(script, 2)
        script.run("publish p orders durable")
    got += consumed(script, 1)
    assert got == names(1, 79)
    assert queue(script.stage).message_count == 0


def test_a_consumer_with_much_credit_gets_all_at_once() -> None:
    script = talk()
    script.run("attach p to orders")
    for _ in range(20):
        script.run("publish p orders count=5 durable")
    said = script.run("attach c from orders credit=1000")
    assert said[-1] == "c gets: " + " ".join(names(1, 100))
    assert queue(script.stage).pages is None


@pytest.mark.parametrize("durable", ["durable", ""])
def test_a_drain_is_answered_when_the_pages_are_read(durable: str) -> None:
    script = talk()
    script.run("attach p to orders")
    for _ in range(8):
        script.run(f"publish p orders count=5 {durable}")
    script.run("attach c from orders")
    said = script.run("drain c orders 100")
    assert "c gets: " + " ".join(names(1, 40)) in said
    assert said[-1] == "c has credit 0 left on orders"


def test_nothing_is_read_before_it_is_synced() -> None:
    script = talk()
    script.run("attach p to orders")
    script.run("publish p orders count=9 durable")
    script.run("attach c from orders credit=100")
    script.run("hold disk")
    script.run("accept c " + " ".join(names(1, 2)))
    script.run("publish p orders count=9 durable")
    script.run("publish p orders count=3 durable")
    assert queue(script.stage).paged_count == 3
    assert script.stage.pages_read == 0
    said = script.run("sync")
    got = " ".join(line.removeprefix("c gets: ") for line in said if line.startswith("c gets: "))
    assert got == " ".join(names(10, 21))
    assert script.stage.pages_read > 0


@pytest.mark.parametrize("memory", [1 << 28, 1500])
@pytest.mark.parametrize("consume", [0, 3, 15])
def test_a_crash_finds_durable_messages_paged_or_not(consume: int, memory: int) -> None:
    script = talk(limits={"global_max_size_bytes": memory})
    script.run("attach p to orders")
    for _ in range(10):
        script.run("publish p orders count=3 durable")
        script.run("publish p orders")
    script.run("attach c from orders")
    taken = consumed(script, consume)
    script.run("crash")
    script.run("start")
    durable = [name for name in names(1, 40) if int(name[1:]) % 4]
    left = [name for name in durable if name not in taken]
    orders = queue(script.stage)
    assert orders.message_count == orders.added_total == len(left)
    assert orders.pages is not None
    assert orders.meter.count < 12
    assert pins(script.stage) > 0
    script.run("connect d")
    script.run("attach d from orders")
    assert consumed(script, 50, "d") == left
    assert (orders.message_count, orders.pages) == (0, None)
    assert pins(script.stage) == 0
    script.run("crash")
    script.run("start")
    assert queue(script.stage).message_count == 0


def test_delivery_counts_outlive_a_crash_in_pages() -> None:
    script = talk()
    script.run("attach p to orders")
    for _ in range(10):
        script.run("publish p orders count=3 durable")
    script.run("attach c from orders credit=3")
    script.run("modify c m1 m2 m3")
    script.run("credit c orders 3")
    script.run("modify c m1 m2 m3")
    for _ in range(2):
        script.run("crash")
        script.run("start")
    assert queue(script.stage).paged_count > 0
    script.run("connect d")
    said = script.run("attach d from orders credit=100")
    # Twice in vain; the others because of the first crash, in which the queue had a consumer.
    got = " ".join(said)
    assert ["m2 (delivery count 2)" in got, "m30 (delivery count 1)" in got] == [True, True], got


@pytest.mark.parametrize("memory", [1 << 28, 1500])
def test_a_redelivery_delay_outlives_a_crash_in_pages_and_their_compaction(memory: int) -> None:
    script = talk("p", "c", "d", redelivery_delay=3_600_000, limits={"global_max_size_bytes": memory})
    script.run("attach p to orders")
    script.run("publish p orders count=12 durable")
    script.run("attach c from orders credit=12")
    script.run("modify c m1 m2 m3 m9 m10")
    script.run("crash")
    script.run("start")
    orders = queue(script.stage)
    assert orders.paged_count + orders.scheduled_count + orders.ready_count == 12
    assert orders.paged_count > 3
    script.run("connect p d")
    script.run("attach p to busy")
    script.run("attach d from busy credit=10000")
    for _ in range(150):
        script.run("publish p busy count=4 size=1000 durable")
        script.run("accept d " + " ".join(name for who, name in list(script.held) if who == "d"))
    assert not set(script.stage.disk.stable) & {1, 2, 3}
    script.run("crash")
    script.run("start")
    script.run("connect e")
    script.run("attach e from orders")
    assert consumed(script, 12, "e") == [*names(4, 8), *names(11, 12)]
    script.run("detach e orders")
    script.run("wait 3590000")
    assert (queue(script.stage).scheduled_count, queue(script.stage).message_count) == (5, 5)
    script.run("wait 10000")
    script.run("connect f")
    script.run("attach f from orders")
    assert consumed(script, 12, "f") == [*names(1, 3), *names(9, 10)]
    assert pins(script.stage) == 0


def test_messages_of_several_queues_are_read_for_each() -> None:
    script = talk("p", "c", "d")
    for name in ("one", "two"):
        script.stage.admin("queue-create", name=name, address="orders", routing_type="multicast")
    script.stage.admin("queue-create", name="three", address="orders", routing_type="multicast", durable=False)
    script.run("attach p to orders")
    script.run("attach c from orders::one")
    got: list[str] = []
    for _ in range(12):
        script.run("publish p orders count=2 durable")
        got += consumed(script, 2, "c", "orders::one")
    got += consumed(script, 30, "c", "orders::one")
    assert got == names(1, 24)
    assert queue(script.stage, "one").pages is None
    assert queue(script.stage, "two").paged_count == 24 - queue(script.stage, "two").ready_count > 0
    script.run("attach d from orders::two")
    assert consumed(script, 30, "d", "orders::two") == names(1, 24)
    script.run("detach d orders::two")
    script.run("attach d from orders::three")
    assert consumed(script, 30, "d", "orders::three") == names(1, 24)
    assert pins(script.stage) == 0
    assert script.stage.broker.store.memory.held_bytes == 0


def test_transactions_come_wholly_and_in_order() -> None:
    script = talk()
    script.run("attach p to orders")
    script.run("publish p orders count=10 durable")
    script.run("declare p t1")
    script.run("publish p orders count=3 durable txn=t1")
    script.run("publish p orders count=3 txn=t1")
    script.run("publish p orders durable")
    script.run("declare p t2")
    script.run("publish p orders count=2 durable txn=t2")
    script.run("commit p t1")
    script.run("rollback p t2")
    assert queue(script.stage).message_count == 17
    script.run("attach c from orders")
    assert consumed(script, 20) == [*names(1, 10), "m17", *names(11, 16)]


@pytest.mark.parametrize("durable", ["durable", ""])
def test_a_purge_drops_pages_unread(durable: str) -> None:
    script = talk()
    script.run("attach p to orders")
    for _ in range(10):
        script.run(f"publish p orders count=3 {durable}")
    assert script.stage.admin("queue-purge", name="orders") == {"purged": 30}
    orders = queue(script.stage)
    assert (orders.message_count, orders.pages, pins(script.stage)) == (0, None, 0)
    assert orders.meter.count == 0
    script.run(f"publish p orders {durable}")
    script.run("attach c from orders credit=5")
    assert ("c", "m31") in script.held
    script.run("accept c m31")
    script.run("crash")
    script.run("start")
    assert queue(script.stage).message_count == 0


def test_a_deleted_queue_leaves_nothing_behind() -> None:
    script = talk()
    script.run("attach p to orders")
    for _ in range(10):
        script.run("publish p orders count=3 durable")
    assert script.stage.admin("queue-delete", name="orders") == {"name": "orders", "messages": 30}
    assert pins(script.stage) == 0
    assert script.stage.broker.store.paging.queues == {}
    assert script.stage.broker.store.memory.held_bytes == 0


def test_a_selector_gets_what_overtakes_the_messages_that_it_has_passed() -> None:
    script = talk()
    script.run("attach p to orders")
    script.run("attach c from orders select=color='red' credit=100")
    script.run("publish p orders count=3 durable color=blue")
    assert "c gets: m4" in script.run("publish p orders prio=9 durable color=red")
    script.run("publish p orders count=6 durable color=blue")
    script.run("publish p orders count=2 durable prio=9 color=red")
    script.run("publish p orders count=2 durable prio=9 color=blue")
    assert sorted(name for who, name in script.held if who == "c") == ["m11", "m12", "m4"]


def test_browsers_and_selectors_make_the_queue_read_on() -> None:
    script = talk("p", "c", "d")
    script.run("attach p to orders")
    script.run("publish p orders count=20 durable")
    script.run("publish p orders count=2 durable color=red")
    script.run("publish p orders count=3 durable prio=9")
    said = script.run("attach c from orders browse credit=100")
    got = [name for line in said if line.startswith("c gets") for name in line.split(": ")[1].split()]
    assert sorted(got) == sorted(names(1, 25)), "each once, also what overtakes what it has seen"
    script.run("detach c orders")
    script.run("publish p orders count=10 durable")
    script.run("publish p orders count=2 durable color=red")
    script.run("attach d from orders select=color='red' credit=100")
    assert sorted(name for who, name in script.held if who == "d") == ["m21", "m22", "m36", "m37"]


def test_scheduled_and_expired_messages_are_seen_when_they_are_read() -> None:
    script = talk()
    script.run("attach p to orders")
    script.run("publish p orders count=9 durable")
    script.run("publish p orders count=2 durable ttl=1000")
    script.run("publish p orders count=2 durable delay=30000")
    script.run("publish p orders durable")
    script.run("wait 2000")
    orders = queue(script.stage)
    assert (orders.paged_count, orders.expired_total) == (5, 0)
    script.run("attach c from orders")
    assert consumed(script, 10) == [*names(1, 9), "m14"]
    assert (orders.expired_total, orders.scheduled_count) == (2, 2)
    script.run("wait 30000")
    assert consumed(script, 2) == ["m12", "m13"]


def test_queues_that_need_their_messages_do_not_page_and_hold_producers_back() -> None:
    script = talk(default_ring_size=20)
    script.run("attach p to orders")
    script.run("publish p orders count=15 durable")
    script.run("publish p orders count=15 durable")
    ring = queue(script.stage)
    assert (ring.message_count, ring.pages) == (8, None), "its bound holds, as with BLOCK"
    assert script.stage.broker.store.addresses["orders"].meter.is_blocking
    script.run("attach c from orders")
    assert consumed(script, 8) == names(1, 8)
    script.run("publish p orders durable")
    assert ring.message_count > 0


def test_an_address_pages_again_when_no_queue_of_it_needs_its_messages() -> None:
    script = talk()
    for name, ring_size in (("plain", -1), ("ring", 1000)):
        kind = {"address": "orders", "routing_type": "multicast", "ring_size": ring_size}
        script.stage.admin("queue-create", name=name, **kind)
    script.run("attach p to orders")
    script.run("publish p orders count=30 durable")
    meter = script.stage.broker.store.addresses["orders"].meter
    assert (meter.is_blocking, queue(script.stage, "plain").message_count) == (True, 8)
    script.stage.admin("queue-delete", name="ring")
    assert script.run("publish p orders count=30 durable")[0].startswith("p learns accepted")
    assert queue(script.stage, "plain").paged_count > 0


def full(limits: dict[str, Any] | None = None, **settings: Any) -> Conversation:
    """The memory is full of messages at `orders`, which pages."""
    script = talk(limits={"global_max_size_bytes": 4000, **(limits or {})}, max_size_messages=-1, **settings)
    script.run("attach p to orders")
    for _ in range(10):
        script.run("publish p orders count=2 size=200 durable")
    assert script.stage.broker.store.memory.is_full
    return script


def test_with_the_memory_full_a_sender_without_an_address_is_refused_only_where_nothing_pages() -> None:
    script = full()
    other = {"other": {"address_full_policy": "BLOCK"}}
    script.stage.broker.store.settings.change(options_with(address_settings=other).address_settings)
    script.run("connect q")
    script.run("attach q to nobody")
    assert script.run("publish q nobody to=orders durable")[0].startswith("q learns accepted")
    assert "q learns rejected (amqp:resource-limit-exceeded)" in script.run("publish q nobody to=other durable")[0]


def test_with_the_memory_full_transactions_go_on_where_their_addresses_page() -> None:
    script = full()
    script.run("declare p t1")
    said = script.run("publish p orders count=3 size=200 durable txn=t1")
    assert "rejected" not in " ".join(said)
    script.run("commit p t1")
    orders = queue(script.stage)
    assert orders.message_count == 23
    script.run("declare p t2")
    said = script.run("publish p orders count=9 size=200 durable txn=t2")
    assert "rejected" in " ".join(said), "no more than a quarter above the bound is held for what is not committed"
    script.run("rollback p t2")
    assert orders.message_count == 23


@pytest.mark.parametrize(("policy", "is_taken"), [("PAGE", True), ("BLOCK", False)])
def test_with_the_memory_full_diverts_go_on_where_all_that_they_lead_to_pages(policy: str, is_taken: bool) -> None:
    script = Conversation()
    script.stage = ScriptStage(
        script,
        address_settings={"#": {"address_full_policy": "PAGE"}, "more": {"address_full_policy": policy}},
        limits={"global_max_size_bytes": 4000, "link_credit": 5},
    )
    store = script.stage.broker.store
    ways = (("orders", "copies"), ("copies", "more"), ("more", "copies"))
    store.diverts = Diverts(tuple(DivertOptions(one, one, two, "", False, "STRIP") for one, two in ways), store)
    script.run("connect p")
    script.run("attach p to orders")
    for _ in range(20):
        script.run("publish p orders size=200 durable")
    assert (queue(script.stage, "orders").message_count == 20) == is_taken
    assert script.stage.broker.store.memory.held_bytes < 6000


def test_a_full_node_pages_what_has_no_bound_of_its_own() -> None:
    script = talk(limits={"global_max_size_bytes": 4000}, max_size_messages=-1)
    script.run("attach p to orders")
    said = [line for _ in range(20) for line in script.run("publish p orders count=2 size=200 durable")]
    assert not [line for line in said if "rejected" in line or "no credit" in line]
    orders = queue(script.stage)
    assert orders.meter is None
    assert orders.paged_count > 10
    assert script.stage.broker.store.memory.held_bytes < 5000
    script.run("crash")
    script.run("start")
    assert script.stage.broker.store.memory.held_bytes < 5000
    script.run("connect d")
    script.run("attach d from orders")
    assert consumed(script, 50, "d") == names(1, 40)


def test_with_the_memory_full_a_queue_that_has_nothing_in_it_still_gets_a_page() -> None:
    script = talk(limits={"global_max_size_bytes": 4000})
    script.run("attach p to orders")
    script.run("attach p to other")
    script.run("publish p orders count=9 durable")
    script.run("publish p orders count=9 durable")
    script.run("publish p other count=10 size=400 durable")
    assert script.stage.broker.store.memory.is_full
    script.run("attach c from orders")
    assert consumed(script, 20) == names(1, 18)


@pytest.mark.option("address-settings.page-size-bytes")
def test_pages_have_a_size() -> None:
    read: list[int] = []
    for size in (1024, 1 << 20):
        script = talk(max_size_messages=-1, max_size_bytes=8192, page_size_bytes=size)
        script.run("attach p to orders")
        for _ in range(40):
            script.run("publish p orders size=500 durable")
        script.run("attach c from orders")
        assert consumed(script, 40) == names(1, 40)
        read.append(script.stage.pages_read)
    assert read == [12, 6], "of 1,024 bytes, and of a quarter of the bound"


def test_administrators_see_what_is_paged() -> None:
    script = talk()
    script.run("attach p to orders")
    for _ in range(10):
        script.run("publish p orders count=3 durable")
    (row,) = script.stage.admin("queues")["queues"]
    assert (row["message_count"], row["ready_count"], row["paged_count"]) == (30, 9, 21)
    shown = script.stage.admin("address-show", name="orders")
    assert (shown["paging"], shown["paged_count"], shown["message_count"]) == (True, 21, 30)
    values = metrics.of_node(script.stage.broker, per_object=False)
    named = (
        "artemis_message_count",
        "mqbroker_paged_messages",
        "mqbroker_paging_queues",
        "mqbroker_messages_paged_total",
    )
    assert [values[name][0][1] for name in named] == [30, 21, 1, 21]
    script.run("attach c from orders credit=30")
    script.run("accept c " + " ".join(names(1, 30)))
    shown = script.stage.admin("address-show", name="orders")
    assert (shown["paging"], shown["paged_count"], shown["message_count"]) == (False, 0, 0)


@pytest.mark.parametrize("durable", ["durable", ""])
def test_compaction_moves_pages_that_nobody_reads(durable: str) -> None:
    script = talk("p", "c", "d")
    script.run("attach p to orders")
    script.run("attach p to busy")
    script.run("attach d from busy credit=10000")
    for size in (10, 300, 10, 200):
        script.run(f"publish p orders count=9 size={size} {durable}")
    before = script.stage.disk.stable.keys()
    for _ in range(150):
        script.run("publish p busy count=4 size=1000 durable")
        script.run("accept d " + " ".join(name for who, name in list(script.held) if who == "d"))
    orders, journal = queue(script.stage), script.stage.broker.journal
    assert orders.paged_count == 27
    assert journal.segments_count < 15, "of 40 that were written"
    assert not set(before) & {1, 2, 3}
    if durable:
        script.run("crash")
        script.run("start")
    script.run("connect e")
    script.run("attach e from orders")
    assert consumed(script, 36, "e") == names(1, 36)
    assert pins(script.stage) == 0
    script.run("connect f")
    script.run("attach f to busy")
    for _ in range(3):
        script.run("publish f busy durable")
    assert script.stage.broker.journal.segments_count <= 3


@pytest.mark.parametrize("durable", ["durable", ""])
@pytest.mark.parametrize("operation", ["queue-purge", "queue-delete"])
def test_files_that_compaction_is_reading_stay_until_it_has(operation: str, durable: str) -> None:
    script = talk("p", "d")
    script.run("attach p to orders")
    script.run("attach p to busy")
    script.run("attach d from busy credit=10000")
    for _ in range(4):
        script.run(f"publish p orders count=9 size=300 {durable}")
    stage = script.stage
    stage.are_pages_held = True

    def work() -> None:
        script.run("publish p busy count=4 size=1000 durable")
        script.run("accept d " + " ".join(name for who, name in list(script.held) if who == "d"))

    for _ in range(150):
        if stage.page_reads:
            break
        work()
    assert (stage.broker.store.paging.moves.is_loading, len(stage.page_reads)) == (True, 1)
    asked = {place.segment for place in stage.page_reads[0].slices}
    stage.admin(operation, name="orders")
    for _ in range(20):
        work()
    assert asked <= set(stage.disk.stable)
    stage.are_pages_held = False
    stage.read_pages()
    for _ in range(20):
        work()
    assert not asked & set(stage.disk.stable)
    assert pins(stage) == 0


def test_compaction_moves_messages_that_some_queues_page_and_others_hold() -> None:
    script = talk("p", "c", "d")
    for name in ("one", "two", "three"):
        is_durable = name != "three"
        script.stage.admin("queue-create", name=name, address="orders", routing_type="multicast", durable=is_durable)
    script.run("attach p to orders")
    script.run("attach p to busy")
    script.run("attach d from busy credit=10000")
    script.run("attach c from orders::one credit=10000")
    for _ in range(6):
        script.run("publish p orders count=5 durable")
        script.run("publish p orders count=1")
    for _ in range(150):
        script.run("publish p busy count=4 size=1000 durable")
        script.run("accept d " + " ".join(name for who, name in list(script.held) if who == "d"))
    assert script.stage.broker.journal.segments_count < 15
    assert not set(script.stage.disk.stable) & {1, 2, 3}
    script.run("accept c " + " ".join(names(1, 20)))
    script.run("connect e")
    script.run("attach e from orders::three")
    assert consumed(script, 36, "e", "orders::three") == names(1, 36)
    script.run("crash")
    script.run("start")
    script.run("connect f g")
    script.run("attach f from orders::two")
    durable = [name for name in names(1, 36) if int(name[1:]) % 6]
    assert consumed(script, 36, "f", "orders::two") == durable
    script.run("attach g from orders::one")
    assert consumed(script, 36, "g", "orders::one") == [name for name in durable if int(name[1:]) > 20]
    assert pins(script.stage) == 0


def test_segments_with_pages_stay_and_go_when_these_are_read() -> None:
    script = talk("p", "c", "d")
    script.run("attach p to orders")
    script.run("attach p to busy")
    script.run("attach d from busy credit=1000")
    script.run("publish p orders count=9")
    script.run("publish p orders count=9 size=300")
    for _ in range(60):
        script.run("publish p busy count=2 size=1000 durable")
        script.run("accept d " + " ".join(name for who, name in list(script.held) if who == "d"))
    journal = script.stage.broker.journal
    assert journal.segments_count > 5
    script.run("attach c from orders")
    assert consumed(script, 20) == names(1, 18)
    script.run("publish p busy durable")
    script.run("publish p busy durable")
    assert journal.segments_count <= 2


@pytest.mark.option("address-settings.page-limit-messages")
@pytest.mark.option("address-settings.page-full-policy")
@pytest.mark.parametrize(
    ("policy", "said"), [("FAIL", "rejected (amqp:resource-limit-exceeded)"), ("DROP", "accepted")]
)
def test_what_is_paged_has_a_bound_of_messages(policy: str, said: str) -> None:
    script = talk(page_limit_messages=10, page_full_policy=policy)
    script.run("attach p to orders")
    lines = [line for _ in range(30) for line in script.run("publish p orders durable")]
    orders, meters = queue(script.stage), script.stage.broker.store.meters
    assert (orders.message_count, orders.paged_count) == (18, 10)
    assert (meters.refused_total, meters.dropped_total) == ((12, 0) if policy == "FAIL" else (0, 12))
    assert lines[-1] == f"p learns {said}: m30"
    one = {"address": "orders", "messages": [{"body": "x"}]}
    answer = script.stage.admin("send", **one)
    assert answer == {"accepted": 1} if policy == "DROP" else "page-limit-messages" in answer["description"]
    script.run("connect q")
    script.run("attach q to nobody")
    assert f"q learns {said}: m31" in script.run("publish q nobody to=orders durable")
    script.run("attach c from orders")
    assert consumed(script, 9) == names(1, 9)
    assert script.run("publish p orders durable")[0].startswith("p learns accepted: m32")
    assert consumed(script, 20) == [*names(10, 18), "m32"]


@pytest.mark.option("address-settings.page-limit-bytes")
def test_what_is_paged_has_a_bound_of_bytes_for_all_queues_together() -> None:
    script = talk(page_limit_bytes=4000)
    for name in ("one", "two"):
        script.stage.admin("queue-create", name=name, address="orders", routing_type="multicast")
    script.run("attach p to orders")
    for _ in range(20):
        script.run("publish p orders size=300 durable")
    paged = [queue(script.stage, name).pages for name in ("one", "two")]
    assert 4000 <= sum(each.size_bytes for each in paged) < 5000
    assert script.stage.broker.store.meters.refused_total > 5


def test_a_bound_of_pages_alone_counts_where_the_node_is_full() -> None:
    script = full(page_limit_messages=5)
    for _ in range(5):
        script.run("publish p orders count=2 size=200 durable")
    orders = queue(script.stage)
    assert orders.paged_count == 5
    assert script.stage.broker.store.meters.refused_total == 30 - orders.message_count > 0
