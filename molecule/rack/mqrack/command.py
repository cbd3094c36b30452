"""Owns running other programs: every one has a time limit, and a failure becomes a sentence.

Invariant: children inherit no open file of ours, so a lock that we hold ends with us.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence

from mqrack.errors import RackError

TIMEOUT_S = 60.0


def run(argv: Sequence[str], *, stdin: str | None = None, timeout_s: float = TIMEOUT_S) -> str:
    """Returns the standard output; raises RackError with the program's own words when it fails."""
    done = attempt(argv, stdin=stdin, timeout_s=timeout_s)
    if done.returncode != 0:
        words = done.stderr.strip() or done.stdout.strip() or "it said nothing"
        raise RackError(f"{' '.join(argv)} failed with exit code {done.returncode}: {words}")
    return done.stdout


def attempt(
    argv: Sequence[str],
    *,
    stdin: str | None = None,
    timeout_s: float = TIMEOUT_S,
    joiner: Callable[[], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """As run, for callers who read the exit code themselves. What can outlive us for more than a moment joins a
    control group (`Group.joiner`), by which others find it."""
    try:
        return subprocess.run(
            argv,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            preexec_fn=joiner,
        )
    except FileNotFoundError:
        raise RackError(f"the program {argv[0]} is missing here; `rack doctor` names the package.") from None
    except subprocess.TimeoutExpired:
        raise RackError(f"{' '.join(argv)} did not end within {timeout_s:g} s.") from None
