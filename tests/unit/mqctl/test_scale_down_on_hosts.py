"""What lies on the host of a node that leaves, and what its brokers and the others say.

Hosts are folders here, in which `systemctl` and `mqbroker` are scripts that say what they were told to.
"""

from __future__ import annotations

import errno
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqctl import operation
from mqctl.commands.rollout import scale_down
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.nodes import BROKER, Node
from mqctl.operation import HeldCluster
from mqctl.output import data_console
from mqctl.scaledown import archive, drain_start, forgetting, inventory_files, leaving_host, receipt
from mqctl.scaledown.cancellation import TakeBack, take_back
from mqctl.scaledown.cluster_look import NodeLook, look_at
from mqctl.scaledown.leaving_host import Leaver
from mqctl.scaledown.plan import DrainPlan, extent_of, seconds_of
from mqctl.ssh.local import LocalShell, LocalStream
from mqctl.ssh.shell import CommandResult
from mqctl.world import World
from rich.console import Console

from tests.support import ansible_forks
from tests.support.local_hosts import LocalHosts

VARIABLES = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
NAME = "scale-down-20261127T101500Z"
ROW: dict[str, Any] = {
    "host": "mq3", "instance": "default", "queue": "orders", "address": "orders", "before": 10, "came": 0,
    "consumed": 0, "moved": 10, "arrived": 10, "left": 0, "to": "mq1", "moved_digest": "x", "arrived_digest": "x",
    "balances": True,
}  # fmt: skip
UNBOUNDED = {
    "address-full-policy": "BLOCK", "page-full-policy": "", "max-size-messages": -1, "max-size-bytes": -1,
    "page-limit-messages": -1, "page-limit-bytes": -1,
}  # fmt: skip
STAYS = [{"instance": "default", "queue": "latest", "why": "is a last-value queue: it holds 5 messages"}]
INVENTORY = """\
all:
  vars: {mq_cluster_name: main, mq_cluster_secret: 0123456789abcdef0123456789abcdef}
  hosts:
    mq1: {ansible_host: 192.0.2.1}
    mq3: {ansible_host: 192.0.2.3}
"""
SYSTEMCTL = """#!/bin/sh
place=$(dirname "$0")/..
echo "$@" >>"$place/systemctl"
case $1 in
show) echo LoadState=loaded; echo "ActiveState=$(cat "$place/unit")";;
stop) echo inactive >"$place/unit";;
start) echo active >"$place/unit";;
esac
"""
MQBROKER = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
place = Path(__file__).resolve().parents[1]
def keep(said):  # whole, as another instance may read it just then
    new = place / f"said.{{os.getpid()}}"
    new.write_text(json.dumps(said))
    new.replace(place / "said.json")
said = json.loads((place / "said.json").read_text())
instance = sys.argv[sys.argv.index("--instance") + 1]
if sys.argv[1] == "journal":
    if not (place / "mq" / instance / "identity.json").exists():
        sys.exit("mqbroker journal: the lock can't be opened: No such file or directory")
    print(json.dumps({{"queues": said["journal"]}}))
elif instance in said.get("silent", ()):
    sys.exit("mqbroker admin: nobody listens")
else:
    for line in sys.stdin:
        row = json.loads(line)
        with (place / "asked").open("a") as log:
            log.write(row["op"] + "\\n")
        (place / "arguments").write_text(json.dumps(row["args"]))
        begins = row["op"] in ("scale-down", "cordon") and not row["args"].get("dry_run")
        if begins and instance in said.get("refuses", ()):
            refusal = said.get("refusal", {{"description": "no room"}})
            print(json.dumps({{"id": row["id"], "error": refusal}}), flush=True)
            continue
        print(json.dumps({{"id": row["id"], "result": said[row["op"]]}}), flush=True)
        if row["op"] == "scale-down" and "then" in said and not row["args"].get("dry_run"):
            said["scale-down-show"] = said["then"]
            keep(said)
        if row["op"] in ("scale-down-cancel", "cordon", "uncordon"):
            said["scale-down-show"] = said[row["op"]]
            keep(said)
