"""The operation of a run: who gets the hosts, who is refused, who goes on. Each host is a folder of this machine."""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from mqctl import operation
from mqctl.commands.rollout import operation_release, operation_show
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.nodes import guarded
from mqctl.operation import OperationScope
from mqctl.output import data_console
from mqctl.remote import idle
from mqctl.remote import operation as noting
from mqctl.ssh import shell as remote
from mqctl.ssh.local import LocalShell
from mqctl.ssh.shell import CommandResult
from mqctl.world import World
from rich.console import Console

from tests.support import ansible_forks
from tests.support.local_hosts import LocalHosts
from tests.support.patience import PATIENCE_S

NAMES = ("mq1", "mq2", "mq3")
WHAT = "mqctl rollout"
VARIABLES = {"ansible_connection": "local", "ansible_become": False, "ansible_python_interpreter": sys.executable}
INVENTORY = """\
all:
  vars: {mq_cluster_name: main, mq_cluster_secret: 0123456789abcdef0123456789abcdef, ansible_connection: local}
  hosts:
    mq1: {ansible_host: 192.0.2.1}
    mq2: {ansible_host: 192.0.2.2}
    mq3: {ansible_host: 192.0.2.3}
"""
TASKS = (
    b"sudo\0/bin/sh\0-c\0echo BECOME-SUCCESS-x ; python3\0",
    b"python3\0/root/AnsiballZ_ping.py\0",
    b"/usr/bin/python3.11\0",
    b"python3\0",
)


class HostShell(LocalShell):
    """Programs that are sent to it find a folder in the place of the host's own."""

    folder = Path()

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        place = self.folder / self.name
        if not place.exists():
            raise CommandError(f"{self.name} is not reached")
        for own in ("/run/", "/proc", "/var/lib/", "/opt/", "/etc/mq"):
            stdin = stdin.replace(f'"{own}'.encode(), f'"{place}{own}'.encode())
        return super().run_plain(command.replace("/var/lib/", f"{place}/var/lib/"), stdin, timeout_s)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(HostShell, "folder", tmp_path)
    monkeypatch.setattr(operation, "IDLE_S", 1)
    monkeypatch.setattr(operation, "QUIET_S", 0.3)
    monkeypatch.setattr(operation, "WAITS_MAX", 1)
    out = io.StringIO()
    return World(
        ansible_forks.seen(ansible_forks.BEGAN_WITH), tmp_path, io.BytesIO(), out,
        data_console(out, has_colour=False), Console(file=io.StringIO(), width=500),
        connector=LocalHosts(HostShell),
    )  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> InventoryCluster:
    for name in NAMES:
        made(tmp_path, name)
    return InventoryCluster("main", tuple(Host(name, "main", VARIABLES, {}) for name in NAMES))


def made(tmp_path: Path, name: str, *commands: bytes) -> None:
    """A host where these commands run."""
    for folder in ("run", "var/lib"):
        (tmp_path / name / folder).mkdir(parents=True)
    for number, line in enumerate((b"systemd\0", *commands), 1):
        process = tmp_path / name / "proc" / str(number)
        (process / "fd").mkdir(parents=True)
        (process / "cmdline").write_bytes(line)
        os.mkfifo(process / "fd" / "0")


def noted(world: World) -> dict[str, tuple[int, bool]]:
    """Host -> number and whether it is held."""
    found = {name: noting.look(f"{world.cwd}/{name}{noting.PLACE}") for name in NAMES}
    return {name: (note["number"], note["is_held"]) for name, note in found.items() if note}


def all_with(number: int, *, is_held: bool) -> dict[str, tuple[int, bool]]:
    return dict.fromkeys(NAMES, (number, is_held))


def told(world: World) -> str:
    assert isinstance(world.err.file, io.StringIO)
    return world.err.file.getvalue()


def step(world: World, cluster: InventoryCluster, name: str = "mq1") -> CommandResult:
    """Something that is done on a host under the operation."""
    access = cluster.host(name).access
    return remote.run(HostShell(name, access.become), guarded(world, access, ["echo", "done"]))


@pytest.mark.slow
def test_one_holds_all_hosts_and_each_one_after_it_has_the_next_number(world: World, cluster: InventoryCluster) -> None:
    for number in (1, 2):
        with operation.holding(world, cluster, WHAT) as own:
            assert own.note["number"] == number
            assert noted(world) == all_with(number, is_held=True)
            assert step(world, cluster).out == b"done\n"
        assert noted(world) == all_with(number, is_held=False)
    assert world.operation is None
    assert told(world) == ""


