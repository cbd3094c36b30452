"""What importing `mqbroker run` brings along: what serves messages, and none of what a start or nobody needs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CODE = """\
import json, sys
before = set(sys.modules)
import mqbroker.app.commands.run
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


@pytest.mark.slow
def test_libraries_of_a_broker() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(json.loads(done.stdout))
    foreign = loaded - sys.stdlib_module_names - {"_posixsubprocess"}
    # Options are read by a process that is gone by then, a selector and a scrape bring what they need when they come.
    assert foreign <= {"mqbroker", "isal"}
    assert not loaded & {"decimal", "http", "multiprocessing", "tempfile", "unittest", "xml", "zipfile", "zoneinfo"}