"""


class HostShell(LocalShell):
    """Commands find a folder in the place of the host's own; mqctl is interrupted when it has sent `interrupts`."""

    root = Path()
    interrupts = b""

    def _there(self, command: str) -> str:
        place = self.root / self.name
        own = command.replace(BROKER, f"{place}/bin/mqbroker").replace("/var/lib/mq", f"{place}/mq")
        own = own.replace("/etc/mq", f"{place}/etc")
        return f"PATH={place}/bin:$PATH; {own}"

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        if self.interrupts and self.interrupts in command.encode():
            raise KeyboardInterrupt
        place = f"{self.root / self.name}"
        for own, instead in (("/var/lib/", "/"), ("/run/", "/"), ("/proc", "/proc")):
            stdin = stdin.replace(f'"{own}'.encode(), f'"{place}{instead}'.encode())
        return super().run_plain(self._there(command), stdin, timeout_s)

    def open_plain(self, command: str, prefix: bytes) -> LocalStream:
        stream = super().open_plain(self._there(command), prefix)
        send = stream.sendall

        def sendall(data: bytes) -> None:
            send(data)
            if self.interrupts and self.interrupts in data:
                raise KeyboardInterrupt

        stream.sendall = sendall
        return stream


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """In which time goes by when somebody sleeps."""
    monkeypatch.setattr(HostShell, "root", tmp_path)
    monkeypatch.setattr(operation, "QUIET_S", 0.1)
    out = io.StringIO()
    slept_s: list[float] = []
    return World(
        ansible_forks.seen(ansible_forks.BEGAN_WITH), tmp_path, io.BytesIO(), out,
        data_console(out, has_colour=False), Console(file=io.StringIO(), width=500),
        monotonic_s=lambda: sum(slept_s), sleep_s=lambda each: slept_s.append(each * 60),
        connector=LocalHosts(HostShell),
    )  # fmt: skip


def made_hosts(place: Path, *names: str) -> None:
    """Folders of hosts whose nodes serve, have nothing, and are linked with each other."""
    for name in names:
        (place / name / "mq").mkdir(parents=True)
        (place / name / "bin").mkdir()
        for program, text in (("systemctl", SYSTEMCTL), ("mqbroker", MQBROKER)):
            (place / name / "bin" / program).write_text(text)
            (place / name / "bin" / program).chmod(0o755)
        (place / name / "unit").write_text("active\n")
        links = [
            {"node": other, "node_id": f"id-{other}", "state": "up", "depth": 0, "unanswered": 0, "queues": 0}
            for other in names if other != name
        ]  # fmt: skip
        says(
            name, status={"node_id": f"id-{name}"}, queues={"queues": []}, journal=[],
            topology={"node_id": f"id-{name}", "members": [], "links": links, "inbound": []},
            addresses={"addresses": []}, producers={"producers": []}, discovery={"nodes": []},
            health={"state": "active", "holds_back": False},
            **{"config-show": {"options": []}},
            **dict.fromkeys(("scale-down-show", "scale-down", "scale-down-cancel", "uncordon"), drain()),
            cordon=drain(state="cordoned", left=3),
        )  # fmt: skip


@pytest.fixture
def leaving(world: World, tmp_path: Path) -> Leaver:
    """mq3 leaves, which serves and has nothing; mq1 stays."""
    made_hosts(tmp_path, "mq1", "mq3")
    hosts = (Host("mq1", "main", VARIABLES, {}), Host("mq3", "main", VARIABLES, {}))
    return Leaver(InventoryCluster("main", hosts), hosts[1])


def says(name: str, **answers: Any) -> None:
    """What the programs of a host answer from now on."""
    file = HostShell.root / name / "said.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(known | answers))


def drain(**changes: Any) -> dict[str, Any]:
    return {
        "state": "none", "node_id": None, "node": None, "since": None, "left": 0, "moved": 0, "rate": 0.0,
        "connections": 0, "hindrances": [], "queues": [], "receipt": None, "passed_over": [], **changes,
    }  # fmt: skip


