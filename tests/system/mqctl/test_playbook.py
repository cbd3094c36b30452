"""Playbooks through ansible-runner with a real Ansible: progress, verdicts, secrets, and nothing left behind.

The collection here is a small one of the test: what matters is how mqctl runs a playbook, not what the playbook does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sim.days import share_of_today
from tests.support.forks import run_mqctl
from tests.support.patience import PATIENCE_S

MQCTL = [sys.executable, "-m", "mqctl.main"]
BIN = Path(sys.executable).parent
CANARIES = {
    "group": "canary-in-group-vars",
    "vault": "canary-in-the-vault",
    "become": "canary-as-become-password",
    "environment": "canary-in-the-environment",
}
PREFLIGHT = """
- hosts: all
  gather_facts: false
  tasks:
    - name: reach
      ansible.builtin.ping:
    - name: collect
      ansible.builtin.set_fact:
        preflight_findings: "{{ findings | default([]) }}"
    - name: stop
      ansible.builtin.fail:
        msg: "{{ broken }}"
      when: broken is defined
"""
# Run with --check, so that mqctl notes no operation on this machine, which its hosts are; the tasks run all the same.
ROLLOUT = """
- hosts: all
  gather_facts: false
  check_mode: false
  tasks:
    - name: leak as badly as possible
      ansible.builtin.debug:
        msg: "{{ mq_cluster_secret }} {{ mq_users }} {{ ansible_become_password }}"
    - name: write a secret
      ansible.builtin.copy:
        content: "{{ mq_cluster_secret }} {{ mq_users[0].password }}"
        dest: "{{ target }}/{{ inventory_hostname }}"
        mode: "0600"
    - name: a command with a secret
      ansible.builtin.command: "echo {{ mq_cluster_secret }}"
    - name: fail with a secret
      ansible.builtin.fail:
        msg: "the password {{ mq_users[0].password }} is wrong"
    - name: sleep
      ansible.builtin.command: sleep 20
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with an inventory of local hosts, canaries everywhere, a collection and a bundle."""
    playbooks = tmp_path / "collections/ansible_collections/mqops/cluster/playbooks"
    playbooks.mkdir(parents=True)
    (playbooks.parent / "galaxy.yml").write_text(
        "namespace: mqops\nname: cluster\nversion: 0.1.0\nreadme: README.md\nauthors: [test]\n"
    )
    (playbooks / "preflight.yml").write_text(PREFLIGHT)
    (playbooks / "uninstall.yml").write_text(ROLLOUT.replace("- name: fail with a secret", "- name: go on").replace(
        "ansible.builtin.fail:\n        msg:", "ansible.builtin.debug:\n        msg:"))  # fmt: skip
    group_vars = tmp_path / "group_vars/brokers"
    group_vars.mkdir(parents=True)
    (group_vars / "main.yml").write_text(
        f"mq_cluster_name: main\nmq_cluster_secret: {CANARIES['group']}\n"
        f"ansible_become_password: {CANARIES['become']}\n"
    )
    (group_vars / "vault.yml").write_text(f"mq_users:\n  - name: app\n    password: {CANARIES['vault']}\n")
    (tmp_path / "vault-password").write_text("opensesame\n")
    encrypt = [BIN / "ansible-vault", "encrypt", "--vault-password-file", tmp_path / "vault-password"]
    subprocess.run([*encrypt, group_vars / "vault.yml"], check=True, capture_output=True, timeout=60)
    assert "ANSIBLE_VAULT" in (group_vars / "vault.yml").read_text()
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "home").mkdir()
    bundle = tmp_path / "dist/bundle"
    (bundle / "wheels").mkdir(parents=True)
    return tmp_path


def inventory(place: Path, **hosts: dict[str, object]) -> None:
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    named = {name: {**local, "ansible_host": f"127.0.0.{number}", **more}
             for number, (name, more) in enumerate(hosts.items(), 11)}  # fmt: skip
    (place / "inventory.yml").write_text(json.dumps({"brokers": {"hosts": named}}))


def environment(place: Path) -> dict[str, str]:
    return {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(place / "collections"),
        "ANSIBLE_VAULT_PASSWORD_FILE": str(place / "vault-password"),
        "XDG_RUNTIME_DIR": str(place / "run"),
        "HOME": str(place / "home"),
        "CANARY": CANARIES["environment"],
    }


def mqctl(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_mqctl(words, environment(place), place, timeout_s=PATIENCE_S)


def test_all_findings_of_all_hosts_and_the_unreachable_one(place: Path) -> None:
    nowhere: dict[str, object] = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    findings = [
        {"level": "warning", "check": "clock", "message": "not synchronised"},
        {"level": "error", "check": "ports", "message": "5672 is taken"},
    ]
    inventory(place, mq1={}, mq2={"findings": findings}, mq3=nowhere, mq4={"broken": "odd"})
    done = mqctl(place, "preflight", "--bundle", "dist/bundle", "--json")
    document = json.loads(done.stdout)
    assert document["schema"] == "mqctl.preflight/1"
    rows = {(row["host"], row["level"], row["check"]) for row in document["rows"]}
    assert rows == {
        ("mq1", "ok", None), ("mq2", "warning", "clock"), ("mq2", "error", "ports"),
        ("mq3", "unreachable", None), ("mq4", "failed", None),
    }  # fmt: skip
    assert done.returncode == 1
    assert os.listdir(place / "run") == []


SETTINGS = """[defaults]
stdout_callback = json
no_log = true
enable_task_debugger = true
display_ok_hosts = false
forks = 1
gathering = explicit
strategy = free

