"""What is imported late is imported whole when it is alone, which tests that fork a process with all imports don't see.

One fresh process forks off one for each: it has imported nothing but what all have to begin with.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.forks import LATE, ROOT
from tests.support.patience import PATIENCE_S

EACH = """
import os, sys, traceback
{begin}
for each in {names}:
    child = os.fork()
    if not child:
        try:
            {alone}
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(each, flush=True)
    else:
        print("whole", flush=True)
"""
COMMANDS = {"begin": "import mqctl.main", "names": "mqctl.main.COMMANDS", "alone": "mqctl.main.make_app([each])"}
MODULES = {"begin": "import importlib", "names": repr(LATE), "alone": "importlib.import_module(each)"}


@pytest.mark.parametrize("how", [COMMANDS, MODULES], ids=["mqctl", "mqbroker"])
def test_each_is_whole_alone(how: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EACH.format(**how)], cwd=ROOT, capture_output=True, text=True, timeout=5 * PATIENCE_S,
        check=True,
    )  # fmt: skip
    said = done.stdout.splitlines()
    assert len(said) >= len(LATE)
    assert set(said) == {"whole"}, done.stdout + done.stderr
