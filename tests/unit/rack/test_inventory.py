"""The inventory is YAML that Ansible reads as meant, and the client settings agree with it."""

from __future__ import annotations

import itertools
import shlex
from typing import Any

import yaml
from mqrack import inventory, ssh
from mqrack.layout import Layout
from mqrack.plan import make_plan

LAYOUT = Layout("r")


def rendered(jump_by: str = "ProxyCommand") -> dict[str, Any]:
    plan = make_plan("r", 3, behind={"mq3": "mq1"})
    loaded: dict[str, Any] = yaml.safe_load(inventory.render(LAYOUT, plan, "brokers", jump_by))
    return loaded["all"]  # type: ignore[no-any-return]


def options(args: str) -> dict[str, str]:
    words = shlex.split(args)
    return dict(word.split("=", 1) for flag, word in itertools.pairwise(words) if flag == "-o")


def test_hosts_are_in_the_group_with_their_addresses() -> None:
    hosts = rendered()["children"]["brokers"]["hosts"]
    addresses = {name: facts["ansible_host"] for name, facts in hosts.items()}
    assert addresses == {"mq1": "192.0.2.11", "mq2": "192.0.2.12", "mq3": "203.0.113.13"}


def test_everything_needed_to_log_in_is_there_and_belongs_to_this_rack() -> None:
    shared = rendered()["vars"]
    assert shared["ansible_user"] == "deploy"
    assert shared["ansible_python_interpreter"] == "/usr/bin/python3"
    assert shared["ansible_ssh_private_key_file"] == "/run/mqops-rack/r/id_ed25519"
    given = options(shared["ansible_ssh_common_args"])
    assert given["StrictHostKeyChecking"] == "yes"
    assert given["UserKnownHostsFile"] == "/run/mqops-rack/r/known_hosts"
    assert given["ControlPath"].startswith("/run/mqops-rack/r/cp/")


def test_a_host_behind_another_is_reached_by_a_command_that_carries_key_and_known_hosts() -> None:
    given = options(rendered()["children"]["brokers"]["hosts"]["mq3"]["ansible_ssh_common_args"])
    hop = shlex.split(given["ProxyCommand"])
    assert hop[:3] == ["ssh", "-i", "/run/mqops-rack/r/id_ed25519"]
    assert hop[-3:] == ["-W", "%h:%p", "deploy@192.0.2.11"]
    assert options(given["ProxyCommand"])["UserKnownHostsFile"] == "/run/mqops-rack/r/known_hosts"


def test_or_by_the_name_of_the_jump_host_with_a_settings_file() -> None:
    args = rendered("ProxyJump")["children"]["brokers"]["hosts"]["mq3"]["ansible_ssh_common_args"]
    assert options(args)["ProxyJump"] == "mq1"
    assert "-F /run/mqops-rack/r/ssh_config" in args


def test_an_empty_rack_is_a_group_without_hosts() -> None:
    loaded = yaml.safe_load(inventory.render(LAYOUT, make_plan("r", 0), "spares"))
    assert loaded["all"]["children"] == {"spares": {"hosts": {}}}


def test_the_client_settings_name_every_host_and_jump() -> None:
    text = ssh.client_config(LAYOUT, make_plan("r", 3, behind={"mq3": "mq1"}))
    blocks = {block.splitlines()[0]: block for block in text.split("\n\n")}
    assert set(blocks) == {"Host mq1", "Host mq2", "Host mq3", "Host *"}
    assert "ProxyJump mq1" in blocks["Host mq3"]
    assert "ProxyJump" not in blocks["Host mq2"]
