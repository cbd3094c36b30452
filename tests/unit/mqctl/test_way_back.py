"""What comes back with the release before: options and units as they were then, out of what hosts have kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from mqctl import operation
from mqctl.commands.rollout import rollback
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory import InventoryCluster
from mqctl.operation import OperationScope
from mqctl.plan.plan import short_hash
from mqctl.rollout import way_back
from mqctl.rollout.way_back import changes_of
from mqctl.ssh.shell import CommandResult
from mqctl.world import World

from tests.support.local_hosts import LocalHosts
from tests.unit.mqctl.test_operation import HostShell, cluster, noted, told, world
from tests.unit.mqctl.test_upgrade import GOAL, NAMES, OLD, folder, has

__all__ = ["cluster", "folder", "world"]
UNIT = "unit mqbroker@.service"
NOW = '[node]\nname = "mq1"\n\n[limits]\nlink-credit = 100\n'
THEN = '[node]\nname = "mq1"\n\n[limits]\nlink-credit = 200\n'
UNKNOWN = NOW + "strange = 1\n"


def kept(now: str | None, then: str | None, unit: tuple[str | None, str | None] = (None, None)) -> dict[str, object]:
    return {"is_whole": True, "unit": list(unit), "options": {"default": [now, then]}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (kept(NOW, NOW), []),
        (kept(NOW, None), []),
        (kept(NOW, THEN), [("default", "option limits.link-credit", "change", "100", "200")]),
        (kept(None, THEN), [("default", "options", "create", "", "broker.toml")]),
        (kept(NOW, NOW, ("now", "now")), []),
        (kept(NOW, NOW, ("now", None)), []),
        (kept(NOW, NOW, ("now", "then")), [("", UNIT, "replace", short_hash("now"), short_hash("then"))]),
    ],
)
def test_what_is_another_one_comes_back(found: dict[str, object], expected: list[tuple[str, ...]]) -> None:
    rows = [(one.instance, one.what, one.action, one.before, one.after) for one in changes_of("mq1", found)]
    assert rows == expected


def test_options_that_this_mqctl_does_not_know_are_said_to_come_back() -> None:
    (one,) = changes_of("mq1", kept(NOW, UNKNOWN))
    assert (one.what, one.action, one.before) == ("options", "replace", "broker.toml")
    assert "strange" in one.after


def has_options(folder: Path, name: str, now: str, then: str) -> None:
    """A host that returns from GOAL to OLD, with these options of an instance."""
    has(folder, name, OLD, GOAL)
    place = folder / name / "opt/mq/before" / f"{GOAL}.json"
    place.write_text(json.dumps({"schema": 1, "release": OLD, "unit": "", "options": {"default": then}}))
    options = folder / name / "etc/mq/default/broker.toml"
    options.parent.mkdir(parents=True)
    options.write_text(now)


@pytest.mark.slow
def test_a_rollback_shows_which_options_come_back_before_it_asks(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    for name in NAMES:
        has_options(folder, name, NOW, THEN if name == "mq2" else NOW)
    with pytest.raises(CommandError):  # nobody is there to answer
        rollback.run(world, rollback.Options(leave=GOAL))
    (line,) = [line for line in told(world).splitlines() if "link-credit" in line]
    assert line.split() == ["mq2", "default", "option", "limits.link-credit", "change", "100", "200", "restart"]


def test_where_nothing_comes_back_that_is_said(world: World, cluster: InventoryCluster, folder: Path) -> None:
    for name in NAMES:
        has_options(folder, name, NOW, NOW)
    way_back.show(world, cluster.hosts, GOAL)
    assert "no option is another one than before that release" in told(world)


def test_a_host_that_does_not_say_is_named(world: World, cluster: InventoryCluster, folder: Path) -> None:
    (folder / "mq1").rename(folder / "gone")
    way_back.show(world, cluster.hosts[:1], GOAL)
    assert "mq1 is not reached; nobody knows which options come back there" in told(world)


def test_where_a_host_does_not_say_nobody_says_that_nothing_comes_back(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    for name in NAMES:
        has_options(folder, name, NOW, NOW)
    assert way_back.show(world, cluster.hosts, GOAL)
    (folder / "mq1").rename(folder / "gone")
    before = told(world)
    assert not way_back.show(world, cluster.hosts, GOAL)
    assert "no option is another one" not in told(world).removeprefix(before)


class MuteShell(HostShell):
    """What a host has kept cannot be asked."""

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        if self.name == "mq1" and b"def kept(" in stdin:
            raise CommandError("mq1: the connection broke")
        return super().run_plain(command, stdin, timeout_s)


@pytest.mark.slow
def test_a_check_that_does_not_know_what_comes_back_is_no_whole_one(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    for name in NAMES:
        has_options(folder, name, NOW, NOW)
    check = rollback.Options(leave=GOAL, check=True, force=True)
    assert rollback.run(world, check) == Exit.DONE
    assert rollback.run(replace(world, connector=LocalHosts(MuteShell)), check) == Exit.DEGRADED
    assert "mq1: the connection broke; nobody knows which options come back there" in told(world)


@pytest.mark.slow
def test_a_host_with_a_damaged_note_is_named_before_the_question(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    for name in NAMES:
        has_options(folder, name, NOW, NOW)
    place = folder / "mq2/opt/mq/before" / f"{GOAL}.json"
    place.write_text(json.dumps({"schema": 1, "release": OLD, "unit": "", "options": {"default": None}}))
    with pytest.raises(CommandError, match=f"mq2: what it has kept of before release {GOAL} is damaged"):
        rollback.run(world, rollback.Options(leave=GOAL, check=True, force=True))
    assert noted(world) == {}


@pytest.mark.slow
def test_a_check_ends_before_the_question_and_is_refused_as_the_rollback_is(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    for name in NAMES:
        has_options(folder, name, NOW, THEN)
    with pytest.raises(CommandError, match="would not be served meanwhile"):  # these folders have no broker to ask
        rollback.run(world, rollback.Options(leave=GOAL, check=True))
    check = rollback.Options(leave=GOAL, check=True, force=True)
    assert rollback.run(world, check) == Exit.DONE
    assert told(world).count("limits.link-credit") == 6
    assert noted(world) == {}
    operation.begin(world, cluster, "mqctl upgrade")
    with pytest.raises(CommandError, match="mqctl upgrade --resume"):
        rollback.run(world, check)
    (folder / "mq3").rename(folder / "gone")
    assert rollback.run(world, rollback.Options(leave=GOAL, check=True, force=True, instead=True)) == Exit.DEGRADED
    assert noted(world) == dict.fromkeys(NAMES[:2], (1, True))


@pytest.mark.slow
def test_a_check_of_one_that_goes_on_takes_nothing_over(world: World, cluster: InventoryCluster, folder: Path) -> None:
    for name in NAMES:
        has_options(folder, name, NOW, THEN)
    scope = OperationScope(goal=GOAL)
    operation.begin(world, cluster, rollback.COMMAND, scope=scope)
    assert rollback.run(world, rollback.Options(check=True, resume=True, force=True)) == Exit.DONE
    assert noted(world) == dict.fromkeys(NAMES, (1, True))
