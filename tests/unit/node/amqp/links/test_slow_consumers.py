"""Consumers that take too little while messages wait, and those that only look as if they did."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Accepted

from tests.support import frames
from tests.support.stage import Stage, options_with

GO = frames.anonymous() + frames.opened() + frames.begun()


class Site:
    """A queue with `count` messages and one consumer with so much credit."""

    def __init__(self, count: int = 100, credit: int = 1, **settings: Any) -> None:
        values = {"slow_consumer_threshold": 2, **settings}
        self.stage = Stage(options_with({"idle_timeout_ms": 3_600_000}, address_settings={"#": values}))
        self.send(count)
        self.conn, self.settled = self.stage.accept(), 0
        self.stage.talk(self.conn, GO + frames.receiver(credit=credit))

    def send(self, count: int) -> None:
        self.stage.admin("send", address="orders", messages=[{"body": "x", "durable": False}] * count)

    def settle(self, count: int) -> None:
        """Accept the next ones and ask for as many more."""
        said = frames.disposition(self.settled, self.settled + count - 1, Accepted())
        self.settled += count
        self.stage.talk(self.conn, said + frames.flow(1, 1, delivery_count=self.settled))

    @property
    def told(self) -> list[dict[str, Any]]:
        return [each.fields for each in self.stage.notices if each.event == "consumer-slow"]


def work(site: Site, *, each_s: float, for_s: int) -> None:
    for _ in range(int(for_s / each_s)):
        site.settle(1)
        site.stage.wait(int(each_s * 1000))


@pytest.mark.option("address-settings.slow-consumer-threshold")
@pytest.mark.parametrize(("threshold", "is_slow"), [(-1, False), (0, False), (2, True), (1, False)])
def test_a_consumer_below_the_threshold_is_told_of_once(threshold: int, is_slow: bool) -> None:
    site = Site(slow_consumer_threshold=threshold)
    work(site, each_s=1, for_s=21)
    assert bool(site.told) is is_slow
    if is_slow:
        (fields,) = site.told
        assert (fields["queue"], fields["conn"], fields["policy"]) == ("orders", site.conn, "NOTIFY")
        assert (fields["settled"], fields["period_s"]) == (5, 5)
    # One that was fast enough for a while is told of again.
    work(site, each_s=0.25, for_s=12)
    site.stage.wait(12_000)
    assert len(site.told) == (2 if is_slow else int(threshold > 0))


@pytest.mark.option("address-settings.slow-consumer-threshold-measurement-unit")
@pytest.mark.parametrize(
    ("unit", "is_slow"),
    [("MESSAGES_PER_SECOND", True), ("MESSAGES_PER_MINUTE", True), ("MESSAGES_PER_HOUR", False),
     ("MESSAGES_PER_DAY", False)],
)  # fmt: skip
def test_the_threshold_counts_in_a_unit_of_time(unit: str, is_slow: bool) -> None:
    site = Site(slow_consumer_threshold=100, slow_consumer_threshold_measurement_unit=unit)
    work(site, each_s=1, for_s=15)  # 60 in a minute
    assert bool(site.told) is is_slow


@pytest.mark.option("address-settings.slow-consumer-check-period")
@pytest.mark.parametrize(("period_s", "is_told"), [(1, True), (20, False)])
def test_the_period_says_when_it_is_looked_at(period_s: int, is_told: bool) -> None:
    site = Site(slow_consumer_check_period=period_s)
    site.stage.wait(15_000)
    assert bool(site.told) is is_told
    site.stage.wait(30_000)
    assert site.told


@pytest.mark.option("address-settings.slow-consumer-policy")
def test_its_connection_may_be_closed_and_others_have_its_messages() -> None:
    site = Site(slow_consumer_policy="KILL")
    other = site.stage.accept()
    site.stage.talk(other, GO + frames.receiver("elsewhere", credit=1))
    site.stage.wait(11_000)
    said = bytes(site.stage.sent[site.conn])
    assert frames.errors(said) == [("Close", "amqp:connection:forced")]
    assert [each["policy"] for each in site.told] == ["KILL"]
    assert site.conn in site.stage.closed
    assert other not in site.stage.closed
    assert site.stage.broker.store.queues["orders"].ready_count == 100
    site.stage.wait(60_000)
    assert len(site.told) == 1


def test_who_has_nothing_to_do_is_not_slow() -> None:
    empty, idle = Site(count=0), Site(count=1)
    with_credit = Site(credit=1000)  # it holds all there is, and nothing waits
    for site in (empty, idle, with_credit):
        site.stage.wait(60_000)
        assert site.told == []


def test_messages_must_have_waited_all_the_time() -> None:
    site = Site(count=1)
    for _ in range(10):
        site.send(3)
        site.stage.wait(4_000)
        for _ in range(3):
            site.settle(1)
    assert site.told == []


def test_of_two_consumers_only_the_one_that_does_not_ask_is_slow() -> None:
    site = Site(count=3, slow_consumer_check_period=1)
    quick = site.stage.accept()
    site.stage.talk(quick, GO + frames.receiver(credit=2))
    site.send(1)
    for number in range(2, 100):
        site.send(1)
        site.stage.wait(100)
        said = frames.disposition(number - 2, number - 2, Accepted())
        site.stage.talk(quick, said + frames.flow(1, 1, delivery_count=number))
    assert [each["conn"] for each in site.told] == [site.conn]


def test_a_reload_turns_it_on_and_off() -> None:
    site = Site(slow_consumer_threshold=-1)
    site.stage.wait(20_000)
    for threshold, count in ((2, 1), (-1, 1), (2, 2)):
        values = {"#": {"slow_consumer_threshold": threshold}}
        site.stage.give(given.OptionsChanged(options_with(address_settings=values)))
        site.stage.run()
        site.stage.wait(20_000)
        assert len(site.told) == count