def made(*parts: str, node_id: str = "id-mq3") -> None:
    """A data directory of mq3."""
    place = (HostShell.root / "mq3" / "mq").joinpath(*parts)
    place.mkdir(parents=True)
    (place / "identity.json").write_text(json.dumps({"node_id": node_id}))


def document(**changes: Any) -> dict[str, Any]:
    return {
        "schema": "mqctl.scale-down/1", "cluster": "main", "host": "mq3", "node_ids": ["id-mq3"], "at": "2026-11-27",
        "archive": NAME, "differences": [], "stays": [], "rows": [ROW], **changes,
    }  # fmt: skip


def done(kind: str, name: str = "mq3") -> list[str]:
    """What a host was asked: operations (`asked`), or words of `systemctl`."""
    file = HostShell.root / name / kind
    return file.read_text().splitlines() if file.exists() else []


def said(world: World) -> str:
    assert isinstance(world.err.file, io.StringIO)
    return world.err.file.getvalue()


def drains_until_it_is_taken_back() -> None:
    drains_to_mq1(state="moving")


def drains_to_mq1(**changes: Any) -> None:
    says("mq3", **{"scale-down-show": drain(node="mq1", node_id="id-mq1", **changes)})


def waits_for_an_answer(name: str) -> None:
    link = {"node": "mq3", "node_id": "id-mq3", "state": "up", "depth": 1, "unanswered": 1}
    says(name, topology={"members": [], "links": [link], "inbound": []})


# -- answers ----------------------------------------------------------------------------------------------------------


def test_whoever_waits_for_an_answer_when_all_is_stopped_has_it_run_again(world: World, leaving: Leaver) -> None:
    made("default")
    waits_for_an_answer("mq1")
    late, (waiting,) = leaving_host.stop(world, leaving, document())
    assert late == []
    assert waiting.startswith("mq1 waits for the answer to 1 message that it sent to mq3")
    assert done("systemctl")[-1] == "start mqbroker@default.service"
    assert leaving_host.stop(world, leaving, document(), may_come_twice=True) == ([], [waiting])
    assert done("systemctl")[-1] == "stop mqbroker@default.service"
    assert said(world).endswith("to which its link is up: these may come twice\n")


@pytest.mark.slow
@pytest.mark.parametrize("is_told", [False, True])
def test_force_gives_up_what_somebody_waits_for_only_where_that_was_told(
    world: World, leaving: Leaver, tmp_path: Path, *, is_told: bool
) -> None:
    """It may have been said for something else: so the host drains on, and whoever still waits then is named."""
    made("default")
    waits_for_an_answer("mq1")
    balanced = {"balances": True, "difference": [], "queues": []}
    says("mq3", **{"scale-down-show": drain(state="moved", node="mq1", node_id="id-mq1", receipt=balanced)})
    before = document(unanswered="mq1 waits") if is_told else document()
    options = scale_down.Options(hosts=["mq3"], force=True, json=True, receipts=tmp_path / "receipts")
    ended = scale_down._stopped(world, options, replace(leaving, is_forced=True), before)
    acts = [line.partition(" ")[0] for line in done("systemctl") if not line.startswith("show")]
    assert acts == (["stop"] if is_told else ["stop", "start", "stop"])
    assert "mq1 waits" in ended["unanswered"]
    assert "these may come twice" in said(world)
    text = (tmp_path / "receipts" / f"{NAME}-mq3.txt").read_text()
    void = "IT IS VOID: messages came after it was made, or may have: mq1 waits"
    assert (void in text) is not is_told, "the receipt from before, of which the host has none any more"
    assert ("It balances." in text) is is_told


