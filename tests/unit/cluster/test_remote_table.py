"""What routing sees of a neighbour that tells of its bindings, as conversations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.errors import PeerFault, Scope
from mqbroker.cluster import notices as n
from mqbroker.cluster import remote_table
from mqbroker.cluster.remote_table import BindingClusterNotice, PassedOver, RemoteTable
from mqbroker.cluster.remote_table_states import TableState

from tests.unit.cluster.neighbours import A, B, C, D, E, Hearer

WRONG = "a = = 1"


def added(
    queue: str = "q", node_id: str = B, distance: int = 0, address: str = "", selector: str = ""
) -> n.BindingAdded:
    return n.BindingAdded(queue, address or queue, "anycast", selector, node_id, distance)


def removed(queue: str = "q", node_id: str = B) -> n.BindingRemoved:
    return n.BindingRemoved(queue + node_id)


def created(selector: str = "", queue: str = "q", node_id: str = B) -> n.ConsumerCreated:
    return n.ConsumerCreated(queue + node_id, selector)


def closed(selector: str = "", queue: str = "q", node_id: str = B) -> n.ConsumerClosed:
    return n.ConsumerClosed(queue + node_id, selector)


RESET, COMPLETE = n.Reset(), n.ResetComplete()


def tell(table: RemoteTable, *notices: BindingClusterNotice) -> None:
    for notice in notices:
        table.hear(notice)


def live(hearer: Hearer, *notices: BindingClusterNotice, neighbour: str = B) -> RemoteTable:
    """A table that has heard these as the beginning; routing's calls are taken."""
    table = hearer.table(neighbour)
    tell(table, RESET, *notices, COMPLETE)
    hearer.routing.taken()
    return table


def test_a_neighbour_tells_of_everything_and_then_of_changes() -> None:
    hearer = Hearer()
    table = hearer.table()
    tell(table, RESET, added(), created(), created("a = 1"), added("r"), COMPLETE)
    assert hearer.routing.taken() == [
        "add q@b via b distance 1 up",
        "changed q@b via b distance 1 up 1x[]",
        "changed q@b via b distance 1 up 1x[] 1x[a = 1]",
        "add r@b via b distance 1 up",
    ]
    tell(table, created("a = 1"), closed(), closed("a = 1"), removed(), added("s"))
    assert hearer.routing.taken() == [
        "changed q@b via b distance 1 up 1x[] 2x[a = 1]",
        "changed q@b via b distance 1 up 2x[a = 1]",
        "changed q@b via b distance 1 up 1x[a = 1]",
        "remove q@b",
        "add s@b via b distance 1 up",
    ]
    assert (table.state, hearer.logged) == (TableState.LIVE, [])


def test_a_queue_is_deleted_where_its_owner_says_so_and_else_only_forgotten() -> None:
    table = live(Hearer(max_hops=3), added(), added("r"), added("s", C, 1), added("t", C, 1), added("u", C, 1))
    known = dict(table.bindings)
    tell(table, n.BindingRemoved("q" + B, deleted=True), n.BindingRemoved("s" + C, deleted=True), removed("t", C))
    tell(table, RESET, COMPLETE)
    assert {each.queue for each in known.values() if each.is_deleted} == {"q", "r", "s"}
    assert table.bindings == {}


def test_what_is_given_up_with_its_node_is_not_deleted() -> None:
    table = live(Hearer(), added())
    (binding,) = table.bindings.values()
    table.clear()
    assert not binding.is_deleted


def test_subscriptions_that_last_are_known_while_their_node_is_away() -> None:
    lasting = n.BindingAdded("kept", "news", "multicast", "", B, 0)
    volatile = n.BindingAdded("volatile", "news", "multicast", "", B, 0, volatile=True)
    hearer = Hearer()
    table = live(hearer, added(), lasting, volatile)
    (kept,) = [each for each in table.bindings.values() if each.queue == "kept"]
    table.stopped()
    assert hearer.routing.bindings == {"kept" + B: kept}
    assert not kept.is_connected
    tell(table, RESET, lasting, COMPLETE)
    assert hearer.routing.bindings == {"kept" + B: kept}
    assert kept.is_connected
    tell(table, RESET, n.BindingAdded("kept", "news", "multicast", "", B, 0, volatile=True), COMPLETE)
    assert hearer.routing.bindings["kept" + B].is_volatile


