"""The table of nodes that are heard: who is in it, when they leave, and what listeners are told."""

from __future__ import annotations

import random
from typing import Any

from mqbroker.cluster.discovery.datagram import Drop
from mqbroker.cluster.discovery.entries import BOOTS_MAX, ENTRIES_MAX, KNOWN_MAX, EntryTable

from tests.unit.cluster.discovery.sayings import BOOTS, MS, NODES, THERE, said

HEARD = (BOOTS[0],)  # what a process says that hears node 0, boot 0


class Watched:
    """A table of node 0, boot 0, and what its listener was told. Times are in ms."""

    def __init__(self, refresh_timeout_ms: int = 10_000) -> None:
        self.table = EntryTable(NODES[0], BOOTS[0], refresh_timeout_ms)
        self.told: list[str] = []
        self.table.listeners.append(lambda change: self.told.append(f"{change.announcement.name} {change.kind.value}"))

    def hear(self, at_ms: int, *what: int, **changes: Any) -> Drop | None:
        self.table.expire(at_ms * MS)
        return self.table.hear(said(*what, **changes), "198.51.100.12:4000", at_ms * MS)

    def names(self) -> list[str]:
        return [entry.announcement.name for entry in self.table.entries]

    def take(self) -> list[str]:
        told, self.told = self.told, []
        return told


def test_entries_accumulate_and_listeners_hear_of_new_ones_only() -> None:
    watched = Watched()
    for seq in (1, 2, 3):
        for node in (1, 2, 3):
            assert watched.hear(seq * 1000 + node, node, node, seq) is None
    assert watched.names() == ["mq1", "mq2", "mq3"]
    assert watched.told == ["mq1 found", "mq2 found", "mq3 found"]


def test_what_this_node_says_itself_makes_no_entry() -> None:
    watched = Watched()
    assert watched.hear(0, 0, 0, 5) is Drop.OWN
    assert (watched.names(), watched.told, watched.table.due_ns) == ([], [], 0)


def test_an_entry_ends_when_its_time_is_over_and_not_before() -> None:
    watched = Watched(1000)
    watched.hear(5, 1, 1, 1)
    watched.hear(10, 2, 2, 1)
    watched.hear(600, 1, 1, 2)
    assert watched.table.due_ns == 1010 * MS
    watched.table.expire(1010 * MS - 1)
    assert watched.names() == ["mq1", "mq2"]
    watched.take()
    watched.table.expire(1010 * MS)
    assert (watched.names(), watched.take(), watched.table.due_ns) == (["mq1"], ["mq2 lost"], 1600 * MS)
    watched.table.expire(1600 * MS)
    assert (watched.names(), watched.take(), watched.table.due_ns) == ([], ["mq1 lost"], 0)


def test_what_was_heard_before_counts_once() -> None:
    watched = Watched()
    assert watched.hear(0, 1, 1, 5) is None
    assert [watched.hear(1, 1, 1, seq) for seq in (5, 4, 1)] == [Drop.REPLAYED] * 3
    assert watched.hear(2, 1, 1, 6) is None
    # A recording does not keep a dead node alive, and does not bring it back.
    assert watched.hear(9_000, 1, 1, 6) is Drop.REPLAYED
    assert watched.hear(10_002, 1, 1, 6) is Drop.REPLAYED
    assert watched.names() == []
    assert watched.hear(20_000, 1, 1, 7) is None
    assert watched.told == ["mq1 found", "mq1 lost", "mq1 found"]


def test_another_connector_is_news_and_another_period_is_none() -> None:
    watched = Watched()
    watched.hear(0, 1, 1, 1)
    watched.hear(1, 1, 1, 2, period_ms=500)
    assert watched.take() == ["mq1 found"]
    watched.hear(2, 1, 1, 3, connectors=(THERE,))
    assert watched.take() == ["mq1 changed"]
    assert [entry.announcement.connectors for entry in watched.table.entries] == [(THERE,)]


def test_a_restart_is_news_at_once() -> None:
    watched = Watched()
    watched.hear(0, 1, 1, 100)
    assert watched.hear(1, 1, 2, 1) is None
    assert watched.told == ["mq1 found", "mq1 restarted"]
    (entry,) = watched.table.entries
    assert (entry.announcement.boot_id, entry.found_ns, entry.heard_ns) == (BOOTS[2], 0, MS)


