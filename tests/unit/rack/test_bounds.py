"""What the machine says and what callers ask for is checked before anything is touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mqrack import cgroup, command, faults
from mqrack.errors import RackError

from tests.support.patience import PATIENCE_S

RACK = Path(__file__).resolve().parents[3] / "molecule" / "rack" / "rack"


def test_control_groups_are_found_on_machines_with_one_and_with_both_hierarchies() -> None:
    both = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    assert cgroup.unified_root(both) == Path("/sys/fs/cgroup/unified")
    assert cgroup.unified_root("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n") == Path("/sys/fs/cgroup")
    with pytest.raises(RackError, match="version 2"):
        cgroup.unified_root("cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n")


@pytest.mark.parametrize("percent", [-1, 100.1])
def test_loss_is_a_percentage(percent: float) -> None:
    with pytest.raises(RackError, match="give 0 to 100"):
        faults.check_loss(percent)


@pytest.mark.parametrize("delay_ms", [-1, faults.DELAY_MS_MAX + 1])
def test_delay_is_bounded(delay_ms: float) -> None:
    with pytest.raises(RackError, match=f"give 0 to {faults.DELAY_MS_MAX}"):
        faults.check_delay(delay_ms)


def test_a_failing_program_is_quoted() -> None:
    with pytest.raises(RackError, match=r"sh -c .* failed with exit code 3: the reason"):
        command.run(["sh", "-c", "echo the reason >&2; exit 3"])


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(RackError, match=r"did not end within 0.1 s"):
        command.run(["sleep", "10"], timeout_s=0.1)


def test_a_missing_program_points_at_the_doctor() -> None:
    with pytest.raises(RackError, match="rack doctor"):
        command.run(["no-such-program-here"])


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["status", "--name", "absent-rack"], 1, "there is no rack 'absent-rack' here; `rack up N --name absent-rack`"),
        (["up", "1", "--name", "Not-A-Name"], 1, "rack name 'Not-A-Name' is not usable"),
        (["up", "1000"], 1, "1000 hosts asked for; a rack holds 0 to 100."),
        (["up", "2", "--behind", "mq2"], 1, "--behind 'mq2' is not HOST=JUMP"),
        (["loss", "mq1", "eth1", "lots", "--name", "absent-rack"], 2, "invalid float value: 'lots'"),
        (["fly"], 2, "invalid choice: 'fly'"),
        ([], 2, "required: COMMAND"),
    ],
)
def test_wrong_words_end_in_a_sentence(words: list[str], code: int, sentence: str) -> None:
    done = subprocess.run([sys.executable, RACK, *words], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == code
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
