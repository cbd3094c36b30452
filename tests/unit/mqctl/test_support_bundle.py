"""What a support bundle has of hosts, each of which is a folder of this machine; and one for which there is no room."""

from __future__ import annotations

import json
import os
import resource
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqctl import operation
from mqctl.commands.look import support_bundle
from mqctl.commands.look.support_bundle import ASKED, Options, _cleaned, _write
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.playbook.redact import HIDDEN
from mqctl.ssh.shell import CommandResult
from mqctl.world import World

from tests.support.local_hosts import LocalHosts
from tests.unit.mqctl import test_gate
from tests.unit.mqctl.test_gate_asked import ServingHost, plain_world
from tests.unit.mqctl.test_gate_asked import world as serving_world
from tests.unit.mqctl.test_operation import NAMES, VARIABLES

__all__ = ["plain_world", "serving_world"]
SECRET = "0123456789abcdef0123456789abcdef"  # of the cluster, in the inventory of these hosts
FIGURES = {"journal_segments": 3, "journal_position": 2024, "synced_position": 2023}
JOURNAL = {"schema": 1, "messages": 7, "files": 1, "queues": []}
STOPPED = f"""#!{sys.executable}
import json, sys
if sys.argv[1] == "admin":
    sys.exit("mqbroker admin: no broker answers there")
print(json.dumps({JOURNAL!r}))
"""
UNITS = {"mq1": "active", "mq2": "failed", "mq3": "activating"}


@contextmanager
def no_room_for_more_than(size_bytes: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_part_of_it_does_not_stay(tmp_path: Path) -> None:
    path, files = tmp_path / "bundle.tar.gz", {"log": os.urandom(100_000)}
    with (
        no_room_for_more_than(5_000),
        pytest.raises(CommandError, match=r"bundle\.tar\.gz cannot be made: File too large"),
    ):
        _write(path, files)
    assert not path.exists()
    _write(path, files)
    with pytest.raises(CommandError, match="File exists"):
        _write(path, files)
    assert path.stat().st_size > 100_000


class LoggingHost(ServingHost):
    """It says what systemd knows, and its log has a secret."""

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        if command.startswith("journalctl"):
            return CommandResult(0, json.dumps({"MESSAGE": f"refused: {SECRET}"}).encode(), b"")
        if command.startswith("systemctl show"):
            return CommandResult(0, f"LoadState=loaded\nActiveState={UNITS[self.name]}\n".encode(), b"")
        return super().run_plain(command, stdin, timeout_s)


@pytest.fixture(params=[""])
def bundled(serving_world: World, request: pytest.FixtureRequest) -> dict[str, str]:
    """The bundle of a broker that runs and says too much, of one that has failed, and of one that starts, and which
    operation holds their hosts."""
    world = replace(serving_world, connector=LocalHosts(LoggingHost))
    inventory = world.cwd / "inventory.yml"
    inventory.write_text(inventory.read_text().replace("  hosts:", "    ansible_become_password: 2024\n  hosts:"))
    answers: dict[str, Any] = {name: {} for name in (*ASKED, "events")}
    answers["config-show"] = {"options": [{"option": "cluster-password", "value": SECRET, SECRET: None}]}
    test_gate.says(world, "mq1", **answers | {"status": FIGURES})
    for name in ("mq2", "mq3"):
        (world.cwd / name / "bin/mqbroker").write_text(STOPPED)
    cluster = InventoryCluster("main", tuple(Host(name, "main", VARIABLES, {}) for name in NAMES))
    if request.param:
        operation.begin(world, cluster, request.param)
    assert support_bundle.run(world, Options(file=Path("bundle.tar.gz"))) == Exit.DEGRADED
    with tarfile.open(world.cwd / "bundle.tar.gz") as archive:
        members = {one.name.removeprefix("support-bundle/"): archive.extractfile(one) for one in archive}
        return {name: file.read().decode() for name, file in members.items() if file is not None}


@pytest.mark.slow
def test_no_secret_of_the_inventory_is_in_it_whoever_says_it(bundled: dict[str, str]) -> None:
    assert not [name for name, text in bundled.items() if SECRET in text]
    assert json.loads(bundled["mq1/default/config-show.json"]) == {
        "options": [{"option": "cluster-password", "value": HIDDEN, HIDDEN: None}]
    }
    assert bundled["mq1/default/log"].endswith(f"refused: {HIDDEN}\n")
    assert json.loads(bundled["mq1/default/status.json"]) == FIGURES  # a figure is no secret, whatever its digits


@pytest.mark.slow
def test_it_has_what_can_be_had_of_each_journal_without_a_lock_that_is_in_the_way(bundled: dict[str, str]) -> None:
    assert json.loads(bundled["mq1/default/journal-info.json"]) == FIGURES
    assert json.loads(bundled["mq2/default/journal-info.json"]) == JOURNAL
    lines = bundled["mq2/default/missing.txt"].splitlines()
    assert sorted(lines) == sorted({*lines} & {"mq2: no broker answers there", "mq2: the connection broke"})
    assert "mq3/default/journal-info.json" not in bundled
    assert "mq3: systemd says that its broker is starting, so its journal" in bundled["mq3/default/missing.txt"]


@pytest.mark.slow
@pytest.mark.parametrize("bundled", ["mqctl rollout"], indirect=True)
def test_it_says_which_operation_holds_each_host_and_locks_no_journal_there(bundled: dict[str, str]) -> None:
    for name in NAMES:
        note = json.loads(bundled[f"{name}/operation.json"])
        assert (note["number"], note["is_held"], note["what"]) == (1, True, "mqctl rollout")
        assert "token" not in note
    assert json.loads(bundled["mq1/default/journal-info.json"]) == FIGURES
    assert "mq2/default/journal-info.json" not in bundled
    assert "mq2: its host is held by mqctl rollout, so its journal" in bundled["mq2/default/missing.txt"]


def test_nothing_falls_out_of_it_where_names_become_the_same() -> None:
    said = {"first": 1, "second": 2, f"{HIDDEN} (2)": 3, "other": 4}
    cleaned = _cleaned(said, lambda text: HIDDEN if text in ("first", "second") else text)
    assert cleaned == {HIDDEN: 1, f"{HIDDEN} (2)": 2, f"{HIDDEN} (2) (2)": 3, "other": 4}
