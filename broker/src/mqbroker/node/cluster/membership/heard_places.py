"""Nodes that live, by all that a cluster connection hears, and how each says that it is reached.

A discovery group tells once that it has found a node, and one that dials tells of itself once. After that a person may
forget the node while it lives, or the end of its process before may come later than the news of the next one: then its
bridge is over, and nobody would ever tell of it again. So whoever looks for nodes without a bridge asks here
(listed_places.py). Source: docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mqbroker.cluster.discovery.announcement import Connector
from mqbroker.cluster.discovery.entries import EntryTable
from mqbroker.node.amqp.listeners.accepted_peer import nodes_among

if TYPE_CHECKING:
    from mqbroker.node.amqp.peers.peer import Peer


def heard_in(table: EntryTable) -> Iterator[tuple[str, Connector]]:
    """By node id; those of DNS have none, and are no sign of life."""
    for entry in table.entries:
        if entry.announcement.node_id:
            yield entry.announcement.node_id, entry.announcement.connectors[0]


def linked_by(peers: Iterable[Peer], connection: str) -> Iterator[tuple[str, Connector]]:
    """Nodes that have a link to this one over the cluster connection of this name."""
    for _, hello in nodes_among(peers):
        if hello.connection == connection and hello.connector is not None:
            yield hello.node_id, hello.connector
