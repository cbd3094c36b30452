"""Dead and expired messages whose address does not take them stay, those that have none are told of; and what leaves a
queue without a consumer's acceptance is counted by its reason, never as acknowledged.
"""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.core.address.dead_letters import HOLD_MS
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.unit.admin.site import Site

HELD_S = HOLD_MS // 1000
KINDS = ("rejected", "in vain", "expired")
OBSTACLES: dict[str, dict[str, dict[str, Any]]] = {
    "no queue": {"dead": {"auto_create_queues": False, "auto_create_addresses": False}},
    "a topic that nobody subscribes to": {"dead": {"default_address_routing_type": "MULTICAST"}},
    "its own address": {},
    "a queue that wants others": {},
    "queues-max": {},
}


def site_of(obstacle: str, **settings: Any) -> Site:
    target = "orders" if obstacle == "its own address" else "dead"
    said = {"dead_letter_address": target, "expiry_address": target, "max_delivery_attempts": 2} | settings
    limits = {"limits": {"queues_max": 1}} if obstacle == "queues-max" else {}
    site = Site({"orders": said} | OBSTACLES.get(obstacle, {}), **limits)
    site.do("queue-create", name="orders")
    if obstacle == "a queue that wants others":
        site.do("queue-create", name="dead", selector="a = 1")
    return site


def end(site: Site, kind: str, count: int = 5) -> None:
    """So many messages die or expire in `orders`."""
    bodies = [f"m{number}" for number in range(count)]
    if kind == "expired":
        site.send("orders", *bodies, ttl_ms=1, durable=True)
        site.stage.wait(100)
        return
    site.send("orders", *bodies, durable=True)
    for _ in range(1 if kind == "rejected" else 2):
        site.take("orders", session=7)
        tag = site.stage.broker.local and next(iter(site.stage.broker.local._tags[7]))
        site.stage.admin("settle", 7, tag=tag, outcome="rejected" if kind == "rejected" else "modified")


def leaving(site: Site) -> Any:
    return site.stage.broker.store.dead_letters


def told(site: Site, event: str) -> list[dict[str, Any]]:
    return [dict(notice.fields) for notice in site.stage.notices if notice.event == event]


