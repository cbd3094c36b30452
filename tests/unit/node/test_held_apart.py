"""What waits apart for an heir before goes to that one alone, when it is due, and that it does not go is named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mqbroker.core.cluster import held_back
from mqbroker.wire.performatives import Modified

from tests.unit.core.cluster.test_drains import count_at, filled, read_at
from tests.unit.node.cluster.departure.test_next_heir import Heirs
from tests.unit.node.test_scale_down import begin, moved, shown

DELAY_MS = 40_000


def with_redeliveries(*, delay_ms: int = DELAY_MS) -> Heirs:
    """Node a leaves, and three messages that were delivered in vain come again after this time. It was started again
    since, so nobody knows whether b has them."""
    of = Heirs(bound_ms=-1, options={"address_settings": {"orders": {"redelivery_delay": delay_ms}}})
    filled(of.a, 3, of.cluster)
    reader = read_at(of.a, of.cluster)
    for number in range(3):
        reader.settle(number, Modified(delivery_failed=True))
    of.cluster.run()
    begin(of.a, of.cluster, force=True)
    of.cluster.wait(3_000)
    of.a.crash()
    of.a.start()
    of.cluster.wait(2_000)
    assert of.a.broker.store.queues["orders"].scheduled_count == 3
    return of


def found(of: Heirs) -> list[int]:
    """How many messages a, b and c have."""
    return [count_at(node) if "orders" in node.broker.store.queues else 0 for node in (of.a, of.b, of.c)]


def test_what_is_put_apart_when_it_comes_due_goes_to_the_node_that_is_linked() -> None:
    of = with_redeliveries()
    of.a.admin("scale-down", node="c")
    of.cluster.wait(2_000)
    assert found(of) == [3, 0, 0]
    of.cluster.wait(DELAY_MS)
    said = moved(of.a, of.cluster)
    assert (found(of), said["receipt"]["balances"]) == ([0, 3, 0], True)


def test_called_off_what_waits_apart_and_comes_due_does_not_go_to_the_heir_of_now() -> None:
    of = with_redeliveries()
    of.lose(of.b)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(2_000)
    of.a.crash()
    of.a.start()  # nobody knows by now what of all that is there went to c, but for what waits apart
    of.cluster.wait(3_000)
    of.a.admin("scale-down-cancel")
    of.a.admin("send", address="orders", messages=[{"body": "new", "durable": True, "priority": 9}])
    of.cluster.wait(DELAY_MS + 15_000)
    assert found(of) == [4, 0, 0]
    of.bring_back(of.b)
    of.cluster.wait(5_000)
    assert (shown(of.a)["state"], found(of)) == ("none", [1, 3, 0])


@pytest.mark.slow
@pytest.mark.parametrize("room", [40, held_back.PAGED_MAX])
def test_called_off_what_waits_apart_and_is_paged_does_not_go_to_the_heir_of_now(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(held_back, "PAGED_MAX", room)
    of = Heirs(bound_ms=-1, confirmation_window_size=-1, options={"limits": {"link_credit": 100_000}})
    filled(of.a, 1, of.cluster)
    begin(of.a, of.cluster)
    of.cluster.wait(3_000)
    of.cluster.silence(of.b, is_deaf=False)
    of.a.admin("send", address="orders", messages=[{"body": f"{each:05}", "durable": True} for each in range(500)])
    of.cluster.run()
    of.cluster.wait(500)
    assert (count_at(of.b), of.unanswered) == (501, 500)
    of.a.crash()
    of.lose(of.b)
    limits = replace(of.a.options.limits, global_max_size_bytes=20_000)
    of.a.options = replace(of.a.options, limits=limits)
    of.a.start()
    of.cluster.wait(2_000)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(10)
    of.cluster.hold_up("a", "c")
    of.cluster.wait(300)
    of.a.crash()
    of.a.start()
    assert of.a.broker.store.queues["orders"].paged_count > 0
    assert of.a.admin("scale-down-cancel")["state"] == "ends"
    of.a.admin("send", address="orders", messages=[{"body": "new", "durable": True, "priority": 9}] * 3)
    of.cluster.let_through("a", "c")
    of.cluster.wait(20_000)
    assert (shown(of.a)["state"], count_at(of.a)) == ("ends", 503)
    of.b.start()
    of.cluster.wait(30_000)
    assert (shown(of.a)["state"], found(of)) == ("none", [3, 501, 0])
    assert of.b.broker.store.arrivals.dropped_total == 500


@pytest.mark.slow
def test_by_force_what_waits_apart_and_comes_due_much_later_holds_nobody() -> None:
    of = with_redeliveries(delay_ms=3_600_000)
    of.lose(of.b)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(3_000)
    of.bring_back(of.b)
    of.cluster.wait(5_000)
    said = shown(of.a)
    (hindrance,) = said["hindrances"]
    assert (said["state"], said["left"], found(of)) == ("moved", 3, [3, 0, 0])
    assert "delivered in vain" in hindrance["why"]
    of.cluster.wait(3_600_000)
    assert (moved(of.a, of.cluster)["left"], found(of)) == (0, [0, 3, 0])