def test_an_earlier_process_never_takes_the_place_of_a_later_one() -> None:
    watched = Watched()
    watched.hear(0, 1, 1, 100)
    watched.hear(1, 1, 2, 1)
    # One that was under way during the restart, and recordings.
    assert watched.hear(2, 1, 1, 101) is Drop.EARLIER_BOOT
    assert watched.hear(3, 1, 1, 101) is Drop.REPLAYED
    assert watched.hear(4, 1, 1, 100) is Drop.REPLAYED
    assert [entry.announcement.boot_id for entry in watched.table.entries] == [BOOTS[2]]
    assert watched.told == ["mq1 found", "mq1 restarted"]
    assert watched.table.conflicts == []


def test_two_processes_that_go_on_with_one_id_are_a_conflict_until_one_ends() -> None:
    watched = Watched()
    for turn in range(4):
        watched.hear(turn * 2000, 1, 1, turn + 1, name="copied")
        watched.hear(turn * 2000 + 700, 1, 2, turn + 1)
    # The earlier one was heard beside the later one at 2000, 4000 and 6000: not for longer than two periods yet.
    assert watched.take() == ["copied found", "mq1 restarted"]
    watched.hear(8000, 1, 1, 5, name="copied")
    assert (watched.take(), watched.table.conflicts) == (["copied conflict"], [NODES[1]])
    for turn in range(5, 9):
        watched.hear(turn * 2000, 1, 1, turn + 1, name="copied")
        watched.hear(turn * 2000 + 700, 1, 2, turn + 1)
    assert watched.take() == [], "told once"
    for turn in range(9, 14):
        watched.hear(turn * 2000 + 700, 1, 2, turn + 1)
    assert (watched.take(), watched.table.conflicts) == (["copied conflict-over"], [])


def test_restarts_are_no_conflict_however_many() -> None:
    watched = Watched()
    for boot in range(1, 20):
        watched.hear(boot * 1000, 1, boot, 1)
        watched.hear(boot * 1000 + 500, 1, boot, 2)
        if boot > 1:
            watched.hear(boot * 1000 + 501, 1, boot - 1, 3)  # one datagram of before that came late
    assert watched.table.conflicts == []
    assert watched.told == ["mq1 found", *["mq1 restarted"] * 18]


def test_another_process_with_the_id_of_this_node_is_a_conflict() -> None:
    watched = Watched()
    drops = [watched.hear(at_ms, 0, 7, at_ms, hears=HEARD) for at_ms in (1, 2001, 4001)]
    assert (drops, watched.told) == ([Drop.OWN_ID] * 3, [])
    assert watched.hear(6001, 0, 7, 6001) is Drop.OWN_ID, "it has named us, and need not each time"
    assert watched.hear(6002, 0, 7, 6001, hears=HEARD) is Drop.REPLAYED
    assert (watched.told, watched.table.conflicts, watched.names()) == (["mq0 conflict"], [NODES[0]], [])
    watched.table.expire(16_001 * MS)
    assert (watched.told, watched.table.conflicts) == (["mq0 conflict", "mq0 conflict-over"], [])


def test_what_does_not_name_this_process_may_be_a_recording_and_is_no_conflict() -> None:
    watched = Watched()
    for at_ms in range(1, 60_000, 2000):
        assert watched.hear(at_ms, 0, 7, at_ms, hears=(BOOTS[1],)) is Drop.OWN_ID
    assert (set(watched.take()), watched.table.conflicts) == ({"mq0 echo"}, [])
    assert watched.table.rivals == [BOOTS[7]]
    # One that lives names us as soon as it hears us, and then it counts after as long as any other.
    for at_ms in (60_001, 62_001, 64_001, 66_001):
        watched.hear(at_ms, 0, 7, at_ms, hears=(BOOTS[1], BOOTS[0]))
    assert (watched.take(), watched.table.conflicts) == (["mq0 conflict"], [NODES[0]])
    watched.table.expire(76_001 * MS)
    assert (watched.take(), watched.table.rivals) == (["mq0 conflict-over"], [])


def test_an_echo_that_ends_is_not_told_of() -> None:
    watched = Watched()
    for at_ms in range(1, 8_000, 2000):
        watched.hear(at_ms, 0, 7, at_ms)
    assert watched.take() == ["mq0 echo"]
    watched.table.expire(60_000 * MS)
    assert (watched.take(), watched.table.rivals) == ([], [])


def test_what_others_still_pass_on_of_this_node_is_no_conflict() -> None:
    watched = Watched()
    watched.table = EntryTable(NODES[0], BOOTS[0], 10_000, own_from_ns=10_000 * MS)
    for at_ms in range(1, 10_000, 1000):
        assert watched.hear(at_ms, 0, 7, at_ms, hears=HEARD) is Drop.OWN_ID
    assert watched.hear(10_001, 0, 7, 10_001, hears=HEARD) is Drop.OWN_ID
    assert watched.table.conflicts == []
    assert watched.hear(14_002, 0, 7, 14_002, hears=HEARD) is Drop.OWN_ID
    assert watched.table.conflicts == [NODES[0]]


