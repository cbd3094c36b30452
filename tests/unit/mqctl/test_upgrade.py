"""Steps of an upgrade: who pauses, stops and goes on, and with what. Each host is a folder of this machine."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from mqctl import operation
from mqctl.bundle.manifest import MANIFEST, describe, parse_target
from mqctl.commands.rollout import rollback, upgrade
from mqctl.commands.rollout.upgrade import Options, UpgradeStep, require_held, state_of
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.inventory import InventoryCluster
from mqctl.operation import OperationScope
from mqctl.remote import operation as noting
from mqctl.rollout.rollout_run import keep_paused
from mqctl.world import World

from tests.unit.mqctl.test_operation import (
    INVENTORY,
    NAMES,
    TASKS,
    cluster,
    made,
    noted,
    told,
    world,
)

__all__ = ["cluster", "world"]
GOAL = "0.2.0-bbbbbbbb"
UPGRADE = "mqctl upgrade"


def begun(world: World, cluster: InventoryCluster, what: str = UPGRADE) -> operation.HeldCluster:
    return operation.begin(world, cluster, what, scope=OperationScope(goal=GOAL))


def notes(world: World) -> list[dict[str, Any]]:
    return [json.loads(Path(f"{world.cwd}/{name}{noting.PLACE}").read_text()) for name in NAMES]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    return tmp_path


@pytest.mark.slow
def test_a_pause_is_noted_on_every_host_and_holds_it(world: World, cluster: InventoryCluster, folder: Path) -> None:
    begun(world, cluster)
    assert not operation.is_paused(world, cluster.hosts)
    upgrade.run(world, Options(step=UpgradeStep.PAUSE))
    assert [(one["goal"], one["wish"], one["is_held"]) for one in notes(world)] == [(GOAL, "pause", True)] * 3
    assert "paused on 3 hosts" in told(world)
    assert operation.is_paused(world, cluster.hosts)
    with pytest.raises(CommandError, match="is paused; go on with mqctl upgrade --resume"):
        operation.begin(world, cluster, "mqctl rollout")


@pytest.mark.slow
@pytest.mark.parametrize("step", [UpgradeStep.STATUS, UpgradeStep.PAUSE, UpgradeStep.STOP])
def test_a_step_that_is_of_all_hosts_takes_no_option_that_it_would_not_heed(
    world: World, cluster: InventoryCluster, folder: Path, step: UpgradeStep
) -> None:
    begun(world, cluster)
    before = notes(world)
    for said in ({"limit": "mq1"}, {"check": True}, {"batch": "1", "force": True}):
        with pytest.raises(
            UsageError, match=f"mqctl upgrade {step} is of all hosts .*: it takes no --{next(iter(said))}"
        ):
            upgrade.run(world, Options(step=step, yes=True, **said))
    assert notes(world) == before


@pytest.mark.slow
def test_who_goes_on_or_takes_it_back_is_not_paused(world: World, cluster: InventoryCluster, folder: Path) -> None:
    begun(world, cluster)
    upgrade.run(world, Options(step=UpgradeStep.PAUSE))
    rollback.require_idle(world, cluster.hosts)
    scope = OperationScope(instead_of=rollback.FOLLOWED)
    operation.begin(world, cluster, rollback.COMMAND, is_resumed=True, scope=scope)
    assert noted(world) == dict.fromkeys(NAMES, (2, True))
    assert not operation.is_paused(world, cluster.hosts)
    assert all("wish" not in one and one["goal"] == GOAL for one in notes(world))


@pytest.mark.slow
def test_nothing_is_taken_back_while_a_batch_is_under_way(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    begun(world, cluster)
    rollback.require_idle(world, cluster.hosts)
    upgrade.run(world, Options(step=UpgradeStep.PAUSE))
    note = (folder / "mq2/var/lib/mq-operation.json").read_text()
    (folder / "mq2").rename(folder / "before")
    made(folder, "mq2", TASKS[0])
    (folder / "mq2/var/lib/mq-operation.json").write_text(note)
    with pytest.raises(CommandError, match="mq2: tasks of Ansible's are still under way"):
        rollback.require_idle(world, cluster.hosts)


@pytest.mark.slow
def test_a_stop_lets_go_of_the_hosts_and_the_one_that_ran_is_refused(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    own = begun(world, cluster)
    upgrade.run(world, Options(step=UpgradeStep.STOP, yes=True))
    assert noted(world) == dict.fromkeys(NAMES, (2, False))
    assert noting.lost_to(own.note, f"{world.cwd}/mq1{noting.PLACE}").endswith("is over; begin anew")


@pytest.mark.slow
@pytest.mark.parametrize("between", ["", "mqctl operation release", "mqctl drain mq3"])
@pytest.mark.parametrize("limit", ["", "mq[12]"])
def test_a_cluster_that_was_left_half_way_is_known_as_such(
    world: World, cluster: InventoryCluster, folder: Path, between: str, limit: str
) -> None:
    """What comes after a stop is about no release, and hides neither where it went nor for which hosts."""
    for name in NAMES:
        has(folder, name, OLD, *([GOAL] if name == "mq1" else []))
    begun(world, cluster, operation.typed(UPGRADE, limit))
    upgrade.run(world, Options(step=UpgradeStep.STOP, yes=True))
    if between.startswith("mqctl operation"):
        operation.give_up(world, cluster.hosts, operation.look(world, cluster.hosts)[0], between)
    elif between:
        operation.end(world, operation.begin(world, cluster, between))
    found = operation.look(world, cluster.hosts)[0]
    assert (operation.goal_of(found, UPGRADE), operation.limit_of(found)) == (GOAL, limit)
    assert isinstance(world.out, io.StringIO)
    before = len(world.out.getvalue())
    upgrade.run(world, Options(step=UpgradeStep.STATUS, json=True))
    rows = json.loads(world.out.getvalue()[before:])["rows"]
    assert [(one["state"], one["goal"]) for one in rows] == [("done", GOAL), ("to do", GOAL), ("to do", GOAL)]
    with pytest.raises(CommandError, match="bundle"):
        upgrade.run(world, Options(step=UpgradeStep.RESUME, yes=True))
    assert (f"it was begun for {limit}, and goes on for these hosts" in told(world)) is bool(limit)


def test_a_release_that_another_command_was_about_is_none_of_an_upgrade() -> None:
    upgraded, rolled = note(3, goal="a"), note(4, "mqctl rollback", goal="a")
    assert operation.goal_of({"mq1": upgraded, "mq2": rolled}, UPGRADE) == ""
    assert operation.goal_of({"mq1": note(5, "mqctl drain mq3", goal="a", goal_by="mqctl rollback")}, UPGRADE) == ""
    assert operation.goal_of({"mq1": note(5, "a drain of mq3", goal="a", goal_by=UPGRADE)}, UPGRADE) == "a"


@pytest.mark.slow
@pytest.mark.parametrize("step", [UpgradeStep.PAUSE, UpgradeStep.STOP])
def test_another_command_is_neither_paused_nor_stopped(
    world: World, cluster: InventoryCluster, folder: Path, step: UpgradeStep
) -> None:
    begun(world, cluster, "mqctl scale-down mq3")
    with pytest.raises(CommandError, match="no upgrade holds a host"):
        upgrade.run(world, Options(step=step, yes=True))
    assert noted(world) == dict.fromkeys(NAMES, (1, True))


@pytest.mark.slow
def test_an_upgrade_goes_on_to_the_release_that_it_was_begun_for(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    with pytest.raises(CommandError, match="no upgrade is noted on any host"):
        upgrade.run(world, Options(step=UpgradeStep.RESUME, yes=True))
    begun(world, cluster)
    (folder / "bundle/wheels").mkdir(parents=True)
    (folder / "bundle/requirements.lock").write_text("")
    manifest = describe(folder / "bundle", "0.2.0", parse_target("3.11", "manylinux_2_36_x86_64"))
    (folder / "bundle" / MANIFEST).write_text(manifest.to_json())
    # However it is said: the messages name --resume.
    for is_held in (True, False):
        for step, is_resumed in ((UpgradeStep.RESUME, False), (UpgradeStep.RUN, True)):
            with pytest.raises(
                CommandError, match=f"begun with release {GOAL}, and this is {manifest.release}"
            ) as raised:
                upgrade.run(world, Options(step=step, resume=is_resumed, yes=True, bundle=str(folder / "bundle")))
            assert "or this one without --resume, where nothing holds the cluster any more" in raised.value.attempt
        if is_held:
            upgrade.run(world, Options(step=UpgradeStep.STOP, yes=True))
    with pytest.raises(CommandError) as raised:  # these folders make no plan
        upgrade.run(world, Options(yes=True, bundle=str(folder / "bundle")))
    assert "begun with release" not in raised.value.what


@pytest.mark.slow
def test_an_upgrade_goes_on_without_hosts_that_have_left_since(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    for limit, said in (("mq1,mq4", "it was begun for mq1, and"), ("mq4,mq5*", "")):
        operation.end(world, begun(world, cluster, operation.typed(UPGRADE, limit)))
        with pytest.raises(
            CommandError, match="bundle" if said else "begun for hosts of which none is in the inventory"
        ):
            upgrade.run(world, Options(step=UpgradeStep.RESUME, yes=True))
        assert said in told(world)


@pytest.mark.slow
def test_an_upgrade_that_holds_the_cluster_goes_on_without_hosts_that_have_left_since(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    """As it is said for it, and as messages say it; a command for others does not come in its place."""
    begun(world, cluster, operation.typed(UPGRADE, "mq1,mq4"))
    for said in ({"step": UpgradeStep.RESUME}, {"resume": True, "limit": "mq1,mq4"}):
        with pytest.raises(CommandError, match="bundle"):  # it comes further than to what holds the cluster
            upgrade.run(world, Options(yes=True, **said))
    for limit in ("mq1", "mq2"):
        with pytest.raises(CommandError, match="go on in its place with mqctl upgrade --limit mq1,mq4 --resume"):
            upgrade.run(world, Options(yes=True, resume=True, limit=limit))
    with pytest.raises(UsageError, match="--limit mq4: no host of cluster main matches"):
        upgrade.run(world, Options(yes=True, limit="mq1,mq4"))
    assert noted(world) == dict.fromkeys(NAMES, (1, True))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["mqctl rollout", "mqctl rollback", "mqctl scale-up", "mqctl uninstall"])
def test_whoever_goes_on_with_what_is_noted_goes_without_hosts_that_have_left(
    world: World, cluster: InventoryCluster, command: str
) -> None:
    what = operation.typed(command, "mq1,mq4")
    begun(world, cluster, what)
    found = operation.look(world, cluster.hosts)[0]
    assert [one.name for one in operation.hosts_of(cluster, found, what, "mq1,mq4", is_resumed=True)] == ["mq1"]
    with pytest.raises(UsageError, match="--limit mq4"):
        operation.hosts_of(cluster, found, what, "mq1,mq4", is_resumed=False)
    gone = operation.typed(command, "mq4")
    with pytest.raises(CommandError, match="of which none is in the inventory any more"):
        operation.hosts_of(cluster, {"mq1": note(2, gone)}, gone, "mq4", is_resumed=True)


def note(number: int, what: str = UPGRADE, **more: Any) -> dict[str, Any]:
    return {"number": number, "what": what, "is_held": True, **more}


def test_the_newest_note_says_where_an_upgrade_goes() -> None:
    assert operation.goal_of({}) == operation.goal_of({"mq1": None}) == ""
    assert operation.goal_of({"mq1": note(3, goal="a"), "mq2": note(5, goal="b"), "mq3": None}, UPGRADE) == "b"
    assert operation.goal_of({"mq1": note(3, goal="a"), "mq2": note(5, "mqctl rollout", goal="a")}, UPGRADE) == ""
    assert list(require_held({"mq1": note(3), "mq2": note(3, "mqctl rollout"), "mq3": None})) == ["mq1"]
    assert list(require_held({"mq1": note(3, f"{UPGRADE} --limit mq1"), "mq2": note(3, f"{UPGRADE} stop")})) == ["mq1"]
    assert operation.goal_of({"mq1": note(3, f"{UPGRADE} --limit mq1", goal="a")}, UPGRADE) == "a"
    assert [state_of(one) for one in (None, note(1), note(1, is_held=False), note(1, wish="pause"))] == [
        "free", "held (mqctl upgrade)", "free", "paused (mqctl upgrade)",
    ]  # fmt: skip


@pytest.mark.parametrize("limit", ["", "mq1", "mq[12],mq3", "a b", "'"])
def test_the_note_says_for_which_hosts_it_was_begun(limit: str) -> None:
    what = operation.typed(UPGRADE, limit)
    assert operation.limit_of({"mq1": note(2, "mqctl rollout --limit mq9"), "mq2": note(3, what), "mq3": None}) == limit
    assert operation.held_by({"mq1": note(3, what), "mq2": note(3, f"{UPGRADE} stop"), "mq3": None}, [UPGRADE]) == {
        what
    }
    assert operation.held_by({"mq1": note(3, what, is_held=False)}, [UPGRADE]) == set()


@pytest.mark.parametrize("what", ["mqctl upgrade --limit", "mqctl upgrade --limit '", "mqctl upgrade"])
def test_what_nobody_typed_is_for_all_hosts(what: str) -> None:
    assert operation.limit_of({"mq1": note(3, what)}) == operation.limit_of({}) == ""


def test_status_says_which_hosts_cannot_be_looked_at(world: World, cluster: InventoryCluster, folder: Path) -> None:
    (folder / "mq1").rename(folder / "gone")
    assert upgrade.run(world, Options(step=UpgradeStep.STATUS)) == Exit.DEGRADED
    assert "mq1 is not reached" in told(world)


def test_hosts_that_come_to_the_release_after_the_question_end_a_rollback(cluster: InventoryCluster) -> None:
    rollback.require_same(cluster.hosts, NAMES)
    for having, said in (((*NAMES[:1],), "mq2, mq3: has come"), ((*NAMES, "mq4"), "mq4: has come")):
        with pytest.raises(CommandError, match=said):
            rollback.require_same(cluster.hosts, having)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "stays"), [(Exit.DONE, False), (Exit.FAILED, True), (Exit.DEGRADED, True)])
def test_a_pause_after_the_last_batch_keeps_nothing(
    world: World, cluster: InventoryCluster, folder: Path, code: Exit, *, stays: bool
) -> None:
    own = begun(world, cluster)
    upgrade.run(world, Options(step=UpgradeStep.PAUSE))
    keep_paused(world, own, code)
    assert own.stays is stays


OLDER, OLD = "0.0.9-99999999", "0.1.0-aaaaaaaa"


def has(folder: Path, name: str, *releases: str) -> None:
    """The host came through these releases, and the last one is the current one."""
    place = folder / name / "opt/mq"
    (place / "before").mkdir(parents=True)
    for before, release in pairwise(releases):
        kept = {"schema": 1, "release": before, "unit": "", "options": {}}
        (place / f"before/{release}.json").write_text(json.dumps(kept))
    (place / "current").symlink_to(f"releases/{releases[-1]}")


@pytest.mark.slow
@pytest.mark.parametrize("between", ["", "mqctl upgrade stop", "mqctl operation release", "mqctl drain mq3"])
def test_a_way_back_takes_no_more_back_than_what_was_brought_last(
    world: World, cluster: InventoryCluster, folder: Path, between: str
) -> None:
    """An upgrade that came to one host, which is lost by now, or to none."""
    for name in NAMES:
        has(folder, name, OLDER, OLD)
    begun(world, cluster)
    if between == "mqctl drain mq3":
        operation.give_up(world, cluster.hosts, operation.look(world, cluster.hosts)[0])
        operation.end(world, operation.begin(world, cluster, between))
    elif between:
        operation.give_up(world, cluster.hosts, operation.look(world, cluster.hosts)[0], between)
    assert all(one["goal"] == GOAL for one in notes(world))
    with pytest.raises(CommandError, match=f"no host that was reached has release {GOAL}") as raised:
        rollback.run(world, rollback.Options(yes=True, instead=True))
    assert "--leave RELEASE goes back further" in raised.value.attempt


@pytest.mark.slow
def test_a_rollback_that_was_cut_off_after_its_last_host_is_over(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    for name in NAMES:
        has(folder, name, OLDER, OLD)
    begun(world, cluster, rollback.COMMAND)
    with pytest.raises(CommandError, match=f"begun with release {GOAL}, and this is {OLD}"):
        rollback.run(world, rollback.Options(yes=True, resume=True, leave=OLD))
    before = notes(world)
    assert rollback.run(world, rollback.Options(check=True, resume=True)) == Exit.DONE
    assert f"no host has release {GOAL} any more: only the hosts are to be given back" in told(world)
    assert notes(world) == before
    with pytest.raises(CommandError, match="nodes of main do not run"):  # these folders have none
        rollback.run(world, rollback.Options(yes=True, resume=True))
    assert f"no host has release {GOAL} any more" in told(world)
    assert noted(world) == dict.fromkeys(NAMES, (2, False))


@pytest.mark.slow
def test_what_holds_the_cluster_is_told_before_it_is_waited_for(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    for name in NAMES:
        has(folder, name, OLD, GOAL)
    (folder / "mq2/proc/2").mkdir()
    (folder / "mq2/proc/2/cmdline").write_bytes(TASKS[0])
    begun(world, cluster)
    with pytest.raises(CommandError, match="mqctl upgrade --resume"):
        rollback.run(world, rollback.Options(yes=True))
    for limit in ("", "mq1"):
        with pytest.raises(CommandError, match="mq2: tasks of Ansible's are still under way"):
            rollback.run(world, rollback.Options(yes=True, instead=True, limit=limit))
    assert noted(world) == dict.fromkeys(NAMES, (1, True))


@pytest.mark.slow
def test_a_host_that_is_not_reached_is_said_to_be_left_out(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    for name in NAMES[1:]:
        has(folder, name, OLD, GOAL)
    (folder / "mq1").rename(folder / "gone")
    with pytest.raises(CommandError, match="nothing was changed"):
        rollback.run(world, rollback.Options(yes=True, leave=GOAL))
    assert "mq1 is not reached; it is left out, and keeps what it has" in told(world)
