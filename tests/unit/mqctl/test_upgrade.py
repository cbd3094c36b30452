"""Steps of an upgrade: who pauses, stops and goes on, and with what. Each host is a folder of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mqctl import operation
from mqctl.bundle.manifest import MANIFEST, describe, parse_target
from mqctl.commands import rollback, upgrade
from mqctl.commands.upgrade import Options, UpgradeStep, goal_of, require_held, state_of
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory import InventoryCluster
from mqctl.operation import OperationScope
from mqctl.remote import operation as noting
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


def test_a_pause_is_noted_on_every_host_and_holds_it(world: World, cluster: InventoryCluster, folder: Path) -> None:
    begun(world, cluster)
    assert not operation.is_paused(world, cluster.hosts)
    upgrade.run(world, Options(step=UpgradeStep.PAUSE))
    assert [(one["goal"], one["wish"], one["is_held"]) for one in notes(world)] == [(GOAL, "pause", True)] * 3
    assert "paused on 3 hosts" in told(world)
    assert operation.is_paused(world, cluster.hosts)
    with pytest.raises(CommandError, match="is paused; go on with mqctl upgrade --resume"):
        operation.begin(world, cluster, "mqctl rollout")


def test_who_goes_on_or_takes_it_back_is_not_paused(world: World, cluster: InventoryCluster, folder: Path) -> None:
    begun(world, cluster)
    upgrade.run(world, Options(step=UpgradeStep.PAUSE))
    assert rollback.follows_pause(world, cluster)
    scope = OperationScope(instead_of=rollback.FOLLOWED)
    operation.begin(world, cluster, rollback.COMMAND, is_resumed=True, scope=scope)
    assert noted(world) == dict.fromkeys(NAMES, (2, True))
    assert not operation.is_paused(world, cluster.hosts)
    assert all("wish" not in one and "goal" not in one for one in notes(world))


def test_nothing_is_taken_back_while_a_batch_is_under_way(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    begun(world, cluster)
    assert not rollback.follows_pause(world, cluster)
    upgrade.run(world, Options(step=UpgradeStep.PAUSE))
    note = (folder / "mq2/var/lib/mq-operation.json").read_text()
    (folder / "mq2").rename(folder / "before")
    made(folder, "mq2", TASKS[0])
    (folder / "mq2/var/lib/mq-operation.json").write_text(note)
    with pytest.raises(CommandError, match="mq2: the batch at which the upgrade was paused is still under way"):
        rollback.follows_pause(world, cluster)


def test_a_stop_lets_go_of_the_hosts_and_the_one_that_ran_is_refused(
    world: World, cluster: InventoryCluster, folder: Path
) -> None:
    own = begun(world, cluster)
    upgrade.run(world, Options(step=UpgradeStep.STOP, yes=True))
    assert noted(world) == dict.fromkeys(NAMES, (2, False))
    assert noting.lost_to(own.note, f"{world.cwd}/mq1{noting.PLACE}").endswith("is over; begin anew")
    assert goal_of(operation.look(world, cluster.hosts)[0]) == ""


@pytest.mark.parametrize("step", [UpgradeStep.PAUSE, UpgradeStep.STOP])
def test_another_command_is_neither_paused_nor_stopped(
    world: World, cluster: InventoryCluster, folder: Path, step: UpgradeStep
) -> None:
    begun(world, cluster, "mqctl scale-down mq3")
    with pytest.raises(CommandError, match="no upgrade holds a host"):
        upgrade.run(world, Options(step=step, yes=True))
    assert noted(world) == dict.fromkeys(NAMES, (1, True))


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
    with pytest.raises(CommandError, match=f"the upgrade goes to release {GOAL}, and .* is {manifest.release}"):
        upgrade.run(world, Options(step=UpgradeStep.RESUME, yes=True, bundle=str(folder / "bundle")))


def note(number: int, what: str = UPGRADE, **more: Any) -> dict[str, Any]:
    return {"number": number, "what": what, "is_held": True, **more}


def test_the_newest_note_says_where_an_upgrade_goes() -> None:
    assert goal_of({}) == goal_of({"mq1": None}) == ""
    assert goal_of({"mq1": note(3, goal="a"), "mq2": note(5, goal="b"), "mq3": None}) == "b"
    assert goal_of({"mq1": note(3, goal="a"), "mq2": note(5, "mqctl rollout")}) == ""
    assert list(require_held({"mq1": note(3), "mq2": note(3, "mqctl rollout"), "mq3": None})) == ["mq1"]
    assert [state_of(one) for one in (None, note(1), note(1, is_held=False), note(1, wish="pause"))] == [
        "free", "held (mqctl upgrade)", "free", "paused (mqctl upgrade)",
    ]  # fmt: skip


def test_status_says_which_hosts_cannot_be_looked_at(world: World, cluster: InventoryCluster, folder: Path) -> None:
    (folder / "mq1").rename(folder / "gone")
    assert upgrade.run(world, Options(step=UpgradeStep.STATUS)) == Exit.DEGRADED
    assert "mq1 is not reached" in told(world)
