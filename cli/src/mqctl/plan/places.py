"""Files, folders and links that roles manage on a host: what is wanted of each, and how one differs. Pure.

Invariant: each path that a role brings to an owner, a mode or a content is among `places_of`; a contract test asks the
roles. Contents that other lines of a plan are about (options, users, certificates, the unit) are not compared here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from mqbroker.config.declarations.variables import HostVariables

UNITS = "/etc/systemd/system/"
UNIT_FILE = f"{UNITS}mqbroker@.service"
FILTER_PLACE, FILTER_UNIT = "/etc/mq-firewall", f"{UNITS}mq-firewall.service"
MOVE_AWAY = "move away"
STOP_TIMEOUT_MS, STOP_MARGIN_S = 10_000, 15
KEPT = ("identity.json", "users.json")
SECRET = "cluster-secret"


@dataclass(frozen=True, slots=True)
class HostPlace:
    """One of them. `kind`: file, folder or link. `content`: SHA-256 of a file, where a link leads; None: any will do.

    `is_told`: another line of the plan says where it is missing or what is in it. `is_replaced`: a rollout sets aside
    what stands there instead, unless that is a link.
    """

    kind: str
    owner: str = "root"
    group: str = "root"
    mode: str = "0755"
    content: str | None = None
    is_told: bool = False
    is_secret: bool = False
    is_replaced: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """How a path is not as wanted."""

    path: str
    kind: str
    action: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """Files of the packet filter as its role writes them."""

    ruleset: str
    unit: str


@dataclass(frozen=True, slots=True)
class Given:
    """What the places of a host are made from beside its variables. `certificates`: instance -> file ->
    SHA-256; `keys`: instance -> SHA-256 of its private key, None where any will do."""

    certificates: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    keys: Mapping[str, str | None] = field(default_factory=dict)
    rules: Rules | None = None


def digest(text: str) -> str:
    """The SHA-256 of a text in UTF-8, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def places_of(variables: HostVariables, given: Given) -> dict[str, HostPlace]:
    """Path -> what is wanted there."""
    places = {
        "/opt/mq": HostPlace("folder", is_told=True),
        "/opt/mq/releases": HostPlace("folder", is_told=True),
        "/etc/mq": HostPlace("folder"),
        "/var/lib/mq": HostPlace("folder"),
        UNIT_FILE: HostPlace("file", mode="0644", is_told=True),
    }
    for one in variables.mq_instances:
        places |= _of_instance(one.name, variables, given)
    return places if given.rules is None else places | _of_filter(given.rules)


def _of_filter(rules: Rules) -> dict[str, HostPlace]:
    """What was tried and what was confirmed are the same in the end."""
    content = digest(rules.ruleset)
    return {
        FILTER_PLACE: HostPlace("folder"),
        f"{FILTER_PLACE}/candidate.nft": HostPlace("file", mode="0644", content=content),
        f"{FILTER_PLACE}/ruleset.nft": HostPlace("file", mode="0644", content=content),
        FILTER_UNIT: HostPlace("file", mode="0644", content=digest(rules.unit)),
    }


def _of_instance(name: str, variables: HostVariables, given: Given) -> dict[str, HostPlace]:
    etc, data, settings = f"/etc/mq/{name}", f"/var/lib/mq/{name}", f"{UNITS}mqbroker@{name}.service.d"
    ours = HostPlace("file", "mq", "mq", "0600")
    places = {
        etc: HostPlace("folder", group="mq", mode="0750"),
        f"{etc}/broker.toml": HostPlace("file", group="mq", mode="0640", is_told=True),
        data: HostPlace("folder", "mq", "mq", "0700"),
        settings: HostPlace("folder"),
        f"{settings}/stop-timeout.conf": HostPlace("file", mode="0644", content=digest(stop_timeout(variables))),
        **{f"{data}/{one}": replace(ours, is_told=True, is_replaced=one == "users.json") for one in KEPT},
    }
    if variables.mq_broadcast_groups or variables.mq_discovery_groups or variables.mq_cluster_connections:
        content = digest(f"{variables.mq_cluster_secret}\n")
        places[f"{data}/{SECRET}"] = replace(ours, content=content, is_secret=True)
    if given.certificates:
        places[f"{etc}/tls"] = HostPlace("folder", group="mq", mode="0750", is_told=True)
        for one in ("server.pem", "ca.pem"):
            places[f"{etc}/tls/{one}"] = HostPlace("file", group="mq", mode="0640", is_told=True)
        key = given.keys.get(name)
        places[f"{etc}/tls/server.key"] = HostPlace("file", group="mq", mode="0640", content=key, is_secret=True)
    return places


def stop_timeout(variables: HostVariables) -> str:
    """The drop-in of a unit, as the role `broker` writes it."""
    ms = variables.mq_broker_options.get("node", {}).get("stop_timeout_ms", STOP_TIMEOUT_MS)
    why = "# Written by the role mqops.cluster.broker: a little more than the broker takes itself (stop-timeout-ms).\n"
    return f"{why}[Service]\nTimeoutStopSec={int(ms) // 1000 + STOP_MARGIN_S}\n"


def differences(wanted: Mapping[str, HostPlace], seen: Mapping[str, HostPlace]) -> Iterator[Difference]:
    """Those that are not as wanted, in the order in which they are wanted. What is below a missing one is left out."""
    absent: list[str] = []
    for path, place in wanted.items():
        there = seen.get(path)
        if there is None:
            if not place.is_told and not any(path.startswith(f"{one}/") for one in absent):
                yield Difference(path, place.kind, "create")
            absent.append(path)
        elif there.kind != place.kind:
            if not place.is_replaced or there.kind == "link":
                yield Difference(path, place.kind, MOVE_AWAY, there.kind, place.kind)
        else:
            yield from _attributes(path, place, there)


def _attributes(path: str, wanted: HostPlace, seen: HostPlace) -> Iterator[Difference]:
    before, after = [], []
    for name in ("owner", "group", "mode"):
        old, new = getattr(seen, name), getattr(wanted, name)
        if old != new:
            before.append(f"{name} {old}")
            after.append(f"{name} {new}")
    if wanted.content is not None and wanted.content != seen.content:
        before.append("content ********" if wanted.is_secret else f"content {(seen.content or '')[:8]}")
        after.append("content ********" if wanted.is_secret else f"content {wanted.content[:8]}")
    if before:
        yield Difference(path, wanted.kind, "change", " ".join(before), " ".join(after))


def strangers(wanted: Mapping[str, HostPlace], seen: Mapping[str, HostPlace]) -> list[str]:
    """What lies in folders where roles write, and is none of theirs; not what is in such a thing."""
    strange: list[str] = []
    for path, place in sorted(seen.items()):
        folder = path.rpartition("/")[0]
        if path in wanted or folder not in wanted or folder.startswith(("/var/lib/mq", "/opt/mq")):
            continue
        if folder.endswith(".service.d"):
            continue  # what `systemctl edit` makes is the operator's
        # Folders in /etc/mq are instances, which are looked at as such.
        if folder != "/etc/mq" or place.kind != "folder":
            strange.append(path)
    return strange
