"""What neighbours are told, as conversations; and that who hears it knows what there is, however it is taken."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base.notice import Notice
from mqbroker.cluster import announcer as announcing
from mqbroker.cluster import notices as n
from mqbroker.cluster.address_match import AddressPrefixes
from mqbroker.cluster.announcer import Announcer, Subscriber, SubscriberWish
from mqbroker.cluster.fields import Connector
from mqbroker.core.cluster.remote_binding import RemoteBinding

from tests.unit.cluster.neighbours import A, B, C, D, Hearer, lines, state_of
from tests.unit.cluster.options import connection

MEMBERS = [
    n.Member(B, "b" * 32, "mq2", (Connector("own", "amqp", "192.0.2.2", 5673),), n.Version(1, 0)),
    n.Member(C, "c" * 32, "mq3", (), n.Version(4, 2)),
]
ALL = 100_000


class Teller:
    """Node B, with what it logs and how often it has woken its subscribers."""

    def __init__(self) -> None:
        self.logged: list[Notice] = []
        self.woken = 0
        self.announcer = Announcer(B, lambda: MEMBERS, self.logged.append)

    def wake(self) -> None:
        self.woken += 1

    def subscribe(self, node_id: str = A, max_hops: int = 1, address: str = "", **knows: bool) -> Subscriber:
        return self.announcer.subscribe(node_id, SubscriberWish(max_hops, AddressPrefixes(address), **knows), self.wake)

    def live(self, **wish: Any) -> Subscriber:
        """One that has taken everything."""
        subscriber = self.subscribe(**wish)
        subscriber.take(ALL)
        return subscriber


def remote(queue: str = "r", node_id: str = D, target: str = C, distance: int = 1, address: str = "") -> RemoteBinding:
    return RemoteBinding(queue, address or queue, "anycast", "", node_id, target, distance)


HEAD = ["member mq2", "member mq3", "reset"]


def test_a_conversation() -> None:
    teller = Teller()
    told = teller.announcer
    told.queue_added("q", "orders", "anycast", "")
    told.queue_added("r", "orders", "multicast", "a = 1")
    for selector in ("", "b = 2", "b = 2"):
        told.consumer_joined("q", selector)
    subscriber = teller.subscribe()
    assert subscriber.has_more
    assert lines(subscriber.take(ALL)) == [
        *HEAD,
        "binding-added q@b at orders anycast distance 0",
        "consumer-created q@b []",
        "consumer-created q@b [b = 2]",
        "consumer-created q@b [b = 2]",
        "binding-added r@b at orders multicast [a = 1] distance 0",
        "reset-complete",
    ]
    assert not subscriber.has_more
    told.consumer_left("q", "b = 2")
    told.queue_removed("r")
    told.queue_added("s", "sales", "anycast", "")
    told.consumer_joined("s", "")
    told.member_changed(n.MemberGone(C, n.Version(4, 3)))
    assert lines(subscriber.take(ALL)) == [
        "consumer-closed q@b [b = 2]",
        "binding-removed r@b",
        "binding-added s@b at sales anycast distance 0",
        "consumer-created s@b []",
        "member-gone c",
    ]
    assert (teller.woken, teller.logged) == (1, [])


def test_nothing_there_is_told_as_well() -> None:
    assert lines(Teller().subscribe().take(ALL)) == [*HEAD, "reset-complete"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_as_much_is_taken_as_asked_for(count: int) -> None:
    teller = Teller()
    for queue in "abc":
        teller.announcer.queue_added(queue, queue, "anycast", "")
        teller.announcer.consumer_joined(queue, "")
    whole, bits = teller.subscribe(), teller.subscribe()
    taken: list[bytes] = []
    while bits.has_more:
        some = bits.take(count)
        assert 1 <= len(some) <= count
        taken += some
    assert taken == whole.take(ALL)


def test_changes_of_what_is_still_to_come_are_not_told_apart() -> None:
    teller = Teller()
    for queue in "abc":
        teller.announcer.queue_added(queue, queue, "anycast", "")
    subscriber = teller.subscribe()
    assert lines(subscriber.take(4))[3:] == ["binding-added a@b at a anycast distance 0"]
    teller.announcer.consumer_joined("a", "")
    teller.announcer.consumer_joined("b", "")
    teller.announcer.queue_removed("c")
    teller.announcer.queue_added("d", "d", "anycast", "")
    teller.announcer.queue_added("c", "other", "anycast", "")
    assert lines(subscriber.take(ALL)) == [
        "consumer-created a@b []",
        "binding-added d@b at d anycast distance 0",
        "binding-added c@b at other anycast distance 0",
        "binding-added b@b at b anycast distance 0",
        "consumer-created b@b []",
        "reset-complete",
    ]


def test_a_consumer_that_comes_while_its_queue_is_told_is_told_once() -> None:
    teller = Teller()
    teller.announcer.queue_added("a", "a", "anycast", "")
    teller.announcer.consumer_joined("a", "")
    subscriber = teller.subscribe()
    subscriber.take(4)
    teller.announcer.consumer_joined("a", "")
    teller.announcer.consumer_left("a", "")
    assert lines(subscriber.take(ALL)) == [
        "consumer-created a@b []", "consumer-created a@b []", "consumer-closed a@b []", "reset-complete",
    ]  # fmt: skip


# -- who is told of what ----------------------------------------------------------------------------------------------


@pytest.mark.option("cluster-connections.max-hops")
@pytest.mark.parametrize(
    ("max_hops", "queues"), [(0, []), (1, ["own@b"]), (2, ["own@b", "near@c"]), (3, ["own@b", "near@c", "far@d"])]
)
def test_queues_within_as_many_hops_as_a_subscriber_asks_for(max_hops: int, queues: list[str]) -> None:
    teller = Teller()
    teller.announcer.queue_added("own", "own", "anycast", "")
    teller.announcer.remote_added(remote("near", C, C, 1))
    teller.announcer.remote_added(remote("far", D, C, 2))
    subscriber = teller.subscribe(max_hops=connection(max_hops=max_hops).max_hops)
    told = [text for text in lines(subscriber.take(ALL)) if text.startswith("binding-added")]
    assert [(text.split()[1], text[-1]) for text in told] == [(name, str(hop)) for hop, name in enumerate(queues)]


@pytest.mark.option("cluster-connections.address")
@pytest.mark.parametrize(
    ("address", "queues"), [("", ["a", "b", "$sys"]), ("a", ["a"]), ("!a", ["b", "$sys"]), ("x", [])]
)
def test_queues_of_the_addresses_that_a_subscriber_asks_for(address: str, queues: list[str]) -> None:
    teller = Teller()
    subscriber = teller.live(address=connection(address=address).address)
    for name in ("a", "b", "$sys", "$.sf.all.1"):
        teller.announcer.queue_added(name, name, "anycast", "")
    assert [text.split()[1].partition("@")[0] for text in lines(subscriber.take(ALL))] == queues


def test_queues_for_what_is_moved_from_one_address_are_told_those_who_know_what_that_is() -> None:
    """A release that passes over `moved_from` would send them whatever is moved."""
    teller = Teller()
    knowing, older = (teller.live(max_hops=2, knows_moved_from=knows) for knows in (True, False))
    teller.announcer.queue_added("DLQ.orders", "dead", "multicast", "", moved_from="orders")
    teller.announcer.remote_added(RemoteBinding("DLQ.x", "dead", "multicast", "", C, C, 1, moved_from="x"))
    teller.announcer.consumer_joined("DLQ.orders", "")
    teller.announcer.queue_removed("DLQ.orders")
    assert [n.decode(text) for text in knowing.take(ALL)] == [
        n.BindingAdded("DLQ.orders", "dead", "multicast", "", B, 0, moved_from="orders"),
        n.BindingAdded("DLQ.x", "dead", "multicast", "", C, 1, moved_from="x"),
        n.ConsumerCreated("DLQ.orders" + B, ""),
        n.BindingRemoved("DLQ.orders" + B, deleted=True),
    ]
    assert older.take(ALL) == []
    assert lines(teller.subscribe(max_hops=2, knows_moved_from=False).take(ALL)) == [*HEAD, "reset-complete"]


def test_internal_queues_are_told_nobody() -> None:
    teller = Teller()
    subscriber = teller.live()
    teller.announcer.queue_added("$.sf.all.1", "orders", "anycast", "")
    teller.announcer.queue_added("q", "$.notices", "anycast", "")
    teller.announcer.consumer_joined("q", "")
    teller.announcer.queue_removed("q")
    assert (subscriber.take(ALL), teller.announcer.told) == ([], {})


def test_nobody_is_told_of_what_is_its_own_or_reached_through_it() -> None:
    teller = Teller()
    for binding in (remote("x", C, C, 1), remote("y", D, C, 2), remote("z", C, D, 2)):
        teller.announcer.remote_added(binding)
    assert lines(teller.subscribe(C, 9).take(ALL)) == [*HEAD, "reset-complete"]
    assert len(teller.subscribe(D, 9).take(ALL)) == len(HEAD) + 2  # x, and not y or z
    assert len(teller.subscribe(A, 9).take(ALL)) == len(HEAD) + 4


def test_a_queue_on_other_terms_is_told_in_one_notice_and_as_gone_to_those_who_did_not_want_it_so() -> None:
    teller = Teller()
    both, old, new = (teller.live(address=address) for address in ("", "orders", "sales"))
    teller.announcer.queue_added("q", "orders", "anycast", "")
    teller.announcer.consumer_joined("q", "")
    for subscriber in (both, old, new):
        subscriber.take(ALL)
    teller.announcer.queue_added("q", "sales", "anycast", "")
    told = ["binding-added q@b at sales anycast distance 0", "consumer-created q@b []"]
    assert [lines(each.take(ALL)) for each in (both, old, new)] == [told, ["binding-removed q@b"], told]


def test_that_a_queue_is_deleted_is_told_and_told_on() -> None:
    teller = Teller()
    subscriber = teller.live(max_hops=2)
    gone, forgotten = remote(), remote("f")
    gone.is_deleted = True
    teller.announcer.queue_added("q", "q", "anycast", "")
    for binding in (gone, forgotten):
        teller.announcer.remote_added(binding)
    subscriber.take(ALL)
    teller.announcer.queue_removed("q")
    for binding in (gone, forgotten):
        teller.announcer.remote_removed(binding)
    assert [n.decode(text) for text in subscriber.take(ALL)] == [
        n.BindingRemoved("q" + B, deleted=True),
        n.BindingRemoved(gone.cluster_name, deleted=True),
        n.BindingRemoved(forgotten.cluster_name, deleted=False),
    ]


def test_queues_of_other_nodes_and_their_consumers_are_told_on() -> None:
    teller = Teller()
    subscriber = teller.live(max_hops=2)
    binding = remote()
    binding.consumer_created("")
    teller.announcer.remote_added(binding)
    binding.consumer_created("a = 1")
    teller.announcer.remote_changed(binding)
    binding.forget_consumers()
    binding.consumer_created("a = 1")
    binding.consumer_created("a = 1")
    teller.announcer.remote_changed(binding)
    binding.is_connected = False
    teller.announcer.remote_changed(binding)
    teller.announcer.remote_removed(binding)
    teller.announcer.remote_changed(binding)
    assert lines(subscriber.take(ALL)) == [
        "binding-added r@d at r anycast distance 1",
        "consumer-created r@d []",
        "consumer-created r@d [a = 1]",
        "consumer-closed r@d []",
        "consumer-created r@d [a = 1]",
        "binding-removed r@d",
    ]


def test_consumers_that_nobody_wanted_to_know_of_are_known_later() -> None:
    teller = Teller()
    near, binding = teller.live(max_hops=1), remote()
    teller.announcer.remote_added(binding)
    binding.consumer_created("")
    teller.announcer.remote_changed(binding)
    assert near.take(ALL) == []
    far = teller.subscribe(max_hops=2)
    assert lines(far.take(ALL))[-2:] == ["consumer-created r@d []", "reset-complete"]
    teller.announcer.unsubscribe(far)
    teller.announcer.unsubscribe(far)
    teller.announcer.queue_added("q", "q", "anycast", "")
    assert (far.has_more, near.has_more) == (False, True)


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bound", "value"), [("BACKLOG_MAX", 3), ("BACKLOG_BYTES_MAX", 320)])
def test_who_falls_behind_begins_anew(monkeypatch: pytest.MonkeyPatch, bound: str, value: int) -> None:
    monkeypatch.setattr(announcing, bound, value)
    teller = Teller()
    teller.announcer.queue_added("q", "q", "anycast", "")
    slow, quick = teller.live(), teller.live(node_id=C)
    for _ in range(20):
        teller.announcer.consumer_joined("q", "")
        assert lines(quick.take(ALL)) == ["consumer-created q@b []"]
        assert slow.backlog_count <= 3
    assert lines(slow.take(ALL)) == [
        *HEAD, "binding-added q@b at q anycast distance 0", *["consumer-created q@b []"] * 20, "reset-complete",
    ]  # fmt: skip
    assert (slow.restarts_total, quick.restarts_total) == (1, 0)
    assert [(one.event, one.fields) for one in teller.logged] == [
        ("cluster-subscriber-behind", {"node_id": A, "restarts": 1})
    ]


def test_what_makes_too_long_a_notice_is_not_told() -> None:
    teller = Teller()
    subscriber = teller.live()
    teller.announcer.queue_added("q" * n.NOTICE_BYTES_MAX, "a", "anycast", "")
    teller.announcer.consumer_joined("q" * n.NOTICE_BYTES_MAX, "")
    teller.announcer.queue_added("r", "a", "anycast", "")
    teller.announcer.consumer_joined("r", "x" * n.NOTICE_BYTES_MAX)
    teller.announcer.consumer_left("r", "x" * n.NOTICE_BYTES_MAX)
    assert lines(subscriber.take(ALL)) == ["binding-added r@b at a anycast distance 0"]
    assert [one.event for one in teller.logged] == ["cluster-queue-not-told"]


@pytest.mark.parametrize("selector", ["", "a = 1"])
def test_a_consumer_that_was_not_there_cannot_leave(selector: str) -> None:
    teller = Teller()
    subscriber = teller.live()
    teller.announcer.queue_added("q", "q", "anycast", "")
    teller.announcer.consumer_left("q", selector)
    teller.announcer.consumer_left("x", selector)
    teller.announcer.consumer_joined("x", selector)
    assert len(subscriber.take(ALL)) == 1


# -- telling and hearing -----------------------------------------------------------------------------------------------

QUEUES = ["a", "b", "c"]
SELECTORS = ["", "x = 1", "x = 2"]
event = st.one_of(
    st.tuples(st.sampled_from(["add", "change", "remove"]), st.sampled_from(QUEUES), st.just("")),
    st.tuples(st.sampled_from(["join", "leave"]), st.sampled_from(QUEUES), st.sampled_from(SELECTORS)),
    st.tuples(st.just("take"), st.sampled_from(["1", "2", "9"]), st.just("")),
    st.tuples(st.sampled_from(["lose", "restart"]), st.just(""), st.just("")),
)


class Pair:
    """Node B tells and node A hears, over a link that may be lost."""

    def __init__(self) -> None:
        self.teller, self.hearer = Teller(), Hearer()
        self.table = self.hearer.table()
        self.subscriber = self.teller.subscribe()
        self.there: dict[str, dict[str, int]] = {}

    def happen(self, what: str, name: str, selector: str) -> None:
        told, consumers = self.teller.announcer, self.there.get(name, {})
        if what == "add" and name not in self.there:
            self.there[name] = {}
            told.queue_added(name, name, "anycast", "")
        elif what == "change" and name in self.there:
            told.queue_added(name, name, "anycast", "x = 1")
        elif what == "remove" and self.there.pop(name, None) is not None:
            told.queue_removed(name)
        elif what == "join" and name in self.there:
            consumers[selector] = consumers.get(selector, 0) + 1
            told.consumer_joined(name, selector)
        elif what == "leave" and consumers.get(selector):
            consumers[selector] -= 1
            told.consumer_left(name, selector)
        elif what == "take":
            self.carry(int(name))
        elif what == "restart":
            self.subscriber.begin()
        elif what == "lose":
            told.unsubscribe(self.subscriber)
            self.table.lost()
            self.subscriber = self.teller.subscribe()

    def carry(self, count: int) -> None:
        for text in self.subscriber.take(count):
            notice = n.decode(text)
            if not isinstance(notice, n.Member | n.MemberGone):
                assert notice is not None
                self.table.hear(notice)


@given(st.lists(event, max_size=60), st.booleans())
def test_who_hears_everything_knows_what_there_is(events: list[tuple[str, str, str]], is_tight: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if is_tight:
            patch.setattr(announcing, "BACKLOG_MAX", 2)
        pair = Pair()
        for what, name, selector in events:
            pair.happen(what, name, selector)
        while pair.subscriber.has_more:
            pair.carry(3)
    expected = []
    for name, consumers in sorted(pair.there.items()):
        counts = " ".join(f"{count}x[{text}]" for text, count in sorted(consumers.items()) if count)
        expected.append(f"{name}@b via b distance 1 up {counts}")
    assert sorted(map(state_of, pair.hearer.routing.bindings.values())) == expected
    assert pair.table.bindings == pair.hearer.routing.bindings
    selectors = {(name, text) for name, held in pair.there.items() for text, count in held.items() if text and count}
    assert pair.table._selectors_count == len(selectors)
