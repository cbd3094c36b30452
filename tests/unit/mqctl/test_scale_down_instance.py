"""One instance of a host leaves, and the others of that host stay.

mq1 is a folder, and so is each instance of mq2, whose programs those of the host lead to by the name of the instance.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqctl import operation
from mqctl.commands.rollout import scale_down
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.nodes import Node
from mqctl.playbook.events import PlayProgress
from mqctl.playbook.place import role_takes
from mqctl.playbook.redact import Redactor
from mqctl.playbook.run import Play
from mqctl.remote import operation as noting
from mqctl.scaledown import archive, leaving_host, receipt
from mqctl.scaledown.cluster_look import NodeLook
from mqctl.scaledown.leaving_host import Leaver, leavers_of, meant
from mqctl.scaledown.plan import plan_of, unfit
from mqctl.world import World

from tests.support.local_hosts import local_inventory
from tests.support.rack_site import ROOT
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

BLUE, GREEN = "mq2.blue", "mq2.green"  # their folders
COMMAND = "mqctl scale-down mq2/blue"
LISTED = "mq_instances: [{name: blue}, {name: green, port_offset: 10}]"
LEADS_ON = """#!/bin/sh
# To that of the instance which is named.
name=$(echo "$@" | sed 's/.*\\(--instance \\|mqbroker@\\)\\([a-z]*\\).*/\\2/')
exec "$(dirname "$0")/../../mq2.$name/bin/$(basename "$0")" "$@"
"""


def host_of(name: str, *instances: str) -> Host:
    own = {"mq_instances": [{"name": one} for one in instances]} if instances else {}
    return Host(name, "main", {**VARIABLES, **own}, {})


TWO = InventoryCluster("main", (host_of("mq1"), host_of("mq2", "blue", "green"), host_of("mq3", "default", "red")))


# -- who leaves -------------------------------------------------------------------------------------------------------


def test_an_instance_leaves_and_the_others_of_its_host_take_its_messages() -> None:
    (one,) = leavers_of(TWO, ["mq2/blue"], is_forced=False)
    assert [each.name for each in one.nodes] == ["mq2/blue"]
    assert [each.name for each in one.heirs] == ["mq1", "mq2/green", "mq3", "mq3/red"] == [
        each.name for each in one.others
    ]  # fmt: skip
    assert (one.command, one.again, one.back) == (COMMAND, f"{COMMAND} --resume", f"{COMMAND} --cancel")
    (default,) = leavers_of(TWO, ["mq3/default"], is_forced=False)
    assert ([each.name for each in default.nodes], default.name) == (["mq3"], "mq3/default")
    assert "mq3/red" in [each.name for each in default.heirs]


def test_of_several_none_takes_messages_of_another_that_leaves() -> None:
    cluster = replace(TWO, hosts=(host_of("mq1"), host_of("mq2", "blue", "green", "red"), host_of("mq3")))
    first, second, third = leavers_of(cluster, ["mq2/blue", "mq2/green", "mq3"], is_forced=False)
    assert {each.name for one in (first, second, third) for each in one.heirs} == {"mq1", "mq2/red"}
    assert [each.name for each in first.later_nodes] == ["mq2/green", "mq3"]
    # Until it has left it has to answer and to forget; afterwards it is none of the cluster any more.
    assert "mq2/green" in [each.name for each in first.others]
    assert [each.name for each in third.others] == ["mq1", "mq2/red"]
    assert second.command == "mqctl scale-down mq2/blue mq2/green mq3"


def test_where_all_instances_are_named_the_host_leaves() -> None:
    assert meant(TWO, ["mq2/green", "mq1", "mq2/blue"]) == ["mq2", "mq1"]
    assert meant(TWO, ["mq1/default", "mq2/blue"]) == ["mq1", "mq2/blue"]
    names = ["mq2", "mq3/default", "gone", "gone/blue", "mq1/red"]
    assert meant(TWO, names) == names


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["mq2/blue", "mq2/blue"], "mq2/blue is named twice"),
        (["mq2", "mq2/blue"], "mq2/blue is named twice"),
        (["mq2/red"], "mq2 has no instance red: it has blue, green"),
        (["mq9/red"], "mq9 is not a host of cluster main"),
    ],
)
def test_who_is_no_instance_or_named_twice_does_not_leave(names: list[str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        leavers_of(TWO, names, is_forced=False)


def test_whoever_leaves_is_called_as_it_is_said_on_the_command_line() -> None:
    def look(node: str, state: str, to: str = "") -> NodeLook:
        host, _, instance = node.partition("/")
        shown = drain(state=state, node_id=to)
        return NodeLook(Node(host, instance or "default"), status={"node_id": f"id-{node}"}, drain=shown)

    leaves, stays = look("mq2/blue", "moving", "id-mq3"), look("mq2/green", "none")
    for others, name in (([leaves, stays], "mq2/blue"), ([leaves], "mq2")):
        assert unfit(look("mq3", "none"), leaves, others) == (
            f"mq2/blue is leaving itself (mqctl scale-down {name} --cancel)"
        )
        with pytest.raises(CommandError, match="mq2/blue leaves, and its messages go to mq3") as raised:
            plan_of([look("mq3", "none")], others)
        assert raised.value.attempt == f"mqctl scale-down {name} --resume first, or --cancel"


# -- hosts ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def leaving(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Leaver:
    """mq2/blue leaves, which serves and has nothing; mq2/green and mq1 stay."""
    made_hosts(tmp_path, "mq1", BLUE, GREEN)
    monkeypatch.setattr(leaving_host, "role_takes", lambda *_: True)
    (tmp_path / "mq2" / "mq").mkdir(parents=True)
    (tmp_path / "mq2" / "bin").mkdir()
    for program in ("systemctl", "mqbroker"):
        (tmp_path / "mq2" / "bin" / program).write_text(LEADS_ON)
        (tmp_path / "mq2" / "bin" / program).chmod(0o755)
    for name in (BLUE, GREEN):
        (tmp_path / name / "mq").rmdir()
        (tmp_path / name / "mq").symlink_to("../mq2/mq")
        instance = name.removeprefix("mq2.")
        made(instance)
        (tmp_path / "mq2" / "etc" / instance).mkdir(parents=True)
    balanced = {"balances": True, "difference": [], "queues": []}
    says(BLUE, then=drain(state="moved", node="mq1", node_id="id-mq1", receipt=balanced))
    for name in ("mq1", GREEN):  # they have forgotten it, whenever they are asked
        alone = {"node_id": f"id-{name}", "members": [], "links": [], "inbound": []}
        says(name, topology=alone, **{"cluster-forget": {"messages": 0}})
    text = local_inventory("mq1", "mq2").replace("192.0.2.2", f"192.0.2.2, {LISTED}")
    (tmp_path / "inventory.yml").write_text(text)
    cluster = InventoryCluster("main", (host_of("mq1"), host_of("mq2", "blue", "green")))
    return leavers_of(cluster, ["mq2/blue"], is_forced=False)[0]


def made(*parts: str, node_id: str = "") -> None:
    """A data directory of mq2."""
    place = (HostShell.root / "mq2" / "mq").joinpath(*parts)
    place.mkdir(parents=True, exist_ok=True)
    (place / "identity.json").write_text(json.dumps({"node_id": node_id or f"id-mq2.{parts[-1]}"}))


def of_blue(**changes: Any) -> dict[str, Any]:
    return document(host="mq2", instances=["blue"], node_ids=["id-mq2.blue"], rows=[], **changes)


def of_host(**changes: Any) -> dict[str, Any]:
    return document(host="mq2", node_ids=["id-mq2.blue", "id-mq2.green"], rows=[], **changes)


def is_held(world: World) -> set[str]:
    notes = [noting.look(f"{world.cwd}/{name}/{Path(noting.PLACE).name}") for name in ("mq1", "mq2")]
    return {note["what"] for note in notes if note and note["is_held"]}


def acts(name: str) -> list[str]:
    return [line for line in done("systemctl", name) if not line.startswith("show")]


def role(killed_at: str = "") -> Any:
    """What the role `uninstall` does on the host, as far as where mqctl is killed."""

    def run_play(world: World, _: InventoryCluster, play: Play) -> PlayProgress:
        assert (play.name, play.limit, play.variables["mq_uninstall_instances"]) == ("uninstall", "mq2", ["blue"])
        host = world.cwd / "mq2"
        place = host / "mq" / ".archive" / play.variables["mq_uninstall_archive"]
        for step, source, target in (("data", host / "mq/blue", place / "blue"), ("options", host / "etc/blue", None)):
            if killed_at == step:
                raise KeyboardInterrupt
            if source.exists() and target:
                source.rename(target)
            elif source.exists():
                source.rmdir()
        if killed_at == "end":
            raise KeyboardInterrupt
        return PlayProgress(Redactor([]))

    return run_play


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that are looked at in the end; the role plays on the folder of the host."""
    names: list[str] = []

    def verify(_: World, __: InventoryCluster, hosts: list[Host]) -> Exit:
        names.extend(name for host in hosts for name in host.node_names)
        return Exit.DONE

    monkeypatch.setattr(leaving_host, "verify", verify)
    monkeypatch.setattr(leaving_host, "run_play", role())
    return names


