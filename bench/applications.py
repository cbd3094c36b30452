"""What applications do: one Application for each kind of load through Qpid JMS, on a warm broker. Pure; a table."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

SHORT_DIVISOR = 200
SHORT_COUNT = 100


@dataclass(frozen=True, slots=True)
class Application:
    """One kind of load; `mode` names what `bench/jms_load` does.

    In a "stream" producers and consumers are there at the same time, each with a connection of its own; `shared` says
    by what the consumers of a queue divide its messages ("selectors", "groups"), `acknowledge` how they take them
    ("auto", "client", "transaction"), `batch` how many of them at a time. A "backlog" is filled and then drained, with
    `priorities` in their order; a "browse" goes through a queue, a "look" sees its head,
    a "select" finds one in a hundred of it, and a
    "request" waits for its answer.
    """

    name: str
    title: str
    mode: str
    count: int
    size: int = 100
    producers: int = 1
    consumers: int = 1
    topic: bool = False
    durable: bool = False
    shared: str = ""
    acknowledge: str = "auto"
    batch: int = 1
    priorities: bool = False
    prefetch: int = 1_000  # how many messages the client asks for ahead; its default
    skips: tuple[tuple[str, str], ...] = ()  # kind of peer, why the row makes no sense there
    nodes: ClassVar[int] = 1

    def short(self) -> Application:
        """The same load with a few messages: enough to see wrong counts, not to measure."""
        return dataclasses.replace(self, count=min(max(self.count // SHORT_DIVISOR, SHORT_COUNT), self.count))

    def order(self) -> dict[str, Any]:
        """What the client is asked for."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in ("name", "title", "skips")
        }


_LACKS = (("rabbitmq", "it does not offer what JMS asks for here"),)
# Qpid JMS asks for no durable queue, and by itself RabbitMQ makes none.
_NOT_DURABLE = (("rabbitmq", "it makes a queue in which it accepts durable messages before they are on disk"),)

APPLICATIONS = (
    Application("jms-queue", "Qpid JMS: a queue", "stream", 60_000),
    Application(
        "jms-durable",
        "Qpid JMS: durable 1 KiB, 16 producers, each waits, and a consumer",
        "stream",
        12_000,
        size=1024,
        producers=16,
        durable=True,
        skips=_NOT_DURABLE,
    ),
    Application(
        "jms-topic", "Qpid JMS: a topic to 20 subscribers", "stream", 3_000, consumers=20, topic=True, skips=_LACKS
    ),
    Application(
        "jms-selectors",
        "Qpid JMS: a queue, 4 consumers with selectors",
        "stream",
        40_000,
        consumers=4,
        shared="selectors",
        skips=_LACKS,
    ),
    Application(
        "jms-groups",
        "Qpid JMS: a queue, 100 groups, 4 consumers",
        "stream",
        40_000,
        consumers=4,
        shared="groups",
        skips=_LACKS,
    ),
    Application("jms-backlog", "Qpid JMS: a queue filled, then drained", "backlog", 60_000),
    Application(
        "jms-priorities",
        "Qpid JMS: a queue filled with 10 priorities, then drained",
        "backlog",
        40_000,
        priorities=True,
        skips=_LACKS,
    ),
    Application(
        "jms-transactions",
        "Qpid JMS: durable 1 KiB, 10 in a transaction at both ends",
        "stream",
        10_000,
        size=1024,
        durable=True,
        acknowledge="transaction",
        batch=10,
        skips=_LACKS,
    ),
    Application(
        "jms-client-acknowledge",
        "Qpid JMS: a queue, the client acknowledges 10 at a time",
        "stream",
        40_000,
        acknowledge="client",
        batch=10,
    ),
    Application("jms-browse", "Qpid JMS: 10,000 in a queue, browsed", "browse", 10_000, skips=_LACKS),
    Application(
        "jms-look", "Qpid JMS: the first 10 of 10,000 in a queue, browsed", "look", 10_000, prefetch=10, skips=_LACKS
    ),
    Application("jms-request-reply", "Qpid JMS: request and reply", "request", 4_000, skips=_LACKS),
    Application(
        "jms-selector-backlog",
        "Qpid JMS: a selector finds 1 % of a backlog of 40,000",
        "select",
        40_000,
        skips=_LACKS,
    ),
)
