"""Clients that consume, by whatever protocol: those of links, also that are about to, and those that have none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from mqbroker.amqp.links import LinkBase, SenderLink
from mqbroker.node.values.link_ends import consumer_of

if TYPE_CHECKING:
    from mqbroker.amqp.session import Session
    from mqbroker.core.queue.queue import Client, Queue


def client_on(link: LinkBase) -> Client | None:
    """Who consumes over a link, if somebody does."""
    return consumer_of(link) if isinstance(link, SenderLink) and link.is_attached else None


def clients_in(sessions: Iterable[Session]) -> Iterator[Client]:
    """In the order of sessions and handles. Links may end meanwhile."""
    for session in list(sessions):
        for link in list(session.by_handle.values()):
            client = client_on(link)
            if client is not None:
                yield client


def clients_of(queue: Queue) -> list[Client]:
    """Those that get messages of a queue."""
    return [each.client for each in queue.consumers if each.client is not None]
