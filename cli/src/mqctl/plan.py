"""The plan of a rollout: the difference between what the inventory wants and what the hosts are. Pure.

Invariant: an empty plan means that a rollout finds nothing to change in what a plan covers: the release, the unit, the
user `mq`, and of each instance its options, its certificates, its users, its identity and its service. The hash stands
for all changes in their order; passwords take part only as "changed".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mqbroker.base.errors import ConfigFault
from mqbroker.config import users as broker_users
from mqbroker.config.compare import Verdict, changes
from mqbroker.config.load import parse
from mqbroker.config.slices import BrokerOptions

HASH_CHARACTERS = 16
ACTIVE = {"active", "reloading", "activating"}


@dataclass(frozen=True, slots=True)
class User:
    """A user that the inventory wants."""

    roles: tuple[str, ...]
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class WantedInstance:
    """An instance as the inventory has it. `certificates`: file in tls/ -> SHA-256, None where it is not made yet.

    `has_all_users`: the inventory says who the users are, so that any other goes.
    """

    options: str
    users: Mapping[str, User]
    certificates: Mapping[str, str | None] = field(default_factory=dict)
    has_all_users: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """A host as the inventory has it. `uid` and `unit_file` are None where any will do."""

    release: str
    instances: Mapping[str, WantedInstance]
    uid: int | None = None
    unit_file: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the process of an instance was started with, as its unit recorded it."""

    release: str | None = None
    options: str | None = None
    users: str | None = field(default=None, repr=False)
    unit_file: str | None = None
    certificates: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeenInstance:
    """An instance as it is on the host; None stands for what is not there."""

    options: str | None = None
    users: str | None = field(default=None, repr=False)
    node_id: str | None = None
    active: str = "inactive"
    enabled: str = ""
    loaded: Loaded | None = None
    certificates: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """A host as it is. `traces`: instance -> places that have something of it; `running`: instances that run."""

    release: str | None = None
    uid: int | None = None
    unit_file: str | None = None
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    traces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    running: tuple[str, ...] = ()
    instances: Mapping[str, SeenInstance] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `needs` is none, reload or restart: what it takes from a running broker."""

    host: str
    instance: str
    what: str
    action: str
    before: str = ""
    after: str = ""
    needs: str = "none"


def diff_host(host: str, wanted: Wanted, seen: Seen) -> list[Change]:
    """Every change that a rollout would make on one host, in the order in which it makes them."""
    is_running = {name: one.active in ACTIVE for name, one in seen.instances.items()}
    found = [*_host_changes(host, wanted, seen), *_all_instances(host, wanted, seen)]
    # Where no broker runs, nothing has to be restarted or reloaded.
    return [
        one
        if (is_running.get(one.instance) if one.instance else any(is_running.values()))
        else replace(one, needs="none")
        for one in found
    ]


def _host_changes(host: str, wanted: Wanted, seen: Seen) -> Iterator[Change]:
    if seen.uid is None:
        yield Change(host, "", "system user mq", "create", after="" if wanted.uid is None else f"uid {wanted.uid}")
    elif wanted.uid is not None and wanted.uid != seen.uid:
        yield Change(host, "", "system user mq", "change", f"uid {seen.uid}", f"uid {wanted.uid}", "restart")
    if seen.release != wanted.release:
        yield Change(host, "", "release", _action(seen.release), seen.release or "", wanted.release, "restart")
    if wanted.unit_file is not None and seen.unit_file != wanted.unit_file:
        yield Change(
            host, "", "unit mqbroker@.service", _action(seen.unit_file),
            short_hash(seen.unit_file), short_hash(wanted.unit_file), "restart",
        )  # fmt: skip


def _all_instances(host: str, wanted: Wanted, seen: Seen) -> Iterator[Change]:
    for name, instance in wanted.instances.items():
        found = seen.instances.get(name, SeenInstance())
        yield from _instance_changes(host, name, instance, found)
        if found.active in ACTIVE and found.loaded is not None:
            yield from _stale_process(host, name, seen, found, found.loaded)
            yield from _stale_certificates(host, name, instance, found, found.loaded)


def _instance_changes(host: str, name: str, wanted: WantedInstance, seen: SeenInstance) -> Iterator[Change]:
    if seen.node_id is None:
        yield Change(host, name, "identity", "create", after="a new node id")
    yield from _option_changes(host, name, wanted.options, seen.options)
    yield from _certificate_changes(host, name, wanted.certificates, seen.certificates)
    yield from _user_changes(host, name, wanted, seen.users)
    if seen.enabled != "enabled":
        yield Change(host, name, "service at boot", "enable", seen.enabled or "absent", "enabled")
    if seen.active not in ACTIVE:
        yield Change(host, name, "service", "start", seen.active, "active")


def _stale_process(host: str, name: str, seen: Seen, instance: SeenInstance, loaded: Loaded) -> Iterator[Change]:
    """What is on disk and not in the process: a rollout that was interrupted before the restart."""
    if loaded.release != seen.release:
        yield Change(host, name, "running release", "restart", loaded.release or "", seen.release or "", "restart")
    if loaded.unit_file != seen.unit_file:
        yield Change(
            host, name, "running unit", "restart", short_hash(loaded.unit_file), short_hash(seen.unit_file), "restart"
        )
    before, after = parse(loaded.options or ""), parse(instance.options or "")
    if isinstance(before, BrokerOptions) and isinstance(after, BrokerOptions):
        for one in changes(before, after):
            words = (f"running option {one.path}", one.needs.value, shown(one.old), shown(one.new), one.needs.value)
            yield Change(host, name, *words)
    if loaded.users != instance.users:
        yield Change(host, name, "running users", "reload", needs="reload")


def _option_changes(host: str, name: str, wanted: str, seen: str | None) -> Iterator[Change]:
    if seen is None:
        yield Change(host, name, "options", "create", after="broker.toml")
        return
    before, after = parse(seen), parse(wanted)
    if isinstance(after, list):
        raise after[0]
    if not isinstance(before, BrokerOptions):
        yield Change(host, name, "options", "replace", str(before[0]), "broker.toml", "restart")
        return
    for one in changes(before, after):
        needs = "none" if one.needs is Verdict.NONE else one.needs.value
        action = "add" if one.old is None else "remove" if one.new is None else "change"
        yield Change(host, name, f"option {one.path}", action, shown(one.old), shown(one.new), needs)


def _certificate_changes(
    host: str, name: str, wanted: Mapping[str, str | None], seen: Mapping[str, str]
) -> Iterator[Change]:
    """Files of certificates by their hashes. One that is still to be made has none, so a plan stays what it is."""
    for file, digest in wanted.items():
        before = seen.get(file)
        if digest is None:
            yield Change(host, name, f"certificate {file}", "issue", short(before), "a new one", "reload")
        elif before != digest:
            yield Change(host, name, f"certificate {file}", _action(before), short(before), short(digest), "reload")
    for file in sorted(set(seen) - set(wanted)):
        yield Change(host, name, f"certificate {file}", "remove", short(seen[file]))


def _stale_certificates(
    host: str, name: str, wanted: WantedInstance, seen: SeenInstance, loaded: Loaded
) -> Iterator[Change]:
    """On disk as wanted, and not in the process."""
    for file, digest in wanted.certificates.items():
        if digest is not None and seen.certificates.get(file) == digest != loaded.certificates.get(file):
            before = short(loaded.certificates.get(file))
            yield Change(host, name, f"running certificate {file}", "reload", before, short(digest), "reload")


def _user_changes(host: str, name: str, wanted: WantedInstance, seen: str | None) -> Iterator[Change]:
    try:
        have = broker_users.users_from_text(seen) if seen is not None else {}
    except ConfigFault as fault:
        yield Change(host, name, "users", "replace", str(fault), "users.json", "reload")
        have = {}
    for user, one in wanted.users.items():
        verifier = have.get(user)
        if verifier is None:
            yield Change(host, name, f"user {user}", "create", after=" ".join(one.roles), needs="reload")
            continue
        if tuple(sorted(one.roles)) != verifier.roles:
            before, after = " ".join(verifier.roles), " ".join(sorted(one.roles))
            yield Change(host, name, f"user {user}", "change", before, after, "reload")
        if not broker_users.password_matches(verifier, one.password):
            yield Change(host, name, f"password of {user}", "change", "********", "********", "reload")
        elif verifier.sha512 is None:
            yield Change(host, name, f"verifier of {user}", "change", "SHA-256", "SHA-256 SHA-512", "reload")
    for user in sorted(set(have) - set(wanted.users)) if wanted.has_all_users else []:
        yield Change(host, name, f"user {user}", "delete", " ".join(have[user].roles), needs="reload")


def _action(before: object) -> str:
    return "create" if before is None else "change"


def shown(value: Any) -> str:
    """A value of an option as TOML has it."""
    return "" if value is None else json.dumps(value)


def short_hash(text: str | None) -> str:
    """Stands for a file in a table."""
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()[:8]


def short(digest: str | None) -> str:
    """Stands for a hash in a table."""
    return (digest or "")[:8]


def plan_hash(cluster: str, changed: Iterable[Change]) -> str:
    """The same for the same changes of the same cluster, whenever and wherever it is computed."""
    content = json.dumps([cluster, [asdict(one) for one in changed]], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:HASH_CHARACTERS]
