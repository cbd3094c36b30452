"""Fixtures of the scenario: its hosts, and playbooks run on them while the tests look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scene import HOSTS, NODES, Outcome, Run, reach, run_play


@pytest.fixture
def play(tmp_path: Path) -> Run:
    """Run a playbook: its name, arguments of ansible-playbook, variables; `inventory` is added to the inventories."""

    def run(name: str, *arguments: str, inventory: str | None = None, **variables: Any) -> Outcome:
        return run_play(tmp_path, name, arguments, inventory, variables)

    return run


@pytest.fixture(scope="session")
def hosts() -> dict[str, Any]:
    return {name: reach(name) for name in HOSTS}


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, hosts: dict[str, Any]) -> Any:
    """Each of the hosts."""
    return hosts[request.param]


@pytest.fixture(params=NODES, ids=lambda node: f"{node[0]}-{node[1]}")
def node(request: pytest.FixtureRequest, hosts: dict[str, Any]) -> tuple[Any, str, int]:
    """Each of the brokers: host, instance, port offset."""
    name, instance, offset = request.param
    return hosts[name], instance, offset
