"""When a node announces itself, and what is told where that fails."""

from __future__ import annotations

from dataclasses import replace

from mqbroker.base.notice import Level
from mqbroker.cluster.discovery.broadcaster import Broadcaster
from mqbroker.config.slices import BroadcastGroupOptions

from tests.unit.cluster.discovery.sayings import MS, Spy

OPTIONS = BroadcastGroupOptions(
    name="lan", discovery="udp", local_bind_address="198.51.100.11", local_bind_port=-1, group_address="231.7.7.7",
    group_port=9876, directory="", peers=(), broadcast_period=2000, connector_ref="cluster", time_to_live=1,
)  # fmt: skip


def made(discovery: str = "udp") -> tuple[Spy, Broadcaster]:
    spy = Spy()
    texts = iter(range(1000))
    return spy, Broadcaster(replace(OPTIONS, discovery=discovery), spy, lambda: b"%d" % next(texts), 7 * MS)


def test_the_first_comes_at_once_and_each_further_one_a_period_after() -> None:
    spy, broadcaster = made()
    for at_ms in (7, 2010, 4010):  # the second comes late by 3 ms
        assert broadcaster.due_ns <= at_ms * MS
        broadcaster.on_time(at_ms * MS)
        assert broadcaster.due_ns == (at_ms + 2000) * MS
        broadcaster.sent()
    assert spy.sends == [("lan", b"0"), ("lan", b"1"), ("lan", b"2")]
    assert (broadcaster.sent_total, broadcaster.failed_total, spy.told) == (3, 0, [])


def test_one_is_on_its_way_at_a_time() -> None:
    spy, broadcaster = made()
    broadcaster.on_time(7 * MS)
    broadcaster.on_time(2007 * MS)
    assert len(spy.sends) == 1
    broadcaster.sent()
    broadcaster.on_time(4007 * MS)
    assert len(spy.sends) == 2


def test_a_failure_is_told_once_until_one_succeeds() -> None:
    spy, broadcaster = made()
    for outcome in "fffsff":
        broadcaster.on_time(broadcaster.due_ns)
        broadcaster.failed("no route") if outcome == "f" else broadcaster.sent()
    assert [(level, event) for level, event, _ in spy.told] == [
        (Level.ERROR, "broadcast-failed"), (Level.INFO, "broadcast-works-again"), (Level.ERROR, "broadcast-failed"),
    ]  # fmt: skip
    assert spy.told[0][2] == {"group": "lan", "why": "no route"}
    assert (broadcaster.sent_total, broadcaster.failed_total, broadcaster.trouble) == (1, 5, "no route")


def test_gossip_that_finds_nobody_is_told_once_it_lasts() -> None:
    spy, broadcaster = made("gossip")
    for outcome in "ffffs" + "fffffff" + "s":
        broadcaster.on_time(broadcaster.due_ns)
        broadcaster.failed("no peer can be reached") if outcome == "f" else broadcaster.sent()
        if spy.sends and outcome == "f":
            assert broadcaster.trouble
    assert [(level, event) for level, event, _ in spy.told] == [
        (Level.WARNING, "broadcast-failed"), (Level.INFO, "broadcast-works-again"),
    ]  # fmt: skip
    assert (broadcaster.sent_total, broadcaster.failed_total, broadcaster.trouble) == (2, 11, "")


def test_who_stops_says_nothing_more() -> None:
    _, broadcaster = made()
    broadcaster.stop()
    assert broadcaster.due_ns == 0
