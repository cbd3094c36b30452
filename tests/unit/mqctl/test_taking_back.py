"""What is taken back, of one host and of several, and what is said where that does not come to its end.

Hosts are folders here, in which `mqbroker` is a script that says what it was told to.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqctl import operation
from mqctl.commands.rollout import drain as drain_command
from mqctl.commands.rollout import scale_down
from mqctl.commands.rollout import undrain as undrain_command
from mqctl.errors import CommandError, Unreachable, UsageError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.remote import operation as noting
from mqctl.scaledown import archive
from mqctl.world import World

from tests.support.local_hosts import local_inventory
from tests.unit.mqctl.test_scale_down_on_hosts import (
    VARIABLES,
    HostShell,
    document,
    done,
    drain,
    made_hosts,
    said,
    says,
    world,
)

__all__ = ["world"]

HOSTS = ("mq1", "mq2", "mq3")
PARTY = "mqctl scale-down mq2 mq3"


@pytest.fixture(autouse=True)
def cluster(world: World, tmp_path: Path) -> InventoryCluster:
    """mq1 stays, mq2 and mq3 have data of their own."""
    made_hosts(tmp_path, *HOSTS)
    for name in HOSTS:
        place = tmp_path / name / "mq" / "default"
        place.mkdir()
        (place / "identity.json").write_text(f'{{"node_id": "id-{name}"}}')
    (tmp_path / "inventory.yml").write_text(local_inventory(*HOSTS))
    return InventoryCluster("main", tuple(Host(name, "main", VARIABLES, {}) for name in HOSTS))


def drains(name: str, state: str = "moving") -> None:
    says(name, **{"scale-down-show": drain(state=state, node="mq1", node_id="id-mq1", left=3)})


def has_left(world: World, name: str, *, is_removed: bool = True) -> None:
    """Its brokers are stopped, and removed unless they are about to be; the receipt lies there."""
    host = Host(name, "main", VARIABLES, {})
    kept = document(host=name, node_ids=[f"id-{name}"])
    archive.put_receipt(world, host, kept["archive"], kept)
    place = HostShell.root / name
    says(name, silent=["default"])
    (place / "unit").write_text("inactive\n")
    if is_removed:
        (place / "mq" / "default").rename(place / "mq" / ".archive" / kept["archive"] / "default")
        (place / "bin" / "systemctl").write_text("#!/bin/sh\necho LoadState=not-found\n")


def held(world: World) -> set[str]:
    """What holds a host, by its note."""
    found = [noting.look(f"{world.cwd}/{name}/{Path(noting.PLACE).name}") for name in HOSTS]
    return {note["what"] for note in found if note and note["is_held"]}


def hold(world: World, cluster: InventoryCluster, what: str) -> None:
    """A run that was killed."""
    operation.begin(world, cluster, what)


def cancel(world: World, *hosts: str, **changes: Any) -> int:
    return scale_down.run(world, scale_down.Options(hosts=list(hosts), cancel=True, yes=True, **changes))


def undrain(world: World, host: str) -> int:
    return undrain_command.run(world, undrain_command.Options(host=host, yes=True))


# -- several hosts ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("is_removed", [True, False])
def test_those_that_have_not_left_serve_again_and_the_cluster_is_given_back(
    world: World, cluster: InventoryCluster, *, is_removed: bool
) -> None:
    hold(world, cluster, PARTY)
    has_left(world, "mq2", is_removed=is_removed)
    drains("mq3")
    assert cancel(world, "mq2", "mq3") == Exit.DEGRADED
    assert "scale-down-cancel" in done("asked", "mq3")
    assert "mq3 serves again; what has moved is at mq1" in said(world)
    assert "mq2 was drained and stopped before, and is not taken back: mqctl scale-down mq2 --resume" in said(world)
    assert held(world) == set()
    assert archive.kept_receipt(world, Host("mq2", "main", VARIABLES, {})) is not None, "which --resume goes on from"


@pytest.mark.slow
def test_where_the_second_has_not_begun_the_cluster_is_given_back(world: World, cluster: InventoryCluster) -> None:
    hold(world, cluster, PARTY)
    has_left(world, "mq2")
    assert cancel(world, "mq2", "mq3") == Exit.DEGRADED
    assert "mq3 does not drain: nothing is to be taken back" in said(world)
    assert held(world) == set()


@pytest.mark.slow
def test_all_are_taken_back_under_one_operation(
    world: World, cluster: InventoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody gets in between the first and the second, and one that is not done yet keeps the cluster."""
    hold(world, cluster, PARTY)
    drains("mq2")
    drains("mq3")
    says("mq3", **{"scale-down-cancel": drain(state="ends", node="mq1")})
    with pytest.raises(CommandError, match="not all queues are served again after 60 s") as raised:
        cancel(world, "mq2", "mq3", timeout=60.0)
    assert (raised.value.attempt, raised.value.code) == (f"{PARTY} --cancel", Exit.RUNNING)
    assert held(world) == {f"{PARTY} --cancel"}
    assert [done("asked", name).count("scale-down-cancel") for name in HOSTS] == [0, 1, 1]
    says("mq3", **{"scale-down-cancel": drain()})
    assert cancel(world, "mq2", "mq3") == Exit.DONE
    assert held(world) == set()