def test_what_comes_before_reset_counts_for_nothing() -> None:
    hearer = Hearer()
    table = hearer.table()
    tell(table, added(), created(), removed(), COMPLETE)
    assert (hearer.routing.taken(), table.state) == ([], TableState.UNSYNCED)


def test_what_is_not_told_again_ends_and_the_rest_stays_the_same() -> None:
    hearer = Hearer()
    table = live(hearer, added(), created(), added("r"), created("a = 1", "r"))
    kept = table.bindings["q" + B]
    tell(table, RESET, added(), created())
    assert hearer.routing.taken() == []
    tell(table, COMPLETE)
    assert hearer.routing.taken() == ["remove r@b"]
    assert table.bindings["q" + B] is kept


def test_consumers_that_are_counted_anew_take_the_place_of_the_old_ones_at_the_end() -> None:
    hearer = Hearer()
    table = live(hearer, added(), created(), created())
    tell(table, RESET, added(), created(), created("a = 1"), created("a = 1"), closed("a = 1"), closed("b = 1"))
    assert hearer.routing.taken() == []
    tell(table, COMPLETE)
    assert hearer.routing.taken() == ["changed q@b via b distance 1 up 1x[] 1x[a = 1]"]
    tell(table, closed("a = 1"))
    assert hearer.routing.taken() == ["changed q@b via b distance 1 up 1x[]"]


def test_a_link_that_is_lost_and_stands_again() -> None:
    hearer = Hearer()
    table = live(hearer, added(), created(), added("r"))
    table.lost()
    assert hearer.routing.taken() == ["changed q@b via b distance 1 down 1x[]", "changed r@b via b distance 1 down"]
    tell(table, added("s"), RESET, added())
    assert hearer.routing.taken() == ["changed q@b via b distance 1 up 1x[]"]
    table.lost()
    assert hearer.routing.taken() == ["changed q@b via b distance 1 down 1x[]"]
    tell(table, RESET, added(), created(), COMPLETE)
    assert hearer.routing.taken() == ["changed q@b via b distance 1 up 1x[]", "remove r@b"]


def test_a_neighbour_that_is_given_up_has_nothing() -> None:
    hearer = Hearer()
    table = live(hearer, added(), created(), added("r"))
    table.clear()
    assert hearer.routing.taken()[-2:] == ["remove q@b", "remove r@b"]
    assert (table.bindings, hearer.around.known) == ({}, {})
    tell(table, RESET, added(), COMPLETE)
    assert hearer.routing.taken() == ["add q@b via b distance 1 up"]


@pytest.mark.parametrize(
    "other",
    [
        added(address="x"),
        added(selector="a = 1"),
        n.BindingAdded("q", "q", "multicast", "", B, 0),
        n.BindingAdded("q", "q", "anycast", "", B, 0, exclusive=True),
        n.BindingAdded("q", "q", "anycast", "", B, 0, moved_from="orders"),
    ],
)
def test_a_binding_that_has_changed_is_another_one(other: n.BindingAdded) -> None:
    hearer = Hearer()
    table = live(hearer, added(), created())
    tell(table, RESET, other, created(), COMPLETE)
    assert hearer.routing.taken() == ["remove q@b", "add q@b via b distance 1 up 1x[]"]
    assert table.bindings["q" + B] == hearer.routing.bindings["q" + B]
    assert table.bindings["q" + B].consumers_count == 1


def test_one_that_is_told_twice_is_another_one_as_well() -> None:
    hearer = Hearer()
    table = live(hearer, added(), created())
    tell(table, added())
    assert hearer.routing.taken() == ["remove q@b", "add q@b via b distance 1 up 1x[]"]
    tell(table, created())
    assert hearer.routing.taken() == []
    tell(table, RESET, added(), removed(), added(), created(), COMPLETE)
    assert hearer.routing.taken() == [
        "remove q@b", "add q@b via b distance 1 up", "changed q@b via b distance 1 up 1x[]",
    ]  # fmt: skip


