"""A host that is lost when all is done stays held: each command says so, by its words and its exit code.

Hosts are folders of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqctl import operation
from mqctl.bundle.manifest import read
from mqctl.commands.rollout import drain, rollback, rollout, scale_down, scale_up, undrain, uninstall, upgrade
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.operation import OperationScope
from mqctl.playbook.events import PlayProgress
from mqctl.playbook.run import Play
from mqctl.rollout import rollout_run
from mqctl.ssh.local import LocalShell
from mqctl.ssh.shell import CommandResult
from mqctl.world import World

from tests.unit.mqctl import test_drain, test_gate_asked, test_scale_down_on_hosts
from tests.unit.mqctl.test_gate_asked import bundle, plain_world
from tests.unit.mqctl.test_gate_asked import world as rack
from tests.unit.mqctl.test_operation import NAMES, VARIABLES, WHAT, told
from tests.unit.mqctl.test_scale_down_on_hosts import leaving, world

__all__ = ["bundle", "leaving", "plain_world", "rack", "world"]
RELEASE = "so mqctl operation release gives it back"


def cluster_of(*names: str) -> InventoryCluster:
    return InventoryCluster("main", tuple(Host(name, "main", VARIABLES, {}) for name in names or NAMES))


def loses_mq1(kind: type[LocalShell], monkeypatch: pytest.MonkeyPatch) -> None:
    """From when it is to be given back on."""
    run = kind.run_plain

    def run_plain(self: LocalShell, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        if self.name == "mq1" and "give-back" in command:
            raise CommandError("mq1: no answer within 30 s")
        return run(self, command, stdin, timeout_s)

    monkeypatch.setattr(kind, "run_plain", run_plain)


def upgrades(world: World, bundle: str) -> int:
    return upgrade.run(world, upgrade.Options(bundle=bundle, force=True, yes=True))


def rolls_out(world: World, bundle: str) -> int:
    return rollout.run(world, rollout.Options(bundle=bundle, force=True, yes=True))


def returns(world: World, _: str) -> int:
    return rollback.run(world, rollback.Options(leave=test_gate_asked.GOAL, force=True, yes=True))


def ends_returning(world: World, _: str) -> int:
    return rollback.finish(world, cluster_of(), cluster_of().hosts, "0.3.0-cccccccc", rollback.COMMAND)


def removes(world: World, _: str) -> int:
    return uninstall.run(world, uninstall.Options(limit="mq2", force=True, yes=True))


def adds(world: World, bundle: str) -> int:
    return scale_up.run(world, scale_up.Options(bundle=bundle, yes=True))


def ends_adding(world: World, bundle: str) -> int:
    operation.begin(world, cluster_of(), scale_up.COMMAND)
    return scale_up.run(world, scale_up.Options(bundle=bundle, yes=True, resume=True))


@pytest.mark.slow
@pytest.mark.parametrize("act", [upgrades, rolls_out, returns, ends_returning, removes, adds, ends_adding])
def test_a_playbook_that_is_done_is_not_led_to_again(
    rack: World, bundle: str, monkeypatch: pytest.MonkeyPatch, act: Callable[[World, str], int]
) -> None:
    for module in (rollout_run, rollback, scale_up):
        monkeypatch.setattr(module, "carry_out", lambda *_: Exit.DONE)
    monkeypatch.setattr(rollback, "verify", lambda *_: Exit.DONE)
    monkeypatch.setattr(rollout_run.settled_hosts, "mark", lambda *_: None)
    monkeypatch.setattr(uninstall, "run_play", lambda *_: PlayProgress())
    monkeypatch.setattr(scale_up, "is_added", lambda _, host: act is adds and host.name == "mq3")
    monkeypatch.setattr(scale_up, "_check_multicast", lambda *_: None)
    loses_mq1(test_gate_asked.ServingHost, monkeypatch)
    assert act(rack, bundle) == Exit.DEGRADED
    _is_led_to_release(told(rack))


def _is_led_to_release(said: str) -> None:
    (line,) = [one for one in said.splitlines() if one.startswith("mq1: it stays held, as it could not be given back")]
    assert line.endswith(RELEASE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "command"),
    [
        (uninstall.Options(limit="mq2"), "mqctl uninstall --limit mq2"),
        (uninstall.Options(limit="mq[23]", data=True), "mqctl uninstall --limit 'mq[23]' --data"),
        (uninstall.Options(), "mqctl uninstall"),
    ],
)
def test_a_removal_that_was_cut_off_is_gone_on_with_for_its_own_hosts(
    rack: World, monkeypatch: pytest.MonkeyPatch, options: uninstall.Options, command: str
) -> None:
    options = replace(options, force=True, yes=True)
    noted: list[str] = []

    def is_played(world: World, *_: object) -> PlayProgress:
        noted.append(world.operation.note["what"] if world.operation else "")
        return PlayProgress()

    monkeypatch.setattr(uninstall, "run_play", is_played)
    operation.begin(rack, cluster_of(), command)
    if options.limit:
        with pytest.raises(CommandError) as raised:
            uninstall.run(rack, uninstall.Options(force=True, yes=True, resume=True))
        assert f"{command} --resume" in raised.value.what
    assert uninstall.run(rack, replace(options, resume=True)) == Exit.DONE
    assert uninstall.run(rack, options) == Exit.DONE
    assert noted == [command] * 2
    operation.begin(rack, cluster_of(), "mqctl uninstall")  # of all hosts, which one of some must not let go of
    if options.limit:
        with pytest.raises(CommandError):
            uninstall.run(rack, replace(options, resume=True))


def rolls(bundle: str, **more: Any) -> tuple[Any, rollout.Options]:
    return rollout, rollout.Options(bundle=bundle, force=True, yes=True, **more)


def lifts(bundle: str, **more: Any) -> tuple[Any, upgrade.Options]:
    return upgrade, upgrade.Options(bundle=bundle, force=True, yes=True, **more)


def takes_back(_: str, **more: Any) -> tuple[Any, rollback.Options]:
    return rollback, rollback.Options(leave=test_gate_asked.GOAL, force=True, yes=True, **more)


def joins(bundle: str, **more: Any) -> tuple[Any, scale_up.Options]:
    return scale_up, scale_up.Options(bundle=bundle, yes=True, **more)


def is_carried_out(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is noted, and what is said to go on after Ctrl-C, of each run."""
    noted: list[tuple[str, str]] = []

    def carry_out(world: World, _options: object, _cluster: object, _hosts: object, play: Play) -> Exit:
        noted.append((world.operation.note["what"] if world.operation else "", play.command))
        return Exit.DONE

    for module in (rollout_run, rollback, scale_up):
        monkeypatch.setattr(module, "carry_out", carry_out)
    monkeypatch.setattr(rollback, "verify", lambda *_: Exit.DONE)
    monkeypatch.setattr(rollout_run.settled_hosts, "mark", lambda *_: None)
    monkeypatch.setattr(scale_up, "is_added", lambda *_: True)
    monkeypatch.setattr(scale_up, "_check_multicast", lambda *_: None)
    return noted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("begins", "name"),
    [(rolls, "mqctl rollout"), (lifts, "mqctl upgrade"), (takes_back, "mqctl rollback"), (joins, "mqctl scale-up")],
)
def test_what_was_cut_off_is_gone_on_with_for_its_own_hosts(
    rack: World, bundle: str, monkeypatch: pytest.MonkeyPatch, begins: Callable[..., tuple[Any, Any]], name: str
) -> None:
    noted = is_carried_out(monkeypatch)
    command = f"{name} --limit mq2"
    operation.begin(rack, cluster_of(), command)
    module, every = begins(bundle, resume=True)
    with pytest.raises(CommandError) as raised:
        module.run(rack, every)
    assert f"go on in its place with {command} --resume" in raised.value.what
    own = begins(bundle, resume=True, limit="mq2")[1]
    assert module.run(rack, own) == Exit.DONE
    assert noted == [(command, command)]
    operation.begin(rack, cluster_of(), name)  # of all hosts, which one of some must not let go of
    with pytest.raises(CommandError):
        module.run(rack, own)


