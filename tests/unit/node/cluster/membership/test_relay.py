"""Links without an address: what is counted and told of messages for which there is no room."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire.performatives import Attach, Disposition, Rejected, Source, Target, Transfer
from mqbroker.wire.sections import Properties, build_message

from tests.support import frames
from tests.support.stage import Stage, options_with

FULL = "amqp:resource-limit-exceeded"


class Site:
    """A node, and a client with a link without an address."""

    def __init__(self, **settings: Any) -> None:
        settings = {"address_full_policy": "BLOCK"} | settings
        limits = {"global_max_size_bytes": 10_000}
        self.stage = Stage(options_with(limits=limits, address_settings={"#": settings}))
        self.conn = self.stage.accept()
        relay = Attach(name="r", handle=0, role=False, source=Source(), target=Target(), initial_delivery_count=0)
        self.stage.talk(self.conn, frames.anonymous() + frames.opened() + frames.begun() + frames.frame(relay))
        self.sent_count = 0

    def send(self, *places: str, size: int = 10, is_settled: bool = False) -> bytes:
        """A message for each place, in one read."""
        parts = []
        for to in places:
            head = Transfer(handle=0, delivery_id=self.sent_count, delivery_tag=b"%d" % self.sent_count,
                            message_format=0, settled=is_settled)  # fmt: skip
            payload = build_message(b"x" * size, durable=True, properties=Properties(to=to))
            parts.append(frames.frame(head, payload))
            self.sent_count += 1
        return self.stage.talk(self.conn, b"".join(parts))

    @property
    def refused(self) -> int:
        return self.stage.broker.counters.refused

    def counts(self) -> dict[str, int]:
        """How many messages the queues hold."""
        return {name: queue.message_count for name, queue in self.stage.broker.store.queues.items()}


def rejected(said: bytes) -> list[str]:
    """The conditions of messages that are refused, as many as there are."""
    found: list[str] = []
    for each in frames.of_kind(said, Disposition):
        if isinstance(each.state, Rejected) and each.state.error is not None:
            last = each.first if each.last is None else each.last
            found += [str(each.state.error.condition)] * (last - each.first + 1)
    return found


def test_messages_that_memory_has_no_room_for_are_told_and_counted() -> None:
    site = Site()
    assert rejected(site.send("orders", size=11_000)) == []
    assert rejected(site.send("orders", "orders", "invoices")) == [FULL] * 3
    assert (site.refused, site.counts()) == (3, {"orders": 1, "invoices": 0})


def test_who_sends_settled_hears_by_the_end_of_its_link_that_memory_is_full() -> None:
    site = Site()
    site.send("orders", size=11_000)
    assert frames.errors(site.send("orders", is_settled=True)) == [("Detach", FULL)]
    assert (site.refused, site.counts()) == (1, {"orders": 1})


def test_who_sends_settled_hears_by_the_end_of_its_link_that_an_address_is_full() -> None:
    """What came with it and goes elsewhere is taken in."""
    site = Site(max_size_messages=1)
    assert frames.errors(site.send("orders", "orders", "invoices", is_settled=True)) == [("Detach", FULL)]
    assert (site.refused, site.counts()) == (0, {"orders": 1, "invoices": 1}), "the address counts its own"
    assert site.stage.broker.store.meters.refused_total == 1


@pytest.mark.parametrize("to", ["gone", ""])
def test_a_link_goes_on_where_one_place_is_gone(to: str) -> None:
    """A service that answers settled has one for all who ask it, some of whom have left."""
    site = Site(auto_create_queues=False, auto_create_addresses=False)
    site.stage.admin("queue-create", name="orders")
    assert frames.errors(site.send(to, "orders", is_settled=True)) == []
    assert (site.refused, site.counts()) == (0, {"orders": 1})