def row(site: Site) -> tuple[int, int, int, int]:
    (found,) = [each for each in site.do("queues")["queues"] if each["name"] == "orders"]
    return (
        found["message_count"], found["messages_acknowledged"], found["messages_killed"], found["messages_expired"]
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_its_address_refuses_stays_and_somebody_is_told(obstacle: str, kind: str) -> None:
    site = site_of(obstacle)
    end(site, kind)
    assert row(site) == (5, 0, 0, 0)
    assert leaving(site).held_total == 5
    assert sum(leaving(site).left_totals.values()) == 0
    (event, *_) = told(site, "messages-held")
    assert event["queue"] == "orders"
    site.stage.wait(HOLD_MS)
    assert sum(each["count"] for each in told(site, "messages-held")) >= 5
    assert row(site)[:2] == (5, 0)
    site.restart()
    site.stage.wait(1000)
    assert row(site)[:2] == (5, 0), "nor does a restart end them"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("obstacle", ["no queue", "a topic that nobody subscribes to", "a queue that wants others"])
def test_what_stayed_goes_once_its_address_takes_it(obstacle: str, kind: str) -> None:
    site = site_of(obstacle)
    end(site, kind)
    if "topic" in obstacle:
        site.do("queue-create", name="letters", address="dead", routing_type="multicast")
    else:
        site.do("queue-create", name="letters", address="dead")
    site.stage.wait(HOLD_MS + 1000)
    if kind != "expired":
        site.kill("orders")  # a dead one is offered again, and killed again
    assert site.counts()["orders"] == 0
    assert site.bodies("letters") == [f"m{number}" for number in range(5)]
    reason = "expired" if kind == "expired" else "killed"
    assert {name: count for name, count in leaving(site).left_totals.items() if count} == {reason: 5}
    assert row(site) == (0, 0, 5 * (reason == "killed"), 5 * (reason == "expired"))


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_no_address_is_gone_and_somebody_is_told_once_in_a_while(kind: str) -> None:
    site = Site({"orders": {"max_delivery_attempts": 2}})
    for _ in range(3):
        end(site, kind)
    reason = "expired" if kind == "expired" else "killed"
    assert row(site) == (0, 0, 15 * (reason == "killed"), 15 * (reason == "expired"))
    assert leaving(site).lost_totals == {"killed": 0, "expired": 0} | {reason: 15}
    assert site.stage.broker.store.acknowledged_total == 0
    assert len(told(site, "messages-lost")) == 1
    site.stage.wait(HOLD_MS)
    events = told(site, "messages-lost")
    assert (len(events), sum(each["count"] for each in events)) == (2, 15)
    option = "expiry-address" if kind == "expired" else "dead-letter-address"
    assert all(each["queue"] == "orders" and f"no {option}" in each["reason"] for each in events)


def test_a_part_that_a_queue_wants_goes_and_the_rest_stays() -> None:
    site = site_of("a queue that wants others")
    wanted = {"a": 1}
    messages = [{"body": f"m{n}", "application_properties": wanted if n in (0, 2, 3) else {}} for n in range(6)]
    site.do("send", address="orders", messages=messages)
    site.kill("orders")
    assert site.bodies("dead") == ["m0", "m2", "m3"]
    assert row(site) == (3, 0, 3, 0)


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("replaced", {"default_last_value_key": "key"}),
        ("replaced", {"default_ring_size": 1}),
        ("purged", {}),
        ("deleted", {}),
        ("moved", {}),
    ],
)
def test_whatever_leaves_without_acceptance_is_counted_by_its_reason(reason: str, settings: dict[str, Any]) -> None:
    site = Site({"orders": settings})
    properties = {"key": "k"}
    site.send("orders", "one", "two", "three", application_properties=properties)
    if reason == "purged":
        site.do("queue-purge", name="orders")
    elif reason == "deleted":
        site.do("queue-delete", name="orders")
    elif reason == "moved":
        site.do("messages-move", queue="orders", address="elsewhere")
    expected = 2 if reason == "replaced" else 3
    assert {name: count for name, count in leaving(site).left_totals.items() if count} == {reason: expected}
    assert site.stage.broker.store.acknowledged_total == 0
    if reason == "replaced":
        assert site.stage.broker.store.queues["orders"].replaced_total == 2
    assert leaving(site).lost_totals == {"killed": 0, "expired": 0}, "nobody is warned of what was wanted"


def test_what_a_consumer_accepts_is_acknowledged_and_nothing_else() -> None:
    site = Site()
    site.send("orders", "one", "two")
    site.take("orders", session=7)
    site.stage.admin("settle", 7, tag=next(iter(site.stage.broker.local._tags[7])), outcome="accepted")
    assert (row(site)[1], site.stage.broker.store.acknowledged_total) == (2, 2)
    assert not any(leaving(site).left_totals.values())


def delivery_counts(site: Site) -> list[int]:
    return [message["delivery_count"] for message in site.do("browse", queue="orders")["messages"]]


def test_a_rejected_one_that_stays_was_delivered_once_at_least() -> None:
    site = site_of("no queue")
    end(site, "rejected", 2)
    site.stage.wait(HOLD_MS + 1000)
    assert delivery_counts(site) == [1, 1]
    site.restart()
    assert delivery_counts(site) == [1, 1]


def test_a_queue_that_is_to_go_goes_although_what_was_in_delivery_has_no_other_place() -> None:
    site = site_of("no queue")
    stage = site.stage
    conn = stage.accept()
    source = Source(address="orders", capabilities=(Symbol("topic"), Symbol("shared")))
    attach = Attach(name="sub", handle=0, role=True, source=source, target=Target())
    stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.frame(attach))
    site.do("queue-delete", name="orders")
    site.send("orders", "m")
    name = "raw.sub:shared-volatile"
    assert len(site.take(name, session=7)) == 1
    stage.talk(conn, frames.close())
    assert stage.broker.store.queues[name].delivering_count == 1, "a person has it"
    assert stage.admin("settle", 7, tag=next(iter(stage.broker.local._tags[7])), outcome="rejected") == {}
    assert name not in stage.broker.store.queues
