"""A discovery group: joining, waiting for the first node, and what it does with what it hears."""

from __future__ import annotations

from dataclasses import replace

from mqbroker.base.notice import Level
from mqbroker.cluster.discovery.announcement import Announcement, Connector
from mqbroker.cluster.discovery.candidates import CandidateTable
from mqbroker.cluster.discovery.datagram import Drop, seal
from mqbroker.cluster.discovery.entries import EntryTable
from mqbroker.cluster.discovery.group import DiscoveryGroup
from mqbroker.cluster.discovery.states import GroupState
from mqbroker.config.slices import DiscoveryGroupOptions

from tests.unit.cluster.discovery.sayings import BOOTS, KEY, MS, NODES, Spy, said

OPTIONS = DiscoveryGroupOptions(
    name="lan", discovery="udp", local_bind_address="198.51.100.11", local_bind_port=-1, group_address="231.7.7.7",
    group_port=9876, directory="", names=(), tls_enabled=False, peers=(), poll_period=2000, refresh_timeout=10_000,
    initial_wait_timeout=30_000,
)  # fmt: skip


def ns(ms: int) -> int:
    """Time of the test as monotonic time, of which 0 means never."""
    return (ms + 1000) * MS


class Staged:
    """A group, and time for it. Joins are answered by the test."""

    def __init__(self, options: DiscoveryGroupOptions = OPTIONS) -> None:
        self.spy = Spy()
        is_dns = options.discovery == "dns"
        own = frozenset({("192.0.2.1", 5673)})
        table = CandidateTable(own) if is_dns else EntryTable(NODES[0], BOOTS[0], options.refresh_timeout)
        self.group = DiscoveryGroup(options, self.spy, KEY, table)
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
    assert (staged.spy.joins, staged.group.state) == (["lan"], GroupState.LISTENING)
    fields = {"group": "lan", "place": "231.7.7.7:9876", "local": "198.51.100.11"}
    assert staged.spy.told == [(Level.INFO, "discovery-listening", fields)]


def test_a_join_that_fails_is_told_once_and_tried_again() -> None:
    staged = Staged()
    staged.wait(0)
    for at_ms in (0, 5_000, 10_000):
        staged.wait(at_ms)
        assert len(staged.spy.joins) == at_ms // 5000 + 1
        staged.group.failed("no such card", ns(at_ms))
        assert (staged.group.state, staged.group.trouble) == (GroupState.FAILED, "no such card")
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
    assert (len(staged.spy.joins), staged.group.state) == (2, GroupState.REJOINING)
    staged.group.joined(ns(19_999))
    assert staged.spy.events == ["discovery-listening", "discovery-datagram-dropped"]


def test_a_card_that_went_away_is_told_of() -> None:
    staged = Staged()
    staged.join()
    staged.wait(10_000)
    staged.group.failed("no such card", ns(10_000))
    assert (staged.spy.events[-1], staged.group.state) == ("discovery-join-failed", GroupState.FAILED)
    staged.wait(15_000)
    assert staged.group.state is GroupState.JOINING


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


# -- other kinds than udp ----------------------------------------------------------------------------------------------

DNS = replace(OPTIONS, discovery="dns", names=("mq.example:5673",), local_bind_address="")
TWO = [("mq.example:5673", Connector("lan", "amqp", host, 5673)) for host in ("192.0.2.2", "192.0.2.3")]


def test_what_names_lead_to_is_kept_until_they_lead_elsewhere_whatever_the_time() -> None:
    staged = Staged(DNS)
    staged.join()
    staged.group.answered([*TWO, ("mq.example:5673", Connector("lan", "amqp", "192.0.2.1", 5673))], ns(0))
    staged.wait(3_600_000)
    assert [entry.announcement.connectors[0].host for entry in staged.group.table.entries] == ["192.0.2.2", "192.0.2.3"]
    assert not staged.group.is_waiting
    staged.group.answered(TWO[1:], ns(staged.now_ms))
    assert [entry.announcement.name for entry in staged.group.table.entries] == ["192.0.2.3:5673"]
    assert (staged.spy.joins, staged.spy.events) == (["lan"], ["discovery-listening"])


def test_names_that_lead_to_this_node_alone_are_nobody() -> None:
    staged = Staged(DNS)
    staged.join()
    staged.group.answered([("mq.example:5673", Connector("lan", "amqp", "192.0.2.1", 5673))], ns(0))
    staged.wait(30_000)
    assert staged.spy.told[-1] == (
        Level.WARNING, "discovery-nobody-heard",
        {"group": "lan", "why": "the names do not exist, or lead to no node but this one"},
    )  # fmt: skip


def test_more_places_than_the_table_holds_are_counted() -> None:
    staged = Staged(DNS)
    staged.join()
    many = [("mq", Connector("lan", "amqp", f"10.0.{number // 250}.{number % 250}", 1)) for number in range(1500)]
    staged.group.answered(many, ns(0))
    assert (len(staged.group.table.entries), staged.group.dropped[Drop.FULL]) == (1000, 1)


def test_looks_that_fail_are_told_once_and_once_when_they_work_again() -> None:
    staged = Staged(replace(OPTIONS, discovery="file", directory="/srv/mq", local_bind_address=""))
    staged.join()
    for why in ("it is gone", "it is still gone"):
        staged.group.looked(why)
        assert staged.group.trouble == why
    staged.group.looked("")
    assert staged.group.trouble == ""
    place = {"group": "lan", "place": "/srv/mq"}
    assert staged.spy.told[1:] == [
        (Level.WARNING, "discovery-look-failed", {**place, "why": "it is gone"}),
        (Level.INFO, "discovery-look-works-again", place),
    ]


def test_gossip_passes_on_what_it_believes_and_no_more_of_who_is_lost() -> None:
    staged = Staged(replace(OPTIONS, discovery="gossip", local_bind_port=7000))
    staged.join()
    first, second = seal(said(1, seq=5), KEY), seal(said(1, seq=6), KEY)
    staged.hear(first)
    staged.hear(seal(said(1, seq=4), KEY))
    staged.hear(seal(said(2), b"x" * 32))
    staged.hear(seal(said(0, boot=0), KEY))
    staged.hear(second)
    assert staged.spy.relayed == [("lan", NODES[1], first), ("lan", NODES[1], second)]
    staged.wait(10_000)
    assert staged.spy.relayed[2:] == [("lan", NODES[1], b"")]


def test_others_than_gossip_pass_nothing_on() -> None:
    staged = Staged()
    staged.join()
    staged.hear(said(1))
    assert (staged.group.heard_total, staged.spy.relayed) == (1, [])