@pytest.mark.slow
def test_messages_that_came_have_nobody_given_up_who_was_not_told_of(
    world: World, leaving: Leaver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody waits before a stop, and somebody does after the second; who is given up is in the receipts."""
    made("default")
    waits_for_an_answer("mq1")
    drains_to_mq1(state="moved", receipt={"balances": True, "difference": [], "queues": []})
    came = iter([["queue orders: 1 messages, 0 by the receipt"]])
    monkeypatch.setattr(receipt, "unaccounted", lambda *_: next(came, []))
    monkeypatch.setattr(forgetting, "wait_for_answers", lambda *_: None)
    ended = scale_down._stopped(
        world, scale_down.Options(hosts=["mq3"], force=True), replace(leaving, is_forced=True), document()
    )
    acts = [line.partition(" ")[0] for line in done("systemctl") if not line.startswith("show")]
    assert acts == ["stop", "start", "stop", "start", "stop"]
    assert ended["unanswered"].startswith("mq1 waits for the answer to 1 message")
    assert archive.kept_receipt(world, leaving.host) == ended
    assert json.loads((tmp_path / "receipts" / f"{ended['archive']}-mq3.json").read_text()) == ended


def test_only_by_force_a_host_leaves_that_somebody_waits_for(world: World, leaving: Leaver) -> None:
    waits_for_an_answer("mq1")
    with pytest.raises(CommandError, match="these could come twice; mq3 stays as it is"):
        scale_down._wait_for_answers(world, scale_down.Options(hosts=["mq3"]), leaving, ["id-mq3"])
    by_force = scale_down.Options(hosts=["mq3"], force=True)
    assert scale_down._wait_for_answers(world, by_force, leaving, ["id-mq3"]).startswith("mq1 waits for the answer")
    assert "these may come twice" in said(world)


# -- what is deleted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code", "why"),
    [
        ({}, Exit.DONE, ""),
        ({"stays": STAYS}, Exit.DONE, "queue latest stays there: is a last-value queue: it holds 5 messages"),
        ({"rows": [{**ROW, "moved": 9, "arrived": 9, "left": 1}]}, Exit.DONE, "1 message did not move"),
        ({}, Exit.DEGRADED, "not every node that stays is well"),
        ({}, Exit.RUNNING, "not every node that stays is well"),
    ],
)
def test_nothing_is_deleted_that_is_not_known_to_be_elsewhere(
    world: World, leaving: Leaver, changes: dict[str, Any], code: Exit, why: str
) -> None:
    assert scale_down._may_purge(world, leaving, document(**changes), code) is (not why)
    assert said(world) == (f"nothing of mq3 is deleted: {why}\n" if why else "")


def test_who_resumes_and_deletes_is_asked_as_well(world: World, tmp_path: Path) -> None:
    """Before anybody looks at the host."""
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    with pytest.raises(CommandError, match="there is no terminal to ask on"):
        scale_down.run(world, scale_down.Options(hosts=["mq3"], resume=True, purge=True))
    assert done("asked") == done("systemctl") == []


# -- what the inventory does not name ---------------------------------------------------------------------------------


def test_data_of_an_instance_that_the_inventory_does_not_name_keeps_the_host(world: World, leaving: Leaver) -> None:
    """It would not move, and the role would take it away."""
    made("default")
    made("lost+found")
    made(".archive", "earlier", "default")
    assert scale_down._agreed(world, scale_down.Options(hosts=["mq3"], check=True), leaving) is None
    made("old", node_id="another")
    with pytest.raises(CommandError, match="/var/lib/mq has old, of which the inventory names no instance"):
        scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True), leaving)
    with pytest.raises(CommandError, match="/var/lib/mq has old, of which the inventory names no instance"):
        leaving_host.stop(world, leaving, document())
    assert done("asked").count("scale-down") == 1, "which was a dry run"
    assert not any(line.startswith("stop") for line in done("systemctl"))


# -- who was killed ---------------------------------------------------------------------------------------------------


def test_whoever_was_killed_when_the_data_was_away_and_the_unit_was_not_goes_on(world: World, leaving: Leaver) -> None:
    made(".archive", NAME, "default")
    (HostShell.root / "mq3" / "unit").write_text("inactive\n")
    assert leaving_host.stop(world, leaving, document()) == ([], [])
    assert done("systemctl") == []


def test_data_that_is_nowhere_is_not_taken_for_moved(world: World, leaving: Leaver) -> None:
    (HostShell.root / "mq3" / "unit").write_text("inactive\n")
    with pytest.raises(CommandError, match="the lock can't be opened"):
        leaving_host.stop(world, leaving, document())


def test_data_that_somebody_began_anew_is_looked_into(world: World, leaving: Leaver) -> None:
    made(".archive", NAME, "default")
    made("default", node_id="new")
    says("mq3", journal=[{"name": "orders", "messages": 1}])
    assert leaving_host.stop(world, leaving, document()) == (["mq3: queue orders: 1 messages, 0 by the receipt"], [])


def test_who_goes_on_elsewhere_when_all_is_stopped_has_the_receipt_there_too(
    world: World, leaving: Leaver, tmp_path: Path
) -> None:
    made("default")
    archive.put_receipt(world, leaving.host, NAME, document())
    (HostShell.root / "mq3" / "unit").write_text("inactive\n")
    options = scale_down.Options(hosts=["mq3"], resume=True, receipts=tmp_path / "other")
    assert scale_down._resumed(world, options, leaving) == document()
    assert json.loads((tmp_path / "other" / f"{NAME}-mq3.json").read_text()) == document()
    named = replace(options, receipts=Path("kept"))
    assert scale_down._resumed(world, named, leaving) == document()
    assert (world.cwd / "kept" / f"{NAME}-mq3.json").exists()
    assert f"\nwrote kept/{NAME}-mq3.json\n" in said(world), "as the folder was named"
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="the brokers of mq3 are stopped, and go no further"):
        scale_down._resumed(world, replace(options, receipts=tmp_path / "file"), leaving)


# -- receipts that say nothing any more -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_receipt_of_a_scale_down_that_is_taken_back_says_nothing_later(world: World, leaving: Leaver) -> None:
    """Weeks later the brokers are stopped, and somebody resumes what has long been over."""
    made("default")
    for name in ("scale-down-20261101T000000Z", NAME):
        archive.put_receipt(world, leaving.host, name, document(archive=name, stays=STAYS))
    assert archive.kept_receipt(world, leaving.host) is not None
    drains_until_it_is_taken_back()
    assert take_back(world, [leaving], TakeBack(60.0, is_sure=True)) == Exit.DONE
    assert archive.kept_receipt(world, leaving.host) is None
    (HostShell.root / "mq3" / "unit").write_text("inactive\n")
    with pytest.raises(CommandError, match="there is no receipt of a scale-down of them"):
        scale_down._resumed(world, scale_down.Options(hosts=["mq3"], resume=True), leaving)


def test_a_receipt_that_messages_came_after_says_nothing_later(world: World, leaving: Leaver) -> None:
    made("default")
    says("mq3", journal=[{"name": "orders", "messages": 1}])
    assert leaving_host.stop(world, leaving, document()) != ([], [])
    assert archive.kept_receipt(world, leaving.host) is None


def test_receipts_of_hosts_that_have_left_stay(world: World, leaving: Leaver) -> None:
    made(".archive", NAME, "default")
    archive.put_receipt(world, leaving.host, NAME, document())
    archive.void_receipts(world, leaving.host)
    assert archive.kept_receipt(world, leaving.host) is not None
    made("default", node_id="new")
    archive.void_receipts(world, leaving.host)
    assert (HostShell.root / "mq3" / "mq" / ".archive" / NAME / "receipt.json").exists()


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------


def test_ctrl_c_while_it_begins_does_not_say_that_nothing_was_changed(
    world: World, leaving: Leaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("default")
    monkeypatch.setattr(HostShell, "interrupts", b'"force": false')  # the broker has been asked by then
    plan = scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True), leaving)
    operation = HeldCluster({}, [])
    with pytest.raises(KeyboardInterrupt):
        drain_start.begin(world, leaving, plan, operation)
    assert operation.stays
    assert "nothing was changed" not in said(world)
    assert "mq3 may drain already; --show says so, mqctl scale-down mq3 --resume" in said(world)


def test_ctrl_c_while_brokers_are_stopped_says_how_to_go_on(
    world: World, leaving: Leaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("default")
    monkeypatch.setattr(HostShell, "interrupts", b"systemctl stop")
    with pytest.raises(KeyboardInterrupt):
        scale_down._stopped(world, scale_down.Options(hosts=["mq3"]), leaving, document())
    assert "brokers of mq3 may be stopped; mqctl scale-down mq3 --resume goes on" in said(world)


# -- taken back by force ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_forced", "typed", "is_done"), [(False, "y", True), (True, "y", False), (True, "main", True)]
)
def test_who_takes_it_back_by_force_is_told_that_messages_come_twice(
    world: World, leaving: Leaver, monkeypatch: pytest.MonkeyPatch, *, is_forced: bool, typed: str, is_done: bool
) -> None:
    made("default")
    drains_until_it_is_taken_back()
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{typed}\n"))
    asked, how = replace(world, is_interactive=True), TakeBack(60.0, is_forced=is_forced)
    if is_done:
        assert take_back(asked, [leaving], how) == Exit.DONE
    else:
        with pytest.raises(CommandError, match="that is not the name of the cluster"):
            take_back(asked, [leaving], how)
    assert ("scale-down-cancel" in done("asked")) is is_done
    assert ("What mq1 may have without an answer comes twice" in said(world)) is is_forced


# -- the inventory ----------------------------------------------------------------------------------------------------


def test_an_inventory_that_cannot_be_written_is_as_it_was(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host has left by then, so that is told, and no failure."""

    def full(path: Path, *_: Any, **__: Any) -> None:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "inventory.yml"
    file.write_text("before\n")
    file.chmod(0o640)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        assert inventory_files.put(world, file, "after\n") is False
    assert file.read_text() == "before\n"
    assert "No space left on device; it is as it was" in said(world)
    link = tmp_path / "link.yml"
    link.symlink_to(file)
    assert inventory_files.put(world, link, "after\n") is True
    assert (file.read_text(), file.stat().st_mode & 0o777, link.is_symlink()) == ("after\n", 0o640, True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["inventory.yml", "link.yml"]


# -- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ({"state": "moving", "rate": 10.0}, 7),
        ({"state": "moving", "rate": 10.0, "stands_s": 5}, 7),
        ({"state": "moving", "rate": 10.0, "stands_s": 6}, None),
        ({"state": "failed", "rate": 10.0}, None),
        ({"state": "moving", "rate": 0.0}, None),
    ],
)
def test_it_is_shown_how_long_what_is_left_takes(
    world: World, leaving: Leaver, said: dict[str, Any], seconds: int | None
) -> None:
    says("mq3", **{"scale-down-show": drain(node="mq1", left=70, moved=30, **said)})
    options = scale_down.Options(hosts=["mq3"], show=True, json=True)
    assert scale_down._show(world, options, [leaving]) == Exit.DONE
    assert isinstance(world.out, io.StringIO)
    (row,) = json.loads(world.out.getvalue())["rows"]
    assert (row["left"], row["rate"], row["seconds_left"]) == (70, said["rate"], seconds)


