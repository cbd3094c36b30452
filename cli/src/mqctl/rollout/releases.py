"""Which releases the hosts of a cluster have and run, and which one a way back leads to.

Everything is read off the hosts. The note of the last operation says which release it was about, and a way back leaves
that one. Where it says nothing, as it is of an earlier mqctl, and all have one release, it is that; where they have
several, it is the one before which others still are. Source: docs/adr/0029-upgrade.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mqctl.errors import CommandError
from mqctl.fanout import on_each
from mqctl.inventory import Host
from mqctl.output import Column
from mqctl.plan.observation import observe
from mqctl.plan.plan import Seen
from mqctl.world import World

COLUMNS = (Column("host"), Column("release"), Column("running"), Column("state"), Column("goal"), Column("operation"))


@dataclass(frozen=True, slots=True)
class HostReleases:
    """`current`: what a start would run; `running`: what processes run; `before`: release -> the one before it."""

    host: str
    current: str
    running: tuple[str, ...]
    before: Mapping[str, str]

    @property
    def all(self) -> set[str]:
        """Those that it has anything to do with now."""
        return {one for one in (self.current, *self.running) if one}

    def state(self, goal: str) -> str:
        """How far it is on its way to a release."""
        if self.all == {goal}:
            return "done"
        return "half" if goal in self.all else "to do"


def releases_of(host: Host, seen: Seen) -> HostReleases:
    """What a look at the host says of it."""
    running = {one.loaded.release or "" for one in seen.instances.values() if one.loaded and one.loaded.release}
    return HostReleases(host.name, seen.release or "", tuple(sorted(running)), seen.before)


def look(world: World, hosts: Sequence[Host]) -> tuple[list[HostReleases], dict[str, str]]:
    """Of all hosts that can be reached; and host -> why it could not be looked at."""
    per_host, faults = [], {}
    for host, answer in on_each(hosts, lambda one: observe(world, one)):
        if isinstance(answer, CommandError):
            faults[host.name] = answer.what
        else:
            per_host.append(releases_of(host, answer))
    return per_host, faults


def having(hosts: Sequence[HostReleases], release: str) -> dict[str, HostReleases]:
    """Host -> its releases, of those that have or run this one."""
    return {one.host: one for one in hosts if release in one.all}


def left_by(hosts: Sequence[HostReleases]) -> str:
    """The release that a way back leaves where no note says it. Raises CommandError where hosts do not either."""
    present = sorted({release for one in hosts for release in one.all})
    if not present:
        raise CommandError("no host has a release; nothing was changed", "mqctl rollout")
    if len(present) == 1:
        return present[0]
    # Of two releases each of which was before the other somewhere, nobody knows which one is meant.
    later = [one for one in present if any(host.before.get(one) in present for host in hosts if one in host.all)]
    if len(later) != 1:
        raise CommandError(
            f"the hosts have the releases {', '.join(present)}, and what was before them does not say which one is "
            "left; nothing was changed",
            "mqctl rollback --leave RELEASE",
        )
    return later[0]


def mixture(hosts: Sequence[HostReleases]) -> str:
    """In words, which hosts have or run which release; empty where there is one."""
    by_release: dict[str, list[str]] = {}
    for one in hosts:
        for release in one.all:
            by_release.setdefault(release, []).append(one.host)
    if len(by_release) < 2:
        return ""
    return "; ".join(f"{release} on {', '.join(names)}" for release, names in sorted(by_release.items()))
