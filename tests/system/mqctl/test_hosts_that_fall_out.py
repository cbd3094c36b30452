"""Hosts that are refused, fail or are lost in the middle of a rollout: the real playbooks, by real Ansible.

Every host is a room on this machine, and its line is cut, or its commands fail, where its variables say so
(tests/support/ansible_lines). A rollout of bare hosts is a check here: it goes through the same tasks.
"""

from __future__ import annotations

import io
import json
import os
import platform
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from mqctl.bundle.manifest import describe, parse_target
from mqctl.exits import Exit
from mqctl.inventory import Host, InventoryCluster
from mqctl.output import Format, OutputShape, data_console
from mqctl.playbook.events import PlayProgress
from mqctl.playbook.outcome import report
from mqctl.playbook.rollout import MARK
from mqctl.playbook.run import Play, run_play, verdict
from mqctl.world import World
from rich.console import Console

from tests.sim.days import TURN, of_today, share_of_today
from tests.support.certificates import Authority

ROOT = Path(__file__).resolve().parents[3]
PREFLIGHT = ROOT / "roles/preflight/tasks"
REACHING = {f"mqops.cluster.{name}" for name in ("clock_offset", "host_findings", "multicast_probe")}
LINES = ROOT / "tests" / "support" / "ansible_lines"
DISK = {"preflight_disk_free_bytes_min": 1 << 60}
# A broker that preflight has nothing against, on a line of the tests.
COMMON: dict[str, Any] = {
    "mq_cluster_name": "main",
    "mq_cluster_secret": "a-secret-of-the-test",
    "mq_tls": "off",
    "mq_allow_plaintext": True,
    "mq_local_bind_address": "127.0.0.1",
    "mq_os_unsupported": True,
    "mq_listeners": [{"name": "clients", "port": 25672}],
    "mq_metrics_port": 0,
    "preflight_python": sys.executable,
    # All rooms are on one machine, and it is theirs that differ.
    "preflight_machine_file": "{{ line_machine | default('/nowhere') }}",
    "preflight_multicast": False,
    "preflight_disk_free_bytes_min": 1,
    "ansible_connection": "cut_line",
    "ansible_python_interpreter": sys.executable,
    "ansible_become": False,
}
# Only for those that fall out while they probe: all rooms are on one network, where the second probe of a run would
# find the place of the first taken, so each has a run of its own; and none is done with the loopback card.
GROUP = {"name": "lan", "group_address": "231.7.7.7", "group_port": 9876}
MULTICAST: dict[str, Any] = {
    "preflight_multicast": True,
    "mq_connectors": [{"name": "cluster", "port": 5673}],
    "mq_broadcast_groups": [{**GROUP, "connector_ref": "cluster"}],
    "mq_discovery_groups": [GROUP],
}
# After preflight every play is one for all its tasks, so a task of each stands for the others. Two are taken each day,
# as a host that comes so far has gone through dozens of them.
LATER = (
    "mqops.cluster.release : See whether it is there already",
    "mqops.cluster.firewall : See whether there is anything of ours",
    "mqops.cluster.broker : Set the users",
    "mqops.cluster.release : Link the current release",
)
Hosts = Mapping[str, Mapping[str, Any]]


