"""A discovery group: joining, waiting for the first node, and what it does with what it hears."""

from __future__ import annotations

from mqbroker.base.notice import Level
from mqbroker.cluster.discovery.announcement import Announcement
from mqbroker.cluster.discovery.datagram import Drop, seal
from mqbroker.cluster.discovery.entries import EntryTable
from mqbroker.cluster.discovery.group import DiscoveryGroup
from mqbroker.cluster.discovery.states import State
from mqbroker.config.slices import DiscoveryGroupOptions

from tests.unit.cluster.discovery.sayings import BOOTS, KEY, MS, NODES, Spy, said

OPTIONS = DiscoveryGroupOptions("lan", "198.51.100.11", "231.7.7.7", 9876, 10_000, 30_000)


def ns(ms: int) -> int:
    """Time of the test as monotonic time, of which 0 means never."""
    return (ms + 1000) * MS


class Staged:
    """A group, and time for it. Joins are answered by the test."""

    def __init__(self, options: DiscoveryGroupOptions = OPTIONS) -> None:
        self.spy = Spy()
        self.group = DiscoveryGroup(options, self.spy, KEY, EntryTable(NODES[0], BOOTS[0], options.refresh_timeout))
        self.now_ms = 0
        self.group.start(ns(0))

    def wait(self, until_ms: int) -> None:
        while self.group.due_ns and self.group.due_ns <= ns(until_ms):
            self.now_ms = max(self.now_ms, self.group.due_ns // MS - 1000)
            before = self.group.due_ns
            self.group.on_time(ns(self.now_ms))
            assert self.group.due_ns != before, "a deadline that stays would never let anybody else have a turn"
        self.now_ms = until_ms

    def join(self) -> None:
        self.wait(self.now_ms)
        self.group.joined(ns(self.now_ms))

    def hear(self, what: Announcement | bytes, key: bytes = KEY) -> None:
        data = what if isinstance(what, bytes) else seal(what, key)
        self.group.heard(data, "198.51.100.12:4000", ns(self.now_ms))


def test_it_joins_at_once_and_says_where_it_listens() -> None:
    staged = Staged()
    staged.join()
    assert (staged.spy.joins, staged.group.state) == (["lan"], State.LISTENING)
    fields = {"group": "lan", "place": "231.7.7.7:9876", "local": "198.51.100.11"}
    assert staged.spy.told == [(Level.INFO, "discovery-listening", fields)]


def test_a_join_that_fails_is_told_once_and_tried_again() -> None:
    staged = Staged()
    staged.wait(0)
    for at_ms in (0, 5_000, 10_000):
        staged.wait(at_ms)
        assert len(staged.spy.joins) == at_ms // 5000 + 1
        staged.group.failed("no such card", ns(at_ms))
        assert (staged.group.state, staged.group.trouble) == (State.FAILED, "no such card")
    staged.wait(15_000)
    staged.group.joined(ns(15_000))
    assert staged.spy.events == ["discovery-join-failed", "discovery-listening"]
    assert staged.group.trouble == ""


def test_silence_makes_it_join_anew_without_a_word() -> None:
    staged = Staged()
    staged.join()
    staged.wait(9_999)
    staged.hear(b"anything at all")
    staged.wait(19_998)
    assert len(staged.spy.joins) == 1
    staged.wait(19_999)
    assert (len(staged.spy.joins), staged.group.state) == (2, State.REJOINING)
    staged.group.joined(ns(19_999))
    assert staged.spy.events == ["discovery-listening", "discovery-datagram-dropped"]


def test_a_card_that_went_away_is_told_of() -> None:
    staged = Staged()
    staged.join()
    staged.wait(10_000)
    staged.group.failed("no such card", ns(10_000))
    assert (staged.spy.events[-1], staged.group.state) == ("discovery-join-failed", State.FAILED)
    staged.wait(15_000)
    assert staged.group.state is State.JOINING


def test_nobody_heard_in_time_is_a_warning() -> None:
    staged = Staged()
    staged.join()
    staged.wait(29_999)
    staged.group.joined(ns(staged.now_ms))
    assert staged.group.is_waiting
    staged.wait(30_000)
    level, event, fields = staged.spy.told[-1]
    assert (level, event, fields["group"], staged.group.is_waiting) == (
        Level.WARNING, "discovery-nobody-heard", "lan", False
    )  # fmt: skip
    assert "nobody was heard" in str(fields["why"])


def test_the_warning_says_what_is_wrong_where_that_is_known() -> None:
    staged = Staged()
    staged.wait(0)
    staged.group.failed("no such card", ns(0))
    for at_ms in range(5_000, 30_000, 5_000):
        staged.wait(at_ms)
        staged.group.failed("no such card", ns(at_ms))
    staged.wait(30_000)
    assert staged.spy.told[-1][2]["why"] == "no such card"


def test_the_first_entry_ends_the_wait() -> None:
    staged = Staged()
    staged.join()
    staged.hear(said(0, 0, 1))
    assert staged.group.is_waiting, "oneself is nobody"
    staged.hear(said(1, 1, 1))
    assert (staged.group.is_waiting, staged.group.heard_total) == (False, 1)
    staged.wait(9_999)
    assert "discovery-nobody-heard" not in staged.spy.events


def test_what_is_dropped_is_counted_and_told_once_in_a_while() -> None:
    staged = Staged()
    staged.join()
    for _ in range(3):
        staged.hear(said(2, 2, 1), b"another secret")
        staged.hear(b"\0" * 100)
        staged.hear(said(0, 0, 1))
        staged.hear(b"MQPF\1" + b"\0" * 100)
    counts = {drop: count for drop, count in staged.group.dropped.items() if count}
    assert counts == {Drop.MAC: 3, Drop.MAGIC: 3, Drop.OWN: 3, Drop.PROBE: 3}
    told = [fields for _, event, fields in staged.spy.told if event == "discovery-datagram-dropped"]
    assert [fields["reason"] for fields in told] == ["mac", "magic"]
    assert told[0]["source"] == "198.51.100.12:4000"
    assert "secret" in str(told[0]["why"])
    staged.now_ms += 600_000
    staged.hear(b"\0" * 100)
    assert staged.spy.told[-1][2]["reason"] == "magic"


def test_a_timeout_that_one_lost_datagram_exceeds_is_told_of_once_a_node() -> None:
    staged = Staged()
    staged.join()
    for seq in (1, 2):
        staged.hear(said(1, 1, seq, period_ms=5_001))
        staged.hear(said(2, 2, seq, period_ms=5_000))
    told = [fields for _, event, fields in staged.spy.told if event == "discovery-refresh-timeout-low"]
    assert [(fields["node"], fields["broadcast_period_ms"]) for fields in told] == [("mq1", 5_001)]


def test_entries_end_by_the_groups_own_timer() -> None:
    staged = Staged()
    staged.join()
    staged.hear(said(1, 1, 1))
    staged.now_ms = 9_000
    staged.hear(b"noise, so that it need not join anew")
    staged.wait(9_999)
    assert len(staged.group.table.entries) == 1
    staged.wait(10_000)
    assert staged.group.table.entries == []


def test_a_group_that_stops_is_due_no_more() -> None:
    staged = Staged()
    staged.join()
    staged.hear(said(1, 1, 1))
    staged.group.stop()
    assert (staged.group.due_ns, staged.group.table.entries) == (0, [])
