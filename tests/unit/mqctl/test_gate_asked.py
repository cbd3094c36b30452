"""Each command that has brokers away for a while asks first whom nobody would serve meanwhile: one test for each.

Hosts are folders of this machine; mq2 alone is consumed from.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mqctl.bundle.manifest import LOCK, MANIFEST, WHEELS, BundleTarget, describe
from mqctl.commands.rollout import rollback, rollout, uninstall, upgrade
from mqctl.errors import CommandError
from mqctl.nodes import BROKER
from mqctl.ssh.local import LocalStream
from mqctl.ssh.shell import CommandResult
from mqctl.world import World

from tests.support.local_hosts import LocalHosts, local_inventory
from tests.unit.mqctl import test_gate, test_operation
from tests.unit.mqctl.test_operation import NAMES, made, noted, told
from tests.unit.mqctl.test_operation import world as plain_world
from tests.unit.mqctl.test_upgrade import GOAL, OLD, has

__all__ = ["plain_world"]
SERVED_BY_MQ2 = "queue orders: is consumed from at mq2 alone"
LOADED = {"release": GOAL, "options": "", "unit_file": "", "started": "", "files": {}}
UNIT = {"ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}
# A host whose broker runs an earlier release, as programs that are sent to it say.
SEEN = {
    "release": GOAL, "user": None, "gid": None, "releases": [[GOAL, True], [OLD, True]], "before": {GOAL: OLD},
    "places": {}, "unit_file": None,
    "filter": {"origin": []}, "addresses": {"lo": ["127.0.0.1"]}, "traces": {}, "running": ["default"],
    "instances": {"default": {
        "options": "", "users": None, "node_id": None, "trouble": "", "certificates": {}, "files": {}, "unit": UNIT,
        "loaded": LOADED,
    }},
}  # fmt: skip


class ServingHost(test_operation.HostShell):
    """A host with a broker that says whom it serves."""

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        if b"def identity_of(" in stdin:
            return CommandResult(0, json.dumps(SEEN).encode(), b"")
        return super().run_plain(command, stdin, timeout_s)

    def open_plain(self, command: str, prefix: bytes) -> LocalStream:
        return super().open_plain(command.replace(BROKER, f"{self.folder / self.name}/bin/mqbroker"), prefix)


@pytest.fixture
def world(plain_world: World, tmp_path: Path) -> World:
    (tmp_path / "inventory.yml").write_text(
        local_inventory(*NAMES).replace("  hosts:", "    mq_tls: 'off'\n    mq_allow_plaintext: true\n  hosts:")
    )
    for name in NAMES:
        made(tmp_path, name)
        has(tmp_path, name, OLD, GOAL)
    test_gate.serving(tmp_path)
    world = replace(plain_world, connector=LocalHosts(ServingHost))
    idle = {"queues": [test_gate.QUEUE | {"consumer_count": 0}]}
    for name in ("mq1", "mq3"):
        test_gate.says(world, name, queues=idle)
    return world


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    folder = tmp_path / "dist/bundle"
    (folder / WHEELS).mkdir(parents=True)
    (folder / LOCK).write_text("")
    manifest = describe(folder, "0.2.0", BundleTarget("3.11", 36, "x86_64"))
    (folder / MANIFEST).write_text(manifest.to_json())
    return str(folder)


def removes(world: World, _: str, *, force: bool) -> None:
    uninstall.run(world, uninstall.Options(limit="mq2", force=force))


def returns(world: World, _: str, *, force: bool) -> None:
    rollback.run(world, rollback.Options(leave=GOAL, force=force))


def rolls_out(world: World, bundle: str, *, force: bool) -> None:
    rollout.run(world, rollout.Options(bundle=bundle, force=force))


def upgrades(world: World, bundle: str, *, force: bool) -> None:
    upgrade.run(world, upgrade.Options(bundle=bundle, force=force))


@pytest.mark.slow
@pytest.mark.parametrize("act", [removes, returns, rolls_out, upgrades])
def test_nothing_is_begun_where_somebody_would_not_be_served(
    world: World, bundle: str, act: Callable[..., None]
) -> None:
    with pytest.raises(CommandError, match=SERVED_BY_MQ2):
        act(world, bundle, force=False)
    with pytest.raises(CommandError, match="no terminal to ask on"):  # the question
        act(world, bundle, force=True)
    assert f"given up: {SERVED_BY_MQ2}" in told(world)
    assert noted(world) == {}