def is_lost(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """It is powered off: no command gets there."""
    plain = HostShell.run_plain

    def run_plain(self: HostShell, command: str, stdin: bytes, timeout_s: float) -> Any:
        if self.name == name:
            raise Unreachable(name, "No route to host")
        return plain(self, command, stdin, timeout_s)

    monkeypatch.setattr(HostShell, "run_plain", run_plain)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped", "lost", "hangs"])
def test_one_that_does_not_answer_keeps_the_cluster_and_the_others_serve_again(
    world: World, cluster: InventoryCluster, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    hold(world, cluster, PARTY)
    says("mq2", silent=["default"])
    if how == "stopped":
        (HostShell.root / "mq2" / "unit").write_text("inactive\n")
    elif how == "lost":
        is_lost(monkeypatch, "mq2")
    drains("mq3")
    assert cancel(world, "mq2", "mq3") == Exit.DEGRADED
    assert "scale-down-cancel" in done("asked", "mq3")
    assert held(world) == {PARTY if how == "lost" else f"{PARTY} --cancel", f"{PARTY} --cancel"}
    assert "mq2 does not answer and is not taken back, so the cluster stays held" in said(world)
    assert "mqctl operation release now and mqctl scale-down mq2 --cancel then" in said(world)
    says("mq2", silent=[])
    if how != "lost":
        (HostShell.root / "mq2" / "unit").write_text("active\n")
        assert cancel(world, "mq2", "mq3") == Exit.DONE
        assert held(world) == set()


@pytest.mark.slow
def test_one_whose_unit_has_failed_has_left_where_its_receipt_is_there(world: World, cluster: InventoryCluster) -> None:
    hold(world, cluster, PARTY)
    has_left(world, "mq2", is_removed=False)
    (HostShell.root / "mq2" / "unit").write_text("failed\n")
    drains("mq3")
    assert cancel(world, "mq2", "mq3") == Exit.DEGRADED
    assert "mq2 was drained and stopped before" in said(world)
    assert held(world) == set()


@pytest.mark.slow
def test_one_that_is_out_of_the_inventory_is_named_and_the_others_serve_again(
    world: World, cluster: InventoryCluster, tmp_path: Path
) -> None:
    hold(world, cluster, PARTY)
    (tmp_path / "inventory.yml").write_text(local_inventory("mq1", "mq3"))
    drains("mq3")
    assert cancel(world, "mq2", "mq3") == Exit.DONE
    assert "mq2 is out of the inventory, and is not taken back" in said(world)
    assert "scale-down-cancel" in done("asked", "mq3")
    with pytest.raises(UsageError, match="mq2 is not a host of cluster main"):
        cancel(world, "mq2", "mq3")


@pytest.mark.slow
def test_a_broker_that_is_just_being_stopped_keeps_its_receipt(world: World, cluster: InventoryCluster) -> None:
    """Its machine was lost while systemd stopped it: it answers for as long as that takes."""
    host = Host("mq3", "main", VARIABLES, {})
    hold(world, cluster, "mqctl scale-down mq3")
    kept = document(host="mq3", node_ids=["id-mq3"])
    archive.put_receipt(world, host, kept["archive"], kept)
    drains("mq3", "moved")
    (HostShell.root / "mq3" / "unit").write_text("deactivating\n")
    with pytest.raises(CommandError, match="mq3: is just being stopped; nothing was taken back, and the cluster stays"):
        cancel(world, "mq3")
    assert "scale-down-cancel" not in done("asked", "mq3")
    assert archive.kept_receipt(world, host) is not None
    says("mq3", silent=["default"])
    (HostShell.root / "mq3" / "unit").write_text("inactive\n")
    with pytest.raises(CommandError, match="mq3: drained and stopped already") as raised:
        cancel(world, "mq3")
    assert raised.value.attempt == "mqctl scale-down mq3 --resume"
    assert held(world) == set(), "so that this goes on"


@pytest.mark.slow
def test_what_is_stopped_and_has_no_receipt_is_started_first(world: World, cluster: InventoryCluster) -> None:
    hold(world, cluster, "mqctl scale-down mq3 --cancel")
    says("mq3", silent=["default"])
    (HostShell.root / "mq3" / "unit").write_text("inactive\n")
    with pytest.raises(CommandError, match="it is stopped, and there is no receipt of a drain of it") as raised:
        cancel(world, "mq3")
    assert raised.value.attempt == (
        "mqctl operation release, mqctl rollout, which starts it, and the same command again"
    )


@pytest.mark.slow
def test_who_has_left_is_not_taken_back_alone(world: World, cluster: InventoryCluster) -> None:
    hold(world, cluster, "mqctl scale-down mq2")
    has_left(world, "mq2")
    with pytest.raises(CommandError, match="mq2: drained and stopped already") as raised:
        cancel(world, "mq2")
    assert raised.value.attempt == "mqctl scale-down mq2 --resume"
    assert held(world) == {"mqctl scale-down mq2"}


@pytest.mark.slow
@pytest.mark.parametrize("take_back", [cancel, undrain])
def test_one_of_several_is_led_to_the_command_that_takes_back_all(
    world: World, cluster: InventoryCluster, take_back: Callable[[World, str], int]
) -> None:
    hold(world, cluster, PARTY)
    drains("mq3")
    with pytest.raises(CommandError, match=f"take it back with {PARTY} --cancel"):
        take_back(world, "mq3")
    assert "scale-down-cancel" not in done("asked", "mq3")


# -- who takes back is led on -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_whose_time_is_up_goes_on_by_the_same_command_and_holds_nobody_up(
    world: World, cluster: InventoryCluster
) -> None:
    """As where it is not waited for: the broker ends it by itself."""
    hold(world, cluster, "mqctl drain mq3")
    drains("mq3")
    says("mq3", **{"scale-down-cancel": drain(state="ends", node="mq1")})
    how = undrain_command.Options(host="mq3", wait=True, timeout=60.0, yes=True)
    with pytest.raises(CommandError, match="not all queues are served again after 60 s; the brokers go on") as raised:
        undrain_command.run(world, how)
    assert raised.value.attempt == "mqctl undrain mq3 --wait"
    assert held(world) == set()
    says("mq3", **{"scale-down-cancel": drain()})
    assert undrain_command.run(world, how) == Exit.DONE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "go_on", "take_back"),
    [
        (
            "mqctl undrain mq3",
            lambda world: drain_command.run(world, drain_command.Options(host="mq3", move=True, resume=True, yes=True)),
            lambda world: undrain(world, "mq3"),
        ),
        (
            "mqctl scale-down mq3 --cancel",
            lambda world: scale_down.run(world, scale_down.Options(hosts=["mq3"], resume=True, yes=True)),
            lambda world: cancel(world, "mq3"),
        ),
    ],
)
def test_nobody_drains_anew_in_the_place_of_who_takes_back(
    world: World,
    cluster: InventoryCluster,
    command: str,
    go_on: Callable[[World], int],
    take_back: Callable[[World], int],
) -> None:
    hold(world, cluster, command)
    drains("mq3", "ends")
    with pytest.raises(CommandError, match=f"go on in its place with {command}, or give it up"):
        go_on(world)
    assert done("asked", "mq3").count("scale-down") == 1, "a dry run"
    take_back(world)
    assert held(world) == set()


