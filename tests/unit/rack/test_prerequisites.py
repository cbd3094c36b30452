"""What the machine has too little of is named, with what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from mqrack import prerequisites

from tests.support.patience import PATIENCE_S

RACK = Path(prerequisites.__file__).parents[1]


@pytest.mark.parametrize(("allowed", "is_told"), [(prerequisites.WATCHERS_PER_HOST - 1, True), (100, False)])
def test_a_machine_without_inotify_instances_is_told_of(allowed: int, is_told: bool) -> None:
    """In a user namespace, which has a limit of its own."""
    script = 'echo "$1" > /proc/sys/user/max_inotify_instances && exec "$2" -c "$3"'
    program = "from mqrack import prerequisites; print(prerequisites.too_few_watchers())"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-ec", script, "sh", str(allowed), sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(RACK)}, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ("fs.inotify.max_user_instances" in done.stdout) is is_told, done.stdout