def scaled_down(world: World, *hosts: str, **changes: Any) -> int:
    how = {"yes": True, "to": "mq1", **changes}
    return scale_down.run(world, scale_down.Options(hosts=list(hosts or ["mq2/blue"]), json=True, **how))


@pytest.mark.slow
def test_it_leaves_as_a_host_does_and_its_host_stays(
    world: World, leaving: Leaver, tmp_path: Path, looked_at: list[str]
) -> None:
    assert scaled_down(world, write_inventory=True) == Exit.DONE
    assert (acts(BLUE), acts(GREEN)) == (["stop mqbroker@blue.service"], [])
    assert [done("asked", name).count("cluster-forget") for name in ("mq1", GREEN, BLUE)] == [1, 1, 0]
    assert looked_at == ["mq1", "mq2/green"]
    (kept,) = (tmp_path / "mq2/mq/.archive").iterdir()
    assert sorted(each.name for each in kept.iterdir()) == ["blue", "receipt.json"]
    assert sorted(each.name for each in (tmp_path / "mq2/mq").iterdir()) == [".archive", "green"]
    made_out = json.loads(kept.joinpath("receipt.json").read_text())
    assert (made_out["host"], made_out["instances"], made_out["node_ids"]) == ("mq2", ["blue"], ["id-mq2.blue"])
    assert sorted(each.name for each in (tmp_path / "receipts").iterdir()) == [
        f"{kept.name}-mq2-blue.json", f"{kept.name}-mq2-blue.txt",
    ]  # fmt: skip
    assert (
        (tmp_path / "receipts" / f"{kept.name}-mq2-blue.txt")
        .read_text()
        .startswith("Receipt: mq2/blue leaves cluster main\n")
    )
    assert "mq2/blue has left cluster main; its data is in /var/lib/mq/.archive/" in said(world)
    assert "nothing of mq2/blue is left at 2 other nodes" in said(world)
    assert "192.0.2.2, mq_instances: [{name: green, port_offset: 10}]}" in (tmp_path / "inventory.yml").read_text()
    assert is_held(world) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", [b'"force": false', b"receipt.json", b"systemctl stop", "data", "options", "end", b"cluster-forget"]
)
def test_killed_at_any_step_it_goes_on(
    world: World,
    leaving: Leaver,
    tmp_path: Path,
    looked_at: list[str],
    monkeypatch: pytest.MonkeyPatch,
    step: bytes | str,
) -> None:
    """And nobody takes the receipt of another one, or of the host, for its own meanwhile."""
    with monkeypatch.context() as patched:
        if isinstance(step, bytes):
            patched.setattr(HostShell, "interrupts", step)
        else:
            patched.setattr(leaving_host, "run_play", role(step))
        with pytest.raises(KeyboardInterrupt):
            scaled_down(world)
    assert is_held(world) == {COMMAND}
    with pytest.raises(CommandError, match=f"operation 1 \\({COMMAND}, "):
        scaled_down(world, "mq2")
    assert scaled_down(world, resume=True) == Exit.DONE
    assert acts(GREEN) == []
    assert set(acts(BLUE)) == {"stop mqbroker@blue.service"}
    assert looked_at == ["mq1", "mq2/green"]
    assert {each.parent.name for each in (tmp_path / "mq2/mq/.archive").glob("*/blue")} == {
        receipt_of_blue(world)["archive"]
    }
    assert sorted(each.name for each in (tmp_path / "mq2/mq").iterdir()) == [".archive", "green"]
    assert is_held(world) == set()