def test_the_plan_is_there_for_programs_too(world: World, leaving: Leaver) -> None:
    """With sizes, kinds and a time, which people are told as well; of what stays nobody knows a size."""
    made("default")
    queue = {
        "address": "q", "message_count": 90_000, "consumer_count": 0, "routing_type": "anycast", "durable": True,
        "paused": False,
    }  # fmt: skip
    moves = {
        "queue": "q", "address": "q", "left": 90_000, "bytes": 500, "unanswered": 4, "scheduled": 3, "paged": 0,
        "large": 1,
    }  # fmt: skip
    settings = {"settings": [{"setting": name, "value": value} for name, value in UNBOUNDED.items()]}
    says("mq1", addresses={"addresses": []}, **{"address-settings-show": settings})
    says(
        "mq3",
        queues={"queues": [queue | {"name": "q"}, queue | {"name": "stays", "message_count": 1}]},
        **{"scale-down": drain(queues=[moves])},
    )
    options = scale_down.Options(hosts=["mq3"], check=True, json=True)
    assert scale_down._agreed(world, options, leaving) is None
    assert isinstance(world.out, io.StringIO)
    plan = json.loads(world.out.getvalue())
    assert (plan["schema"], plan["hindrances"]) == ("mqctl.scale-down-plan/1", [])
    assert plan["seconds_estimated"] == {"mq3": 3}
    names = ("queue", "messages", "bytes", "delivering", "scheduled", "paged", "large", "to")
    assert [tuple(row[name] for name in names) for row in plan["rows"]] == [
        ("q", 90_000, 500, 4, 3, 0, 1, "mq1"), ("stays", 1, None, None, None, None, None, "mq1"),
    ]  # fmt: skip
    assert (
        "mq3: 500 bytes move without what large ones have in files, among them 4 delivering, 3 scheduled, 1 large; an "
        "estimate by another machine: 3 s, at 40000 messages or 40 MB a second\n"
    ) in said(world)


