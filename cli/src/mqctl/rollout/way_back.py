"""What comes back on hosts that return to the release before, beside that release: options and units as they were then.

It is shown before anybody agrees to a rollback, as what was changed since the release came goes with it. The rows are
those of a plan. Source: docs/adr/0029-upgrade.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from mqbroker.config.file.load import parse

from mqctl import operation
from mqctl.errors import CommandError
from mqctl.fanout import on_each
from mqctl.inventory import Host
from mqctl.output import OutputShape, Rows, write
from mqctl.plan.plan import Change, option_changes, short_hash
from mqctl.rollout.cluster_plan import COLUMNS
from mqctl.world import World


def show(world: World, hosts: Sequence[Host], left: str) -> bool:
    """On standard error, as all that is to be read before a question; whether each host has said it.

    Raises CommandError where a host has kept what it cannot return with.
    """
    changes: list[Change] = []
    damaged, is_known = [], True
    for host, kept in on_each(hosts, lambda one: operation.ask_host(world, one, "kept.py", left, *one.instances)):
        if isinstance(kept, CommandError):
            world.note(f"{kept.what}; nobody knows which options come back there")
            is_known = False
        elif not kept["is_whole"]:
            damaged.append(host.name)
        else:
            changes.extend(changes_of(host.name, kept))
    if damaged:
        raise CommandError(
            f"{', '.join(damaged)}: what it has kept of before release {left} is damaged, so it cannot return; nothing "
            "was changed on any host",
            "mqctl rollout --bundle FOLDER, with the bundle of the release before",
        )
    if changes:
        write(Rows("mqctl.rollback-options/1", COLUMNS, [asdict(one) for one in changes]), OutputShape(), world.err)
    elif is_known:
        world.note("no option is another one than before that release")
    return is_known


def changes_of(host: str, kept: Mapping[str, Any]) -> Iterator[Change]:
    """`kept`: as remote/kept.py says it. What is not kept stays as it is."""
    now, then = kept["unit"]
    if then and now != then:
        yield Change(host, "", "unit mqbroker@.service", "replace", short_hash(now), short_hash(then), "restart")
    for name, (now, then) in sorted(kept["options"].items()):
        if then is None or now == then:
            continue
        refused = parse(then)
        if isinstance(refused, list):
            # A release may have options that this mqctl does not know; it is asked itself before it starts with them.
            yield Change(host, name, "options", "replace", "broker.toml", str(refused[0]), "restart")
        else:
            yield from option_changes(host, name, then, now)
