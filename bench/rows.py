"""What is measured: one Row for each kind of load on a warm broker, one Many for what is seen best on a fresh one, one
Beside for what others must not feel of bad input and one Flooded for what they must not feel of floods, one Among for
what a crowd must not cost, one Recovery for how soon a killed broker is back, one Departure for how soon a node that
leaves has handed over what it has. Pure; the rows are tables."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from bench.applications import APPLICATIONS, Application

CREDIT = 2000
SHORT_DIVISOR = 200
SHORT_NODES_MAX = 2
IDLE_S = 4.0
# Kinds of peers that are several times slower than the others: they get `slow_count` messages, which take as long.
SLOW = frozenset({"classic", "rabbitmq"})
SLOW_TO_LEAVE = frozenset({"artemis"})


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of load. One producer process and, if `consumer`, one consumer process beside it.

    `times` says what p50 to p99.9 are about: "delivery" from send to receipt, "acknowledgement" of the send, or
    nothing. Without `consumer` the queue is drained afterwards, outside the measurement, to check what arrived; with
    `depth` the drain is what is measured. `mix` is a cycle of sizes, `size` then their mean. `slow_count`, where there
    is one, stands for `count` on slow peers.

    With `nodes` the broker is a cluster of so many; the producer is at the place `send_at`, a consumer at
    each of `receive_at`. With `moves` they come when the producer's node has all messages, and how long these take to
    arrive is what is measured. With `idle_s` the nodes are watched so long before the load.
    """

    name: str
    title: str
    count: int
    size: int
    settled: bool = False
    durable: bool = False
    producers: int = 1
    in_flight: int = CREDIT
    consumer: bool = True
    rate: int = 0
    times: str = ""
    mix: tuple[int, ...] = ()
    depth: bool = False
    slow_count: int = 0
    nodes: int = 1
    send_at: int = 0
    receive_at: tuple[int, ...] = (0,)
    moves: bool = False
    idle_s: float = 0.0
    is_ordered: bool = True  # one consumer gets the messages in their order, or has a fault to tell
    skips: tuple[tuple[str, str], ...] = ()  # kind of peer, why the row makes no sense there

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bodies' sizes, one after the other, again and again."""
        return self.mix or (self.size,)

    def short(self) -> Row:
        """The same load with a few messages, on two nodes at most: enough to see wrong counts, not to measure."""
        count = min(max(self.count // SHORT_DIVISOR, self.producers * 4, 100), self.count)
        nodes = min(self.nodes, SHORT_NODES_MAX)
        places = tuple(place for place in self.receive_at if place < nodes)
        return dataclasses.replace(
            self,
            count=count,
            slow_count=min(self.slow_count, count),
            nodes=nodes,
            receive_at=places,
            idle_s=self.idle_s / SHORT_DIVISOR,
        )

    def on(self, kind: str) -> Row:
        """The same load as a peer of this kind gets it."""
        return dataclasses.replace(self, count=self.slow_count) if kind in SLOW and self.slow_count else self


@dataclass(frozen=True, slots=True)
class Many:
    """Many connections or many queues, on a fresh instance. There are `connections` times `links` queues.

    With `attached`: until all receivers are attached; then each queue gets a message, to check that it arrives there.
    Without: until each queue has accepted a message; then all of them are read, for the same check.
    """

    name: str
    title: str
    connections: int
    links: int
    attached: bool
    skips: tuple[tuple[str, str], ...] = ()

    def short(self) -> Many:
        """A few of them."""
        connections = max(self.connections // 20, 2)
        return dataclasses.replace(self, connections=connections, links=max(self.links // 20, 1))


@dataclass(frozen=True, slots=True)
class Beside:
    """A load alone, and again while another process sends bad input, on a fresh instance with the bounds of the cases.

    Both take turns, `turns` times each. `bad_per_s` are connections, each of which says one thing that is refused.
    """

    name: str
    title: str
    load: Row
    turns: int
    bad_per_s: int
    skips: tuple[tuple[str, str], ...] = ()

    def short(self) -> Beside:
        """Once, with a few messages; each case of bad input comes nevertheless."""
        return dataclasses.replace(self, load=self.load.short(), turns=1)


@dataclass(frozen=True, slots=True)
class Among:
    """A load alone, and again while `many` connections or queues are there and want nothing, on a fresh instance."""

    name: str
    title: str
    load: Row
    many: Many
    skips: tuple[tuple[str, str], ...] = ()

    def short(self) -> Among:
        """A few messages among a few of them."""
        return dataclasses.replace(self, load=self.load.short(), many=self.many.short())


@dataclass(frozen=True, slots=True)
class Flooded:
    """A load beside a process that uses a processor and says nothing, and beside one that floods, on a fresh instance.

    Each of `floods` (tests/support/floods.py) in turn, `turns` times. Before the first of each `between` it is alone.
    Each has a line of its own in the table: the worst of many is the worst of their noise as well.
    """

    name: str
    title: str
    load: Row
    turns: int
    between: int
    floods: tuple[str, ...]
    skips: tuple[tuple[str, str], ...] = ()
    is_eager: bool = False  # whoever floods has the same right to a processor as all others

    def short(self) -> Flooded:
        """Once, with a few messages; each flood comes nevertheless, however busy the machine is."""
        return dataclasses.replace(self, load=self.load.short(), turns=1, between=len(self.floods), is_eager=True)

    def titles(self) -> dict[str, str]:
        """Name → title of what each flood gives."""
        return {f"{self.name}: {flood}": f"beside a flood: {flood}" for flood in self.floods}


@dataclass(frozen=True, slots=True)
class Recovery:
    """A fresh instance takes in the messages of `load` and is killed: until it accepts the next one."""

    name: str
    title: str
    load: Row
    skips: tuple[tuple[str, str], ...] = ()

    def short(self) -> Recovery:
        """Of a few messages."""
        return dataclasses.replace(self, load=self.load.short())


@dataclass(frozen=True, slots=True)
class Departure:
    """A node of a fresh, warmed cluster of two has the messages of `load` in each of `queues`, and leaves: until the
    other one has them all. Each is read there afterwards. A peer that hands over one message at a time gets
    `slow_count` of them in a queue: what each costs there does not depend on how many there are. With `pages` both
    nodes keep a megabyte of a queue in memory."""

    name: str
    title: str
    load: Row
    queues: int
    slow_count: int
    pages: bool = False
    skips: tuple[tuple[str, str], ...] = ()

    def short(self) -> Departure:
        """With a few messages in two queues."""
        load = self.load.short()
        return dataclasses.replace(
            self, load=load, queues=min(self.queues, 2), slow_count=min(self.slow_count, load.count)
        )

    def on(self, kind: str) -> Departure:
        """The same as a peer of this kind gets it."""
        count = self.slow_count if kind in SLOW_TO_LEAVE else self.load.count
        return dataclasses.replace(self, load=dataclasses.replace(self.load, count=count))


Fresh = Many | Beside | Flooded | Among | Recovery | Departure


def _plain(size: int, name: str, settled: bool, count: int, slow_count: int) -> Row:
    how = "settled" if settled else "acknowledged"
    title = f"non-durable {name.replace('B', ' B').replace('Ki ', ' Ki')}, {how}"
    return Row(f"plain-{name}-{how}", title, count, size, settled=settled, slow_count=slow_count)


def _durable(name: str, title: str, counts: tuple[int, int], producers: int, in_flight: int) -> Row:
    return Row(
        f"durable-{name}",
        f"durable 1 KiB, {title}",
        counts[0],
        1024,
        durable=True,
        producers=producers,
        in_flight=in_flight,
        consumer=name.endswith("consumer"),
        times="acknowledgement",
        slow_count=counts[1],
    )


_NO_CLUSTER = tuple((kind, "it is measured alone, not as a cluster") for kind in sorted(SLOW))
_OURS_ALONE = (*_NO_CLUSTER, ("artemis", "the row is about what nodes of ours cost"))


def _ours_alone(what: str) -> tuple[tuple[str, str], ...]:
    return tuple((kind, f"the row is about what {what}") for kind in ("artemis", *sorted(SLOW)))


def _cluster(name: str, title: str, count: int, **changes: Any) -> Row:
    row = Row(name, title, count, 1024, nodes=2, receive_at=(1,), skips=_NO_CLUSTER)
    return dataclasses.replace(row, **changes)


def _spread(nodes: int) -> Row:
    title = f"{nodes} nodes, non-durable 1 KiB, producer at one, a consumer at each"
    everywhere = tuple(range(nodes))
    return _cluster(
        f"cluster-{nodes}", title, 200_000, nodes=nodes, receive_at=everywhere, idle_s=IDLE_S, skips=_OURS_ALONE
    )


# Most messages are small, most bytes are in large ones; neighbours in the cycle differ.
_SIZES = (100,) * 12 + (1024,) * 5 + (10 * 1024,) * 2 + (100 * 1024,)
MIX = tuple(_SIZES[place * 7 % len(_SIZES)] for place in range(len(_SIZES)))


ROWS = (
    _plain(100, "100B", True, 1_000_000, 100_000),
    _plain(100, "100B", False, 1_000_000, 100_000),
    _plain(1024, "1KiB", True, 500_000, 100_000),
    _plain(1024, "1KiB", False, 500_000, 100_000),
    _plain(10 * 1024, "10KiB", False, 100_000, 20_000),
    _plain(100 * 1024, "100KiB", False, 15_000, 3_000),
    Row(
        "plain-mix-acknowledged",
        "non-durable, 100 B to 100 KiB mixed, acknowledged",
        100_000,
        sum(MIX) // len(MIX),
        mix=MIX,
        slow_count=20_000,
    ),
    # Above what the brokers with such a limit keep in memory: each message becomes a file. Few in flight, because the
    # producer holds them all.
    Row("large-1MiB", "non-durable 1 MiB, acknowledged", 600, 1 << 20, in_flight=50, slow_count=200),
    _durable("1", "1 producer, one in flight", (4_000, 0), 1, 1),
    _durable("16", "16 producers, one in flight", (25_000, 10_000), 16, 1),
    _durable("64", "64 producers, one in flight", (50_000, 10_000), 64, 1),
    _durable("256", "256 producers, one in flight", (50_000, 10_000), 256, 1),
    _durable("16-consumer", "16 producers, one in flight, a consumer", (25_000, 10_000), 16, 1),
    _durable("1000", "1 producer, 1,000 in flight", (200_000, 10_000), 1, 1_000),
    _durable("1000-consumer", "1 producer, 1,000 in flight, a consumer", (200_000, 10_000), 1, 1_000),
    Row("latency", "latency at 5,000 msg/s, 100 B", 50_000, 100, rate=5_000, times="delivery"),
    Row("depth", "1,000,000 of 100 B in one queue, then drained", 1_000_000, 100, consumer=False, depth=True),
    # What a link costs is the difference of the first two.
    _cluster(
        "cluster-1KiB-local", "2 nodes, non-durable 1 KiB, producer and consumer at one", 300_000, receive_at=(0,)
    ),
    _cluster("cluster-1KiB", "2 nodes, non-durable 1 KiB, producer at one, consumer at the other", 200_000),
    _cluster(
        "cluster-1KiB-durable",
        "2 nodes, durable 1 KiB, 1,000 in flight, producer at one, consumer at the other",
        100_000,
        durable=True,
        in_flight=1_000,
    ),
    _cluster(
        "redistribution",
        "50,000 durable 1 KiB at one of 2 nodes, then a consumer at the other",
        50_000,
        durable=True,
        in_flight=1_000,
        consumer=False,
        moves=True,
    ),
    _spread(2),
    _spread(4),
    _spread(7),
)

MANY = (
    Many("connections", "1,000 connections, each a receiver on its own queue", 1_000, 1, attached=True),
    Many("queues", "10,000 more queues, a message in each", 10, 1_000, attached=False),
)

BESIDE = (
    Beside(
        "bystander",
        "latency at 5,000 msg/s, 100 B, alone and beside bad input",
        Row("bystander", "a bystander", 15_000, 100, rate=5_000, times="delivery"),
        turns=3,
        bad_per_s=200,
        skips=_ours_alone("ours refuses"),
    ),
)


FLOODED = (
    Flooded(
        "bystander-floods",
        "latency at 5,000 msg/s, 100 B, beside a busy process and beside a flood",
        Row("bystander-floods", "a bystander", 4_000, 100, rate=5_000, times="delivery"),
        turns=3,
        between=3,
        floods=(
            "empty frames",
            "flow of the session with echo",
            "begin, end",
            "attach, detach (sending)",
            "attach, detach (temporary queue)",
            "open, close",
            "disposition of a sender",
            "durable messages that make no runs",
            "durable messages, a link for every fifty",
            "messages in frames of a byte",
            "messages that say where they go",
            "transactions of messages",
        ),
        skips=_ours_alone("ours takes in"),
    ),
)


def _among(name: str, title: str, row: str, many: Many) -> Among:
    load = next(one for one in ROWS if one.name == row)
    title = f"{load.title}, alone and among {title}"
    return Among(f"among-{name}", title, load, many, skips=_ours_alone("a crowd costs with ours"))


# Each crowd with messages that come in runs, and with messages that come one by one, for which each step pays.
AMONG = (
    _among("connections", "1,000 connections", "plain-1KiB-acknowledged", MANY[0]),
    _among("connections-single", "1,000 connections", "durable-16", MANY[0]),
    _among("queues", "10,000 queues", "plain-1KiB-acknowledged", MANY[1]),
    _among("queues-single", "10,000 queues", "durable-16", MANY[1]),
)

RECOVERY = (
    Recovery(
        "recovery",
        "kill -9 with 500,000 durable 1 KiB to the first accepted message",
        Row("recovery", "500,000 durable", 500_000, 1024, durable=True, in_flight=1_000, consumer=False),
        skips=tuple((kind, "so many durable messages take it minutes") for kind in sorted(SLOW)),
    ),
)

DEPARTURES = (
    Departure(
        "scale-down",
        "a node with 10 queues of 5,000 durable 1 KiB leaves",
        _cluster("scale-down", "5,000 durable", 5_000, durable=True, in_flight=1_000, consumer=False),
        10,
        500,
        skips=_NO_CLUSTER,
    ),
    Departure(
        "scale-down-paged",
        "a node with 4 queues of 250,000 durable 1 KiB, paged, leaves",
        _cluster("scale-down-paged", "250,000 durable", 250_000, durable=True, in_flight=1_000, consumer=False),
        4,
        2_000,
        pages=True,
        skips=_NO_CLUSTER,
    ),
)

FRESH: tuple[Fresh, ...] = (*MANY, *BESIDE, *FLOODED, *AMONG, *RECOVERY, *DEPARTURES)

# Start of a fresh instance: not a load, so it is no Row, but it stands in the same table.
START = "start"
START_TITLE = "start to first accepted message; idle"

# What every broker gets before the first round, again and again until it is steady: 500,000 messages on the paths that
# the rows take.
WARM_UP = (
    _plain(100, "100B", True, 150_000, 0),
    _plain(100, "100B", False, 150_000, 0),
    _plain(1024, "1KiB", False, 100_000, 0),
    _durable("warm-consumer", "warm-up", (100_000, 5_000), 1, 1_000),
)
# The same for clusters: over a link, and out of a queue that nobody reads.
CLUSTER_WARM_UP = (
    _cluster("warm-local", "warm-up", 150_000, receive_at=(0,)),
    _cluster("warm-cluster", "warm-up", 100_000),
    _cluster("warm-cluster-durable", "warm-up", 50_000, durable=True, in_flight=1_000),
    _cluster("warm-moves", "warm-up", 20_000, durable=True, in_flight=1_000, consumer=False, moves=True),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The rows to measure, those that get an instance of their own, and whether starts are measured too."""

    rows: tuple[Row, ...] = ()
    applications: tuple[Application, ...] = ()
    fresh: tuple[Fresh, ...] = ()
    starts: bool = False

    def all(self) -> tuple[Row | Application | Fresh, ...]:
        """Everything but the start."""
        return (*self.rows, *self.applications, *self.fresh)

    def titles(self) -> dict[str, str]:
        """Name → title, in the order of the table."""
        titles = {row.name: row.title for row in self.all()}
        return titles | ({START: START_TITLE} if self.starts else {})

    def lines(self) -> dict[str, str]:
        """Name → title of everything that has figures: floods stand for themselves."""
        found: dict[str, str] = {}
        rows = {row.name: row for row in self.fresh if isinstance(row, Flooded)}
        for name, title in self.titles().items():
            found |= rows[name].titles() if name in rows else {name: title}
        return found

    def of_day(self, day: int) -> Choice:
        """A third of the rows of each kind, the next one each day; starts are in all of them."""
        third = slice(day % 3, None, 3)
        return Choice(self.rows[third], self.applications[third], self.fresh[third], self.starts)

    def short(self) -> Choice:
        """The same with small counts."""
        return Choice(
            tuple(row.short() for row in self.rows),
            tuple(row.short() for row in self.applications),
            tuple(row.short() for row in self.fresh),
            self.starts,
        )


EVERYTHING = Choice(ROWS, APPLICATIONS, FRESH, starts=True)


def chosen(names: list[str]) -> Choice:
    """The rows of these names; all of them when there are none."""
    known = EVERYTHING.titles()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no row is called {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    if not names:
        return EVERYTHING
    rows = tuple(row for row in ROWS if row.name in names)
    applications = tuple(row for row in APPLICATIONS if row.name in names)
    return Choice(rows, applications, tuple(row for row in FRESH if row.name in names), START in names)
