# Made by `make gen` from plugins/module_utils/multicast_matrix.py; changes belong there.
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Who hears whom in the multicast groups of a cluster, out of the reports of multicast_probe.py, and what is wrong.

Each fault is told once, where its cause is: what is wrong on one host (a card that is down, no route) is told of this
host and explains all its pairs; a host that all others miss is told of as one; what is left is told pair by pair. A
finding says what is, why as far as it can be known, and what to do. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CHECK = "multicast"
LOOPBACK = "127.0.0.1"
NAMES_MAX = 3  # hosts that one finding names
OK, MISSED, ELSEWHERE, UNKNOWN, ITSELF, NO_PART = "ok", "missed", "elsewhere", "unknown", "itself", "no-part"
MARKS = {OK: "✓", MISSED: "✗", ELSEWHERE: "!", UNKNOWN: "?", ITSELF: "·", NO_PART: " "}
ASCII_MARKS = {OK: "+", MISSED: "x", ELSEWHERE: "!", UNKNOWN: "?", ITSELF: ".", NO_PART: " "}
MEANINGS = {
    OK: "heard", MISSED: "not heard", ELSEWHERE: "on another card", UNKNOWN: "host not reached", ITSELF: "itself",
}  # fmt: skip
TROUBLES = {
    "no-card": "there is no network card {card}; set mq_cluster_interface to one that is there",
    "card-without-address": "the network card {card} has no IPv4 address; give it one",
    "no-address": "no network card of this host has the address {pin}; correct local_bind_address",
    "card-down": "the network card {card} is down or has no carrier; check its cable and the switch",
    "loopback": "it is bound to {pin}, which no other host hears; set mq_cluster_interface to the cluster's card",
    "no-route": "the host has no route for it; set mq_cluster_interface, or add a route for 224.0.0.0/4",
}
PIN = "set mq_cluster_interface, or local_bind_address of the group, to the cluster's network card"
MULTICAST_ALONE = (
    "unicast passes, so multicast alone is lost: a packet filter for it, or a switch that snoops IGMP on a network "
    "without a querier"
)
NOTHING_PASSES = "unicast does not pass either: check cable, VLAN and packet filters"
NOT_CERTAIN = "check packet filters, and IGMP snooping of the switch"

MulticastFinding = dict[str, str]
Report = Mapping[str, Any]