class Site:
    """A folder with a bundle, and rollouts of hosts that are given in each case."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.err = io.StringIO()
        self.out = io.StringIO()
        environ = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev"), "XDG_RUNTIME_DIR": str(folder)}
        (folder / "ansible.cfg").write_text(f"[defaults]\nconnection_plugins = {LINES}\nforks = 6\n")
        self.world = World(
            environ, folder, io.BytesIO(), self.out, data_console(self.out, has_colour=False), Console(file=self.err)
        )
        (folder / "bundle/wheels").mkdir(parents=True)
        (folder / "bundle/requirements.lock").write_text("")
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        target = parse_target(version, f"manylinux_2_17_{platform.machine()}")
        (folder / "bundle/manifest.json").write_text(describe(folder / "bundle", "0.1.0", target).to_json())

    def run(self, hosts: Hosts, **variables: Any) -> PlayProgress:
        """A rollout of these hosts, each with variables of its own."""
        common = {
            **COMMON,
            "mq_cluster_name": "{{ inventory_hostname }}",
            "mq_bundle": str(self.folder / "bundle"),
            "line_log": str(self.folder / "{{ inventory_hostname }}.log"),
        }
        inventory = self.folder / "inventory.json"
        inventory.write_text(json.dumps({"all": {"vars": common, "hosts": dict(hosts)}}))
        for old in self.folder.glob("*.log"):
            old.unlink()
        cluster = InventoryCluster(
            "main", tuple(Host(name, "main", common | dict(own), {}) for name, own in hosts.items()), (inventory,)
        )
        play = Play("rollout", variables, is_check=True, mark=MARK)
        return run_play(self.world, cluster, play)

    def passed(self, host: str) -> list[str]:
        """The tasks that reached the host, in their order and once each."""
        return list(dict.fromkeys((self.folder / f"{host}.log").read_text().splitlines()))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """One for all tests: what a case leaves are lists of tasks, which the next one removes."""
    return Site(tmp_path_factory.mktemp("site"))


def looks() -> list[str]:
    """The tasks of preflight that reach a host, in their order."""

    def of(found: list[dict[str, Any]]) -> Iterator[str]:
        for one in found:
            for name in ("multicast_start.yml", "multicast_compare.yml"):
                if one.get("ansible.builtin.include_tasks") == name:
                    yield from of(yaml.safe_load((PREFLIGHT / name).read_text()))
            if REACHING & set(one):
                yield f"mqops.cluster.preflight : {one['name']}"
            yield from of(one.get("block", []))

    return list(of(yaml.safe_load((PREFLIGHT / "main.yml").read_text())))


def at(key: str, tasks: list[str]) -> dict[str, dict[str, Any]]:
    """A host for each task, cut off or failing there; those that probe do so for it."""
    return {
        f"{key.split('_')[1]}{number}": {key: task} | (MULTICAST if "prob" in task or "heard" in task else {})
        for number, task in enumerate(tasks)
    }


def probes() -> dict[str, str]:
    """A name for the probes of each host; those of hosts that are lost go on for some minutes under theirs."""
    return {"__preflight_run": f"{{{{ inventory_hostname }}}}-{secrets.token_hex(4)}"}


def preflight_of(site: Site, host: str) -> list[str]:
    return [one for one in site.passed(host) if one.startswith("mqops.cluster.preflight : ")]


def short(task: str) -> str:
    """A task as mqctl names it."""
    return task.removeprefix("mqops.cluster.").replace(" : ", ": ")


def test_a_refusal_names_all_reasons_of_each_host_and_stops_all(site: Site) -> None:
    tasks = looks()
    assert len(tasks) == 5
    hosts: dict[str, dict[str, Any]] = {
        "fine": {},
        "full": DISK,
        "both": {**DISK, "preflight_clock_offset_ms_max": -60_000},
    }
    hosts["both"]["mq_local_bind_address"] = "192.0.2.1"
    hosts["odd"] = {"mq_uid": "no number"}
    # Where a line may be cut, each at a host of its own, is the business of the next tests: here one is.
    (cut,) = of_today(tasks, 1)
    hosts |= {"cut": at("line_cut_at", tasks)[f"cut{tasks.index(cut)}"]} | at("line_fails_at", tasks)
    state = site.run(hosts, **probes())
    # Who fails at the last one has come by all of them.
    assert preflight_of(site, f"fails{len(tasks) - 1}") == tasks
    assert verdict(state) is Exit.FAILED
    assert [one.changed for one in state.hosts.values()] == [0] * len(hosts)
    ends = {one.name: (one.state, one.note) for one in state.hosts.values()}
    assert ends["fine"][0] == "stopped"
    assert "nothing was changed" in ends["fine"][1]
    assert "full refused" in ends["fine"][1]
    told = "; nothing was changed on any host; put that right, or leave the host out with --limit"
    refused = {name: note for name, (found, note) in ends.items() if found == "refused"}
    assert set(refused) == {"full", "both", *(f"fails{number}" for number in range(len(tasks)))}
    assert all(note.endswith(told) for note in refused.values()), refused
    assert "MiB" in refused["full"]
    assert all(each in refused["both"] for each in ("192.0.2.1", "MiB", "clock")), refused["both"]
    for number, task in enumerate(tasks):
        assert f'the task "{task.partition(" : ")[2]}" failed: ' in refused[f"fails{number}"]
    assert ends["cut"][0] == "unreachable"
    # What is wrong with variables of a role is told before any of its tasks.
    assert ends["odd"][0] == "failed"
    assert "preflight_uid" in ends["odd"][1]
    assert "no attribute" not in site.err.getvalue()


def test_where_all_are_refused_the_operator_is_told_the_same(site: Site) -> None:
    state = site.run({"mq1": DISK, "mq2": {"line_cut_at": "mqops.cluster.preflight : Look at the host"}})
    assert [one.state for one in state.hosts.values()] == ["refused", "unreachable"]
    assert "nothing was changed on any host" in state.hosts["mq1"].note
    assert verdict(state) is Exit.FAILED


def provided(authority: Authority) -> dict[str, Any]:
    """A host with a certificate of an own authority."""
    return {
        "mq_tls": "provided", "mq_allow_plaintext": False, "mq_tls_certificate_file": str(authority.certificate_file),
        "mq_tls_key_file": str(authority.key_file), "mq_tls_ca_file": str(authority.ca_file),
    }  # fmt: skip


@pytest.mark.one_day_in_three(0)
def test_who_is_lost_holds_up_nobody(site: Site, tmp_path: Path) -> None:
    cuts = [*share_of_today(looks(), TURN), *share_of_today(LATER, TURN)]
    state = site.run({**at("line_cut_at", cuts), "fine": provided(Authority(tmp_path / "one"))}, **probes())
    # The last task of the playbook has come to it.
    assert state.hosts["fine"].state == "ok"
    assert set(LATER) <= set(site.passed("fine"))
    for number, task in enumerate(cuts):
        one = state.hosts[f"cut{number}"]
        assert one.state == "unreachable"
        assert one.note.startswith(f"lost at {short(task)}: "), one.note
    assert verdict(state) is Exit.DEGRADED


@pytest.mark.one_day_in_three(1)
def test_a_failure_while_hosts_are_prepared_stops_all_of_them(site: Site) -> None:
    state = site.run({"mq1": {"line_fails_at": "mqops.cluster.broker : Make the user mq"}, "mq2": {}})
    assert [one.state for one in state.hosts.values()] == ["failed", "stopped"]
    assert state.hosts["mq2"].note == "the run ended before this host was done: mq1 failed"
    assert "broker: Make the group mq" in state.hosts["mq2"].changes
    assert "broker: Make the identities" not in state.hosts["mq2"].changes
    assert verdict(state) is Exit.FAILED
    site.out.truncate(0)
    report(site.world, state, OutputShape(Format.JSON))
    rows = json.loads(site.out.getvalue().lstrip("\0"))["rows"]
    assert [row["state"] for row in rows] == ["failed", "stopped"]
    assert "release: Copy the bundle" in rows[1]["changes"]


TOGETHER, ALONE = "Make brokers run where none does", "Restart running brokers"


@pytest.mark.parametrize(
    ("which", "batch", "reached", "goes_on"),
    [
        (ALONE, 1, {"mq1"}, set()),
        (ALONE, 2, {"mq1", "mq2"}, {"mq2"}),
        (TOGETHER, 2, {"mq1", "mq2"}, {"mq2"}),
    ],
)
def test_a_batch_that_loses_a_host_is_the_last_one(
    tmp_path: Path, which: str, batch: int, reached: set[str], goes_on: set[str]
) -> None:
    """With the keywords of those plays: on this machine no broker runs that could be restarted."""
    plays = yaml.safe_load((ROOT / "playbooks/rollout.yml").read_text())
    (found,) = (play for play in plays if play["name"].startswith(which))
    wanted = ("serial", "order", "any_errors_fatal", "max_fail_percentage")
    keywords = {name: found[name] for name in wanted if name in found}
    look = {"ansible.builtin.import_tasks": str(ROOT / "playbooks/tasks/batch.yml")}
    pings = [{"name": name, "ansible.builtin.ping": {}} for name in ("first", "second")]
    later = {"name": "later", "hosts": "all", "gather_facts": False, "tasks": pings[:1]}
    # Only from the second play on the variables of all hosts are known to what cuts batches.
    before = later | {"name": "before", "tasks": [{"ansible.builtin.debug": {"msg": "so it is in a rollout"}}]}
    (tmp_path / "play.json").write_text(
        json.dumps([before, later | keywords | {"name": "now", "tasks": [look, *pings]}, later])
    )
    common = {**COMMON, "line_log": f"{tmp_path}/{{{{ inventory_hostname }}}}.log"}
    hosts: Hosts = {"mq1": {"line_cut_at": "second"}, "mq2": {}, "mq3": {}, "mq4": {}}
    turn = {"mq_turn_alone": {"hosts": dict.fromkeys(hosts)}}
    (tmp_path / "inventory.json").write_text(json.dumps({"all": {"vars": common, "hosts": hosts, "children": turn}}))
    command = [Path(sys.executable).parent / "ansible-playbook", "-i", "inventory.json", "play.json"]
    environ = {
        **os.environ, "ANSIBLE_CONNECTION_PLUGINS": str(LINES), "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev"),
    }  # fmt: skip
    done = subprocess.run(
        [*command, "-e", f"rollout_batch={batch}"], cwd=tmp_path, env=environ, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "mq1 fell out" in done.stdout.replace("mq1, mq2 fell out", "mq1 fell out")
    assert {path.stem for path in tmp_path.glob("*.log")} == reached, done.stdout
    assert {name for name in reached if "second\n" in (tmp_path / f"{name}.log").read_text()} - {"mq1"} == goes_on
    assert "PLAY [later]" not in done.stdout


@pytest.mark.one_day_in_three(2)
def test_hosts_without_a_packet_filter_are_members_for_those_that_have_one(tmp_path: Path) -> None:
    """With the play of a rollout that finds their addresses. The first host is asked about those that are not in it."""
    plays = yaml.safe_load((ROOT / "playbooks/firewall.yml").read_text())
    (find,) = (play for play in plays if play["name"].startswith("Find the addresses of the members"))
    (task,) = find["tasks"]
    task["ansible.builtin.import_tasks"] = str(ROOT / "playbooks" / task["ansible.builtin.import_tasks"])
    told = {
        "ansible.builtin.debug": {"msg": "{{ inventory_hostname }} knows {{ firewall_members | sort | join(' ') }}."}
    }
    (tmp_path / "play.json").write_text(
        json.dumps([find | {"hosts": "all", "vars_files": [str(ROOT / "playbooks/vars/roles.json")],
                            "tasks": [task, told]}])
    )  # fmt: skip
    common = {**COMMON, "line_log": f"{tmp_path}/{{{{ inventory_hostname }}}}.log"}
    hosts: Hosts = {f"mq{number}": {"mq_local_bind_address": f"127.0.0.{number}"} for number in (1, 2, 3)}
    hosts = {**hosts, "mq2": {**hosts["mq2"], "mq_firewall": True}}
    (tmp_path / "inventory.json").write_text(json.dumps({"all": {"vars": common, "hosts": hosts}}))
    command = [Path(sys.executable).parent / "ansible-playbook", "-i", "inventory.json", "play.json"]
    environ = {
        **os.environ, "ANSIBLE_CONNECTION_PLUGINS": str(LINES), "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".dev"),
    }  # fmt: skip
    for limit in ("all", "mq1,mq2", "mq2"):
        done = subprocess.run(
            [*command, "--limit", limit], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        assert "mq2 knows 127.0.0.1 127.0.0.2 127.0.0.3." in done.stdout


@pytest.mark.one_day_in_three(2)
def test_two_names_that_lead_to_one_machine_are_refused_whatever_the_ways_there(site: Site, tmp_path: Path) -> None:
    for name, number in (("one", "a"), ("other", "b"), ("none", "0")):
        (tmp_path / name).write_text(f"{number * 32}\n")
    hosts: Hosts = {
        "mq1": {"line_machine": str(tmp_path / "one"), "ansible_host": "192.0.2.11"},
        "mq2": {"line_machine": str(tmp_path / "one"), "ansible_host": "198.51.100.11"},
        "mq3": {"line_machine": str(tmp_path / "other")},
        # Nothing can be told of these.
        "mq4": {"line_machine": str(tmp_path / "none")},
        "mq5": {"line_machine": str(tmp_path / "none")},
        "mq6": {},
        "mq7": {},
    }
    state = site.run(hosts)
    assert {one.name: one.state for one in state.hosts.values()} == {
        **dict.fromkeys(hosts, "stopped"), "mq1": "refused", "mq2": "refused",
    }  # fmt: skip
    for host, other in (("mq1", "mq2"), ("mq2", "mq1")):
        note = state.hosts[host].note
        assert f"this is the machine that {other} is as well (both have the machine id {'a' * 32})" in note
        assert "nothing was changed on any host" in note
    assert [one.changed for one in state.hosts.values()] == [0] * len(hosts)


def test_a_key_of_another_certificate_is_refused_before_anything_is_changed(site: Site, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    good = provided(authority)
    state = site.run({"mq1": {**good, "mq_tls_key_file": str(other.key_file)}, "mq2": good})
    assert {one.name: one.state for one in state.hosts.values()} == {"mq1": "refused", "mq2": "stopped"}
    said = f"{other.key_file} is not the key of the certificate in {authority.certificate_file}"
    assert said in state.hosts["mq1"].note