def test_rivals_of_this_node_are_told_of_one_by_one_and_within_a_bound() -> None:
    watched = Watched()
    for at_ms in (0, 2000, 4001):
        for boot in range(1, BOOTS_MAX + 3):
            watched.hear(at_ms, 0, boot, at_ms + 1, hears=HEARD)
    assert (watched.told, watched.table.conflicts) == (["mq0 conflict"] * BOOTS_MAX, [NODES[0]])


def test_who_has_yielded_gives_its_place_up_and_is_never_taken_for_the_node() -> None:
    watched = Watched()
    assert watched.hear(0, 1, 2, 1, has_yielded=True) is Drop.YIELDED
    assert watched.names() == []
    watched.hear(1, 1, 1, 1, name="original")
    watched.hear(2, 1, 2, 2, name="copied")
    assert watched.names() == ["copied"]
    assert watched.hear(3, 1, 2, 3, has_yielded=True) is Drop.YIELDED
    assert watched.hear(4, 1, 2, 3, has_yielded=True) is Drop.REPLAYED
    watched.hear(5, 1, 1, 2, name="original")
    assert (watched.names(), watched.told[-1]) == (["original"], "original restarted")


def test_who_goes_on_saying_that_it_has_yielded_is_a_conflict_even_if_it_was_never_heard_beside_the_other() -> None:
    watched = Watched()
    watched.hear(0, 1, 1, 1, name="original")
    watched.hear(100, 1, 2, 1, name="copied")
    for at_ms in range(1000, 8000, 1000):
        assert watched.hear(at_ms, 1, 2, at_ms, name="copied", has_yielded=True) is Drop.YIELDED
        assert watched.hear(at_ms + 1, 1, 1, at_ms, name="original") is None
    assert watched.told == ["original found", "copied restarted", "original restarted", "copied conflict"]
    assert watched.table.conflicts == [NODES[1]]
    for at_ms in range(8000, 19_000, 1000):
        watched.hear(at_ms, 1, 1, at_ms, name="original")
    assert (watched.names(), watched.told[-1]) == (["original"], "copied conflict-over")


def test_of_three_processes_the_second_follows_on_the_third_that_yields_whatever_they_said_before() -> None:
    watched = Watched()
    for boot in (1, 2, 3):
        watched.hear(boot, 1, boot, 1, name=f"process {boot}")
    assert watched.hear(4, 1, 2, 2, name="process 2") is Drop.EARLIER_BOOT
    assert watched.hear(5, 1, 3, 2, has_yielded=True) is Drop.YIELDED
    assert watched.hear(6, 1, 1, 2, name="process 1") is Drop.EARLIER_BOOT
    assert watched.hear(7, 1, 2, 3, name="process 2") is None
    assert watched.names() == ["process 2"]


def test_what_this_node_said_before_its_restart_is_no_conflict() -> None:
    watched = Watched()
    assert watched.hear(0, 0, 7, 1) is Drop.OWN_ID
    assert watched.hear(30_000, 0, 7, 2) is Drop.OWN_ID
    assert watched.told == []


def node_id(number: int) -> str:
    return f"{number:08x}-1111-4000-8000-000000000000"


def test_the_table_is_bounded() -> None:
    watched = Watched()
    for number in range(ENTRIES_MAX):
        assert watched.hear(0, node_id=node_id(number)) is None
    assert watched.hear(1, node_id=node_id(ENTRIES_MAX)) is Drop.FULL
    assert watched.hear(1, seq=2, node_id=node_id(7)) is None
    watched.table.expire(10_000 * MS)
    assert watched.hear(10_000, node_id=node_id(ENTRIES_MAX)) is None


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first() -> None:
    watched = Watched(100)
    for number in range(KNOWN_MAX):
        watched.hear(number * 100, node_id=node_id(number))
    at_ms = KNOWN_MAX * 100
    assert watched.hear(at_ms, node_id=node_id(0)) is Drop.REPLAYED
    assert watched.hear(at_ms, node_id=node_id(KNOWN_MAX)) is None
    assert watched.hear(at_ms, node_id=node_id(0)) is None, "forgotten for the new one"
    assert watched.hear(at_ms, node_id=node_id(1)) is None, "forgotten for the one before"
    assert watched.hear(at_ms, node_id=node_id(KNOWN_MAX - 1)) is Drop.REPLAYED


