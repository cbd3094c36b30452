"""What the inventory no longer names, and a rollout leaves alone: shown with the command that removes it. Pure.

Invariant: whatever roles ever put on a host is wanted, or a rollout removes it and the plan says so, or it is named
here. Messages are never removed by leaving something out of an inventory. What is left over is no difference: a plan
that has nothing else is empty, since no rollout would end it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mqbroker.base.errors import ConfigFault
from mqbroker.config import users as broker_users

from mqctl.plan.places import FILTER_PLACE, UNIT_FILE, strangers
from mqctl.plan.plan import Seen, WantedHost

DATA = "/var/lib/mq/"
OPTIONS = "/etc/mq/"
MQBROKER = "/opt/mq/current/bin/mqbroker"


@dataclass(frozen=True, slots=True)
class LeftOver:
    """One thing that nobody names any more. `remedy`: what removes it, to be run on the host."""

    host: str
    instance: str
    what: str
    remedy: str


def left_overs(host: str, wanted: WantedHost, seen: Seen) -> list[LeftOver]:
    """Everything on one host that is of us and that neither the inventory nor a rollout has to do with."""
    names = sorted({*seen.traces, *seen.running} - set(wanted.instances))
    names = [name for name in names if not _is_in_use(f"{OPTIONS}{name}/", wanted)]
    return [
        *(one for name in names for one in _instance(host, name, seen)),
        *(one for name in wanted.instances for one in _users(host, name, wanted, seen)),
        *(one for name in wanted.instances for one in _unit_file(host, name, seen)),
        *_rules(host, wanted, seen),
        *(
            LeftOver(host, "", f"{seen.places[path].kind} {path}", f"sudo rm -r {shlex.quote(path)}")
            for path in strangers(wanted.places, seen.places)
            if not _is_in_use(path, wanted)
        ),
    ]


def _is_in_use(path: str, wanted: WantedHost) -> bool:
    """Whether options name it, or what is in it: a certificate of the operator's own, say."""
    return any(f'"{path}' in instance.options for instance in wanted.instances.values())


def _is_instance(name: str, places: Sequence[str], seen: Seen) -> bool:
    """Whether it is more than a folder that somebody made where instances have theirs."""
    folder = f"{OPTIONS}{name}"
    return name in seen.running or f"{folder}/broker.toml" in seen.places or any(one != folder for one in places)


def _instance(host: str, name: str, seen: Seen) -> Iterator[LeftOver]:
    """Its service and options go together; its messages are for people to decide on."""
    places = seen.traces.get(name, ())
    settings = [one for one in places if not one.startswith(DATA)]
    stop = "" if settings == [] and name not in seen.running else f"sudo systemctl disable --now {_unit(name)}"
    files = [one for one in settings if ".wants/" not in one]
    remove = f"sudo rm -r {shlex.join(files)}" if files else ""
    if stop or remove:
        state = "runs" if name in seen.running else "does not run"
        remedy = " && ".join(one for one in (stop, remove) if one)
        if _is_instance(name, places, seen):
            yield LeftOver(host, name, f"instance {name}, which {state}", remedy)
        else:
            yield LeftOver(host, "", f"folder {OPTIONS}{name}, which is no instance's", remove)
    data = [one for one in places if one.startswith(DATA)]
    if data:
        yield LeftOver(host, name, f"messages and identity of instance {name}", f"sudo rm -r {shlex.join(data)}")


def _unit(name: str) -> str:
    return shlex.quote(f"mqbroker@{name}.service")


def _unit_file(host: str, name: str, seen: Seen) -> Iterator[LeftOver]:
    """A unit that does not come from the role's file, whoever put another there."""
    instance = seen.instances.get(name)
    if instance is not None and instance.fragment not in {"", UNIT_FILE} and instance.enabled != "masked":
        remedy = f"sudo rm {shlex.quote(instance.fragment)} && sudo systemctl daemon-reload"
        yield LeftOver(host, name, f"a unit file of its own, {instance.fragment}, that stands for the role's", remedy)


def _rules(host: str, wanted: WantedHost, seen: Seen) -> Iterator[LeftOver]:
    """Rules whose files are gone."""
    if not wanted.has_filter and seen.filter.loaded is not None and FILTER_PLACE not in seen.places:
        yield LeftOver(host, "", "rules of the packet filter in force", "sudo nft delete table inet mq")


def _users(host: str, name: str, wanted: WantedHost, seen: Seen) -> Iterator[LeftOver]:
    """Where the inventory does not say who the users are, a rollout keeps them."""
    instance = seen.instances.get(name)
    if wanted.instances[name].has_all_users or instance is None or instance.users is None:
        return
    try:
        have: Sequence[str] = sorted(broker_users.users_from_text(instance.users))
    except ConfigFault:
        return  # the plan replaces the file
    for user in have:
        if user not in wanted.instances[name].users:
            remove = f"sudo {MQBROKER} users remove --instance {shlex.quote(name)} -- {shlex.quote(user)}"
            yield LeftOver(host, name, f"user {user}", f"{remove} && sudo systemctl reload {_unit(name)}")
