"""A host that falls silent is found out, whatever else ssh is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.mqops.cluster.plugins.filter.ssh_alive import ALIVE, ssh_alive

ROOT = Path(__file__).resolve().parents[3]


def test_what_a_user_says_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two values of one option ssh takes the first."""
    monkeypatch.delenv("ANSIBLE_SSH_EXTRA_ARGS", raising=False)
    assert ssh_alive("") == ALIVE
    assert ssh_alive("-o ServerAliveInterval=60") == f"-o ServerAliveInterval=60 {ALIVE}"
    monkeypatch.setenv("ANSIBLE_SSH_EXTRA_ARGS", "-o Compression=yes")
    assert ssh_alive("") == f"-o Compression=yes {ALIVE}"
    assert ssh_alive("-4") == f"-4 {ALIVE}"


def test_every_play_that_reaches_hosts_has_it() -> None:
    for name in ("preflight", "rollout", "firewall", "uninstall"):
        for play in yaml.safe_load((ROOT / f"playbooks/{name}.yml").read_text()):
            if play.get("become"):
                assert play["vars_files"] == ["vars/roles.json"], play["name"]