def test_who_takes_no_sizes_from_its_release_is_estimated_for_nobody() -> None:
    looks = [NodeLook(Node("mq3", "default"))]
    assert extent_of(DrainPlan(looks, [], moving={"mq3": [{"queue": "q", "left": 5}]}), looks[0]) == ""
    assert extent_of(DrainPlan(looks, [], moving={"mq3": []}), looks[0]) == ""
    assert seconds_of([{"left": 1, "bytes": 80_000_001}]) == 3


@pytest.mark.slow
def test_who_goes_on_may_name_another_node_from_now_on(world: World, leaving: Leaver) -> None:
    made("default")
    drains_until_it_is_taken_back()
    goes_on = scale_down._agreed(world, scale_down.Options(hosts=["mq3"], resume=True, to="mq1"), leaving)
    assert goes_on is not None
    assert goes_on.targets == {}
    says("mq3", **{"scale-down-show": drain(state="moving", node="mq2", node_id="id-mq2")})
    options = scale_down.Options(hosts=["mq3"], resume=True, to="mq1")
    plan = scale_down._agreed(world, replace(options, check=True, resume=True), leaving)
    assert plan is None
    plan = scale_down._agreed(world, replace(options, yes=True), leaving)
    assert plan is not None
    assert (plan.is_turned, [one.name for one in plan.targets.values()]) == (True, ["mq1"])
    assert done("asked").count("scale-down") == 2, "dry runs"
    drain_start.begin(world, leaving, plan, HeldCluster({}, []))
    assert done("asked").count("scale-down") == 3