@pytest.mark.slow
def test_ctrl_c_says_what_follows_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    drains("mq3")
    says("mq3", **{"scale-down-cancel": drain(state="ends", node="mq1")})

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(world, "sleep_s", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cancel(world, "mq3")
    assert "interrupted: the brokers go on to take it back; mqctl scale-down mq3 --cancel follows it" in said(world)
    assert held(world) == {"mqctl scale-down mq3 --cancel"}


# -- at the second of several hosts -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_who_does_not_agree_to_the_second_hears_what_has_left_and_what_is_held(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_interrupted: bool
) -> None:
    """It is asked for once more where something hinders by then, and is forced."""
    for name in ("mq2", "mq3"):
        says(name, then=drain(state="moved", node="mq1", node_id="id-mq1"))

    def left(*_: Any) -> tuple[Exit, dict[str, Any]]:
        hindrance = {"kind": "queue", "name": "latest", "why": "stays"}
        says("mq3", **{"scale-down": drain(hindrances=[hindrance])})
        return Exit.DONE, document()

    monkeypatch.setattr(scale_down, "_stopped", lambda *_: document())
    monkeypatch.setattr(scale_down, "_left", left)
    answers = iter("yn")

    def answer(*_: Any, **__: Any) -> str:
        said = next(answers)
        if said == "n" and is_interrupted:
            raise KeyboardInterrupt
        return said

    asked = replace(world, is_interactive=True)
    monkeypatch.setattr(asked.err, "input", answer)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    how = scale_down.Options(hosts=["mq2", "mq3"], force=True)
    stays = f"mq2 left before, so the cluster stays held by {PARTY}"
    ways = f"{PARTY} --resume --force goes on, {PARTY} --cancel has mq3 stay, mqctl operation release gives it up"
    if is_interrupted:
        with pytest.raises(KeyboardInterrupt):
            scale_down.run(asked, how)
        assert f"{stays}; {ways}" in said(world)
        assert "nothing was changed" not in said(world)
    else:
        with pytest.raises(CommandError, match=f"{stays}; mq3: not confirmed, nothing was changed") as raised:
            scale_down.run(asked, how)
        assert raised.value.attempt == ways
    assert held(world) == {PARTY}
    assert "scale-down" in done("asked", "mq2")
