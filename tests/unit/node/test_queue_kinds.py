"""Rings and last-value queues while messages are with consumers, scheduled, or come back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.conversation import Conversation, ScriptStage


def talk(*commands: str, **settings: Any) -> Conversation:
    script = Conversation()
    script.stage = ScriptStage(script, address_settings={"#": settings})
    for command in ("connect p c", "attach p to orders", *commands):
        script.run(command)
    return script


def left(script: Conversation) -> list[str]:
    """What a browser is shown."""
    script.run("connect b")
    lines = script.run("attach b from orders browse credit=100")
    return [name for line in lines[1:] for name in line.removeprefix("b gets: ").split(" ") if name.startswith("m")]


# -- rings ------------------------------------------------------------------------------------------------------------


def test_what_is_with_a_consumer_keeps_nothing_newer_out_of_a_ring() -> None:
    script = talk("publish p orders count=3", "attach c from orders credit=3", default_ring_size=3)
    script.run("publish p orders count=4")
    assert left(script) == ["m5", "m6", "m7"]


def test_what_comes_back_to_a_full_ring_is_older_than_what_is_there() -> None:
    script = talk("publish p orders count=3", "attach c from orders credit=3", default_ring_size=3)
    script.run("publish p orders count=2")
    script.run("release c m1 m2 m3")
    assert left(script) == ["m3", "m4", "m5"]
    assert script.stage.broker.store.queues["orders"].message_count == 3


@pytest.mark.parametrize("is_crash", [True, False])
def test_a_ring_is_the_same_after_a_restart(is_crash: bool) -> None:
    script = talk("publish p orders count=3 durable", "attach c from orders credit=3", default_ring_size=3)
    script.run("publish p orders count=2 durable")
    script.run("crash" if is_crash else "stop")
    script.run("start")
    assert left(script) == ["m3", "m4", "m5"]


def test_what_is_scheduled_has_its_place_in_a_ring_when_it_is_due() -> None:
    script = talk("publish p orders delay=1000", "publish p orders count=3", default_ring_size=2)
    orders = script.stage.broker.store.queues["orders"]
    assert (orders.message_count, orders.scheduled_count) == (3, 1)
    script.run("wait 1100")
    assert left(script) == ["m3", "m4"]


def test_a_commit_of_more_than_a_ring_holds_leaves_the_last_of_it() -> None:
    script = talk("publish p orders count=2", "attach c from orders credit=2", "declare p t", default_ring_size=2)
    script.run("publish p orders count=3 txn=t durable")
    script.run("commit p t")
    assert left(script) == ["m4", "m5"]


# -- last values ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_value_that_has_to_wait_for_its_redelivery_does_not_replace_a_newer_one(is_restarted: bool) -> None:
    script = talk("publish p orders durable k=a", "attach c from orders credit=1",
                  default_last_value_key="k", redelivery_delay=1_000)  # fmt: skip
    script.run("publish p orders durable k=a")
    script.run("modify c m1")
    if is_restarted:
        script.run("crash")
        script.run("start")
    script.run("wait 1100")
    assert left(script) == ["m2"]


@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_value_that_is_the_last_comes_again_after_its_delay(is_restarted: bool) -> None:
    script = talk("publish p orders durable k=a", "attach c from orders credit=1",
                  default_last_value_key="k", redelivery_delay=1_000)  # fmt: skip
    script.run("modify c m1")
    if is_restarted:
        script.run("stop")
        script.run("start")
    assert left(script) == []
    assert script.run("wait 1100") == ["b gets: m1 (delivery count 1)"]


def test_a_value_that_was_sent_to_come_later_replaces_the_one_that_is_there_then() -> None:
    script = talk("publish p orders delay=1000 k=a", "publish p orders k=a", default_last_value_key="k")
    assert script.stage.broker.store.queues["orders"].message_count == 2
    script.run("wait 1100")
    assert left(script) == ["m1"]


def test_a_value_in_delivery_outlives_that_the_rest_is_dropped() -> None:
    script = talk("publish p orders k=a", "publish p orders k=b", "declare c t", "attach c from orders credit=1",
                  "accept c m1 txn=t", default_last_value_key="k", default_purge_on_no_consumers=True)  # fmt: skip
    script.run("detach c orders")
    script.run("rollback c t")
    assert left(script) == ["m1"]


def test_keys_are_forgotten_with_their_messages() -> None:
    script = talk("attach c from orders credit=100", default_last_value_key="k")
    for number in range(10):
        script.run(f"publish p orders k=key-{number}")
    last_values = script.stage.broker.store.queues["orders"].last_values
    assert len(last_values) == 10
    script.run("accept c " + " ".join(f"m{number}" for number in range(1, 10)))
    assert list(last_values) == ["key-9"]


def test_the_key_of_a_newer_value_outlives_the_older_one() -> None:
    script = talk("publish p orders k=a", "attach c from orders credit=1", default_last_value_key="k")
    script.run("publish p orders k=a")
    script.run("accept c m1")
    script.run("publish p orders k=a")
    assert left(script) == ["m3"]


# -- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{"default_non_destructive": True}, {"default_group_rebalance": True}])
def test_who_gets_copies_gets_them_once_whoever_comes_and_goes(settings: dict[str, Any]) -> None:
    script = talk("publish p orders count=3 group=a", **settings)
    script.run("connect b d")
    copies = "" if "default_non_destructive" in settings else "browse "
    assert script.run(f"attach b from orders {copies}credit=100")[1:] == ["b gets: m1 m2 m3"]
    for command in ("attach c from orders credit=1", "attach d from orders credit=1", "detach c orders"):
        assert [line for line in script.run(command) if line.startswith("b gets")] == []


@pytest.mark.parametrize("how", ["default_non_destructive", "browse"])
def test_who_gets_copies_gets_those_of_a_higher_priority_that_come_later(how: str) -> None:
    script = talk("connect b", **({} if how == "browse" else {how: True}))
    script.run("publish p orders count=2 prio=1")
    script.run(f"attach b from orders {how} credit=3")
    assert script.run("publish p orders prio=9") == ["b gets: m3", "p learns accepted: m3"]
    assert script.run("publish p orders prio=5") == ["p learns accepted: m4"]
    assert script.run("publish p orders prio=9") == ["p learns accepted: m5"]
    assert script.run("credit b orders 5") == ["b gets: m5 m4"]


def test_a_browser_is_shown_all_that_is_paged_whatever_its_priority() -> None:
    script = talk(*(f"publish p orders count=5 durable prio={prio}" for prio in (1, 9, 5)), max_size_messages=4)
    assert left(script) == [f"m{number}" for number in range(1, 16)]