def receipt_of_blue(world: World) -> dict[str, Any]:
    kept = archive.kept_receipt(world, host_of("mq2", "blue", "green"), "blue")
    assert kept is not None
    return kept


@pytest.mark.slow
def test_what_is_deleted_is_its_data_alone_also_where_it_is_killed_behind_that(
    world: World, leaving: Leaver, tmp_path: Path, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(archive, "purge", _purge_and_be_killed)
        with pytest.raises(KeyboardInterrupt):
            scaled_down(world, purge=True)
    assert sorted(each.name for each in (tmp_path / "mq2/mq").iterdir()) == [".archive", "green"]
    assert not list((tmp_path / "mq2/mq/.archive").glob("*/blue"))
    assert scaled_down(world, resume=True, purge=True) == Exit.DONE
    assert "its data is deleted" in said(world)
    assert acts(GREEN) == []


PURGE = archive.purge


def _purge_and_be_killed(world: World, host: Host, name: str) -> None:
    PURGE(world, host, name)
    raise KeyboardInterrupt


@pytest.mark.slow
def test_it_is_shown_checked_and_taken_back_alone(world: World, leaving: Leaver, tmp_path: Path) -> None:
    assert scaled_down(world, check=True) == Exit.DONE
    assert "mq2/blue: 0 messages in 0 queues move to mq1" in said(world)
    assert scaled_down(world, check=True, to="mq2/green") == Exit.DONE
    assert "mq2/blue: 0 messages in 0 queues move to mq2/green" in said(world)
    assert is_held(world) == set()
    says(BLUE, **{"scale-down-show": drain(state="moving", node="mq1", node_id="id-mq1")})
    archive.put_receipt(world, leaving.host, "scale-down-1", of_blue(archive="scale-down-1"))
    archive.put_receipt(world, leaving.host, "scale-down-2", of_host(archive="scale-down-2"))
    assert scaled_down(world, cancel=True) == Exit.DONE
    assert [done("asked", name).count("scale-down-cancel") for name in (BLUE, GREEN)] == [1, 0]
    assert "mq2/blue serves again" in said(world)
    assert archive.kept_receipt(world, leaving.host, "blue") is None
    assert archive.kept_receipt(world, leaving.host) is None, "as one of its instances serves"


@pytest.mark.slow
def test_one_that_is_out_of_the_inventory_is_named_and_the_others_serve_again(
    world: World, leaving: Leaver, tmp_path: Path
) -> None:
    command = f"{COMMAND} mq1"
    operation.begin(world, leaving.cluster, command)
    text = (tmp_path / "inventory.yml").read_text()
    (tmp_path / "inventory.yml").write_text(text.replace("{name: blue}, ", "{name: red, port_offset: 20}, "))
    says("mq1", **{"scale-down-show": drain(state="moving", node="mq2-green", node_id="id-mq2.green")})
    assert scaled_down(world, "mq2/blue", "mq1", cancel=True) == Exit.DONE
    assert "mq2/blue is out of the inventory, and is not taken back" in said(world)
    assert "scale-down-cancel" in done("asked", "mq1")
    assert is_held(world) == set()


@pytest.mark.slow
def test_of_two_instances_of_a_host_that_which_has_left_stays_away(
    world: World, leaving: Leaver, tmp_path: Path
) -> None:
    """And the other one is taken back, though both are of the same host."""
    text = (tmp_path / "inventory.yml").read_text()
    (tmp_path / "inventory.yml").write_text(text.replace(LISTED, LISTED[:-1] + ", {name: red, port_offset: 20}]"))
    kept = of_blue(archive="scale-down-1")
    archive.put_receipt(world, leaving.host, "scale-down-1", kept)
    says(BLUE, silent=["blue"])
    (tmp_path / BLUE / "unit").write_text("inactive\n")
    (tmp_path / "mq2/mq/blue").rename(tmp_path / "mq2/mq/.archive/scale-down-1/blue")
    says(GREEN, **{"scale-down-show": drain(state="moving", node="mq1", node_id="id-mq1")})
    assert scaled_down(world, "mq2/blue", "mq2/green", cancel=True) == Exit.DEGRADED
    assert "scale-down-cancel" in done("asked", GREEN)
    assert "mq2/blue was drained and stopped before, and is not taken back: mqctl scale-down mq2/blue --resume" in said(
        world
    )
    assert archive.kept_receipt(world, leaving.host, "blue") == kept


# -- receipts ---------------------------------------------------------------------------------------------------------


def test_a_receipt_is_of_the_host_or_of_an_instance_and_never_of_both(world: World, leaving: Leaver) -> None:
    host = leaving.host
    archive.put_receipt(world, host, "scale-down-1", of_blue(archive="scale-down-1"))
    archive.put_receipt(world, host, "scale-down-2", of_host(archive="scale-down-2"))
    assert [(archive.kept_receipt(world, host, one) or {}).get("archive") for one in ("", "blue", "green")] == [
        "scale-down-2", "scale-down-1", None,
    ]  # fmt: skip
    made("blue", node_id="new")
    assert archive.kept_receipt(world, host, "blue") is None, "it was begun anew"
    assert receipt.who(of_blue()) == "mq2/blue"


def test_data_that_is_nowhere_is_not_taken_for_moved(world: World, leaving: Leaver, tmp_path: Path) -> None:
    """As of a host: the role takes the options away last."""
    (tmp_path / "mq2/mq/blue/identity.json").unlink()
    with pytest.raises(CommandError, match="the lock can't be opened"):
        leaving_host.stop(world, leaving, of_blue())
    (tmp_path / "mq2/etc/blue").rmdir()
    with pytest.raises(CommandError, match="the lock can't be opened"):
        leaving_host.stop(world, leaving, of_blue())
    (tmp_path / "mq2/mq/blue").rmdir()
    assert leaving_host.stop(world, leaving, of_blue()) == ([], [])


def test_what_others_than_its_host_has_there_is_left_alone(world: World, leaving: Leaver) -> None:
    """The role is told of one instance, so a directory that the inventory does not name keeps nobody."""
    made("old", node_id="another")
    archive.require_own(world, leaving.host, leaving.instance)
    with pytest.raises(CommandError, match="/var/lib/mq has old, of which the inventory names no instance"):
        archive.require_own(world, leaving.host)


# -- the collection ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_begins_with_a_collection_that_would_take_all_of_the_host_away(
    world: World, leaving: Leaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = tmp_path / "old/ansible_collections/mqops/cluster/roles/uninstall/meta/argument_specs.yml"
    specs.parent.mkdir(parents=True)
    specs.write_text("argument_specs: {}\n")
    (tmp_path / "old/ansible_collections/mqops/cluster/playbooks").mkdir()
    elsewhere = {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "old")}
    assert not role_takes(elsewhere, tmp_path, "uninstall", "uninstall_instances")
    here = {"ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev")}
    assert role_takes(here, tmp_path, "uninstall", "uninstall_instances")
    monkeypatch.setattr(leaving_host, "role_takes", lambda *_: False)
    with pytest.raises(CommandError, match="takes whole hosts away, and not mq2/blue alone"):
        scaled_down(world)
    assert is_held(world) == set()
