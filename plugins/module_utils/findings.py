# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Judges a host before anything is changed on it: everything that is wrong or noteworthy, at once. Pure.

Each check is a function of the facts and the wishes; none depends on another, so one fault never hides the next. A
finding of level `error` stops a rollout. A message says what is, and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.mqops.cluster.plugins.module_utils.host import Facts
from ansible_collections.mqops.cluster.plugins.module_utils.network import NoAddress, bind_address, is_loopback
from ansible_collections.mqops.cluster.plugins.module_utils.sockets import overlap

TESTED_OS = ("debian", "12")
PORT_MAX = 65535
MIB = 1024 * 1024
USER = "mq"
EVERYWHERE = ("0.0.0.0", "::")

Finding = dict[str, str]


@dataclass(frozen=True)
class Wishes:
    """What the inventory wants of the host. `clock` is {offset_ms, uncertainty_ms} or empty."""

    instances: list[dict[str, Any]]
    listeners: list[dict[str, Any]]
    manifest: dict[str, Any] = field(default_factory=dict)
    cluster_interface: str = ""
    local_bind_address: str = ""
    allow_plaintext: bool = False
    firewall: bool = False
    tls: bool = False
    tls_missing: list[str] = field(default_factory=list)
    tls_faults: list[str] = field(default_factory=list)
    metrics_port: int = 0
    metrics_local_bind_address: str = "127.0.0.1"
    broadcast_groups: list[dict[str, Any]] = field(default_factory=list)
    discovery_groups: list[dict[str, Any]] = field(default_factory=list)
    os_unsupported: bool = False
    uid: int = 0
    disk_free_bytes_min: int = 0
    clock: dict[str, float] = field(default_factory=dict)
    clock_offset_ms_max: int = 1000
    bundle: str = ""


def find(facts: Facts, wishes: Wishes) -> list[Finding]:
    """All findings, errors first, else in the order of the checks."""
    found = [one for check in CHECKS for one in check(facts, wishes)]
    return sorted(found, key=lambda one: one["level"] != "error")


def _error(check: str, message: str) -> Finding:
    return {"level": "error", "check": check, "message": message}


def _warning(check: str, message: str) -> Finding:
    return {"level": "warning", "check": check, "message": message}


