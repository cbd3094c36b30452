"""What roles manage on a host is what a plan compares: both are asked, and each task has a change that a plan shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader  # type: ignore[import-untyped]
from ansible.plugins.loader import init_plugin_loader  # type: ignore[import-untyped]
from ansible.template import Templar, trust_as_template  # type: ignore[import-untyped]
from mqbroker.config.file import completeness
from mqbroker.config.inventory import release_variables
from mqbroker.config.inventory.inventory import host_variables
from mqbroker.config.inventory.tables import render_toml
from mqctl.plan.places import Given, HostPlace, digest, places_of
from mqctl.plan.plan import Seen, WantedHost, diff_host, skeleton

from tests.contract.test_role_template import CASES, by_role
from tests.support.drifts import ALONE, DRIFTS, FILTERED

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("release", "broker", "tls", "firewall")
BASE = {"mq_cluster_name": "orders", "mq_cluster_secret": "0123456789abcdef"}
# They look, say or decide, and leave nothing on a host.
LOOKS = {
    "ansible.builtin.assert", "ansible.builtin.debug", "ansible.builtin.fail", "ansible.builtin.find",
    "ansible.builtin.import_tasks",
    "ansible.builtin.include_tasks", "ansible.builtin.meta", "ansible.builtin.set_fact", "ansible.builtin.stat",
    "ansible.builtin.wait_for_connection", "block", "mqops.cluster.bind_address", "mqops.cluster.broker_status",
    "mqops.cluster.release_files", "mqops.cluster.release_trial",
}  # fmt: skip
# The tasks that make what a host has only while they run, or that a plan has lines of their own for, each with why.
OTHERWISE = {
    "release: Keep what this host goes back to": "where the link moves, which is a line of the plan: release",
    "release: See which one this host goes back to": "it only looks",
    "broker: See whether another operation has come to the host": "it only looks",
    "broker: Make the group mq": "made with the user; another number is a line of the plan",
    "broker: Make the identities": "a line of the plan, and no rollout replaces one",
    "broker: Compare the unit and the options": "a check",
    "broker: Remove the secret of the cluster": "a line of the plan: file …/cluster-secret remove",
    "broker: Have it read its files again": "what runs is compared with what is on disk",
    "firewall: Let the old rules come back by themselves": "a timer that ends with the run",
    "firewall: Confirm the new rules": "ends that timer",
    "firewall: Stop the unit": "rules that are to go are one line: packet filter remove",
    "firewall: Remove the table": "the same",
    "firewall: Remove unit and rules": "the same",
    "firewall: Let systemd forget the unit": "the same",
    "tls: Copy the private keys": "test_places_are_those_of_the_roles, and the unit tests of places",
    "tls: Copy the certificates, and those of CAs that are trusted": "lines of certificates",
}


def tasks(role: str) -> Iterator[dict[str, Any]]:
    """Every task of a role, those in blocks as well."""

    def walk(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for one in found:
            yield one
            for part in ("block", "rescue", "always"):
                yield from walk(one.get(part, []))

    for file in sorted((ROOT / "roles" / role / "tasks").glob("*.yml")):
        yield from walk(yaml.safe_load(file.read_text(encoding="utf-8")))


def acts(task: dict[str, Any]) -> bool:
    """Whether it may change a host."""
    is_module = [name for name in task if "." in name or name == "block"]
    return not set(is_module) <= LOOKS and task.get("changed_when") is not False


@pytest.mark.parametrize("role", ROLES)
def test_each_task_that_changes_a_host_has_a_change_that_a_plan_shows(role: str) -> None:
    known = {name for one in (*DRIFTS, *ALONE, *FILTERED) for name in one.tasks} | set(OTHERWISE)
    acting = [f"{role}: {one['name']}" for one in tasks(role) if acts(one)]
    assert acting
    assert [name for name in acting if name not in known] == []


def test_no_drift_is_of_a_task_that_is_gone() -> None:
    there = {f"{role}: {one['name']}" for role in ROLES for one in tasks(role)}
    named = {name for one in (*DRIFTS, *ALONE, *FILTERED) for name in one.tasks} | set(OTHERWISE)
    assert named - there == set()


def trusted(value: Any) -> Any:
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, list):
        return [trusted(one) for one in value]
    return {name: trusted(one) for name, one in value.items()} if isinstance(value, dict) else value


def loaded(*files: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for file in files:
        found |= trusted(yaml.safe_load((ROOT / file).read_text(encoding="utf-8")))
    return found


def by_roles(variables: dict[str, Any], key: Path) -> dict[str, HostPlace]:
    """Path -> what the variables of the roles want there."""
    init_plugin_loader([str(ROOT / ".dev")])
    values = {
        **loaded(*(f"roles/{role}/{part}/main.yml" for role in ROLES for part in ("defaults", "vars"))),
        **variables, "inventory_hostname": "mq1", "ansible_managed": "Ansible managed",
        "broker_cluster_secret": variables["mq_cluster_secret"], "broker_cluster_name": "orders",
        "broker_instances": variables["mq_instances"], "tls_instances": variables["mq_instances"],
        "broker_options": variables.get("mq_broker_options", {}), "__broker_address": "127.0.0.1",
        "tls_source": "provided", "tls_certificate_file": str(key), "tls_key_file": str(key), "tls_ca_file": str(key),
        "ansible_search_path": [str(ROOT / "roles/broker")],
    }  # fmt: skip
    templar = Templar(loader=DataLoader(), variables=values)
    found: dict[str, HostPlace] = {}
    for name in (
        "__release_places",
        "__broker_places",
        "__broker_kept",
        "__broker_files",
        "__tls_secrets",
        "__tls_certificates",
    ):
        for one in templar.template(trust_as_template("{{ " + name + " }}")):
            content = one.get("secret_content", one.get("content"))
            kind = "file" if content is not None or one.get("is_kept") else "folder"
            found[one["path"]] = HostPlace(
                kind, one.get("owner", "root"), one.get("group", "root"), one["mode"], content and digest(content)
            )
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"mq_broker_options": {"node": {"stop_timeout_ms": 2500}}}],
)  # fmt: skip
def test_places_are_those_of_the_roles(changes: dict[str, Any], tmp_path: Path) -> None:
    key = tmp_path / "server.key"
    key.write_text("a key\n")
    groups = [{"name": "lan", "group_address": "231.7.7.7", "group_port": 9876}]
    variables = {
        **BASE, "mq_tls": "provided", "mq_tls_certificate_file": str(key), "mq_tls_key_file": str(key),
        "mq_tls_ca_file": str(key), "mq_instances": [{"name": "default"}, {"name": "b", "port_offset": 10}],
        "mq_discovery_groups": groups, **changes,
    }  # fmt: skip
    keys = {name: digest("a key\n") for name in ("default", "b")}
    ours = places_of(host_variables(variables), Given({name: {} for name in keys}, keys))
    theirs = by_roles(variables, key)
    assert {path: (one.kind, one.owner, one.group, one.mode) for path, one in ours.items()} == {
        path: (one.kind, one.owner, one.group, one.mode) for path, one in theirs.items()
    }
    compared = [path for path, one in ours.items() if one.content is not None]
    # The secret is written by a program.
    said = [path for path in compared if not path.endswith("/cluster-secret")]
    assert said
    assert {path: ours[path].content for path in said} == {path: theirs[path].content for path in said}
    told = [path for path, one in theirs.items() if one.content is not None and not ours[path].is_told]
    assert set(told) == set(said)


@pytest.mark.parametrize(
    ("current", "before", "wanted", "removed"),
    [
        # The newest stay, the one that is wanted among them.
        ("4", {}, "4", ["1"]),
        # One that was gone back to is older than what it was gone back from, and is what the next one goes back to.
        ("1", {"1": ""}, "4", ["2"]),
        ("4", {"4": "1"}, "4", ["2"]),
        ("4", {"4": "9"}, "4", ["1"]),
    ],
)
def test_the_release_that_a_host_goes_back_to_is_the_last_to_go(
    current: str, before: dict[str, str], wanted: str, removed: list[str]
) -> None:
    seen = Seen(release=current, before=before, releases=dict.fromkeys("4321", True))
    plan = diff_host("mq1", WantedHost(wanted, {}), seen)
    assert [one.before for one in plan if one.action == "remove"] == removed
    (task,) = [one for one in tasks("release") if one["name"] == "Remove the oldest releases"]
    # When the role comes to it, what is wanted is the current one, and what was current is noted as before it.
    noted = before.get(wanted) if current == wanted else current
    files = [{"path": f"/opt/mq/releases/{name}", "mtime": float(name)} for name in "1234"]
    known = {
        "__release_found": {"files": files}, "__release_place": f"/opt/mq/releases/{wanted}", "release_keep": 3,
        "__release_before": {"found": {"release": noted} if noted else None},
        **{name: trust_as_template(text) for name, text in task["vars"].items()},
    }  # fmt: skip
    gone = Templar(DataLoader(), known).template(trust_as_template(task["loop"]))
    assert gone == [f"/opt/mq/releases/{name}" for name in removed]


def test_as_many_releases_are_kept_as_the_role_keeps() -> None:
    defaults = yaml.safe_load((ROOT / "roles/release/defaults/main.yml").read_text(encoding="utf-8"))
    assert defaults["release_keep"] == release_variables.KEPT


@pytest.mark.parametrize("case", CASES)
def test_a_plan_finds_nothing_to_replace_in_what_the_role_writes(case: str) -> None:
    changes, instance, address = CASES[case]
    variables = host_variables({**BASE, **changes})
    ours = f"{render_toml(variables, instance, 'mq1', address)}\n{completeness.END}\n"
    assert skeleton(by_role(variables, instance, address)) == skeleton(ours)