@dataclass
class GroupMatrix:
    """One group: what each host reported of it, and the cell of each pair. Senders and receivers in their order."""

    address: str
    port: int
    rank: int = 0
    names: list[str] = field(default_factory=list)
    places: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    senders: list[str] = field(default_factory=list)
    receivers: list[str] = field(default_factory=list)
    cells: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Address and port."""
        return f"{self.address}:{self.port}"

    def trouble(self, host: str, side: str) -> str:
        """What is wrong on a host for sending or listening."""
        own = (self.places.get(host) or {}).get(side)
        return str(own["trouble"]) if own else ""

    def card(self, host: str, side: str) -> str:
        """The network card of a host."""
        own = (self.places.get(host) or {}).get(side)
        return str(own["card"]) if own else ""

    def sound_pairs(self) -> list[tuple[str, str]]:
        """Sender and receiver of all pairs whose hosts were reached and are well by themselves."""
        return [
            (one, other)
            for one in self.senders
            for other in self.receivers
            if one != other
            and one in self.places
            and other in self.places
            and not self.trouble(one, "send")
            and not self.trouble(other, "listen")
        ]

    def as_row(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "group": self.names, "address": self.address, "port": self.port, "senders": self.senders,
            "receivers": self.receivers, "heard": self.cells,
        }  # fmt: skip


def places_of(
    broadcast: Sequence[Mapping[str, Any]], discovery: Sequence[Mapping[str, Any]], interface: str, address: str
) -> list[dict[str, Any]]:
    """The places of a host, from the groups of its inventory and what pins those that say nothing of their own.

    A group that has neither is on loopback, as the role writes it; one whose own local_bind_address is empty is not
    pinned. Groups that do without multicast have no place.
    """
    common = {"address": "" if interface else address or LOOPBACK, "interface": interface}
    made: dict[tuple[str, int, int], dict[str, Any]] = {}
    for side, rows in (("send", broadcast), ("listen", discovery)):
        ranks: dict[tuple[str, int], int] = {}
        for row in rows:
            if row.get("discovery", "udp") != "udp":
                continue
            where = (str(row["group_address"]), int(row["group_port"]))
            rank = ranks[where] = ranks.get(where, -1) + 1
            place = made.setdefault(
                (*where, rank), {"group": str(row["name"]), "address": where[0], "port": where[1], "rank": rank}
            )
            own = row.get("local_bind_address")
            place[side] = common if own is None else {"address": str(own), "interface": ""}
            if "time_to_live" in row:
                place["ttl"] = int(row["time_to_live"])
    return list(made.values())


@dataclass(frozen=True)
class ProbeOrder:
    """What was probed: the hosts in their order with the places of each, and whether these are all of the cluster."""

    hosts: Mapping[str, Sequence[Mapping[str, Any]]]
    is_whole: bool = True


def groups_of(wanted: ProbeOrder, reports: Mapping[str, Report]) -> list[GroupMatrix]:
    """The groups with their cells. A host without a report was not reached."""
    found: dict[tuple[str, int, int], GroupMatrix] = {}
    for host, places in wanted.hosts.items():
        for one in places:
            key = _key(one)
            group = found.setdefault(key, GroupMatrix(*key))
            if one["group"] not in group.names:
                group.names.append(str(one["group"]))
            if one.get("send"):
                group.senders.append(host)
            if one.get("listen"):
                group.receivers.append(host)
    for host, report in reports.items():
        for place in report["places"]:
            found[_key(place)].places[host] = place
    for group in found.values():
        group.cells = {one: {other: _cell(group, one, other) for other in group.receivers} for one in group.senders}
    return list(found.values())


def _key(place: Mapping[str, Any]) -> tuple[str, int, int]:
    return str(place["address"]), int(place["port"]), int(place["rank"])


def _cell(group: GroupMatrix, sender: str, receiver: str) -> str:
    if sender == receiver:
        return ITSELF
    place = group.places.get(receiver)
    if place is None:
        # The receiver could not say it: its answers to the sender may.
        return OK if receiver in (group.places.get(sender) or {"echoed": {}})["echoed"] else UNKNOWN
    cards = place["heard"].get(sender, {})
    if group.card(receiver, "listen") in cards:
        return OK
    if cards:
        return ELSEWHERE
    return MISSED if sender in group.places else UNKNOWN


def findings_of(
    wanted: ProbeOrder, reports: Mapping[str, Report], groups: Sequence[GroupMatrix]
) -> list[MulticastFinding]:
    """Everything that is wrong, each with the host that it is told of; errors first."""
    found: list[MulticastFinding] = []
    for group in groups:
        for part in (_troubles, _unpinned, _silence, _elsewhere, _odd):
            found += part(group)
        if wanted.is_whole and all(host in reports for host in wanted.hosts):
            found += _strangers(group, reports)
    found += _node_ids(reports, groups)
    return sorted(found, key=lambda one: one["level"] != "error")


def _error(host: str, message: str) -> MulticastFinding:
    return {"host": host, "level": "error", "check": CHECK, "message": message}


def _warning(host: str, message: str) -> MulticastFinding:
    return {"host": host, "level": "warning", "check": CHECK, "message": message}


def _sides(group: GroupMatrix, host: str) -> list[Mapping[str, Any]]:
    place = group.places[host]
    return [place[side] for side in ("send", "listen") if place[side]]


def _troubles(group: GroupMatrix) -> Iterator[MulticastFinding]:
    for host in group.places:
        texts = [
            TROUBLES.get(side["trouble"], side["trouble"]).format(**side)
            for side in _sides(group, host)
            if side["trouble"]
        ]
        for text in dict.fromkeys(texts):
            yield _error(host, f"{group.place}: {text}")


def _unpinned(group: GroupMatrix) -> Iterator[MulticastFinding]:
    for host, place in group.places.items():
        for side, does in (("send", "leaves by"), ("listen", "listens on")):
            route = place[side]["route"] if place[side] else None
            if route:
                why = "the default route" if route["is_default"] else "the host's routes"
                yield _warning(
                    host, f"{group.place}: nothing pins it to a network card, so it {does} {route['card']} as {why} "
                    f"will have it; {PIN}",
                )  # fmt: skip


def _silence(group: GroupMatrix) -> Iterator[MulticastFinding]:
    """Pairs that are not heard, with as few sentences as say it all."""
    pairs = group.sound_pairs()
    missed = {pair for pair in pairs if group.cells[pair[0]][pair[1]] == MISSED}
    if missed and len(missed) < len(pairs):
        for host in dict.fromkeys(host for pair in sorted(missed) for host in pair):
            told = _as_one(group, host, pairs, missed)
            if told:
                yield told
                missed -= {pair for pair in missed if host in pair}
    for receiver in group.receivers:
        senders = [one for one, other in pairs if other == receiver and (one, other) in missed]
        if senders:
            one_way = [one for one in senders if group.cells.get(receiver, {}).get(one) == OK]
            way = "" if not one_way else f" (one way only: {named(one_way)} does hear it)"
            card = group.card(receiver, "listen")
            yield _error(
                receiver, f"{group.place}: {named(senders)} is not heard on {card}{way}; "
                f"{_cause(group, [(one, receiver) for one in senders])}",
            )  # fmt: skip


def _as_one(
    group: GroupMatrix, host: str, pairs: Sequence[tuple[str, str]], missed: set[tuple[str, str]]
) -> MulticastFinding | None:
    """A host that all others miss, or that misses all: a cause for all its pairs at once."""
    heard_by = [pair for pair in pairs if pair[0] == host]
    hears = [pair for pair in pairs if pair[1] == host]
    is_mute = len(heard_by) > 1 and missed.issuperset(heard_by)
    is_deaf = len(hears) > 1 and missed.issuperset(hears)
    if is_mute and is_deaf:
        what, own = f"neither hears the others nor is heard by them over {group.card(host, 'send')}", heard_by + hears
    elif is_mute:
        what, own = f"is heard by nobody over {group.card(host, 'send')}, and hears others", heard_by
    elif is_deaf:
        what, own = f"hears nobody on {group.card(host, 'listen')}, and is heard by others", hears
    else:
        return None
    return _error(host, f"{group.place}: this host {what}; {_cause(group, own)}")


def _cause(group: GroupMatrix, pairs: Sequence[tuple[str, str]]) -> str:
    """What unicast between the same hosts and cards says about it."""
    passes = [bool(group.places[other]["direct"].get(one)) for one, other in pairs]
    if all(passes):
        return MULTICAST_ALONE
    return NOT_CERTAIN if any(passes) else NOTHING_PASSES


def _elsewhere(group: GroupMatrix) -> Iterator[MulticastFinding]:
    for receiver in group.receivers:
        if receiver not in group.places:
            continue
        wanted_card = group.card(receiver, "listen")
        by_cards: dict[tuple[str, bool], list[str]] = {}
        for sender, cards in sorted(group.places[receiver]["heard"].items()):
            others = sorted(set(cards) - {wanted_card})
            if others:
                by_cards.setdefault((" and ".join(others), wanted_card in cards), []).append(sender)
        for (cards_named, is_both), senders in by_cards.items():
            if is_both:
                yield _warning(
                    receiver, f"{group.place}: {named(senders)} is heard on {cards_named} as well as on {wanted_card}; "
                    "these cards are in one network: separate them by cable or VLAN",
                )  # fmt: skip
                continue
            yield _error(
                receiver, f"{group.place}: {named(senders)} is heard on {cards_named} instead of "
                f"{wanted_card or 'any card that it listens on'}; {_why_elsewhere(group, senders)}",
            )  # fmt: skip


def _why_elsewhere(group: GroupMatrix, senders: Sequence[str]) -> str:
    unpinned = [one for one in senders if one in group.places and (group.places[one].get("send") or {}).get("route")]
    if unpinned:
        return f"{named(unpinned)} is not pinned and leaves by {group.card(unpinned[0], 'send')}; {PIN} there"
    return "cards are in one network or swapped: check cables, VLANs and mq_cluster_interface of both hosts"


def _odd(group: GroupMatrix) -> Iterator[MulticastFinding]:
    for host, place in group.places.items():
        clusters: dict[str, list[str]] = {}
        for one in place["foreign"]:
            clusters.setdefault(one["cluster"], []).append(one["source"])
        for cluster, sources in clusters.items():
            yield _warning(
                host, f"{group.place}: cluster {cluster} is on it as well ({named(sources)}); give each cluster a "
                "group_address or group_port of its own",
            )  # fmt: skip
        if place["forged"]:
            yield _warning(host, f"{group.place}: probes bear this run's name and not its key; look who sends")
        if place["other_runs"]:
            yield _warning(host, f"{group.place}: another preflight of this cluster runs at the same time")
        if place["unknown"]:
            yield _warning(
                host, f"{group.place}: something else sends to it too; choose another group_address or group_port"
            )


def _strangers(group: GroupMatrix, reports: Mapping[str, Report]) -> Iterator[MulticastFinding]:
    """Brokers that announce themselves from addresses of no host: only where all hosts of the cluster are known."""
    own = {address for report in reports.values() for address in report["addresses"]}
    for host, place in group.places.items():
        sources = [one["source"] for one in place["announced"] if one["source"] not in own]
        if sources:
            yield _warning(
                host, f"{group.place}: brokers announce themselves from {named(sources)}, no address of this cluster's "
                "hosts: another cluster on the same group, or a host that the inventory lacks; give each cluster a "
                "group_address or group_port of its own",
            )  # fmt: skip


def _node_ids(reports: Mapping[str, Report], groups: Sequence[GroupMatrix]) -> Iterator[MulticastFinding]:
    remedy = "a data directory was copied: stop the copy and run `mqbroker identity new --even-if-original` there"
    owners: dict[str, tuple[str, str]] = {}
    for host, report in reports.items():
        for instance, node_id in report["node_ids"].items():
            owner = owners.setdefault(node_id, (host, instance))
            if owner[0] != host and set(reports[owner[0]]["addresses"]) == set(report["addresses"]) != set():
                yield _error(host, f"{host} and {owner[0]} are one host: both have {named(report['addresses'])} and "
                             f"the node id {node_id}; remove one of these names from the inventory")  # fmt: skip
            elif owner != (host, instance):
                yield _error(host, f"instance {instance} has the node id {node_id} of {owner[0]}/{owner[1]}; {remedy}")
    told = set()
    for group in groups:
        for place in group.places.values():
            for one in place["announced"]:
                owner = owners.get(one["node_id"], ("", ""))
                if owner[0] and one["source"] not in reports[owner[0]]["addresses"]:
                    told.add((owner[0], owner[1], one["node_id"], one["source"]))
    for host, instance, node_id, source in sorted(told):
        yield _error(host, f"the node id {node_id} of instance {instance} is also announced by {source}; {remedy}")


def named(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    if len(names) <= NAMES_MAX:
        return ", ".join(names)
    return f"{', '.join(names[:NAMES_MAX])} and {len(names) - NAMES_MAX} more"


def drawn(group: GroupMatrix, is_ascii: bool = False) -> list[str]:
    """The matrix for people: rows send, columns hear; columns are numbered as the hosts are."""
    marks = ASCII_MARKS if is_ascii else MARKS
    hosts = list(dict.fromkeys([*group.senders, *group.receivers]))
    numbers = {host: str(number) for number, host in enumerate(hosts, 1)}
    width = max(map(len, hosts), default=0)
    digits = len(str(len(hosts)))
    lines = [f"{group.place} {' '.join(group.names)}: rows send, columns hear"]
    head = " ".join(numbers[one].rjust(digits) for one in group.receivers)
    lines.append(f"{'':{digits}}  {'':{width}}  {head}")
    for sender in group.senders:
        cells = " ".join(marks[group.cells[sender][one]].rjust(digits) for one in group.receivers)
        lines.append(f"{numbers[sender]:>{digits}}  {sender:{width}}  {cells}")
    deaf = [one for one in group.receivers if one not in group.senders]
    lines += [f"{numbers[one]:>{digits}}  {one:{width}}  hears only" for one in deaf]
    seen = {state for row in group.cells.values() for state in row.values()}
    lines.append(", ".join(f"{marks[state]} {text}" for state, text in MEANINGS.items() if state in seen))
    return [line.rstrip() for line in lines]