def test_one_with_other_terms_has_its_consumers_until_all_are_told_again() -> None:
    hearer = Hearer()
    table = live(hearer, added(), created(), created("a = 1"), created("a = 1"))
    tell(table, added(selector="b = 1"), created("a = 1"), created("a = 1"), created())
    assert hearer.routing.taken() == ["remove q@b", "add q@b via b distance 1 up 1x[] 2x[a = 1]"]
    tell(table, created(), closed("a = 1"))
    assert hearer.routing.taken() == [
        "changed q@b via b distance 1 up 2x[] 2x[a = 1]", "changed q@b via b distance 1 up 2x[] 1x[a = 1]",
    ]  # fmt: skip


@pytest.mark.parametrize("after", [added("r"), removed("r"), created("", "r"), closed("b = 1")])
def test_those_that_are_not_told_again_are_gone_with_the_next_that_is_told(after: BindingClusterNotice) -> None:
    hearer = Hearer()
    table = live(hearer, added(), created(), created("a = 1"), created("b = 2"))
    tell(table, added(selector="b = 1"), created("a = 1"))
    assert len(hearer.routing.taken()) == 2
    tell(table, after)
    assert hearer.routing.taken()[0] == "changed q@b via b distance 1 up 1x[a = 1]"
    assert table._selectors_count == 1


def test_one_that_is_lost_or_removed_before_its_consumers_are_told_again() -> None:
    hearer = Hearer()
    table = live(hearer, added(), created())
    tell(table, added(selector="b = 1"), removed())
    assert hearer.routing.bindings == {}
    tell(table, added(), created(), created(), added(selector="b = 1"))
    table.lost()
    tell(table, RESET, added(selector="b = 1"), created(), COMPLETE, created())
    assert hearer.routing.taken()[-1] == "changed q@b via b distance 1 up 2x[]"


def test_reset_in_the_middle_begins_anew() -> None:
    hearer = Hearer()
    table = live(hearer, added(), added("r"))
    tell(table, RESET, added("r"), created("", "r"), RESET, added(), COMPLETE)
    assert hearer.routing.taken() == ["remove r@b"]


@pytest.mark.parametrize("notice", [removed("x"), created("", "x"), closed("", "x"), closed(), closed("a = 1")])
def test_what_nobody_knows_changes_nothing(notice: BindingClusterNotice) -> None:
    hearer = Hearer()
    tell(live(hearer, added()), notice)
    assert (hearer.routing.taken(), hearer.logged) == ([], [])


@pytest.mark.parametrize(
    ("notice", "max_hops", "address"),
    [
        (added(node_id=A), 3, ""),
        (added(node_id=A, distance=2), 3, ""),
        (added(node_id=C, distance=1), 1, ""),
        (added(), 0, ""),
        (added(address="sales"), 1, "orders"),
        (added("$.sf.all.1"), 1, ""),
        (added(address="$.x"), 1, ""),
    ],
)
def test_what_was_not_asked_for_is_passed_over(notice: n.BindingAdded, max_hops: int, address: str) -> None:
    hearer = Hearer(max_hops=max_hops, address=address)
    live(hearer, notice, n.ConsumerCreated(notice.cluster_name, ""))
    assert (hearer.routing.bindings, hearer.logged) == ({}, [])


def test_a_queue_that_calls_itself_a_neighbours_own_and_is_not() -> None:
    table = live(Hearer(max_hops=2))
    with pytest.raises(PeerFault, match="calls a queue of node") as found:
        tell(table, added(node_id=C))
    assert found.value.scope is Scope.LINK


def test_queues_further_on_are_one_further_here() -> None:
    hearer = Hearer(max_hops=3)
    table = hearer.table()
    tell(table, RESET, added(node_id=C, distance=1), added(node_id=D, distance=2), COMPLETE)
    assert hearer.routing.taken() == ["add q@c via b distance 2 up", "add q@d via b distance 3 up"]


# -- a queue that two neighbours tell of -------------------------------------------------------------------------------


