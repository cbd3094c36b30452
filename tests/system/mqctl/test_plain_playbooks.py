"""The collection without mqctl: what it finds by itself in an inventory, and members that are away. Real Ansible.

Hosts are rooms on this machine (tests/support/ansible_lines).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sim.days import share_of_today
from tests.system.mqctl.test_hosts_that_fall_out import COMMON, LINES, ROOT, Hosts

ANSIBLE = Path(sys.executable).parent / "ansible-playbook"


class Site:
    """A folder for inventories, playbooks, and the names of tasks that have reached a host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def play(self, playbook: str, hosts: Hosts, *words: str) -> subprocess.CompletedProcess[str]:
        # Named one by one: where a task is delegated, inventory_hostname is the host that delegates it.
        own = {name: {"line_log": f"{self.folder}/{name}.log", **variables} for name, variables in hosts.items()}
        (self.folder / "inventory.json").write_text(json.dumps({"all": {"vars": COMMON, "hosts": own}}))
        environ = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev"),
            "ANSIBLE_CONNECTION_PLUGINS": str(LINES),
        }
        return subprocess.run(
            [ANSIBLE, "-i", "inventory.json", playbook, *words], cwd=self.folder, env=environ, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip

    def tasks(self, name: str, *files: str) -> None:
        """A playbook of task files of ours."""
        play = {
            "name": "now", "hosts": "all", "gather_facts": False, "max_fail_percentage": 0,
            "vars_files": [str(ROOT / "playbooks/vars/roles.json")],
            "tasks": [
                {"name": "know oneself", "ansible.builtin.set_fact": {"broker_identities": []}},
                *({"name": one, "ansible.builtin.import_tasks": str(ROOT / "playbooks/tasks" / one)} for one in files),
                {"name": "last", "ansible.builtin.debug": {"msg": "{{ __mq_member_addresses | default('none') }}"}},
            ],
        }  # fmt: skip
        (self.folder / name).write_text(json.dumps([play]))

    @property
    def reached(self) -> set[str]:
        return {path.stem for path in self.folder.glob("*.log")}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.mark.parametrize(
    ("playbook", "limit"),
    # Each has an import of the refusal of its own, so none stands for another one.
    [
        ("mqops.cluster.rollout", "mq1"),
        ("mqops.cluster.rollback", "mq1"),
        ("mqops.cluster.uninstall", "all"),
        ("mqops.cluster.firewall", "mq2"),
        ("mqops.cluster.backup", "mq2"),
    ],
)
def test_two_names_for_one_host_end_every_playbook_before_its_first_look(site: Site, playbook: str, limit: str) -> None:
    same: dict[str, Any] = {"ansible_host": "192.0.2.11"}
    hosts = {"mq1": same, "mq2": {**same, "mq_cluster_name": "other"}, "mq3": {"ansible_host": "192.0.2.13"}}
    done = site.play(playbook, hosts, "--limit", limit)
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert "host mq2: ansible_host: leads to 192.0.2.11, which is mq1 of cluster main already" in said, done.stdout
    assert "nothing was changed on any host" in said
    assert site.reached == set()


def test_two_names_elsewhere_hold_nobody_up(site: Site) -> None:
    same: dict[str, Any] = {"ansible_host": "192.0.2.11", "mq_cluster_name": "other"}
    hosts = {"mq1": same, "mq2": same, "mq3": {"ansible_host": "192.0.2.13"}}
    done = site.play("mqops.cluster.firewall", hosts, "--limit", "mq3", "--check")
    assert done.returncode == 0, done.stdout
    assert site.reached == {"mq3"}


@pytest.mark.parametrize("words", share_of_today([(), ("--check",)]))
def test_a_member_that_is_away_makes_no_other_host_unreachable(site: Site, words: tuple[str, ...]) -> None:
    """Also one that is lost between two looks at it, and in a check."""
    site.tasks("members.json", "members.yml", "identities.yml")
    ask = "Find the addresses of the members that are not part of this run"
    hosts = {
        "mq1": {}, "mq2": {"mq_local_bind_address": "127.0.0.2"}, "away": {"line_cut_at": ask},
        "lost": {"line_cut_at": "Read the node ids of the members that are not part of this run"},
    }  # fmt: skip
    done = site.play("members.json", hosts, "--limit", "mq1", *words)
    assert done.returncode == 0, done.stdout
    assert "unreachable=0" in done.stdout
    # Who was reached is known.
    assert sorted(site.reached) == ["away", "lost", "mq1", "mq2"]
    assert "127.0.0.2" in done.stdout.partition("TASK [last]")[2]


@pytest.mark.parametrize("limit", share_of_today(["mq1,other1", "other1,mq1"]))
def test_each_host_of_a_run_of_two_clusters_has_the_members_of_its_own(site: Site, limit: str) -> None:
    """Whichever host comes first, and although the others are asked once for all of them."""
    site.tasks("members.json", "members.yml", "identities.yml")
    other = {"mq_cluster_name": "other"}
    hosts = {
        "mq1": {"mq_local_bind_address": "127.0.0.11"}, "mq2": {"mq_local_bind_address": "127.0.0.12"},
        "other1": {"mq_local_bind_address": "127.0.0.21", **other},
        "other2": {"mq_local_bind_address": "127.0.0.22", **other},
        "third": {"mq_local_bind_address": "127.0.0.31", "mq_cluster_name": "third"},
    }  # fmt: skip
    done = site.play("members.json", hosts, "--limit", limit)
    assert done.returncode == 0, done.stdout
    told = done.stdout.partition("TASK [last]")[2]
    addresses = {
        name: re.findall(r"127[.\d]+", said)
        for name, said in re.findall(r"ok: \[(\w+)\] => (\{.*?\n\})", told, re.DOTALL)
    }
    assert addresses == {"mq1": ["127.0.0.11", "127.0.0.12"], "other1": ["127.0.0.21", "127.0.0.22"]}
    assert site.reached == {"mq1", "mq2", "other1", "other2"}
    lines = {each: (site.folder / f"{each}.log").read_text().splitlines() for each in ("mq2", "other2")}
    assert all(len(set(names)) == 2 for names in lines.values()), "each of the others is asked for both"


def test_a_node_id_of_a_member_that_is_not_part_of_the_run_is_found_in_the_second_cluster_too(site: Site) -> None:
    site.tasks("identities.json", "identities.yml")
    done = site.play("identities.json", {"mq1": {}, "other1": {"mq_cluster_name": "other"},
                     "other2": {"mq_cluster_name": "other"}}, "--limit", "mq1,other1")  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert site.reached == {"other2"}


# A room of its own for processes and for places of the host: whatever else is on this machine is not seen.
ALONE = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
PLACES = ("opt", "run", "var/lib")
ROOM = f'for place in {" ".join(PLACES)}; do mount --bind "$PWD/room/$place" "/$place" || exit 9; done; '
ANOTHER = f"{sys.executable} -c 'import time; time.sleep(3600)' AnsiballZ_x >/dev/null 2>&1 & "
CLIENT = f"(exec -a ssh {sys.executable} -c 'import time; time.sleep(3600)' AnsiballZ_x) >/dev/null 2>&1 & "
NOTE = {
    "number": 4, "is_held": True, "token": "t", "user": "ann", "machine": "laptop", "what": "a rollback",
    "since": "2026-11-27 10:15:00 UTC",
}  # fmt: skip


@pytest.mark.parametrize(
    ("first", "was", "is_resumed", "is_idle"),
    share_of_today([
        pytest.param("", "1", False, True, id="alone"),
        pytest.param(ANOTHER, "1", False, False, id="task"),
        pytest.param("", "2", False, False, id="another-release"),
        pytest.param(ANOTHER, "1", True, False, id="task-resumed"),
        pytest.param(CLIENT, "1", False, True, id="client"),
    ]),
)  # fmt: skip
def test_a_rollback_begins_where_nothing_is_under_way_and_hosts_are_as_they_were_looked_at(
    tmp_path: Path, first: str, was: str, *, is_resumed: bool, is_idle: bool
) -> None:
    """Its own tasks are none of those that it waits for. Else it gives back what it has taken over from nobody."""
    seen = {
        "__mq_now": {"current": was}, "__mq_operation": NOTE,
        "__mq_seen": {"found": {**NOTE, "number": 3, "token": "before"} if is_resumed else None},
    }  # fmt: skip
    tasks = [
        {"name": "what was seen", "ansible.builtin.set_fact": seen},
        {"name": "wait", "ansible.builtin.import_tasks": str(ROOT / "playbooks/tasks/idle.yml")},
    ]
    defaults = {"mqops.cluster.host_idle": {"wait_s": 2, "quiet_s": 1}}
    play = {"name": "now", "hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks,
            "module_defaults": defaults, "vars": {"ansible_python_interpreter": sys.executable}}  # fmt: skip
    (tmp_path / "play.json").write_text(json.dumps([play]))
    for place in PLACES:
        (tmp_path / "room" / place).mkdir(parents=True)
    (tmp_path / "room/opt/mq").mkdir()
    (tmp_path / "room/opt/mq/current").symlink_to("releases/1")
    note = tmp_path / "room/var/lib/mq-operation.json"
    note.write_text(json.dumps(NOTE))
    done = subprocess.run(
        [*ALONE, "bash", "-c", f'{ROOM}{first}exec "$@"', "bash", ANSIBLE, "-i", "localhost,", "play.json"],
        cwd=tmp_path, env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev")}, text=True,
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode == 0) == is_idle, done.stdout + done.stderr
    assert ("localhost: tasks of Ansible's are still under way" in " ".join(done.stdout.split())) != is_idle
    assert json.loads(note.read_text())["is_held"] is (is_idle or is_resumed)


BOB = {**NOTE, "number": 5, "token": "bob", "user": "bob", "what": "mqctl rollout"}
RELEASED = {**BOB, "what": "mqctl operation release", "is_held": False}
SERVICE = {
    "__broker_node": {"needs": "restart", "instance": "nobody-here", "why": ["x"]}, "__broker_executable": "/bin/false",
    "__broker_state": {"restart": "restarted"}, "broker_health_wait_s": 1,
}  # fmt: skip
STEPS = {"roles/broker/tasks/service.yml": SERVICE, "roles/uninstall/tasks/held.yml": dict[str, Any]()}


@pytest.mark.parametrize(
    ("file", "noted", "is_refused"),
    share_of_today([
        pytest.param("roles/broker/tasks/service.yml", BOB, True, id="restart-another"),
        pytest.param("roles/broker/tasks/service.yml", RELEASED, False, id="restart-given-up"),
        pytest.param("roles/broker/tasks/service.yml", {**BOB, "is_held": False}, True, id="restart-finished"),
        pytest.param("roles/broker/tasks/service.yml", NOTE, False, id="restart-own"),
        pytest.param("roles/uninstall/tasks/held.yml", BOB, True, id="remove-another"),
        pytest.param("roles/uninstall/tasks/held.yml", RELEASED, True, id="remove-given-up"),
        pytest.param("roles/uninstall/tasks/held.yml", NOTE, False, id="remove-own"),
    ]),
)  # fmt: skip
def test_a_run_that_wakes_up_does_nothing_to_a_host_that_another_one_has(
    tmp_path: Path, file: str, noted: dict[str, Any], *, is_refused: bool
) -> None:
    """In the middle of its turn: it is asked before a broker stops. One that was given up may end a restart."""
    variables = {"ansible_python_interpreter": sys.executable, **STEPS[file],
                 "__broker_operation": NOTE, "__uninstall_operation": NOTE}  # fmt: skip
    play = {"name": "now", "hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables,
            "tasks": [{"name": "its turn", "ansible.builtin.import_tasks": str(ROOT / file)}]}  # fmt: skip
    (tmp_path / "play.json").write_text(json.dumps([play]))
    for place in PLACES:
        (tmp_path / "room" / place).mkdir(parents=True)
    (tmp_path / "room/var/lib/mq-operation.json").write_text(json.dumps(noted))
    done = subprocess.run(
        [*ALONE, "bash", "-c", f'{ROOM}exec "$@"', "bash", ANSIBLE, "-i", "localhost,", "play.json"],
        cwd=tmp_path, env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev")}, text=True,
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    said = " ".join(done.stdout.split())
    assert (f"operation 5 ({noted['what']}, bob from laptop" in said) == is_refused, done.stdout + done.stderr
    assert ("Let systemd do it" in said) == ("service" in file and not is_refused)
    assert (done.returncode == 0) == (not is_refused and "uninstall" in file)


LEFT = {"instance": "default", "direction": "out", "connection": "all", "node_id": "7", "node": "mq2"}
# Of a broker that has no cluster connection any more: none of its links is missing.
NO_LINKS = 'echo \'{"id": 1, "result": {"members": [], "links": [], "inbound": []}}\''


@pytest.mark.parametrize(
    ("broker", "is_forced", "ends_well"),
    share_of_today([
        pytest.param("exit 1", False, False, id="they-do-not-stand"),
        pytest.param(NO_LINKS, False, True, id="they-stand"),
        pytest.param("exit 1", True, True, id="given-up"),
    ]),
)  # fmt: skip
def test_what_an_earlier_run_has_restarted_comes_before_another_host(
    tmp_path: Path, broker: str, *, is_forced: bool, ends_well: bool
) -> None:
    """Of mq1, which needs nothing more, before mq2 is restarted."""
    note = noted_in(tmp_path, broker)
    look = {"name": "look", "ansible.builtin.import_tasks": str(ROOT / "playbooks/tasks/awaited.yml")}
    done = played_in(tmp_path, [look], f"rollout_force={is_forced}")
    said = " ".join(done.stdout.split())
    assert (done.returncode == 0) == ends_well, done.stdout + done.stderr
    assert note.exists() != ends_well
    assert ("not whole after 1 s: default: there is no link to mq2 (7) any more" in said) != ends_well
    assert ("default: the link to mq2 (7)" in said) == is_forced


@pytest.mark.parametrize(
    ("broker", "text", "said", "held"),
    share_of_today([
        pytest.param("exit 1", "", "default: the link to mq2 (7); the next rollout waits for them", NOTE, id="noted"),
        pytest.param(NO_LINKS, "", "", NOTE, id="they-stand"),
        pytest.param(NO_LINKS, "{", "mq-operation-links.json cannot be read", NOTE, id="damaged"),
        pytest.param(NO_LINKS, "", None, BOB, id="another-one"),
        pytest.param(NO_LINKS, "", None, None, id="nobody"),
        pytest.param(NO_LINKS, "", "", NOTE | {"wish": "pause"}, id="paused"),
    ]),
)  # fmt: skip
def test_at_the_end_of_a_run_links_that_stand_are_noted_no_longer(
    tmp_path: Path, broker: str, text: str, said: str | None, held: dict[str, Any] | None
) -> None:
    """`said` is None where that is another operation's to say: it may have noted them before a restart."""
    note = noted_in(tmp_path, broker)
    (tmp_path / "room/var/lib/mq-operation.json").write_text(json.dumps(held))
    if text:
        note.write_text(text)
    look = {"name": "look", "ansible.builtin.import_tasks": str(ROOT / "playbooks/tasks/settled.yml")}
    done = played_in(tmp_path, [look], json.dumps({"__mq_operation": NOTE}))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (said or "") in " ".join(done.stdout.split())
    assert note.exists() == (said != "")
    assert ("next rollout waits" in done.stdout) == bool(said)


def test_links_that_waited_for_the_only_batch_end_the_run_where_it_has_not_mended_them(tmp_path: Path) -> None:
    note = noted_in(tmp_path, "exit 1")
    (play,) = [one for one in yaml.safe_load((ROOT / "playbooks/rollout.yml").read_text()) if "order" in one]
    look = {**play["tasks"][-1], "ansible.builtin.import_tasks": str(ROOT / "playbooks/tasks/deferred.yml")}
    look["vars"] = look["vars"] | {"__mq_deferred": [{"host": "mq1", "links": [LEFT]}]}
    done = played_in(tmp_path, [look], "unused=1", who="mq2")
    assert done.returncode != 0
    assert "mq1: not whole after 1 s: default: there is no link to mq2 (7)" in " ".join(done.stdout.split())
    assert json.loads(note.read_text()) == {"links": [LEFT]}


def test_links_of_other_instances_stay_noted(tmp_path: Path) -> None:
    """Who waits for some of a host has not looked at the others, and one that no inventory names runs on."""
    note, other = noted_in(tmp_path, NO_LINKS), LEFT | {"instance": "b"}
    note.write_text(json.dumps({"links": [LEFT, other]}))
    for state, left in (("whole", {"links": [other]}), ("settled", {"links": [other]})):
        look = {"name": "look", "mqops.cluster.cluster_links": {"state": state, "instances": ["default"]}}
        done = played_in(tmp_path, [look], "unused=1")
        assert done.returncode == 0, done.stdout + done.stderr
        assert json.loads(note.read_text()) == left


@pytest.mark.parametrize("is_back", share_of_today([False, True]))
def test_a_damaged_note_of_links_holds_up_a_rollout_and_no_rollback(tmp_path: Path, *, is_back: bool) -> None:
    note = noted_in(tmp_path, NO_LINKS)
    note.write_text("{")
    turn = [
        one
        for one in yaml.safe_load((ROOT / "playbooks/tasks/turn.yml").read_text())
        if "ansible.builtin.import_tasks" not in one
    ]
    done = played_in(tmp_path, turn, f"release_is_back={is_back}")
    assert (done.returncode == 0) == is_back, done.stdout + done.stderr
    assert "mq-operation-links.json cannot be read" in " ".join(done.stdout.split())
    assert note.read_text() == "{"


@pytest.mark.parametrize("who", share_of_today(["mq1,mq2", "mq2"]))
def test_who_is_lost_while_it_waits_for_links_lets_nobody_be_restarted(tmp_path: Path, who: str) -> None:
    """Also a member that is not part of the run. mq2 has noted something as well, and may have its turn first."""
    noted_in(tmp_path, "exit 1").write_text(json.dumps({"links": [LEFT | {"node": "mq9"}]}))
    look = {"name": "look", "ansible.builtin.import_tasks": str(ROOT / "playbooks/tasks/awaited.yml")}
    cut = "Wait for those of the members that are not part of this run"
    if "mq1" in who:
        cut = "Wait until they stand and a canary has crossed each"
    done = played_in(tmp_path, [look], "unused=1", who=who, cut_at=cut)
    said = " ".join(done.stdout.split())
    assert done.returncode != 0
    assert "no other broker is restarted" in said if "mq1" in who else "mq1: lost before anybody knew" in said, said
    assert re.search(r"mq2 : ok=\d+ changed=0 unreachable=0 failed=1", said)


def noted_in(folder: Path, broker: str) -> Path:
    """A room for the host mq1, with a release whose program does that, and the note that a link has not stood."""
    (folder / "manifest.json").write_text('{"release": "1"}')
    for place in PLACES:
        (folder / "room" / place).mkdir(parents=True)
    for release in ("releases/1", "current"):
        program = folder / "room/opt/mq" / release / "bin/mqbroker"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\n{broker}\n")
        program.chmod(0o755)
    note = folder / "room/var/lib/mq-operation-links.json"
    note.write_text(json.dumps({"links": [LEFT]}))
    return note


def played_in(
    folder: Path, tasks: list[dict[str, Any]], given: str, *, who: str = "mq1", cut_at: str = ""
) -> subprocess.CompletedProcess[str]:
    """These tasks on mq1, or on both, while mq2 is to be restarted; the line to mq1 is cut at a task."""
    hosts = {name: {"ansible_connection": "local", "mq_cluster_name": "main"} for name in ("mq1", "mq2")}
    if cut_at:
        hosts["mq1"] |= {"ansible_connection": "cut_line", "line_log": f"{folder}/mq1.log", "line_cut_at": cut_at}
    inventory = {"all": {"children": {"mq_turn_alone": {"hosts": {"mq2": {}}}}, "hosts": hosts}}
    (folder / "inventory.json").write_text(json.dumps(inventory))
    known = {"ansible_python_interpreter": sys.executable, "mq_bundle": str(folder)}
    play = {"name": "now", "hosts": who, "gather_facts": False, "vars": known, "tasks": tasks, "max_fail_percentage": 0,
            "vars_files": [str(ROOT / "playbooks/vars/roles.json")]}  # fmt: skip
    (folder / "play.json").write_text(json.dumps([play]))
    words = ["-i", "inventory.json", "play.json", "-e", given, "-e", "rollout_links_wait_s=1"]
    return subprocess.run(
        [*ALONE, "bash", "-c", f'{ROOM}exec "$@"', "bash", ANSIBLE, *words], cwd=folder, text=True, timeout=300,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev"), "ANSIBLE_CONNECTION_PLUGINS": str(LINES)},
        capture_output=True, check=False,
    )  # fmt: skip


def test_a_host_that_can_note_nothing_is_one_that_cannot_be_taken(tmp_path: Path) -> None:
    """No failed task: those that were taken are given back by the tasks that follow."""
    tasks: list[dict[str, Any]] = [
        {"name": "take", "mqops.cluster.operation": {"operation": NOTE}, "register": "taken"},
        {"name": "told", "ansible.builtin.debug": {"msg": "{{ taken.refusal }}"}},
    ]
    play = {"name": "now", "hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks,
            "vars": {"ansible_python_interpreter": sys.executable}}  # fmt: skip
    (tmp_path / "play.json").write_text(json.dumps([play]))
    for place in PLACES:
        (tmp_path / "room" / place).mkdir(parents=True)
    shut = "mount --options remount,bind,ro /var/lib || exit 9; "
    done = subprocess.run(
        [*ALONE, "bash", "-c", f'{ROOM}{shut}exec "$@"', "bash", ANSIBLE, "-i", "localhost,", "play.json"],
        cwd=tmp_path, env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev")}, text=True,
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the host can note no operation: [Errno 30] Read-only file system" in done.stdout
