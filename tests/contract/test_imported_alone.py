"""What is imported late is imported whole when it is alone, which tests that fork a process with all imports don't see.

One fresh process forks off one for each: it has imported nothing of ours but what all have to begin with; libraries
that a first fork needed for all of them are there, as most of what an import takes is theirs, and so is what of Python
itself those import.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.forks import LATE, ROOT
from tests.support.patience import PATIENCE_S

EACH = """
import importlib, os, sys, traceback
{begin}
NOT_FIRST = {{"mqbroker", "mqctl", *sys.stdlib_module_names}}
reading, writing = os.pipe()
if not os.fork():
    for each in {names}:
        {alone}
    needed = [name for name, module in list(sys.modules.items()) if getattr(module, "__spec__", None) is not None]
    needed = [name for name in needed if name.partition(".")[0] not in NOT_FIRST]
    with os.fdopen(writing, "w") as pipe:
        pipe.write(" ".join(needed))
    os._exit(0)
os.close(writing)
with os.fdopen(reading) as pipe:
    for each in pipe.read().split():
        importlib.import_module(each)
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