def test_processes_that_are_remembered_are_bounded() -> None:
    watched = Watched()
    for boot in range(1, BOOTS_MAX + 2):
        watched.hear(boot, 1, boot, 5)
    assert watched.hear(50, 1, 2, 5) is Drop.REPLAYED
    # The first one is forgotten, so it counts as new: the price of a bound.
    assert watched.hear(51, 1, 1, 5) is None


def test_beyond_that_the_earliest_is_forgotten_and_not_the_one_that_goes_on() -> None:
    """It would count as new with its next word, and take the place of the latest."""
    watched = Watched()
    for boot in range(1, BOOTS_MAX + 1):
        watched.hear(boot, 1, boot, 5)
    assert watched.hear(50, 1, 2, 6) is Drop.EARLIER_BOOT
    assert watched.hear(51, 1, BOOTS_MAX + 1, 5) is None
    assert watched.hear(52, 1, 2, 7) is Drop.EARLIER_BOOT
    assert watched.hear(53, 1, BOOTS_MAX + 1, 6) is None


def test_histories_keep_their_promises() -> None:
    """Whatever comes in whatever order: no seq counts twice, and entries are those that were heard in time."""
    rng = random.Random(4)
    for _ in range(60):
        watched = Watched(rng.choice([300, 1000]))
        counted: set[tuple[int, int, int]] = set()
        heard_ms: dict[str, int] = {}
        at_ms = 0
        for _ in range(150):
            at_ms += rng.randrange(120)
            what = (rng.randrange(4), rng.randrange(3), rng.randrange(1, 12))
            drop = watched.hear(at_ms, *what)
            if drop in (None, Drop.EARLIER_BOOT, Drop.OWN_ID):
                assert what not in counted
                counted.add(what)
            if drop is None:
                heard_ms[f"mq{what[0]}"] = at_ms
            alive = {name for name, then in heard_ms.items() if at_ms - then < watched.table._timeout_ns // MS}
            assert set(watched.names()) == alive
            assert "mq0" not in alive


def test_a_higher_term_takes_the_place_whenever_its_process_came_and_keeps_it() -> None:
    watched = Watched()
    watched.hear(0, 1, 1, 1)
    watched.hear(1, 1, 2, 1)
    assert watched.hear(2, 1, 1, 2) is Drop.EARLIER_BOOT
    watched.take()
    assert watched.hear(3, 1, 1, 3, term=1) is None, "it came first, and has taken over since"
    assert watched.take() == ["mq1 restarted"]
    for at_ms in range(4, 9_000, 2000):
        assert watched.hear(at_ms, 1, 2, at_ms, term=0) is Drop.EARLIER_BOOT
        assert watched.hear(at_ms + 1, 1, 3, at_ms) is Drop.EARLIER_BOOT, (
            "one that is new has a lower term all the same"
        )
        assert watched.hear(at_ms + 2, 1, 1, at_ms, term=1) is None
    assert watched.names() == ["mq1"]
    assert watched.take() == ["mq1 conflict"], "it goes on speaking"


def test_who_was_deposed_does_not_come_back_when_its_successor_is_silent() -> None:
    watched = Watched(1000)
    watched.hear(0, 1, 1, 1)
    watched.hear(1, 1, 2, 1, term=1)
    assert watched.hear(5_000, 1, 1, 2) is Drop.EARLIER_BOOT
    assert watched.hear(5_001, 1, 4, 1) is Drop.EARLIER_BOOT
    assert watched.names() == []
    assert watched.hear(5_002, 1, 3, 1, term=1) is None, "the successor was restarted"
    assert watched.hear(5_003, 1, 2, 2, term=1) is Drop.EARLIER_BOOT


def test_processes_that_are_of_the_past_are_remembered_within_bounds() -> None:
    watched = Watched()
    watched.hear(0, 1, 1, 1, term=1)
    for boot in range(3 * BOOTS_MAX):
        fields = {"boot_id": f"{boot + 100:032x}"}
        assert watched.hear(boot, 1, 1, 1, **fields) is Drop.EARLIER_BOOT
        assert watched.hear(boot, 1, 1, 2, **fields, has_yielded=True) is Drop.YIELDED
    assert len(watched.table._known[NODES[1]].boots) <= BOOTS_MAX
    assert watched.hear(9, 1, 1, 1, term=1) is Drop.REPLAYED, "the one that counts is not forgotten for them"


def test_what_is_cleared_is_no_conflict_any_more_and_nothing_is_due() -> None:
    watched = Watched()
    for number in range(20):
        watched.hear(number * 1000, 1, 1 + number % 2, number + 1)
    assert watched.table.conflicts == [NODES[1]]
    watched.table.clear()
    assert (watched.table.conflicts, watched.table.due_ns) == ([], 0)
