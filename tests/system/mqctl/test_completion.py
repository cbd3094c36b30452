"""What a shell is offered when a key is pressed, through the program that the shell's script calls."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.days import share_of_today

MQCTL = [sys.executable, "-m", "mqctl.main"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    secret = {"mq_cluster_secret": "long enough for a secret"}
    clusters = {
        "east": {"vars": {"mq_cluster_name": "east", **secret}, "hosts": {"mq1": {}, "mq2": {}}},
        "west": {
            "vars": {"mq_cluster_name": "west", **secret, "mq_instances": [{"name": "a"}]},
            "hosts": {"mw1": {}},
        },
    }
    (tmp_path / "inventory.yml").write_text(json.dumps(clusters))
    return tmp_path


def offered(place: Path, line: str) -> list[str]:
    environ = {
        **os.environ, "_MQCTL_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")),
    }  # fmt: skip
    done = subprocess.run(MQCTL, cwd=place, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "wanted"),
    share_of_today([
        ("mqctl pre", ["preflight"]),
        ("mqctl inventory ", ["check", "graph"]),
        ("mqctl status --cluster ", ["east", "west"]),
        ("mqctl status --cluster w", ["west"]),
        ("mqctl preflight --cluster east --limit ", ["mq1", "mq2"]),
        ("mqctl queue list --host mw", ["mw1/a"]),
        ("mqctl cluster forget mw", ["mw1/a"]),
        ("mqctl status -i nowhere.yml --cluster ", []),
    ]),
)  # fmt: skip
def test_what_is_offered(place: Path, line: str, wanted: list[str]) -> None:
    assert offered(place, line) == wanted


def test_the_script_of_a_shell_is_shown(tmp_path: Path) -> None:
    # The script is for the shell that asks, so one has to. With a second command it stays and is a parent.
    command = f"{shlex.join([*MQCTL, '--show-completion'])}; exit $?"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True
    )
    assert "complete -o default -F _mqctl_completion mqctl" in done.stdout


def test_the_graph_of_two_clusters(place: Path) -> None:
    words = ["inventory", "graph", "--json"]
    done = subprocess.run([*MQCTL, *words], cwd=place, capture_output=True, text=True, timeout=100, check=True)
    found = json.loads(done.stdout)
    assert found["schema"] == "mqctl.inventory-graph/1"
    assert list(dict.fromkeys((row["cluster"], row["host"], row["instance"]) for row in found["rows"])) == [
        ("east", "mq1", "default"), ("east", "mq2", "default"), ("west", "mw1", "a"),
    ]  # fmt: skip
    only = subprocess.run(
        [*MQCTL, "inventory", "graph", "--dot", "--cluster", "west"], cwd=place, capture_output=True, text=True,
        timeout=100, check=True,
    ).stdout  # fmt: skip
    assert 'label="west"' in only
    assert "east" not in only
