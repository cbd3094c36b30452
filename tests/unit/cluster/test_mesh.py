"""Nodes that tell and hear over some links: in the end each knows what is within its hops, by the shortest way."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from mqbroker.cluster import notices as n
from mqbroker.cluster.address_match import AddressPrefixes
from mqbroker.cluster.announcer import Announcer, Subscriber, SubscriberWish
from mqbroker.cluster.remote_table import Around, RemoteTable, counts_of
from mqbroker.core.cluster.remote_binding import RemoteBinding

from tests.unit.cluster.neighbours import A, B, C, D, Routing, name_of

IDS = {name_of(node_id): node_id for node_id in (A, B, C, D)}
LINKS = list(combinations("abcd", 2))
ROUNDS_MAX = 200


class Node:
    """Tells neighbours of what it hears, as a broker does."""

    def __init__(self, name: str, max_hops: int) -> None:
        self.name = name
        self.max_hops = max_hops
        self.routing = Routing()
        self.announcer = Announcer(IDS[name], list, lambda _logged: None)
        self.around = Around(IDS[name], max_hops, AddressPrefixes(""), self, lambda _logged: None, lambda: 0)
        self.tables: dict[str, RemoteTable] = {}  # by neighbour
        self.subscribers: dict[str, Subscriber] = {}
        self.announcer.queue_added(name, name, "anycast", "")

    def add(self, binding: RemoteBinding) -> None:
        self.routing.add(binding)
        self.announcer.remote_added(binding)

    def remove(self, binding: RemoteBinding) -> None:
        self.routing.remove(binding)
        self.announcer.remote_removed(binding)

    def replace(self, before: RemoteBinding, binding: RemoteBinding) -> None:
        self.routing.replace(before, binding)
        self.announcer.remote_added(binding)

    def changed(self, binding: RemoteBinding) -> None:
        self.routing.changed(binding)
        self.announcer.remote_changed(binding)

    def connect(self, other: Node) -> None:
        """Hear what the other tells."""
        if other.name not in self.tables:
            self.tables[other.name] = RemoteTable(self.around, IDS[other.name])
        other.subscribers[self.name] = other.announcer.subscribe(
            IDS[self.name], SubscriberWish(self.max_hops, AddressPrefixes("")), lambda: None
        )

    def disconnect(self, other: Node, *, is_given_up: bool) -> None:
        """The link is gone, for a while or for good."""
        subscriber = other.subscribers.pop(self.name, None)
        if subscriber is not None:
            other.announcer.unsubscribe(subscriber)
            self.tables[other.name].lost()
        if is_given_up and other.name in self.tables:
            self.tables.pop(other.name).clear()

    def carry(self, other: Node, count: int) -> bool:
        """Hear some of what the other tells; whether there was anything."""
        subscriber = other.subscribers.get(self.name)
        taken = subscriber.take(count) if subscriber is not None else []
        for text in taken:
            notice = n.decode(text)
            assert notice is not None
            assert not isinstance(notice, n.Member | n.MemberGone)
            self.tables[other.name].hear(notice)
        return bool(taken)


class Mesh:
    """Four nodes, each with a queue of its name; which links stand changes."""

    def __init__(self, max_hops: int) -> None:
        self.nodes = {name: Node(name, max_hops) for name in "abcd"}
        self.up: set[tuple[str, str]] = set()
        self.consumers = dict.fromkeys("abcd", 0)

    def happen(self, link: tuple[str, str], what: str) -> None:
        one, other = (self.nodes[name] for name in link)
        if what == "up" and link not in self.up:
            self.up.add(link)
            one.connect(other)
            other.connect(one)
        elif what in ("lost", "down"):
            self.up.discard(link)
            one.disconnect(other, is_given_up=what == "down")
            other.disconnect(one, is_given_up=what == "down")
        elif what == "carry":
            one.carry(other, 3)
        elif what == "consume":
            self.consumers[one.name] += 1
            one.announcer.consumer_joined(one.name, "")

    def settle(self) -> None:
        """Carry until nobody has anything to tell. It ends, however links went before."""
        for link in LINKS:
            if link not in self.up:
                self.happen(link, "down")
        for _ in range(ROUNDS_MAX):
            heard = [one.carry(other, 9) for one in self.nodes.values() for other in self.nodes.values()]
            if not any(heard):
                return
        raise AssertionError("they never come to an end")

    def distances(self, start: str) -> dict[str, int]:
        """To all that can be reached, by the shortest way over links that stand."""
        found, edge = {start: 0}, [start]
        while edge:
            near = [b for a in edge for pair in sorted(self.up) if a in pair for b in pair if b not in found]
            found.update(dict.fromkeys(near, found[edge[0]] + 1))
            edge = list(dict.fromkeys(near))
        return found


event = st.tuples(st.sampled_from(LINKS), st.sampled_from(["up", "up", "lost", "down", "carry", "carry", "consume"]))


@given(st.integers(1, 4), st.lists(event, max_size=40))
def test_in_the_end_each_knows_what_is_within_its_hops(
    max_hops: int, events: list[tuple[tuple[str, str], str]]
) -> None:
    mesh = Mesh(max_hops)
    for link, what in events:
        mesh.happen(link, what)
    mesh.settle()
    for name, node in mesh.nodes.items():
        expected = {
            other: (distance, {"": mesh.consumers[other]} if mesh.consumers[other] else {})
            for other, distance in mesh.distances(name).items()
            if 0 < distance <= max_hops
        }
        bindings = list(node.routing.bindings.values())
        assert {one.queue: (one.distance, counts_of(one)) for one in bindings} == expected
        assert all(one.is_connected for one in bindings)
