"""The hosts of the scenario, as testinfra and as brokers of a cluster."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import testinfra  # type: ignore[import-untyped]

from tests.support.rack_cluster import RackBroker, RackHosts

HOSTS = ("mq1", "mq2", "mq3")
INVENTORIES = (os.environ["RACK_INVENTORY"], str(Path(__file__).parents[1] / "inventory" / "brokers.yml"))
PLAY_S_MAX = 900


@pytest.fixture(scope="session")
def brokers() -> dict[str, RackBroker]:
    rack = RackHosts()
    return {name: RackBroker(rack, name) for name in HOSTS}


@pytest.fixture(scope="session")
def hosts(brokers: dict[str, RackBroker]) -> dict[str, Any]:
    """Over ssh, as root."""
    settings = str(brokers["mq1"].rack.run_folder / "ssh_config")
    return {name: testinfra.get_host(f"ssh://{name}?sudo=true", ssh_config=settings) for name in HOSTS}


@pytest.fixture
def play() -> Callable[..., str]:
    """Run a playbook of the collection, with variables; what it said."""

    def run(name: str, **variables: str) -> str:
        words = ["ansible-playbook", *(f"--inventory={one}" for one in INVENTORIES), f"mqops.cluster.{name}"]
        words += [f"--extra-vars={key}={value}" for key, value in variables.items()]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PLAY_S_MAX, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        return done.stdout

    return run
