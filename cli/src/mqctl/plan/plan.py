"""The plan of a rollout: the difference between what the inventory wants and what the hosts are. Pure.

Invariant: an empty plan means that a rollout finds nothing to change. Tests change each thing that a role manages, and
see it in the plan. The hash stands for all changes in their order; passwords take part only as "changed".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mqbroker.base.errors import ConfigFault
from mqbroker.config import users as broker_users
from mqbroker.config.compare import OptionsVerdict, changes, due
from mqbroker.config.file.load import parse
from mqbroker.config.inventory.release_variables import KEPT
from mqbroker.config.slices import BrokerOptions

from mqctl.plan.places import FILTER_PLACE, FILTER_UNIT, MOVE_AWAY, SECRET, UNIT_FILE, HostPlace, differences
from mqctl.plan.places import digest as digest_of

HASH_CHARACTERS = 16
ACTIVE = {"active", "reloading", "activating"}
# What no rollout does, since it could lose what nobody can make again: a person has to come first.
BY_HAND = {MOVE_AWAY, "by hand"}


@dataclass(frozen=True, slots=True)
class PlannedUser:
    """A user that the inventory wants."""

    roles: tuple[str, ...]
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class WantedInstance:
    """An instance as the inventory has it. `certificates`: file in tls/ -> SHA-256, None where it is not made yet.

    `has_all_users`: the inventory says who the users are, so that any other goes.
    """

    options: str
    users: Mapping[str, PlannedUser]
    certificates: Mapping[str, str | None] = field(default_factory=dict)
    has_all_users: bool = False


@dataclass(frozen=True, slots=True)
class WantedHost:
    """A host as the inventory has it. `uid` and `unit_file` are None where any will do.

    `releases_kept`: how many there may be, the current one among them.
    """

    release: str
    instances: Mapping[str, WantedInstance]
    uid: int | None = None
    unit_file: str | None = None
    places: Mapping[str, HostPlace] = field(default_factory=dict)
    has_filter: bool = False
    releases_kept: int = KEPT


@dataclass(frozen=True, slots=True)
class PacketFilter:
    """The packet filter of a host. `origin`: where mqctl comes from, as ssh says it.

    `loaded`: rules in force; `meant`: what those in the file come to when they are; None where there are none.
    """

    loaded: str | None = None
    meant: str | None = None
    active: str = ""
    enabled: str = ""
    origin: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Account:
    """The system user that brokers run as."""

    uid: int
    group: str = "mq"
    home: str = "/var/lib/mq"
    shell: str = "/usr/sbin/nologin"
    comment: str = "Message broker"
    gid: int | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the process of an instance runs with, as it has recorded it itself.

    `started`: the options that it began with; `options`: those that it has taken last; `files`: every other file that
    is in force -> SHA-256 of what was taken of it.
    """

    release: str | None = None
    options: str | None = None
    unit_file: str | None = None
    started: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SeenInstance:
    """An instance as it is on the host; None stands for what is not there.

    `trouble`: why no broker may start with its identity, or without one. `is_unread`: the files of its unit have
    changed since systemd read them; `fragment`: the file that its unit is from. `files`: those that its process has
    taken -> SHA-256 of what they hold now.
    """

    options: str | None = None
    users: str | None = field(default=None, repr=False)
    node_id: str | None = None
    active: str = "inactive"
    enabled: str = ""
    loaded: Loaded | None = None
    certificates: Mapping[str, str] = field(default_factory=dict)
    is_unread: bool = False
    fragment: str = UNIT_FILE
    trouble: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """A host as it is. `traces`: instance -> places that have something of it; `running`: instances that run.

    `releases`: those that are there, the newest first -> whether each was installed to its end. `release_faults`: what
    of the current one is not as it was installed. `before`: release -> the one that the host had before it.
    """

    release: str | None = None
    account: Account | None = None
    unit_file: str | None = None
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    traces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    running: tuple[str, ...] = ()
    releases: Mapping[str, bool] = field(default_factory=dict)
    release_faults: tuple[str, ...] = ()
    before: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, HostPlace] = field(default_factory=dict)
    filter: PacketFilter = PacketFilter()
    instances: Mapping[str, SeenInstance] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `needs` is none, reload or restart: what it takes from a running broker. An action that is among
    BY_HAND is nothing that a rollout would do: it refuses to begin."""

    host: str
    instance: str
    what: str
    action: str
    before: str = ""
    after: str = ""
    needs: str = "none"


def diff_host(host: str, wanted: WantedHost, seen: Seen) -> list[Change]:
    """Every change that a rollout would make on one host, in the order in which it makes them."""
    is_running = {name: one.active in ACTIVE for name, one in seen.instances.items()}
    all_changes = [
        *_host_changes(host, wanted, seen),
        *_all_instances(host, wanted, seen),
        *_filter(host, wanted, seen),
    ]
    # Where no broker runs, nothing has to be restarted or reloaded.
    return [
        one
        if (is_running.get(one.instance) if one.instance else any(is_running.values()))
        else replace(one, needs="none")
        for one in all_changes
    ]


def _host_changes(host: str, wanted: WantedHost, seen: Seen) -> Iterator[Change]:
    yield from _account(host, wanted, seen.account)
    if seen.release != wanted.release:
        yield Change(host, "", "release", _action(seen.release), seen.release or "", wanted.release, "restart")
    elif not seen.releases.get(wanted.release):
        state = "not complete" if wanted.release in seen.releases else "gone"
        yield Change(host, "", "files of the release", "install", state, wanted.release)
    elif seen.release_faults:
        more = f", and {len(seen.release_faults) - 1} more" if len(seen.release_faults) > 1 else ""
        yield Change(host, "", "files of the release", "install", f"{seen.release_faults[0]}{more}", wanted.release)
    kept = seen.release if seen.release != wanted.release else seen.before.get(wanted.release)
    # The one that the host goes back to is the last to go, whatever its age.
    others = sorted((one for one in seen.releases if one != wanted.release), key=lambda one: one != kept)
    for old in others[max(wanted.releases_kept, 2) - 1 :]:
        yield Change(host, "", f"release {old}", "remove", old)
    if wanted.unit_file is not None and seen.unit_file != wanted.unit_file:
        yield Change(
            host, "", "unit mqbroker@.service", _action(seen.unit_file),
            short_hash(seen.unit_file), short_hash(wanted.unit_file), "restart",
        )  # fmt: skip
    for one in differences(wanted.places, seen.places):
        # On a bare host, that there is no user says it all.
        if seen.account is not None or one.action != "create":
            needs = "reload" if _is_news(one.path, wanted, seen) else "none"
            yield Change(host, "", f"{one.kind} {one.path}", one.action, one.before, one.after, needs)


def _is_news(path: str, wanted: WantedHost, seen: Seen) -> bool:
    """Whether a process has taken this file with another content: not where it was changed behind its back alone."""
    meant = wanted.places[path].content
    processes = [one.loaded.files for one in seen.instances.values() if one.loaded is not None]
    return meant is not None and any(files.get(path, meant) != meant for files in processes)


def _filter(host: str, wanted: WantedHost, seen: Seen) -> Iterator[Change]:
    """Rules can change without a file, and files without the rules."""
    in_force = seen.filter
    if not wanted.has_filter:
        if FILTER_PLACE in seen.places or FILTER_UNIT in seen.places:
            yield Change(host, "", "packet filter", "remove")
        return
    if in_force.loaded is None:
        yield Change(host, "", "packet filter in force", "create")
    elif in_force.meant is not None and in_force.loaded != in_force.meant:
        yield Change(
            host, "", "packet filter in force", "change", short_hash(in_force.loaded), short_hash(in_force.meant)
        )
    if in_force.enabled != "enabled":
        yield Change(host, "", "packet filter at boot", "enable", in_force.enabled or "absent", "enabled")
    if in_force.active != "active":
        yield Change(host, "", "unit of the packet filter", "start", in_force.active, "active")


def _account(host: str, wanted: WantedHost, seen: Account | None) -> Iterator[Change]:
    what, uid = "system user mq", wanted.uid
    if seen is None:
        yield Change(host, "", what, "create", after="" if uid is None else f"uid {uid}")
        return
    if uid is not None and uid != seen.uid:
        yield Change(host, "", what, "change", f"uid {seen.uid}", f"uid {uid}", "restart")
    if uid is not None and seen.gid is not None and uid != seen.gid:
        yield Change(host, "", "system group mq", "change", f"gid {seen.gid}", f"gid {uid}", "restart")
    right = Account(seen.uid)
    for name in ("group", "home", "shell", "comment"):
        old, new = getattr(seen, name), getattr(right, name)
        if old != new:
            yield Change(host, "", what, "change", f"{name} {old}", f"{name} {new}")


def _all_instances(host: str, wanted: WantedHost, seen: Seen) -> Iterator[Change]:
    for name, instance in wanted.instances.items():
        there = seen.instances.get(name, SeenInstance())
        yield from _instance_changes(host, name, instance, there)
        yield from _unused_tls(host, name, wanted, seen)
        yield from _unused_secret(host, name, wanted, seen)
        if there.active in ACTIVE and there.loaded is not None:
            yield from _stale_process(host, name, seen, there, there.loaded)
            yield from _stale_files(host, name, wanted, there, there.loaded)


def _instance_changes(host: str, name: str, wanted: WantedInstance, seen: SeenInstance) -> Iterator[Change]:
    if seen.trouble:
        yield Change(host, name, "identity", "by hand", seen.trouble, "restore it, or mqbroker identity adopt or new")
    elif seen.node_id is None:
        yield Change(host, name, "identity", "create", after="a new node id")
    yield from option_changes(host, name, wanted.options, seen.options)
    yield from _certificate_changes(host, name, wanted.certificates, seen.certificates)
    yield from _user_changes(host, name, wanted, seen.users)
    if seen.is_unread:
        yield Change(host, name, "unit as systemd has it", "read again")
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
    started, before, after = (parse(one or "") for one in (loaded.started, loaded.options, instance.options))
    if isinstance(started, list):
        before = started
    if isinstance(before, BrokerOptions) and isinstance(after, BrokerOptions):
        assert isinstance(started, BrokerOptions)
        for one in due(started, before, after):
            words = (f"running option {one.path}", one.needs.value, shown(one.old), shown(one.new), one.needs.value)
            yield Change(host, name, *words)
    elif isinstance(after, BrokerOptions) and isinstance(before, list):
        # The role restarts what has read a file that nobody can compare with.
        yield Change(host, name, "running options", "restart", str(before[0]), "broker.toml", "restart")


def option_changes(host: str, name: str, wanted: str, seen: str | None) -> Iterator[Change]:
    """How the options of an instance change, by the text of its broker.toml as it is wanted and as it is there."""
    if seen is None:
        yield Change(host, name, "options", "create", after="broker.toml")
        return
    before, after = parse(seen), parse(wanted)
    if isinstance(after, list):
        raise after[0]
    if not isinstance(before, BrokerOptions):
        yield Change(host, name, "options", "replace", str(before[0]), "broker.toml", "restart")
        return
    differing = changes(before, after)
    if not differing and skeleton(seen) != skeleton(wanted):
        yield Change(host, name, "text of broker.toml", "replace", short_hash(seen))
    for one in differing:
        needs = "none" if one.needs is OptionsVerdict.NONE else one.needs.value
        action = "add" if one.old is None else "remove" if one.new is None else "change"
        yield Change(host, name, f"option {one.path}", action, shown(one.old), shown(one.new), needs)


def skeleton(text: str) -> list[list[str]]:
    """Tables in their order, and what is in each by its name: comments, and values that are no options, stand out.

    The heading is left out, since a setting of Ansible says what is in it, and so is the order of options in a table,
    which Ansible does not tell.
    """
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    parts: list[list[str]] = []
    for line in filter(None, lines[start:]):
        if line.startswith("[") or not parts:
            parts.append([])
        parts[-1].append(line.partition(" = ")[0])
    return [sorted(one) for one in parts]


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


def _unused_tls(host: str, name: str, wanted: WantedHost, seen: Seen) -> Iterator[Change]:
    """The folder goes with all that is in it."""
    folder = f"/etc/mq/{name}/tls"
    if folder in seen.places and folder not in wanted.places:
        yield Change(host, name, f"folder {folder}", "remove")


def _unused_secret(host: str, name: str, wanted: WantedHost, seen: Seen) -> Iterator[Change]:
    """Where nodes neither find others nor are found."""
    path = f"/var/lib/mq/{name}/{SECRET}"
    if path in seen.places and path not in wanted.places:
        yield Change(host, name, f"file {path}", "remove")


def _stale_files(host: str, name: str, wanted: WantedHost, seen: SeenInstance, loaded: Loaded) -> Iterator[Change]:
    """On disk as they are to be, and not in the process. One that is still to be written has a line of its own."""
    users, folder = f"/var/lib/mq/{name}/users.json", f"/etc/mq/{name}/tls/"
    certificates = {f"{folder}{file}": one for file, one in wanted.instances[name].certificates.items()}
    now = {**seen.files, **{f"{folder}{file}": one for file, one in seen.certificates.items()}}
    now[users] = "" if seen.users is None else digest_of(seen.users)
    for path in sorted({*loaded.files, users, *certificates}):
        place, on_disk, taken = wanted.places.get(path), now.get(path, ""), loaded.files.get(path, "")
        meant = certificates.get(path, place.content if place is not None else None)
        if on_disk == taken or (meant is None and path in certificates) or meant not in {None, on_disk}:
            continue
        if path in certificates:
            what = f"running certificate {path.removeprefix(folder)}"
            yield Change(host, name, what, "reload", short(taken), short(on_disk), "reload")
        else:
            yield Change(host, name, "running users" if path == users else f"running file {path}", "reload",
                         needs="reload")  # fmt: skip


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
