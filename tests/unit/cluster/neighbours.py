"""What tests of telling and hearing share: node ids, short lines for notices, and a recorder of what routing sees."""

from __future__ import annotations

from mqbroker.base.notice import Notice
from mqbroker.cluster import notices as n
from mqbroker.cluster.address_match import AddressPrefixes
from mqbroker.cluster.remote_table import Around, RemoteTable, counts_of
from mqbroker.core.cluster.remote_binding import RemoteBinding

A, B, C, D, E = (f"0000000{letter}-0000-4000-8000-000000000000" for letter in "abcde")


def name_of(node_id: str) -> str:
    """`b` for node B."""
    return node_id[7]


def short(cluster_name: str) -> str:
    """`orders@b`."""
    return f"{cluster_name[:-36]}@{name_of(cluster_name[-36:])}"


def line(notice: n.ClusterNotice | None) -> str:
    """A notice as a line of a conversation."""
    match notice:
        case n.Member():
            return f"member {notice.name}"
        case n.MemberGone():
            return f"member-gone {name_of(notice.node_id)}"
        case n.BindingAdded():
            selector = f" [{notice.selector}]" if notice.selector else ""
            place = f"{notice.address} {notice.routing}{selector}"
            return f"binding-added {short(notice.cluster_name)} at {place} distance {notice.distance}"
        case n.BindingRemoved():
            return f"binding-removed {short(notice.cluster_name)}"
        case n.ConsumerCreated() | n.ConsumerClosed():
            return f"{n.KINDS[type(notice)]} {short(notice.cluster_name)} [{notice.selector}]"
        case None:
            return "unknown"
        case _:
            return n.KINDS[type(notice)]


def lines(texts: list[bytes]) -> list[str]:
    """What a subscriber took, as lines."""
    return [line(n.decode(text)) for text in texts]


def state_of(binding: RemoteBinding) -> str:
    """What routing may know of it, as a line."""
    counts = " ".join(f"{count}x[{selector}]" for selector, count in sorted(counts_of(binding).items()))
    link = "up" if binding.is_connected else "down"
    return f"{short(binding.cluster_name)} via {name_of(binding.target)} distance {binding.distance} {link} {counts}"


class Routing:
    """Records what it is told, and checks that it can be."""

    def __init__(self) -> None:
        self.bindings: dict[str, RemoteBinding] = {}
        self.calls: list[str] = []

    def add(self, binding: RemoteBinding) -> None:
        assert binding.cluster_name not in self.bindings
        self.bindings[binding.cluster_name] = binding
        self.calls.append(f"add {state_of(binding).rstrip()}")

    def remove(self, binding: RemoteBinding) -> None:
        assert self.bindings.pop(binding.cluster_name) is binding
        self.calls.append(f"remove {short(binding.cluster_name)}")

    def replace(self, before: RemoteBinding, binding: RemoteBinding) -> None:
        self.remove(before)
        self.add(binding)

    def changed(self, binding: RemoteBinding) -> None:
        assert self.bindings[binding.cluster_name] is binding
        self.calls.append(f"changed {state_of(binding).rstrip()}")

    def taken(self) -> list[str]:
        """The calls since it was asked last."""
        calls, self.calls = self.calls, []
        return calls


class Hearer:
    """A node with a table for each neighbour."""

    def __init__(self, node_id: str = A, max_hops: int = 1, address: str = "") -> None:
        self.routing = Routing()
        self.logged: list[Notice] = []
        self.now_ns = 0
        self.around = Around(
            node_id, max_hops, AddressPrefixes(address), self.routing, self.logged.append, lambda: self.now_ns
        )

    def table(self, neighbour: str = B) -> RemoteTable:
        return RemoteTable(self.around, neighbour)