@pytest.mark.slow
def test_a_second_one_is_told_of_the_first_and_takes_nothing(world: World, cluster: InventoryCluster) -> None:
    operation.begin(world, cluster, "mqctl scale-down mq3")
    for is_resumed in (False, True):  # one goes on with a command of one's own only
        with pytest.raises(CommandError) as raised, operation.holding(world, cluster, WHAT, is_resumed=is_resumed):
            pass
        assert "operation 1 (mqctl scale-down mq3, " in raised.value.what
        assert "mqctl scale-down mq3 --resume" in raised.value.what
        assert raised.value.attempt == "mqctl operation show"
    with pytest.raises(CommandError, match="nothing was changed on any host"):
        operation.require_free(world, cluster)
    assert noted(world) == all_with(1, is_held=True)


@pytest.mark.slow
def test_who_goes_on_has_a_number_of_his_own_and_the_one_before_does_nothing_more(
    world: World, cluster: InventoryCluster
) -> None:
    world.operation = before = operation.begin(world, cluster, WHAT)
    assert step(world, cluster).code == 0
    after = operation.begin(world, cluster, WHAT, is_resumed=True)
    assert after.note["number"] == 2
    done = step(world, cluster)
    assert (done.code != 0, done.out) == (True, b"")
    assert done.complaint == "operation 2 has begun since, so nothing more is done for 1; see: mqctl operation show"
    operation.end(world, before)
    assert noted(world) == all_with(2, is_held=True)
    world.operation = after
    assert step(world, cluster).code == 0


@pytest.mark.slow
def test_what_is_given_up_does_nothing_more(world: World, cluster: InventoryCluster, tmp_path: Path) -> None:
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    world.operation = operation.begin(world, cluster, WHAT)
    assert operation_release.run(world, operation_release.Options(yes=True)) == Exit.DONE
    assert "mq1: operation 1 (mqctl rollout, " in told(world)
    assert "3 hosts of cluster main free, from number 2 on" in told(world)
    assert noted(world) == all_with(2, is_held=False)
    assert step(world, cluster).code != 0
    with operation.holding(world, cluster, WHAT) as own:
        assert own.note["number"] == 3


