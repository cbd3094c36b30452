"""A browser is shown what is in a queue, and changes nothing of what the queue does for those who take messages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.conversation import Conversation, ScriptStage


def talk(**settings: Any) -> Conversation:
    """A node with two messages at `orders`, and clients p, b and c."""
    script = Conversation()
    script.stage = ScriptStage(script, address_settings={"#": settings})
    for command in ("connect p b c", "attach p to orders", "publish p orders count=2 durable"):
        script.run(command)
    return script


def counts(script: Conversation) -> tuple[int, int]:
    """Messages of `orders`, and those that are in delivery."""
    (row,) = (row for row in script.stage.admin("queues")["queues"] if row["name"] == "orders")
    return row["message_count"], row["delivering_count"]


def test_an_exclusive_queue_is_for_its_first_consumer_and_not_for_a_browser_that_came_before() -> None:
    script = talk(default_exclusive_queue=True)
    assert script.run("attach b from orders browse credit=10")[1:] == ["b gets: m1 m2"]
    assert script.run("attach c from orders credit=10") == ["c link orders stands", "c gets: m1 m2"]
    assert script.run("publish p orders") == ["b gets: m3", "c gets: m3", "p learns accepted: m3"]


def test_a_browser_that_leaves_takes_nothing_with_it() -> None:
    script = talk(default_purge_on_no_consumers=True)
    script.run("attach b from orders browse credit=10")
    script.run("detach b orders")
    assert counts(script) == (2, 0)


def test_a_browser_that_stays_keeps_nothing_of_what_the_last_consumer_takes_with_it() -> None:
    script = talk(default_purge_on_no_consumers=True)
    script.run("attach b from orders browse credit=1")
    script.run("attach c from orders")
    script.run("detach c orders")
    assert counts(script) == (0, 0)


def test_consumers_that_a_queue_waits_for_are_no_browsers_and_these_wait_for_none() -> None:
    script = talk(default_consumers_before_dispatch=2)
    assert script.run("attach b from orders browse credit=10") == ["b link orders stands", "b gets: m1 m2"]
    assert script.run("attach c from orders credit=10") == ["c link orders stands"]
    assert script.run("attach p from orders") == ["c gets: m1 m2", "p link orders stands"]


def test_the_time_to_wait_for_them_begins_with_the_first_that_is_no_browser() -> None:
    script = talk(default_consumers_before_dispatch=2, default_delay_before_dispatch=1_000)
    script.run("attach b from orders browse")
    script.run("wait 900")
    script.run("attach c from orders credit=10")
    assert script.run("wait 900") == []
    assert script.run("wait 200") == ["c gets: m1 m2"]


def test_the_wait_begins_again_when_none_but_browsers_are_left() -> None:
    script = talk(default_consumers_before_dispatch=1)
    script.run("attach b from orders browse")
    script.run("attach c from orders")
    script.run("detach c orders")
    assert script.stage.broker.store.queues["orders"].dispatcher.is_closed


@pytest.mark.parametrize("operation", ["queue-pause", "address-pause"])
def test_what_is_paused_can_be_browsed(operation: str) -> None:
    script = talk()
    script.stage.admin(operation, name="orders")
    assert script.run("attach b from orders browse credit=10")[:2] == ["b link orders stands", "b gets: m1 m2"]
    assert script.run("attach c from orders credit=10") == ["c link orders stands"]
    assert script.run("publish p orders") == ["b gets: m3", "p learns accepted: m3"]


def test_browsers_do_not_count_at_the_bound_of_consumers() -> None:
    script = talk(default_max_consumers=1)
    assert script.run("attach b from orders browse credit=1") == ["b link orders stands", "b gets: m1"]
    assert script.run("attach c from orders credit=1") == ["c link orders stands", "c gets: m1"]
    assert script.run("attach p from orders browse credit=1") == ["p link orders stands", "p gets: m2"]
    script.run("connect d")
    assert script.run("attach d from orders credit=1")[0] == "d link orders is refused"


def test_groups_stay_where_they_are_when_a_browser_comes() -> None:
    script = talk(default_group_rebalance=True)
    script.run("publish p orders group=a")
    script.run("attach c from orders credit=10")
    groups = dict(script.stage.broker.store.queues["orders"].dispatcher.groups)
    script.run("attach b from orders browse")
    assert groups
    assert script.stage.broker.store.queues["orders"].dispatcher.groups == groups


def test_after_a_crash_what_was_browsed_does_not_count_as_delivered() -> None:
    script = talk()
    script.run("attach b from orders browse credit=10")
    script.run("crash")
    script.run("start")
    script.run("connect c")
    assert script.run("attach c from orders credit=10") == ["c link orders stands", "c gets: m1 m2"]


def test_a_durable_subscription_that_is_browsed_has_room_for_its_subscriber() -> None:
    script = talk()
    script.run("attach c from prices topic durable as=s")
    script.run("suspend c prices")
    (name,) = (name for name in script.stage.broker.store.queues if name != "orders")
    assert script.run(f"attach b from prices::{name} browse")[0].endswith("stands")
    assert script.run("attach c from prices topic durable as=s") == ["c link prices stands"]


def test_a_paused_queue_that_pages_can_be_browsed_to_its_end() -> None:
    script = Conversation()
    script.stage = ScriptStage(script, address_settings={"#": {"max_size_messages": 4, "page_size_bytes": 1024}})
    for command in ("connect p b", "attach p to orders", *["publish p orders count=5 durable size=200"] * 4):
        script.run(command)
    script.stage.admin("queue-pause", name="orders")
    assert script.stage.broker.store.queues["orders"].paged_count
    lines = script.run("attach b from orders browse credit=100")
    lines += script.run("wait 100")
    got = " ".join(line.partition(": ")[2] for line in lines if line.startswith("b gets: "))
    assert got == " ".join(f"m{number}" for number in range(1, 21))


def test_what_a_consumer_gives_back_is_not_shown_again_and_nothing_behind_it_is() -> None:
    script = talk()
    script.run("attach b from orders browse credit=10")
    script.run("attach c from orders credit=1")
    assert script.run("modify c m1") == []
    assert script.run("publish p orders") == ["b gets: m3", "p learns accepted: m3"]


def test_browsers_are_no_consumers_in_what_operators_are_shown() -> None:
    script = talk()
    script.run("attach b from orders browse credit=10")
    seen = []
    for command in ("connect d", "attach c from orders"):
        script.run(command)
        metric = script.stage.admin("metrics")["artemis_consumer_count"][0][1]
        seen.append((metric, script.stage.admin("queue-show", name="orders")["consumer_count"]))
    assert seen == [(0, 0), (1, 1)]
    assert len(script.stage.admin("consumers")["consumers"]) == 2
