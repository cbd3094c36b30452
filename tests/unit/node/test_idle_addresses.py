"""Addresses that nobody uses: when they are deleted, and what keeps them."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire.performatives import Attach, Source, Target, Transfer
from mqbroker.wire.sections import Properties, build_message
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with

GO = frames.anonymous() + frames.opened() + frames.begun()
TOPIC = (Symbol("topic"),)
SUBSCRIBER = frames.frame(Attach(name="s", handle=1, role=True, source=Source(address="news", capabilities=TOPIC)))
PUBLISHER = frames.frame(
    Attach(name="p", handle=0, role=False, target=Target(address="news", capabilities=TOPIC), initial_delivery_count=0)
)


class Site:
    """A node whose connections never fall silent."""

    def __init__(self, **settings: Any) -> None:
        self.stage = Stage(options_with({"idle_timeout_ms": 3_600_000}, address_settings={"#": settings}))
        self.conn = self.stage.accept()
        self.stage.talk(self.conn, GO)

    def talk(self, *said: bytes) -> bytes:
        return self.stage.talk(self.conn, b"".join(said))

    @property
    def addresses(self) -> list[str]:
        return [row["name"] for row in self.stage.admin("addresses")["addresses"]]


@pytest.mark.option("address-settings.auto-delete-addresses")
@pytest.mark.parametrize(("is_on", "left"), [(True, []), (False, ["news"])])
def test_the_address_of_a_topic_ends_after_its_last_subscriber(is_on: bool, left: list[str]) -> None:
    site = Site(auto_delete_addresses=is_on)
    site.talk(SUBSCRIBER, frames.detach(1))
    site.stage.wait(20_000)
    assert site.addresses == ["news"]  # who comes back at once finds it
    site.stage.wait(20_000)
    assert site.addresses == left


@pytest.mark.parametrize(("is_on", "left"), [(True, []), (False, ["orders"])])
def test_the_address_of_a_queue_ends_with_its_queue(is_on: bool, left: list[str]) -> None:
    site = Site(auto_delete_addresses=is_on)
    site.stage.admin("queue-create", name="orders")
    site.stage.admin("queue-delete", name="orders")
    assert site.addresses == left
    # Whatever became of it, the address can be used again.
    site.stage.admin("send", address="orders", messages=[{"body": "x"}])
    assert site.stage.broker.store.queues["orders"].message_count == 1


@pytest.mark.option("address-settings.auto-delete-addresses-delay")
@pytest.mark.parametrize("said", [SUBSCRIBER, frames.receiver("news")], ids=["topic", "queue"])
def test_it_may_be_kept_for_longer(said: bytes) -> None:
    site = Site(auto_delete_addresses_delay=60_000)
    site.talk(said)
    site.talk(frames.detach(1))
    begin_ms = 0 if said is SUBSCRIBER else 30_000  # a queue is idle for a while itself
    site.stage.wait(begin_ms + 55_000)
    assert site.addresses == ["news"]
    site.stage.wait(10_000)
    assert site.addresses == []


@pytest.mark.option("address-settings.auto-delete-addresses-skip-usage-check")
@pytest.mark.parametrize(("is_skipped", "left"), [(False, ["news"]), (True, [])])
def test_one_that_never_had_a_queue_stays_unless_told_otherwise(is_skipped: bool, left: list[str]) -> None:
    site = Site(auto_delete_addresses_skip_usage_check=is_skipped)
    site.talk(PUBLISHER, frames.detach(0))
    site.stage.wait(40_000)
    assert site.addresses == left


def test_what_only_senders_touched_goes_by_itself() -> None:
    """Whoever may send could fill a node with names otherwise."""
    site = Site(default_address_routing_type="MULTICAST")
    site.talk(frames.frame(Attach(name="r", handle=0, role=False, target=Target(), initial_delivery_count=0)))
    for number in range(3):
        body = build_message("x", durable=True, properties=Properties(to=f"news.{number}"))
        site.talk(frames.frame(Transfer(handle=0, delivery_id=number, delivery_tag=b"%d" % number), body))
    named = Attach(name="p", handle=1, role=False, target=Target(address="named"), initial_delivery_count=0)
    site.talk(frames.frame(named))
    assert site.addresses == ["named", "news.0", "news.1", "news.2"]
    site.stage.wait(40_000)
    assert site.addresses == ["named"], "its producer is there"
    site.talk(frames.detach(1))
    site.stage.wait(40_000)
    assert site.addresses == []
    site.talk(frames.frame(named))
    site.stage.crash()
    site.stage.start()
    assert site.addresses == [], "none outlives the process"


@pytest.mark.parametrize("end", ["detach", "end", "drop"])
def test_a_producer_keeps_its_topic_and_reaches_who_comes_later(end: str) -> None:
    site = Site()
    site.talk(SUBSCRIBER, PUBLISHER, frames.detach(1))
    site.stage.wait(100_000)
    assert site.addresses == ["news"]
    late = site.stage.accept()
    site.stage.talk(late, GO + SUBSCRIBER + frames.flow(1, 10))
    site.talk(frames.transfer(0))
    came = [each for each in frames.heard(bytes(site.stage.sent[late])) if isinstance(each, tuple)]
    assert [isinstance(head, Transfer) for head, _ in came] == [True]
    site.stage.talk(late, frames.close())
    if end == "drop":
        site.stage.drop_bare(site.conn)
    else:
        site.talk(frames.detach(0) if end == "detach" else frames.end())
    site.stage.wait(40_000)
    assert site.addresses == []


def test_who_comes_while_it_waits_keeps_it() -> None:
    site = Site()
    site.talk(SUBSCRIBER, frames.detach(1))
    site.stage.wait(29_000)
    site.talk(SUBSCRIBER)
    site.stage.wait(60_000)
    assert site.addresses == ["news"]
    site.talk(frames.detach(1))
    site.stage.wait(29_000)
    assert site.addresses == ["news"]
    site.stage.wait(2_000)
    assert site.addresses == []


def test_a_producer_of_a_shared_queue_makes_it_again_and_is_counted_once() -> None:
    site = Site()
    site.talk(frames.sender(), frames.transfer(0))
    store = site.stage.broker.store
    for number in (1, 2):
        site.talk(frames.receiver(credit=1))
        site.talk(frames.detach(1))
        store.purge(store.queues["orders"])
        site.stage.wait(31_000)
        assert site.addresses == []
        site.talk(frames.transfer(number))
        assert store.addresses["orders"].producers_count == 1
    site.talk(frames.detach(0))
    assert store.addresses["orders"].producers_count == 0


@pytest.mark.parametrize("wait_ms", [0, 2_000])
def test_who_leaves_before_the_disk_has_let_him_in_does_not_keep_an_idle_queue(wait_ms: int) -> None:
    site = Site()
    site.talk(frames.sender(), frames.transfer(0, durable=True), frames.detach(0))
    site.stage.crash()
    site.stage.start()
    site.stage.admin("queue-purge", name="orders")
    site.stage.wait(29_000)
    site.stage.is_disk_held = True
    late = site.stage.accept()
    site.stage.talk(late, frames.anonymous() + frames.opened() + frames.begun() + frames.receiver())
    assert site.stage.broker.store.queues["orders"].arriving_count == 1
    site.stage.wait(wait_ms)
    site.stage.drop_bare(late)
    site.stage.is_disk_held = False
    site.stage.run()
    site.stage.wait(31_000)
    assert site.addresses == []
