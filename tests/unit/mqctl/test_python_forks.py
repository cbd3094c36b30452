"""The Python of hosts that are folders does what Python itself does, and leaves to that one what it does not know."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.ansible_question import OWN
from tests.support.patience import PATIENCE_S
from tests.support.python_forks import PYTHON

TELLS = """
import os, sys
mask = os.umask(0)
print(__name__, sys.argv, os.getcwd(), os.environ["SAID"], oct(mask), flush=True)
print("to the other one", file=sys.stderr)
"""
READS = "\nimport sys\nprint(repr(sys.stdin.read()))\n"
ENDS = {
    "with nothing": "",
    "with a code": "sys.exit(7)",
    "with a remark": "sys.exit('no room')",
    "with a fault": "def f(): raise ValueError('no room')\nf()",
    "by a signal": "os.kill(os.getpid(), 9)",
    "while a thread writes": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('last'))).start()"
    ),
    "as another program": "os.execvp('sh', ['sh', '-c', 'cat; exit 3'])",
}


def run(program: str, place: Path, words: list[str], said: str = "", **more: str) -> tuple[int, str, str]:
    done = subprocess.run(
        # As the shell of a host does, which says how a program was ended.
        ["sh", "-c", 'umask 027; "$@"; exit $?', "sh", program, *words], cwd=place, input=said, text=True,
        env={**os.environ, "SAID": "so", **more}, capture_output=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr.replace("Killed\n", "")


def own() -> str:
    return os.readlink(os.path.join(PYTHON.folder(), OWN))


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("way", ["script", "code", "input"])
def test_it_does_what_python_does(tmp_path: Path, way: str, end: str) -> None:
    text = TELLS + (READS if way != "input" and end == "with nothing" else "") + ENDS[end]
    script = tmp_path / "one.py"
    script.write_text(text)
    words = {"script": [str(script), "a", "b c"], "code": ["-c", text, "-x"], "input": ["-", "a"]}[way]
    said = text if way == "input" else "told\n"
    forked, executed = (run(one, tmp_path, words, said) for one in (PYTHON.program(), own()))
    assert (forked[0], forked[1]) == (executed[0], executed[1])
    assert forked[2].splitlines()[:1] == executed[2].splitlines()[:1] == ["to the other one"]
    assert forked[2].splitlines()[-1:] == executed[2].splitlines()[-1:]
    assert f"{tmp_path} so 0o27" in forked[1]


@pytest.mark.slow
def test_who_is_run_behind_the_name_of_it_finds_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 7")
    (tmp_path / "one").write_text(f"#!{PYTHON.program()}\nimport beside, sys\nprint(beside.value, sys.argv[1:])\n")
    (tmp_path / "one").chmod(0o755)
    assert run(str(tmp_path / "one"), Path("/"), ["-x", "y"]) == (0, "7 ['-x', 'y']\n", "")


@pytest.mark.slow
def test_what_it_does_not_know_python_itself_does(tmp_path: Path) -> None:
    """Options, and an environment that Python reads when it begins."""
    assert run(PYTHON.program(), tmp_path, ["--version"]) == run(own(), tmp_path, ["--version"])
    found = "import sys; print(sys.flags.optimize, 'asyncio' in sys.modules)"
    assert run(PYTHON.program(), tmp_path, ["-c", found])[1].split()[1] == "True"
    told = run(PYTHON.program(), tmp_path, ["-c", found], PYTHONOPTIMIZE="1")
    assert told[1] == "1 False\n"