@pytest.mark.slow
def test_an_upgrade_that_is_resumed_is_one_of_the_hosts_that_it_was_for(
    rack: World, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = is_carried_out(monkeypatch)
    command = "mqctl upgrade --limit 'mq[23]'"
    operation.begin(rack, cluster_of(), command, scope=OperationScope(goal=read(Path(bundle)).release))
    step = upgrade.Options(step=upgrade.UpgradeStep.RESUME, bundle=bundle, force=True, yes=True)
    assert upgrade.run(rack, step) == Exit.DONE
    assert noted == [(command, command)]
    assert "it was begun for mq[23], and goes on for these hosts; mqctl upgrade is for all" in told(rack)


@pytest.mark.slow
def test_hosts_that_were_added_are_given_back_by_the_command_that_added_them(
    rack: World, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale_up, "is_added", lambda *_: False)
    operation.begin(rack, cluster_of(), "mqctl scale-up --limit mq2")
    with pytest.raises(CommandError, match="mqctl scale-up --limit mq2 --resume"):
        scale_up.run(rack, scale_up.Options(bundle=bundle, yes=True, resume=True))
    assert scale_up.run(rack, scale_up.Options(bundle=bundle, yes=True, resume=True, limit="mq2")) == Exit.DONE


def empties(world: World) -> int:
    return drain.run(world, drain.Options(host="mq3", move=True, yes=True))


def has_serve_again(world: World) -> int:
    test_scale_down_on_hosts.drains_until_it_is_taken_back()
    return undrain.run(world, undrain.Options(host="mq3", yes=True))


def has_nothing_to_take_back(world: World) -> int:
    operation.begin(world, cluster_of("mq1", "mq3"), "mqctl undrain mq3")
    return undrain.run(world, undrain.Options(host="mq3", yes=True))


def cancels(world: World) -> int:
    test_scale_down_on_hosts.drains_until_it_is_taken_back()
    return scale_down.run(world, scale_down.Options(hosts=["mq3"], cancel=True, yes=True))


def leaves(world: World) -> int:
    return scale_down.run(world, scale_down.Options(hosts=["mq3"], yes=True))


@pytest.mark.slow
@pytest.mark.usefixtures("leaving")
@pytest.mark.parametrize("act", [empties, has_serve_again, has_nothing_to_take_back, cancels, leaves])
def test_a_drain_that_is_done_is_not_led_to_again(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[World], int]
) -> None:
    (tmp_path / "inventory.yml").write_text(test_drain.INVENTORY)
    test_scale_down_on_hosts.made("default")
    test_scale_down_on_hosts.says("mq3", then=test_scale_down_on_hosts.drain(**test_drain.EMPTY))
    document = test_scale_down_on_hosts.document()
    monkeypatch.setattr(scale_down, "_stopped", lambda *_: document)
    monkeypatch.setattr(scale_down, "_left", lambda *_: (Exit.DONE, document))
    loses_mq1(test_scale_down_on_hosts.HostShell, monkeypatch)
    assert act(world) == Exit.DEGRADED
    _is_led_to_release(test_scale_down_on_hosts.said(world))


@pytest.mark.slow
def test_ctrl_c_while_hosts_are_given_back_leaves_them_counted(rack: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = cluster_of()
    each = operation.on_each
    own = operation.begin(rack, hosts, WHAT)

    def interrupted(*words: Any) -> Iterator[Any]:
        yield next(iter(each(*words)))
        raise KeyboardInterrupt

    monkeypatch.setattr(operation, "on_each", interrupted)
    operation.end(rack, own)
    assert own.left_held == ["mq2", "mq3"]
    assert operation.code_of(own, Exit.DONE) is Exit.DEGRADED
    assert operation.code_of(own, Exit.RUNNING) is Exit.RUNNING


@pytest.mark.slow
@pytest.mark.parametrize("is_reached", [True, False])
def test_a_host_that_was_away_counts_where_a_playbook_came_to_it(
    rack: World, tmp_path: Path, *, is_reached: bool
) -> None:
    hosts = cluster_of()
    (tmp_path / "mq3").rename(tmp_path / "cut")
    with operation.holding(rack, hosts, WHAT) as own:
        own.came_to |= {"mq3"} if is_reached else set()
    assert own.left_held == (["mq3"] if is_reached else [])