def test_the_second_way_to_a_queue_waits_while_the_first_stands() -> None:
    hearer = Hearer(max_hops=2)
    first = live(hearer, added(node_id=D, distance=1), added("r", D, 1))
    second = hearer.table(C)
    tell(second, RESET, added(node_id=D, distance=1), created(node_id=D), added("r", D, 1), COMPLETE, closed(node_id=D))
    assert hearer.routing.taken() == []
    assert list(hearer.routing.bindings.values()) == list(first.bindings.values())
    assert second.passed_over[PassedOver.REPEATED] == 2
    (logged,) = hearer.logged
    assert (logged.event, logged.fields["node_id"], logged.fields["queue"]) == ("cluster-notice-passed-over", C, "q")
    assert "lower max-hops" in str(logged.fields["why"])
    tell(second, removed(node_id=D))
    second.clear()
    assert hearer.routing.taken() == []
    assert list(hearer.around.known.values()) == [[first], [first]]


def two_ways(first: int = 1, second: int = 1) -> tuple[Hearer, RemoteTable, RemoteTable]:
    """D's queue is told of by B and then by C, so far from them."""
    hearer = Hearer(max_hops=9)
    through_b = live(hearer, added(node_id=D, distance=first), created(node_id=D))
    through_c = live(hearer, added(node_id=D, distance=second), created("a = 1", node_id=D), neighbour=C)
    return hearer, through_b, through_c


def test_the_second_way_takes_over_where_the_first_is_lost_and_keeps_it() -> None:
    hearer, first, second = two_ways()
    first.lost()
    assert hearer.routing.taken() == ["remove q@d", "add q@d via c distance 2 up 1x[a = 1]"]
    tell(first, RESET, added(node_id=D, distance=1), created(node_id=D), COMPLETE)
    assert hearer.routing.taken() == []
    tell(second, created(node_id=D))
    tell(first, created(node_id=D))
    assert hearer.routing.taken() == ["changed q@d via c distance 2 up 1x[] 1x[a = 1]"]


def test_the_second_way_takes_over_where_the_first_is_gone() -> None:
    hearer, first, second = two_ways()
    tell(first, removed(node_id=D))
    assert hearer.routing.taken() == ["remove q@d", "add q@d via c distance 2 up 1x[a = 1]"]
    tell(second, removed(node_id=D))
    assert hearer.routing.taken() == ["remove q@d"]
    assert hearer.around.known == {}


def test_where_all_ways_are_lost_the_last_one_is_kept_and_the_first_that_is_back_takes_over() -> None:
    hearer, first, second = two_ways()
    second.lost()
    assert hearer.routing.taken() == []
    first.lost()
    assert hearer.routing.taken() == ["changed q@d via b distance 2 down 1x[]"]
    tell(second, RESET, added(node_id=D, distance=1), COMPLETE)
    assert hearer.routing.taken() == [
        "remove q@d", "add q@d via c distance 2 up 1x[a = 1]", "changed q@d via c distance 2 up",
    ]  # fmt: skip
    second.clear()
    assert hearer.routing.taken()[-2:] == ["remove q@d", "add q@d via b distance 2 down 1x[]"]


def test_the_nearest_way_is_taken() -> None:
    hearer = Hearer(max_hops=9)
    far = live(hearer, added(node_id=C, distance=1), created(node_id=C))
    near = hearer.table(C)
    tell(near, RESET, added(node_id=C), created(node_id=C), COMPLETE)
    assert hearer.routing.taken() == [
        "remove q@c", "add q@c via c distance 1 up", "changed q@c via c distance 1 up 1x[]",
    ]  # fmt: skip
    near.lost()
    assert hearer.routing.taken() == ["remove q@c", "add q@c via b distance 2 up 1x[]"]
    tell(near, RESET, added(node_id=C), created(node_id=C), COMPLETE)
    assert hearer.routing.taken() == ["remove q@c", "add q@c via c distance 1 up 1x[]"]
    assert (len(hearer.logged), far.passed_over[PassedOver.REPEATED]) == (2, 0)


def test_of_those_that_wait_the_nearest_follows() -> None:
    hearer, first, _ = two_ways(1, 3)
    live(hearer, added(node_id=D, distance=2), neighbour=E)
    first.clear()
    assert hearer.routing.taken()[-2:] == ["remove q@d", "add q@d via e distance 3 up"]