@pytest.mark.slow
def test_what_cannot_move_may_stay_by_force_that_is_said_later(world: World, leaving: Leaver) -> None:
    """The broker is told so, of the node to which it drains, whether that is there or not."""
    made("default")
    says("mq3", **{"scale-down-show": drain(state="failed", node="mq2", node_id="id-mq2")})
    options = scale_down.Options(hosts=["mq3"], resume=True)
    drain_start.begin(world, leaving, scale_down._agreed(world, options, leaving), HeldCluster({}, []))
    by_force = replace(leaving, is_forced=True)
    assert scale_down._agreed(world, replace(options, force=True, check=True), by_force) is None
    plan = scale_down._agreed(world, replace(options, force=True), by_force)
    assert done("asked").count("scale-down") == 0
    drain_start.begin(world, by_force, plan, HeldCluster({}, []))
    assert done("asked").count("scale-down") == 1
    assert done("arguments")[-1:] == ['{"node": "id-mq2", "force": true}']


EARLIER = "an earlier release takes force only where a drain begins: it goes on"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "is_earlier", "so"),
    [
        ("amqp:not-found", True, EARLIER),
        ("amqp:precondition-failed", True, EARLIER),
        ("amqp:precondition-failed", False, "it did not take that"),
        ("amqp:resource-limit-exceeded", True, "it did not take that"),  # one that knows force, and cannot now
    ],
)
def test_a_broker_that_takes_no_force_later_is_followed(
    world: World, leaving: Leaver, condition: str, so: str, *, is_earlier: bool
) -> None:
    """One of an earlier release, whose heir is away; what is empty, says no heir, or is taken back, is not asked."""
    made("default")
    says("mq3", refuses=["default"], refusal={"condition": condition, "description": "no link to mq2"})
    by_force = replace(leaving, is_forced=True)

    def shows(**drains: Any) -> None:
        shown = drain(**drains)
        says("mq3", **{"scale-down-show": {name: shown[name] for name in shown if name not in unknown}})

    def asks(then: str = "", **drains: Any) -> int:
        shows(**drains)
        before, operation = done("asked").count("scale-down"), HeldCluster({}, [])
        plan = drain_start.as_it_goes(world, by_force, look_at(world, leaving.nodes))
        shows(**drains | ({"state": then} if then else {}))
        drain_start.begin(world, by_force, plan, operation)
        assert not operation.stays
        return done("asked").count("scale-down") - before

    unknown = ["passed_over"] if is_earlier else []
    assert asks(state="failed", node_id="id-mq2") == 1
    assert f"no link to mq2 ({condition}); {so}\n" in said(world)
    assert asks(state="moved", node_id="id-mq2") == 0
    assert asks(state="failed") == 0
    assert asks("ends", state="failed", node_id="id-mq2") == 0