def test_where_one_host_cannot_be_had_the_others_are_given_back(
    world: World, cluster: InventoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else began between the look and the first step."""
    look = operation.look

    def late(*words: Any) -> Any:
        found = look(*words)
        put(world, "mq2", 1, "bob")
        return found

    monkeypatch.setattr(operation, "look", late)
    with pytest.raises(CommandError, match=r"mq2: operation 1 \(mqctl rollout, bob from laptop"):
        operation.begin(world, cluster, WHAT)
    assert noted(world) == {"mq1": (1, False), "mq2": (1, True), "mq3": (1, False)}


def put(world: World, name: str, number: int, user: str) -> None:
    note = {"number": number, "is_held": True, "token": user, "user": user, "machine": "laptop", "what": WHAT,
            "since": "2026-01-05 10:12:00 UTC"}  # fmt: skip
    place = world.cwd / name
    assert noting.take(note, place=f"{place}{noting.PLACE}", lock=f"{place}{noting.LOCK}") is None


@pytest.mark.slow
def test_who_cannot_go_on_leaves_held_what_was_held(world: World, cluster: InventoryCluster, tmp_path: Path) -> None:
    """Brokers may drain: of two that go on at once neither has all hosts, and no other command gets in between."""
    operation.begin(world, cluster, WHAT)
    (tmp_path / "mq2/var/lib/mq-operation.json.new").mkdir()  # so it can note nothing
    with pytest.raises(CommandError, match=r"mq2: .*nothing was changed on any host"):
        operation.begin(world, cluster, WHAT, is_resumed=True)
    assert noted(world) == {"mq1": (2, True), "mq2": (1, True), "mq3": (2, True)}
    (tmp_path / "mq2/var/lib/mq-operation.json.new").rmdir()
    with operation.holding(world, cluster, WHAT, is_resumed=True):
        assert noted(world) == all_with(3, is_held=True)


@pytest.mark.parametrize("fault", [CommandError("cut off"), KeyboardInterrupt()])
def test_what_was_taken_and_did_not_answer_is_given_back(
    world: World, cluster: InventoryCluster, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    take = operation._take

    def cut_off(world: World, host: Host, *words: Any) -> Any:
        answer = take(world, host, *words)
        if host.name == "mq2" and isinstance(fault, CommandError):
            raise fault
        return answer

    def each(*words: Any) -> Any:
        yield from on_each(*words)
        if words[0] and isinstance(fault, KeyboardInterrupt):
            monkeypatch.setattr(operation, "on_each", on_each)
            raise fault

    on_each = operation.on_each
    found = operation.look(world, cluster.hosts)
    monkeypatch.setattr(operation, "_take", cut_off)
    monkeypatch.setattr(operation, "look", lambda *_: found)
    monkeypatch.setattr(operation, "on_each", each)
    with pytest.raises(type(fault)):
        operation.begin(world, cluster, WHAT)
    assert noted(world) == all_with(1, is_held=False)


@pytest.mark.slow
def test_a_sick_host_holds_up_only_what_changes_it(world: World, cluster: InventoryCluster, tmp_path: Path) -> None:
    (tmp_path / "mq2/var/lib/mq-operation.json.new").mkdir()
    for changed in (None, {"mq1", "mq2"}):
        with pytest.raises(CommandError, match="mq2: "):
            operation.begin(world, cluster, WHAT, scope=OperationScope(changed))
    with operation.holding(world, cluster, WHAT, scope=OperationScope({"mq1"})) as own:
        assert [one.name for one in own.hosts] == ["mq1", "mq3"]
    assert "mq2: " in told(world)
    assert "nobody is kept from changing that host meanwhile" in told(world)


def test_a_sick_host_that_somebody_holds_is_his(
    world: World, cluster: InventoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(world: World, host: Host, *words: Any) -> Any:
        if host.name == "mq2":
            put(world, "mq2", 1, "bob")
            raise CommandError("mq2: cut off")
        return take(world, host, *words)

    take = operation._take
    monkeypatch.setattr(operation, "_take", cut_off)
    with pytest.raises(CommandError, match="mq2: cut off"):
        operation.begin(world, cluster, WHAT, scope=OperationScope({"mq1"}))
    assert noted(world) == {"mq1": (1, False), "mq2": (1, True), "mq3": (1, False)}


def test_a_host_that_a_playbook_came_to_later_is_given_back(
    world: World, cluster: InventoryCluster, tmp_path: Path
) -> None:
    (tmp_path / "mq3").rename(tmp_path / "cut")
    with operation.holding(world, cluster, WHAT) as own:
        (tmp_path / "cut").rename(tmp_path / "mq3")
        assert operation._take(world, cluster.host("mq3"), own.note, "") is None
        assert noted(world) == all_with(1, is_held=True)
    assert noted(world) == all_with(1, is_held=False)


@pytest.mark.slow
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_plan_holds_only_until_another_operation_has_been(
    world: World, cluster: InventoryCluster, *, is_resumed: bool
) -> None:
    seen = operation.numbers(world, cluster)
    assert seen == dict.fromkeys(NAMES, 0)
    with operation.holding(world, cluster, "mqctl uninstall", scope=OperationScope(seen=seen)):
        pass
    if is_resumed:
        seen = operation.numbers(world, cluster)
        operation.begin(world, cluster, WHAT)
    with pytest.raises(CommandError, match="has been there since the plan was made") as raised:
        operation.begin(world, cluster, WHAT, is_resumed=is_resumed, scope=OperationScope(seen=seen))
    assert "makes a new plan" in raised.value.attempt
    assert noted(world) == all_with(1 + is_resumed, is_held=is_resumed)
    del seen["mq1"], seen["mq2"], seen["mq3"]  # none of them was reached when the plan was made
    operation.begin(world, cluster, WHAT, is_resumed=is_resumed, scope=OperationScope(seen=seen))


@pytest.mark.parametrize(
    ("what", "number", "is_held", "is_followed"),
    [
        ("mqctl rollback", 9, True, True),
        ("mqctl rollback", 9, False, True),  # it has come and ended
        ("mqctl rollback", 8, False, True),
        (noting.GIVEN_UP[0], 8, False, False),
        (noting.GIVEN_UP[1], 8, False, False),
        (noting.GIVEN_UP[0], 9, False, True),  # somebody came, and was given up
        (WHAT, 7, False, False),  # given back by itself
        (WHAT, 6, False, False),
        (WHAT, 7, True, True),  # two that began at once
    ],
)
def test_a_run_is_followed_by_whoever_has_come_since_over_or_not(
    tmp_path: Path, what: str, number: int, *, is_held: bool, is_followed: bool
) -> None:
    own = {"number": 7, "is_held": True, "token": "ann", "user": "ann", "machine": "laptop", "what": WHAT,
           "since": "2026-01-05 10:12:00 UTC"}  # fmt: skip
    place = tmp_path / "note.json"
    assert not noting.is_followed(own, str(place))
    place.write_text(json.dumps(own))
    assert not noting.is_followed(own, str(place))
    place.write_text(json.dumps({**own, "token": "bob", "what": what, "number": number, "is_held": is_held}))
    assert noting.is_followed(own, str(place)) is is_followed


def test_what_has_begun_since_it_was_shown_is_not_given_up(world: World, cluster: InventoryCluster) -> None:
    put(world, "mq1", 1, "ann")
    shown, _ = operation.look(world, cluster.hosts)
    put(world, "mq2", 2, "bob")
    _, faults = operation.give_up(world, cluster.hosts, shown)
    assert noted(world) == {"mq1": (3, False), "mq2": (2, True), "mq3": (3, False)}
    assert faults.keys() == {"mq2"}
    assert "bob from laptop" in faults["mq2"]


@pytest.mark.slow
def test_a_host_that_was_away_has_the_number_of_the_next_one(
    world: World, cluster: InventoryCluster, tmp_path: Path
) -> None:
    put(world, "mq1", 8, "ann")
    operation.give_up(world, cluster.hosts, operation.look(world, cluster.hosts)[0])
    (tmp_path / "mq3").rename(tmp_path / "cut")
    with operation.holding(world, cluster, WHAT) as own:
        assert [one.name for one in own.hosts] == ["mq1", "mq2"]
    assert "mq3 is not reached; nobody is kept from changing that host meanwhile" in told(world)
    (tmp_path / "cut").rename(tmp_path / "mq3")
    assert noted(world) == {"mq1": (10, False), "mq2": (10, False), "mq3": (9, False)}
    with operation.holding(world, cluster, WHAT):
        assert noted(world) == all_with(11, is_held=True)


@pytest.mark.slow
@pytest.mark.parametrize("end", [KeyboardInterrupt(), CommandError("no")])
def test_what_fails_gives_the_hosts_back_unless_it_goes_on_by_itself(
    world: World, cluster: InventoryCluster, end: BaseException
) -> None:
    def fail(*, stays: bool) -> None:
        with operation.holding(world, cluster, WHAT) as own:
            own.stays = stays
            raise end

    for number, stays in ((1, False), (2, True)):
        with pytest.raises(type(end)):
            fail(stays=stays)
        assert noted(world) == all_with(number, is_held=stays)


@pytest.mark.slow
def test_a_host_where_a_task_is_under_way_stays_held(world: World, cluster: InventoryCluster, tmp_path: Path) -> None:
    made(tmp_path / "more", "mq2", TASKS[0])
    (tmp_path / "more/mq2/proc").rename(tmp_path / "mq2/proc/more")
    (tmp_path / "mq2/proc/more/2").rename(tmp_path / "mq2/proc/2")
    with operation.holding(world, cluster, WHAT) as own:
        own.busy |= {"mq1", "mq2"}
        (tmp_path / "mq3").rename(tmp_path / "cut")
    (tmp_path / "cut").rename(tmp_path / "mq3")
    assert noted(world) == {"mq1": (1, False), "mq2": (1, True), "mq3": (1, True)}
    busy, away = sorted(told(world).splitlines())
    remedy = "mqctl rollout --resume goes on, mqctl operation release gives it up"
    assert busy == f"mq2: a task is still under way there, so it stays held; {remedy}"
    assert away == f"mq3: it stays held, as it could not be given back: mq3 is not reached; {remedy}"


def test_one_that_somebody_paused_is_shown_as_that(world: World, cluster: InventoryCluster, tmp_path: Path) -> None:
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    put(world, "mq1", 8, "ann")
    operation.wish(world, cluster.hosts, operation.look(world, cluster.hosts)[0], noting.PAUSE)
    assert operation_show.run(world, operation_show.Options(json=True)) == Exit.DONE
    assert isinstance(world.out, io.StringIO)
    assert [row["state"] for row in json.loads(world.out.getvalue())["rows"]] == ["paused", "free", "free"]


def test_it_is_shown_to_whoever_asks(world: World, cluster: InventoryCluster, tmp_path: Path) -> None:
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    put(world, "mq1", 8, "ann")
    (tmp_path / "mq3").rename(tmp_path / "cut")
    assert operation_show.run(world, operation_show.Options(json=True)) == Exit.DEGRADED
    assert isinstance(world.out, io.StringIO)
    rows = json.loads(world.out.getvalue())["rows"]
    assert rows[0] == {
        "host": "mq1", "number": 8, "state": "held", "command": WHAT, "user": "ann", "machine": "laptop",
        "since": "2026-01-05 10:12:00 UTC",
    }  # fmt: skip
    assert (rows[1]["host"], rows[1]["number"], rows[1]["state"]) == ("mq2", 0, "free")
    assert "mq3 is not reached" in told(world)


# -- what is under way on a host --------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", TASKS)
def test_what_ansible_does_on_a_host_is_seen(tmp_path: Path, line: bytes) -> None:
    made(tmp_path, "mq1", b"python3\0-\0{}\0", b"")
    assert not idle.has_task(str(tmp_path / "mq1/proc"))
    made(tmp_path, "mq2", line)
    assert idle.has_task(str(tmp_path / "mq2/proc"))
    assert not idle.is_idle(0.01, str(tmp_path / "mq2/proc"))


@pytest.mark.parametrize("program", ["ssh", "/usr/bin/ssh", "sshpass", "scp", "/usr/bin/sftp"])
def test_what_is_done_on_another_host_is_none_of_this_one(tmp_path: Path, program: str) -> None:
    """On a control node that is a host itself: the clients by which Ansible reaches others, and this host, too."""
    task = b"mq2\0/bin/sh -c 'sudo -n /bin/sh -c '\"'\"'echo BECOME-SUCCESS-x ; python3 /r/AnsiballZ_ping.py'\"'\"''\0"
    made(tmp_path, "mq1", program.encode() + b"\0-C\0" + task)
    assert not idle.has_task(str(tmp_path / "mq1/proc"))
    made(tmp_path, "mq2", b"/usr/bin/sshd-session\0-C\0" + task)
    assert idle.has_task(str(tmp_path / "mq2/proc"))


def test_who_asks_may_be_a_task_himself(tmp_path: Path) -> None:
    made(tmp_path, "mq1", TASKS[0], b"python3\0/root/AnsiballZ_host_idle.py\0")
    proc = tmp_path / "mq1/proc"
    for number, name, parent in ((1, "systemd", 0), (2, "a (strange) name", 1), (3, "python3", 2)):
        (proc / str(number) / "stat").write_text(f"{number} ({name}) S {parent} 0 0")
    (proc / str(os.getpid())).symlink_to("3")
    (proc / "3/stat").write_text("3 (python3) S 2 0 0")
    own = idle.own_line(str(proc))
    assert {1, 2, os.getpid()} == own
    assert idle.has_task(str(proc), own - {2})
    assert not idle.has_task(str(proc), own | {3})


@pytest.mark.parametrize("program", ["python3", sys.executable])
def test_python_that_somebody_types_into_is_no_task(tmp_path: Path, program: str) -> None:
    controller, terminal = os.openpty()
    found = {}
    for name, stdin in (("terminal", terminal), ("pipe", subprocess.PIPE)):
        with subprocess.Popen([program], stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            (tmp_path / name).mkdir()
            (tmp_path / name / str(child.pid)).symlink_to(f"/proc/{child.pid}")
            # Before it runs the system may not show its arguments, and where a script finds the program those of that.
            while b"python" not in Path(f"/proc/{child.pid}/cmdline").read_bytes().split(b"\0")[0].rpartition(b"/")[2]:
                pass
            found[name] = idle.has_task(str(tmp_path / name))
            child.kill()
    os.close(controller)
    os.close(terminal)
    assert found == {"terminal": False, "pipe": True}


@pytest.mark.slow
def test_a_task_that_ends_is_waited_for(tmp_path: Path) -> None:
    task = [sys.executable, "-c", "print(flush=True); input()  # BECOME-SUCCESS-x"]
    with subprocess.Popen(task, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        child.stdout.readline()  # before it runs, the system may not show its arguments
        (tmp_path / str(child.pid)).symlink_to(f"/proc/{child.pid}")
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(idle.is_idle, PATIENCE_S, str(tmp_path))
            try:
                assert idle.has_task(str(tmp_path))
                with pytest.raises(TimeoutError):
                    waiting.result(3 * idle.LOOK_S)
            finally:
                child.communicate()
            assert waiting.result(PATIENCE_S)


def test_between_two_tasks_nobody_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on has a task every half second, each for a tenth."""
    clock = itertools.count()
    monkeypatch.setattr(idle, "LOOK_S", 0)
    monkeypatch.setattr(idle.time, "monotonic", lambda: next(clock) / 10)
    monkeypatch.setattr(idle, "task", lambda *_: "process 7, python3" if next(clock) % 5 == 0 else "")
    assert idle.is_idle(30)
    assert not idle.is_idle(30, quiet_s=5)
    monkeypatch.setattr(idle, "task", lambda *_: "")
    assert idle.is_idle(30, quiet_s=5)


def test_who_asks_for_now_waits_for_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(idle, "LOOK_S", 0)
    monkeypatch.setattr(idle.time, "monotonic", lambda: next(clock) / 10)
    monkeypatch.setattr(idle, "task", lambda *_: "")
    assert idle.is_idle(0, quiet_s=5)
    for first_s, last_s in ((1, 2), (4, 30)):
        began = next(clock) / 10
        monkeypatch.setattr(
            idle,
            "task",
            lambda *_, first=began + first_s, last=began + last_s: "7" if first <= next(clock) / 10 < last else "",
        )
        assert not idle.is_idle(0, quiet_s=5)


class BatchShell(HostShell):
    """A run of which one host has a task and the other one waits for it, by turns, as they are asked."""

    asked: ClassVar[Counter[str]] = Counter()

    def run_plain(self, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        if b"is_idle" in stdin:
            self.asked[self.name] += 1
            has_turn = (self.asked[self.name] + NAMES.index(self.name)) % 2 == 0
            (self.folder / self.name / "proc/1/cmdline").write_bytes(TASKS[0] if has_turn else b"systemd\0")
        return super().run_plain(command, stdin, timeout_s)


def goes_on(world: World, cluster: InventoryCluster, *, was_given_up: bool) -> None:
    """One that ran before is gone on with, or follows as it was given up."""
    operation.begin(world, cluster, WHAT)
    if was_given_up:
        operation.give_up(world, cluster.hosts, operation.look(world, cluster.hosts)[0])
    with operation.holding(world, cluster, WHAT, is_resumed=not was_given_up):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("was_given_up", [False, True])
def test_who_comes_in_the_place_of_a_run_waits_until_its_tasks_have_ended(
    world: World, cluster: InventoryCluster, tmp_path: Path, *, was_given_up: bool
) -> None:
    task = tmp_path / "mq2/proc/2"
    (task / "fd").mkdir(parents=True)
    (task / "cmdline").write_bytes(TASKS[0])
    os.mkfifo(task / "fd/0")
    with pytest.raises(CommandError, match="mq2: tasks of Ansible's are still under way") as raised:
        goes_on(world, cluster, was_given_up=was_given_up)
    assert raised.value.attempt.startswith(f"{WHAT} --resume")
    held = noted(world)
    assert held == all_with(held["mq1"][0], is_held=True)
    # It ends.
    (task / "cmdline").write_bytes(b"sleep\0")
    with operation.holding(world, cluster, WHAT, is_resumed=True):
        pass
    assert noted(world) == all_with(held["mq1"][0] + 1, is_held=False)


@pytest.mark.slow
def test_one_that_follows_on_one_that_ended_waits_for_nobody(
    world: World, cluster: InventoryCluster, tmp_path: Path
) -> None:
    (tmp_path / "mq2/proc/1/cmdline").write_bytes(TASKS[0])
    for _ in range(2):
        with operation.holding(world, cluster, WHAT):
            pass
    assert noted(world) == all_with(2, is_held=False)


@pytest.mark.slow
def test_in_a_batch_of_which_one_host_waits_for_the_other_nobody_is_idle(
    world: World, cluster: InventoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert operation.busy(world, cluster.hosts) == {}
    monkeypatch.setattr(BatchShell, "asked", Counter())
    world = replace(world, connector=LocalHosts(BatchShell))
    assert operation.busy(world, cluster.hosts[:2]) != {}
    assert set(BatchShell.asked.values()) == {operation.LOOKS_MAX}


def runs(tmp_path: Path, name: str = "mq2") -> Path:
    """A task on a host that does not end; where its command line is."""
    task = tmp_path / name / "proc/2"
    (task / "fd").mkdir(parents=True)
    (task / "cmdline").write_bytes(b"python3\0/home/bob/AnsiballZ_setup.py\0")
    os.mkfifo(task / "fd/0")
    return task / "cmdline"


@pytest.mark.slow
def test_who_is_kept_waiting_is_told_for_which_process_and_gets_past_it(
    world: World, cluster: InventoryCluster, tmp_path: Path
) -> None:
    """Another team's run is nobody's of the cluster, and may never end."""
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    runs(tmp_path)
    with pytest.raises(CommandError) as raised:
        goes_on(world, cluster, was_given_up=True)
    assert "(mq2: process 2, AnsiballZ_setup.py)" in raised.value.what
    assert "mqctl operation release --no-wait" in raised.value.attempt
    # Given up as before the next one waits as well.
    assert operation_release.run(world, operation_release.Options(yes=True)) == Exit.DONE
    with pytest.raises(CommandError, match="process 2, "), operation.holding(world, cluster, WHAT):
        pass
    assert operation_release.run(world, operation_release.Options(yes=True, no_wait=True)) == Exit.DONE
    with operation.holding(world, cluster, WHAT):
        pass
    assert [held for _, held in noted(world).values()] == [False] * 3


@pytest.mark.slow
@pytest.mark.parametrize("what", ["mqctl drain mq3", "mqctl undrain mq3", "mqctl scale-down mq3 --cancel"])
def test_who_comes_in_the_place_of_a_drain_waits_for_no_playbook(
    world: World, cluster: InventoryCluster, tmp_path: Path, what: str
) -> None:
    """It runs none. One that came after a run that was given up may find that one's."""
    runs(tmp_path)
    operation.begin(world, cluster, what)
    with operation.holding(world, cluster, what, is_resumed=True):
        pass
    operation.give_up(world, cluster.hosts, operation.look(world, cluster.hosts)[0])
    operation.begin(world, cluster, what)  # it was killed while it waited
    for _ in range(2):
        with (
            pytest.raises(CommandError, match="process 2, "),
            operation.holding(world, cluster, what, is_resumed=True),
        ):
            pass


@pytest.mark.slow
def test_who_is_interrupted_while_he_waits_is_told_what_stays_held(
    world: World, cluster: InventoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> dict[str, str]:
        raise KeyboardInterrupt

    monkeypatch.setattr(operation, "busy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        goes_on(world, cluster, was_given_up=True)
    assert "interrupted: nothing was changed, and the hosts stay held; mqctl rollout --resume goes on" in told(world)
    assert [held for _, held in noted(world).values()] == [True] * 3


BECOMES = "echo BECOME-SUCCESS-x ; DB_PASSWORD=hunter2 "


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (
            ("/bin/sh", "-c", BECOMES + "/usr/bin/python3 /tmp/x/AnsiballZ_command.py && sleep 0"),
            "AnsiballZ_command.py",
        ),
        (("sudo", "-n", "/bin/sh", "-c", BECOMES + "hunter2/psql"), "sudo"),
        (("/bin/sh", "-c", BECOMES), "sh"),
        (("/opt/hunter2/job hunter2 " + BECOMES,), "job"),
        (("/opt/\x1b[1m\u00fc" + "x" * 500, BECOMES), "?[1m\u00fc" + "x" * (idle.NAME_MAX - 5)),
        (("", BECOMES), "without a name"),
    ],
)
def test_of_a_command_line_no_more_is_told_than_the_module_or_the_program(
    tmp_path: Path, words: tuple[str, ...], name: str
) -> None:
    """Ansible puts what `environment` of a play holds into it, secrets among that."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cmdline").write_bytes("\0".join((*words, "")).encode())
    assert idle.task(str(tmp_path)) == f"process 7, {name}"


def test_no_operation_follows_the_last_number(world: World) -> None:
    last = {"number": noting.NUMBER_MAX - 1}
    with pytest.raises(CommandError, match="has the last number there is, so none follows it"):
        operation.note_of(world, WHAT, {"mq1": None, "mq2": last})
    assert operation.note_of(world, WHAT, {"mq1": {"number": noting.NUMBER_MAX - 2}})["number"] == last["number"]