@given(st.lists(st.tuples(st.sampled_from("bce"), st.sampled_from(["added", "removed", "lost", "reset", "clear"]))))
def test_routing_knows_each_queue_once_by_the_nearest_way_that_stands(events: list[tuple[str, str]]) -> None:
    hearer = Hearer(max_hops=9)
    tables = {"b": hearer.table(B), "c": hearer.table(C), "e": hearer.table(E)}
    distances = {"b": 2, "c": 1, "e": 2}
    for name, event in [("b", "reset"), ("c", "reset"), ("e", "reset"), *events]:
        table, notice = tables[name], added(node_id=D, distance=distances[name])
        if event == "added":
            tell(table, notice)
        elif event == "removed":
            tell(table, removed(node_id=D))
        elif event == "reset":
            tell(table, RESET, notice, COMPLETE)
        elif event == "lost":
            table.lost()
        else:
            table.clear()
    held = [table.bindings["q" + D] for table in tables.values() if table.bindings]
    known = list(hearer.routing.bindings.values())
    assert len(known) == bool(held)
    assert bool(hearer.around.known) == bool(held)
    best = min(((not one.is_connected, one.distance) for one in held), default=None)
    for binding in known:
        assert binding in held
        # Where no link stands, the one that was lost last is kept.
        assert not binding.is_connected or (False, binding.distance) == best
        assert binding.is_connected or best is None or best[0]


# -- bounds and selectors ----------------------------------------------------------------------------------------------


def test_bindings_of_a_neighbour_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_table, "BINDINGS_MAX", 2)
    hearer = Hearer()
    table = live(hearer, added("a"), added("b"), added("c"), created("", "c"), added("d"))
    assert list(table.bindings) == ["a" + B, "b" + B]
    assert [(one.fields["queue"], table.passed_over[PassedOver.BINDINGS]) for one in hearer.logged] == [("c", 2)]
    tell(table, removed("a"), added("e"))
    assert list(table.bindings) == ["b" + B, "e" + B]


def test_selectors_of_a_neighbour_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_table, "SELECTORS_MAX", 2)
    hearer = Hearer()
    table = live(hearer, added(), created("a = 1"), created("a = 2"), created("a = 3"), created("a = 1"), created())
    binding = table.bindings["q" + B]
    assert (list(binding.consumer_filters), binding.consumers_count) == (["a = 1", "a = 2"], 4)
    assert table.passed_over[PassedOver.SELECTORS] == 1
    tell(table, closed("a = 3"), closed("a = 2"), created("a = 4"), created("a = 5"))
    assert list(binding.consumer_filters) == ["a = 1", "a = 4"]
    told_again = [
        RESET,
        added(),
        *(created(f"a = {number}") for number in (6, 7, 8)),
        closed("a = 7"),
        created("a = 9"),
    ]
    tell(table, *told_again, COMPLETE, created("a = 0"))
    assert list(binding.consumer_filters) == ["a = 6", "a = 9"]
    tell(table, removed(), added("r"), created("a = 1", "r"), created("a = 2", "r"))
    assert table.bindings["r" + B].consumers_count == 2


def test_consumers_without_a_selector_do_not_count_at_that_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_table, "SELECTORS_MAX", 2)
    told = [one for name in "qrs" for one in (added(name), created("", name), created("a = 1", name))]
    table = live(Hearer(), *told[:-1])
    before = {name: binding.consumers_count for name, binding in table.bindings.items()}
    assert before == {"q" + B: 2, "r" + B: 2, "s" + B: 1}
    tell(table, RESET, *told[:-1], created(), closed(), COMPLETE)
    assert {name: binding.consumers_count for name, binding in table.bindings.items()} == before
    assert table.passed_over[PassedOver.SELECTORS] == 0


def test_selectors_that_cannot_be_read_match_nothing_and_are_told_once() -> None:
    hearer = Hearer()
    table = live(hearer, added(selector=WRONG), added("r"), created(WRONG, "r"), created("a = 1", "r"))
    assert table.passed_over[PassedOver.UNREADABLE] == 2
    assert [(one.fields["queue"], "column" in str(one.fields["fault"])) for one in hearer.logged] == [("q", True)]
    assert table.bindings["r" + B].consumers_count == 2
