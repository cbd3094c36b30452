# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Runs `mqbroker` on the host it is called on.

Everything that a module knows about a broker comes out of that program: the Python of the modules cannot import it,
because it lives in an environment of its own. Passwords go in by standard input only, never as arguments.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

CURRENT = "/opt/mq/current"
EXECUTABLE = CURRENT + "/bin/mqbroker"
TIME_S_MAX = 120

DONE = 0
DIFFERENT = 3
IDENTITY = 5


class CommandFault(Exception):
    """The program is not there, took too long, or did not say what was asked."""


@dataclass(frozen=True)
class Answer:
    """How one run ended."""

    code: int
    out: str
    complaint: str

    def json(self) -> dict[str, Any]:
        """What it printed, as a dictionary. Raises CommandFault."""
        try:
            found = json.loads(self.out)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise CommandFault(self.complaint or f"the answer is not JSON: {self.out[:200]}")
        return found


def chosen(executable: str, is_check: bool) -> str:
    """The program to ask. A check of a release that is not installed yet asks the current one."""
    return EXECUTABLE if is_check and not os.path.exists(executable) else executable


def run(arguments: Sequence[str], executable: str = EXECUTABLE, text: str = "", time_s: int = TIME_S_MAX) -> Answer:
    """One run with `text` on its standard input; any exit code is an answer. Raises CommandFault."""
    command = [executable, *arguments]
    try:
        done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=time_s, check=False)
    except FileNotFoundError:
        raise CommandFault(f"{executable} is not there; roll out a release first") from None
    except subprocess.TimeoutExpired:
        raise CommandFault(f"{' '.join(command)} did not end within {time_s} s") from None
    except OSError as error:
        raise CommandFault(f"{executable} cannot be run: {error.strerror}") from None
    return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace").strip())