def _os(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    if not facts.has_systemd:
        yield _error("os", "systemd does not run here; brokers are systemd services")
    if (facts.os_id, facts.os_version) == TESTED_OS:
        return
    message = f"{facts.os_name or 'this operating system'} is not a tested one; tested is Debian 12"
    if wishes.os_unsupported:
        yield _warning("os", message)
    else:
        yield _error("os", f"{message}; set mq_os_unsupported: true to go on all the same")


def _python(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    python = facts.python
    if python is None:
        yield _error("python", "there is no working /usr/bin/python3; install python3 python3-venv python3-packaging")
        return
    missing = [
        name
        for name, there in (("python3-venv", python.has_venv), ("python3-packaging", python.has_packaging))
        if not there
    ]
    if missing:
        yield _error("python", f"{python.path} lacks modules; install the packages {' '.join(missing)}")


def _bundle(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    manifest = wishes.manifest
    if not manifest:
        where = f"{wishes.bundle} has no readable manifest.json" if wishes.bundle else "mq_bundle is not set"
        yield _error("bundle", f"{where}; build a bundle with `mqctl bundle build` and set mq_bundle to its folder")
        return
    rebuild = "build one for these hosts with `mqctl bundle build --python … --platform …`"
    python = facts.python
    if python is not None and (python.version, python.implementation) != (manifest.get("python"), "CPython"):
        yield _error(
            "bundle",
            f"the bundle is for CPython {manifest.get('python')}, {python.path} is {python.implementation} "
            f"{python.version}; {rebuild}",
        )
    if facts.machine != manifest.get("machine"):
        yield _error("bundle", f"the bundle is for {manifest.get('machine')}, this host is {facts.machine}; {rebuild}")
    if python is not None and _numbers(python.glibc) < _numbers(str(manifest.get("glibc", ""))):
        yield _error(
            "bundle",
            f"the bundle needs glibc {manifest.get('glibc')}, this host has {python.glibc or 'none'}; {rebuild}",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _clock(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    if facts.is_clock_synchronised is False:
        yield _warning("clock", "the clock is not synchronised; install a time daemon such as chrony")
    if not wishes.clock:
        return
    # What the connection itself takes is no offset: only what is left of it counts.
    offset_ms = wishes.clock["offset_ms"]
    certain_ms = abs(offset_ms) - wishes.clock["uncertainty_ms"]
    if certain_ms > wishes.clock_offset_ms_max:
        way = "ahead of" if offset_ms > 0 else "behind"
        yield _error(
            "clock",
            f"the clock is {abs(offset_ms) / 1000:.1f} s {way} that of the control node (at most "
            f"{wishes.clock_offset_ms_max / 1000:g} s); set it and install a time daemon such as chrony",
        )


def _network(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    if facts.cards is None:
        yield _error("network", "network cards cannot be listed; install the package iproute2")
        return
    try:
        bind_address(facts.cards, wishes.cluster_interface, wishes.local_bind_address)
    except NoAddress as fault:
        yield _error("network", str(fault))


def _plaintext(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    common = _common_address(facts, wishes)
    for listener in wishes.listeners:
        address = listener.get("local_bind_address") or common
        own = listener.get("allow_plaintext")
        # With `tls` a listener has the certificate of its node, unless it is the one to allow plaintext.
        is_secured = listener.get("tls_certificate_file") or (wishes.tls and not own)
        if is_secured or (address and is_loopback(address)):
            continue
        is_allowed = wishes.allow_plaintext if own is None else bool(own)
        what = f"listener {listener['name']} is reachable from the network without encryption"
        if is_allowed:
            yield _warning("plaintext", f"{what}, as mq_allow_plaintext says")
        else:
            yield _error(
                "plaintext", f"{what}; set mq_tls: managed, or mq_allow_plaintext: true if that network is trusted"
            )


def _firewall(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    if wishes.firewall and not facts.has_nft:
        yield _error("firewall", "mq_firewall is true and there is no /usr/sbin/nft; install the package nftables")


def _certificates(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    if wishes.tls_missing:
        yield _error(
            "certificates",
            f"{', '.join(wishes.tls_missing)} cannot be found on the control node; make a CA with `mqctl tls init`, or "
            "set mq_tls: off",
        )
    for fault in wishes.tls_faults:
        yield _error("certificates", fault)


def _common_address(facts: Facts, wishes: Wishes) -> str:
    """The address of listeners that name none; empty where it is not known."""
    try:
        return bind_address(facts.cards or {}, wishes.cluster_interface, wishes.local_bind_address)
    except NoAddress:
        return ""


def _wanted_ports(facts: Facts, wishes: Wishes) -> list[tuple[str, str, int]]:
    """(instance, address, port); the address is empty where it is not known."""
    common = _common_address(facts, wishes)
    places = [(listener.get("local_bind_address") or common, listener["port"]) for listener in wishes.listeners]
    if wishes.metrics_port:
        places.append((wishes.metrics_local_bind_address, wishes.metrics_port))
    places += _gossip_places(wishes, common)
    return [
        (str(one["name"]), address, port + (one.get("port_offset") or 0))
        for one in wishes.instances
        for address, port in places
    ]


def _gossip_places(wishes: Wishes, common: str) -> list[tuple[str, int]]:
    """(address, port) that peers connect to. A broadcast group and a discovery group may share one."""
    found = {
        (group.get("local_bind_address") or common, int(group["local_bind_port"])): None
        for group in (*wishes.broadcast_groups, *wishes.discovery_groups)
        if group.get("discovery") == "gossip" and group.get("local_bind_port")
    }
    return list(found)


def _ports(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    for instance, address, port in _wanted_ports(facts, wishes):
        for socket in facts.sockets:
            if socket.port == port and not socket.is_ours and _fights(socket.address, address):
                yield _error(
                    "ports",
                    f"port {port} of instance {instance} is taken by {socket.owner} on {socket.address}; stop it or "
                    "choose another port_offset",
                )


def _instances(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    names = [str(one["name"]) for one in wishes.instances]
    for name in sorted({one for one in names if names.count(one) > 1}):
        yield _error("instances", f"instance {name} is declared twice in mq_instances; remove one of them")
    seen: list[tuple[str, str, int]] = []
    for instance, address, port in _wanted_ports(facts, wishes):
        if port > PORT_MAX:
            yield _error("instances", f"port_offset of instance {instance} makes port {port}, above {PORT_MAX}")
        other = next((who for who, where, used in seen if used == port and _fights(where, address)), None)
        if other is not None:
            yield _error(
                "instances", f"instances {other} and {instance} both want port {port}; choose another port_offset"
            )
        seen.append((instance, address, port))


def _fights(one: str, other: str) -> bool:
    """Whether two addresses share ports. One that is not known (empty) shares them with all addresses at once."""
    if one and other:
        return overlap(one, other)
    return one == other or (one or other) in EVERYWHERE


def _disk(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    for place, free in facts.disk_free_bytes.items():
        if free < wishes.disk_free_bytes_min:
            yield _error(
                "disk",
                f"{place} has {free // MIB} MiB free, at least {wishes.disk_free_bytes_min // MIB} MiB are needed; "
                "make room or mount a larger disk there",
            )


def _user(facts: Facts, wishes: Wishes) -> Iterator[Finding]:
    if not wishes.uid:
        return
    present = facts.users.get(USER)
    owner = next((name for name, uid in facts.users.items() if uid == wishes.uid and name != USER), None)
    if owner is not None:
        yield _error("user", f"mq_uid {wishes.uid} belongs to the user {owner}; choose another one")
    if present is not None and present != wishes.uid:
        yield _error(
            "user",
            f"the user {USER} has uid {present}, mq_uid wants {wishes.uid}; a uid is never changed under existing "
            "files: set mq_uid to what is there, or uninstall with the data first",
        )


CHECKS: tuple[Callable[[Facts, Wishes], Iterator[Finding]], ...] = (
    _os,
    _python,
    _bundle,
    _clock,
    _network,
    _plaintext,
    _certificates,
    _firewall,
    _ports,
    _instances,
    _disk,
    _user,
)
