"""Hosts that cannot be what the inventory wants: all findings of all of them, in one run that changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from scene import Run, unit_of

WRONG = {
    "mq1": {
        "mq_cluster_interface": "eth9",
        "mq_instances": [{"name": "default"}, {"name": "extra", "port_offset": 300}],
    },
    "mq2": {"mq_cluster_interface": "", "mq_local_bind_address": "203.0.113.7"},
    "mq3": {"mq_allow_plaintext": False},
    # Nobody is there.
    "mq4": {"ansible_host": "192.0.2.99", "ansible_ssh_timeout": 3},
}


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    """What is wrong with each host, added to the inventory."""
    path = tmp_path / "wrong.yml"
    path.write_text(yaml.safe_dump({"brokers": {"hosts": WRONG}}))
    return str(path)


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    """A bundle for another Python."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    manifest = json.loads((Path(os.environ["MQ_BUNDLE"]) / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "python": "3.9", "abi": "cp39"}))
    return str(folder)


@pytest.fixture
def taken_port(hosts: dict[str, Any]) -> Any:
    """A program on mq1 that has the port which the additional instance wants."""
    serve = "import socket, time; s = socket.create_server(('', 5972)); time.sleep(200)"
    hosts["mq1"].check_output("systemd-run --unit=taken python3 -c %s", serve)
    yield
    hosts["mq1"].check_output("systemctl stop taken")


@pytest.mark.usefixtures("taken_port")
def test_finds_everything_at_once_and_changes_nothing(
    play: Run, hosts: dict[str, Any], inventory: str, bundle: str
) -> None:
    before = {name: unit_of(host, "default") for name, host in hosts.items()}
    outcome = play("rollout", inventory=inventory, mq_bundle=bundle)
    assert outcome.code != 0
    assert outcome.changed == {}
    assert outcome.unreachable == ["mq4"]
    assert sorted(outcome.failed) == ["mq1", "mq2", "mq3"]
    errors = {
        name: [one["check"] for one in found if one["level"] == "error"] for name, found in outcome.findings.items()
    }
    # One port for each listener of the additional instance; one listener that is not encrypted for each of them.
    assert errors == {
        "mq1": ["bundle", "network", "ports"],
        "mq2": ["bundle", "network"],
        "mq3": ["bundle", "plaintext", "plaintext"],
    }
    said = {name: " ".join(one["message"] for one in found) for name, found in outcome.findings.items()}
    assert all("the bundle is for CPython 3.9, /usr/bin/python3 is CPython 3.11" in text for text in said.values()), (
        said
    )
    assert "eth9" in said["mq1"]
    assert "port 5972 of instance extra is taken by" in said["mq1"]
    assert "203.0.113.7" in said["mq2"]
    assert "mq_allow_plaintext" in said["mq3"]
    assert {name: unit_of(host, "default") for name, host in hosts.items()} == before
