"""What a cluster would lose if some of its nodes were away. Pure: what nodes have said in, losses out.

| of a node that would be away | is lost unless |
|---|---|
| a queue that it hands out to clients | they consume from it at a node that stays and hands it out, or are sent there |
| an address where it takes what clients send | one that stays takes clients, has room, and has it open or makes it |
| its place among those that gossip names | of each node that stays another peer is there, or is nobody of the cluster |
| what a name of DNS leads to | the name leads a node that stays to another one as well |
| whom it serves | it says so, all of it; or no broker has come up there |

A node that does not answer, or lets no client in, stays for nobody. What is lost while it is away comes back with it,
so `--force` may overrule all of it. Source: docs/adr/0028-one-operation-at-a-time.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

NOBODY = "no other node takes clients"
SHUT = "it does not exist there, and is not made for who sends"
UNASKED = "the memory for messages is full there, and nobody knows whether it pages"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a node says of itself. `invites`: it tells other nodes how clients reach it, so that they may be sent there;
    `read`: queues that clients consume from, `kept`: durable subscriptions among them; `idle`: queues that are paused,
    and hand out nothing;
    `written`: addresses that they send to;
    `answers`: it has said all of this; `faults`: why nobody knows whom it serves;
    `open`: addresses that take producers here, paused ones and those that would be made among them; `shut`: why
    others do not, as far as that is known;
    `full`: why it takes in nothing at all at the moment. What hands out or takes in nothing serves nobody, at a node
    that goes as at one that stays.
    """

    name: str
    takes_clients: bool = True
    invites: bool = False
    read: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()
    shut: Mapping[str, str] = field(default_factory=dict)
    full: str = ""
    gossip: Sequence[Gossip] = ()
    answers: bool = True
    faults: Sequence[str] = ()
    resolved: Mapping[str, frozenset[str]] = field(default_factory=dict)  # group by DNS -> names of nodes, others empty


@dataclass(frozen=True, slots=True)
class Gossip:
    """A group that finds others by gossip: its own place and those of its peers, as `host:port`."""

    group: str
    place: str
    peers: frozenset[str]


@dataclass(frozen=True, slots=True)
class Loss:
    """What is lost, why, and what would change that."""

    what: str
    why: str
    remedy: str

    @property
    def text(self) -> str:
        return f"{self.what}: {self.why} ({self.remedy})"


def losses(
    nodes: Sequence[Standing], away: Collection[str], sent_to: Collection[str] = (), *, is_restart: bool = False
) -> list[Loss]:
    """All that is lost while the nodes `away` are. `sent_to`: nodes that their clients are sent to, where they are.

    `is_restart`: they come back at once, so that others need no new way to find somebody, and where there are no others
    nobody could stand in. What a durable subscription gets meanwhile waits for its client, who comes back to it.
    """
    unknown = [Loss(one.name, f"nobody knows whom it serves: {'; '.join(one.faults)}", "mqctl status")
               for one in nodes if one.name in away and one.faults]  # fmt: skip
    if is_restart and len(nodes) == 1:
        return unknown
    nodes = [one for one in nodes if one.answers]
    gone = [replace(one, read=one.read - one.kept) if is_restart else one for one in nodes if one.name in away]
    stay = [one for one in nodes if one.name not in away and one.takes_clients]
    hosts = [one for one in stay if one.name in sent_to and one.invites]
    return [
        *unknown,
        *_queues(gone, stay, hosts),
        *_addresses(gone, stay),
        *(() if is_restart else _gossip(nodes, gone, [one for one in nodes if one.name not in away])),
        *(() if is_restart else _names(gone, [one for one in nodes if one.name not in away])),
    ]


def _queues(gone: Sequence[Standing], stay: Sequence[Standing], hosts: Sequence[Standing]) -> Iterator[Loss]:
    """`hosts`: nodes that clients are sent to."""
    elsewhere = frozenset[str]().union(*(one.read - one.idle for one in stay))
    for name in sorted(frozenset[str]().union(*(one.read - one.idle for one in gone)) - elsewhere):
        if all(name in one.idle for one in hosts):
            where = ", ".join(one.name for one in gone if name in one.read - one.idle)
            other = stay[0].name if stay else "another node, of which there is none"
            idle = ", ".join(one.name for one in stay if name in one.idle and (name in one.read or one in hosts))
            remedy = f"mqctl queue or address resume at {idle}" if idle else f"start a consumer at {other}"
            why = f"is consumed from at {where} alone{f', as {idle} has it paused' if idle else ''}"
            yield Loss(f"queue {name}", why, remedy)


def _addresses(gone: Sequence[Standing], stay: Sequence[Standing]) -> Iterator[Loss]:
    gone = [replace(one, written=one.written - {name for name, why in one.shut.items() if why != UNASKED})
            for one in gone if not one.full]  # fmt: skip
    for name in sorted(frozenset[str]().union(*(one.written for one in gone))):
        if any(name in one.open and not one.full for one in stay):
            continue
        where = ", ".join(one.name for one in gone if name in one.written)
        whys = [f"{one.name}: {one.full or one.shut.get(name, SHUT)}" for one in stay]
        yield Loss(
            f"address {name}", f"is sent to at {where}, and taken nowhere else: {'; '.join(whys or [NOBODY])}",
            "mqctl address create at another node, or make room there",
        )  # fmt: skip


def _gossip(nodes: Sequence[Standing], gone: Sequence[Standing], stay: Sequence[Standing]) -> Iterator[Loss]:
    """Places that are nobody's of the cluster are taken for alive: nobody here knows better."""
    lost = {each.place for one in gone for each in one.gossip}
    lost |= {each.place for one in nodes if one not in gone and not one.takes_clients for each in one.gossip}
    for one in stay if len(stay) > 1 else ():
        for each in one.gossip:
            peers = each.peers - {each.place}
            if peers and peers <= lost:
                yield Loss(
                    f"discovery group {each.group} of {one.name}",
                    f"gossips with {', '.join(sorted(peers))} alone",
                    "add a peer that stays to the group",
                )


def _names(gone: Sequence[Standing], stay: Sequence[Standing]) -> Iterator[Loss]:
    lost = {one.name for one in gone}
    for one in stay if len(stay) > 1 else ():
        for group, led_to in one.resolved.items():
            others = led_to - {one.name}
            if others and others <= lost:
                yield Loss(
                    f"discovery group {group} of {one.name}",
                    f"is led by DNS to {', '.join(sorted(others))} alone",
                    "add a node that stays to the names",
                )