[tags]
run = web
skip = always
"""


@pytest.mark.parametrize("is_file", [True, False])
def test_how_each_host_fared_is_seen_whatever_a_user_has_set_for_his_own_playbooks(place: Path, is_file: bool) -> None:
    findings = [{"level": "warning", "check": "clock", "message": "not synchronised"}]
    inventory(place, mq1={}, mq2={"findings": findings}, mq3={"broken": "odd"})
    environ = environment(place)
    if is_file:
        (place / "ansible.cfg").write_text(SETTINGS)
    else:
        environ |= {
            "ANSIBLE_STDOUT_CALLBACK": "oneline", "ANSIBLE_NO_LOG": "true", "ANSIBLE_RUN_TAGS": "web",
            "ANSIBLE_SKIP_TAGS": "always", "ANSIBLE_ENABLE_TASK_DEBUGGER": "true", "RUNNER_ONLY_FAILED_EVENTS": "true",
            "RUNNER_OMIT_EVENTS": "true", "ANSIBLE_STRATEGY": "free",
            "ANSIBLE_CALLBACKS_ENABLED": "ansible.builtin.tree", "ANSIBLE_CALLBACK_TREE_DIR": str(place / "tree"),
        }  # fmt: skip
    done = run_mqctl(["preflight", "--bundle", "dist/bundle", "--json"], environ, place, timeout_s=PATIENCE_S)
    assert done.returncode == 1, done.stderr
    rows = {(row["host"], row["level"], row["check"]) for row in json.loads(done.stdout)["rows"]}
    assert rows == {("mq1", "ok", None), ("mq2", "warning", "clock"), ("mq3", "failed", None)}


def test_unreachable_alone_is_exit_code_3(place: Path) -> None:
    nowhere: dict[str, object] = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    inventory(place, mq1={}, mq2=nowhere)
    done = mqctl(place, "preflight", "--bundle", "dist/bundle")
    assert done.returncode == 3, done.stderr
    assert "mq2: unreachable" in done.stderr


@pytest.mark.parametrize("words", share_of_today([["-vvv"], ["-vvv", "--check"]]))
def test_no_canary_in_any_output_or_left_behind(place: Path, words: list[str]) -> None:
    (place / "out").mkdir()
    inventory(place, mq1={"target": str(place / "out")})
    playbooks = place / "collections/ansible_collections/mqops/cluster/playbooks"
    (playbooks / "uninstall.yml").write_text(ROLLOUT)
    before = set(os.listdir("/tmp"))
    done = mqctl(place, "uninstall", "--check", *words)
    assert done.returncode == 1, done.stderr
    assert "uninstall" in done.stderr
    assert "TASK [" in done.stderr
    said = done.stdout + done.stderr
    for where, canary in CANARIES.items():
        assert canary not in said, (where, said)
    assert "the password ******** is wrong" in done.stdout
    assert os.listdir(place / "run") == []
    new = [one for one in set(os.listdir("/tmp")) - before if one.startswith(("mqctl", "runner", "ansible"))]
    # Other runs on this machine have such files as well, and remove theirs.
    deadline_s = time.monotonic() + 120
    while left := [one for one in new if os.path.lexists(f"/tmp/{one}")]:
        assert time.monotonic() < deadline_s, left
        time.sleep(0.1)
    for path in (place / "home").rglob("*"):
        if path.is_file():
            assert not any(canary.encode() in path.read_bytes() for canary in CANARIES.values()), path


def test_a_playbook_that_cannot_start_says_why(place: Path) -> None:
    inventory(place, mq1={})
    playbooks = place / "collections/ansible_collections/mqops/cluster/playbooks"
    (playbooks / "uninstall.yml").write_text("- hosts: all\n  nonsense: 1\n")
    done = mqctl(place, "uninstall", "--check")
    assert done.returncode == 1
    assert "nonsense" in done.stderr
    assert "try: mqctl uninstall -vvv" in done.stderr


@pytest.mark.one_day_in_three(0)
def test_ctrl_c_ends_the_playbook_and_removes_its_folder(place: Path) -> None:
    (place / "out").mkdir()
    inventory(place, mq1={"target": str(place / "out")})
    command = [*MQCTL, "uninstall", "--check"]
    with subprocess.Popen(command, cwd=place, env=environment(place), stderr=subprocess.PIPE, text=True) as process:
        _until(lambda: (place / "out/mq1").exists())
        (folder,) = (place / "run").iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert os.listdir(place / "run") == []


@pytest.mark.one_day_in_three(2)
def test_what_a_killed_run_left_is_swept_by_the_next(place: Path) -> None:
    (place / "out").mkdir()
    inventory(place, mq1={"target": str(place / "out")})
    command = [*MQCTL, "uninstall", "--check"]
    with subprocess.Popen(command, cwd=place, env=environment(place), stderr=subprocess.DEVNULL) as process:
        _until(lambda: (place / "out/mq1").exists())
        process.kill()
        process.wait(PATIENCE_S)
    assert len(os.listdir(place / "run")) == 1
    assert mqctl(place, "preflight", "--bundle", "dist/bundle").returncode == 0
    assert os.listdir(place / "run") == []


def test_without_a_terminal_and_without_yes_nothing_happens(place: Path) -> None:
    inventory(place, mq1={})
    done = mqctl(place, "uninstall", "--force")  # nobody answers there
    assert done.returncode == 2
    assert "--yes" in done.stderr


def _until(is_so: object, timeout_s: float = PATIENCE_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