def test_what_hinders_there_keeps_a_scale_down_from_going_on_to_another_node(world: World, leaving: Leaver) -> None:
    made("default")
    says("mq3", status={"node_id": "id-mq3", "held_bytes": 1 << 60})
    says("mq3", **{"scale-down-show": drain(state="moving", node="mq2", node_id="id-mq2")})
    options = scale_down.Options(hosts=["mq3"], resume=True, to="mq1", yes=True)
    with pytest.raises(CommandError, match=r"bytes free on its disk.*; it goes on to mq2, and nothing was changed"):
        scale_down._agreed(world, options, leaving)
    by_force = replace(leaving, is_forced=True)
    assert scale_down._agreed(world, replace(options, force=True), by_force) is not None
    group = {"kind": "node", "name": "id-mq1", "why": "is of another group"}
    before = {"kind": "queue", "name": "orders", "why": "was so when it began"}
    says("mq3", status={"node_id": "id-mq3"}, **{"scale-down": drain(hindrances=[before, group])})
    with pytest.raises(CommandError, match=r"1 thing .*: mq3: node id-mq1: is of another group; it goes on"):
        scale_down._agreed(world, options, leaving)


def test_who_goes_on_is_told_to_say_by_force_again(leaving: Leaver) -> None:
    different = document(stays=STAYS, differences=["queue latest stays here: is a last-value queue"])
    assert replace(leaving, is_forced=True).again == "mqctl scale-down mq3 --resume --force"
    with pytest.raises(CommandError) as raised:
        leaving_host.require_balance(leaving, different)
    assert raised.value.attempt == "mqctl scale-down mq3 --resume --force, or --cancel"


def test_ways_out_are_such_as_go_while_the_cluster_is_held(world: World, leaving: Leaver) -> None:
    member = {"node": "mq3", "node_id": "id-mq3"}
    says("mq1", topology={"members": [member], "links": [], "inbound": []})
    (HostShell.root / "mq3" / "unit").write_text("inactive\n")
    with pytest.raises(CommandError) as left:
        forgetting.require_forgotten(world, leaving.others, ["id-mq3"])
    assert "cluster forget --force" in left.value.attempt
    with pytest.raises(CommandError) as lost:
        scale_down._resumed(world, scale_down.Options(hosts=["mq3"], resume=True), leaving)
    assert lost.value.attempt.startswith("mqctl operation release, where this holds the cluster; then mqctl rollout")


def test_who_is_silent_is_named_with_what_it_has_to_forget(world: World, leaving: Leaver) -> None:
    silent = NodeLook(leaving.others[0], fault="mq1: it is away")
    assert scale_down._that_answer(world, [silent], ["id-mq3"]) == []
    assert said(world).strip().endswith("mqctl cluster forget id-mq3")
