"""`ansible-inventory` as forks of a process that has imported Ansible, which is most of what a run of it costs.

    put_back = put_before(ansible_cli, PROGRAMS.folder())  # what mqctl executes, in this process

What is executed (ansible_question.py) hands its arguments, environment, folder and open files to the process beside it,
which forks off one that runs Ansible's own `main`, and ends with its code. What Ansible reads when it is imported, its
settings and what Python takes out of the environment, must be as it was then: where it is not, Ansible's own program is
executed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from mqctl.ansible_cli import PLAIN, program

from tests.support.ansible_question import NOT_HERE, OWN, QUESTION_BYTES_MAX, SOCKET, STANDARD

ROOT = Path(__file__).resolve().parents[2]
NAME = "ansible-inventory"
BEGAN_WITH = dict(os.environ)
# What is read before any fork: Ansible's settings, where its files are, and what shapes its output.
READ_BEFORE = ("ANSIBLE_", "PYTHON", "LC_", "LANG", "LD_", "HOME", "COLUMNS", "NO_COLOR")
SETTINGS_FILE = "ansible.cfg"
SHIM = """#!{python} -ISB
import sys
sys.path.insert(0, {place!r})
import ansible_question
ansible_question.ask({folder!r})
"""


class Programs:
    """A folder with the program, and the process that it asks; begun at the first need, ended with the tests."""

    def __init__(self) -> None:
        self._folder: Any = None
        self._process: Any = None
        self._life = -1

    def folder(self) -> str:
        """That of the program."""
        if self._folder is None:
            self._begin()
        return str(self._folder.name)

    def _begin(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mqops-ansible-")
        os.symlink(program(NAME), os.path.join(self._folder.name, OWN))
        shim = os.path.join(self._folder.name, NAME)
        with open(shim, "w", encoding="utf-8") as file:
            file.write(SHIM.format(python=sys.executable, place=os.path.dirname(__file__), folder=self._folder.name))
        os.chmod(shim, 0o755)
        theirs, self._life = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(os.path.join(self._folder.name, SOCKET))
            listener.listen()
            passed = (listener.fileno(), theirs)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.ansible_forks", *map(str, passed)], cwd=ROOT,
                env={**BEGAN_WITH, **PLAIN}, pass_fds=passed, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        os.close(theirs)

    def close(self) -> None:
        """The end of it; what it and its forks have computed is ours then."""
        if self._process is not None:
            os.close(self._life)
            self._process.wait()
            self._folder.cleanup()
            self._folder = self._process = None


PROGRAMS = Programs()


def put_before(ansible_cli: ModuleType, folder: str) -> Callable[[], None]:
    """Let this process find the program of the folder; what puts that back."""
    own = ansible_cli.program

    def program(name: str) -> str:
        return os.path.join(folder, NAME) if name == NAME else str(own(name))

    def put_back() -> None:
        ansible_cli.program = own  # type: ignore[attr-defined]

    ansible_cli.program = program  # type: ignore[attr-defined]
    return put_back


def seen(environment: dict[str, str]) -> dict[str, str]:
    """What of an environment has to be the same."""
    return {name: value for name, value in environment.items() if name.startswith(READ_BEFORE)}


def serve(listener: socket.socket, life: int) -> dict[str, object]:
    """Answer until nobody holds the other end of `life`. Returns in each fork, with what it is to be."""
    began_with, waiting = seen(dict(os.environ)), {}
    while True:
        ready, _, _ = select.select([listener, life, *waiting], [], [])
        for one in set(ready) & set(waiting):
            channel, pid = waiting.pop(one)
            _, status = os.waitpid(pid, 0)
            os.close(one)
            with channel, contextlib.suppress(OSError):  # who asked may be gone
                code = os.waitstatus_to_exitcode(status)
                channel.send(str(code if code >= 0 else 128 - code).encode())
        if life in ready:
            sys.exit(0)
        if listener not in ready:
            continue
        channel, _ = listener.accept()
        said, files, _, _ = socket.recv_fds(channel, QUESTION_BYTES_MAX, STANDARD)
        if not said:  # who was to ask was killed before it did
            channel.close()
            continue
        question = json.loads(said)
        has_settings = os.path.lexists(os.path.join(question["cwd"], SETTINGS_FILE))
        if has_settings or seen(question["environment"]) != began_with:
            with channel:
                channel.send(str(NOT_HERE).encode())
        elif pid := os.fork():
            waiting[os.pidfd_open(pid)] = (channel, pid)
        else:
            for place, each in enumerate(files):
                os.dup2(each, place)
            os.closerange(STANDARD, os.sysconf("SC_OPEN_MAX"))
            return question  # type: ignore[no-any-return]
        for each in files:
            os.close(each)


def begin(listener: int, life: int) -> None:
    """Import Ansible, then fork. What the import made is removed at the end of this process, not of a fork."""
    from ansible.cli.inventory import main
    from ansible.plugins.loader import init_plugin_loader

    # What is known of its own collection is a large file of YAML, which it reads when it begins.
    init_plugin_loader()
    importlib.import_module("ansible_collections.ansible.builtin")
    warnings.filterwarnings("ignore", "AnsibleCollectionFinder has already been configured")
    gc.collect()
    gc.freeze()
    question = serve(socket.socket(fileno=listener), life)
    os.environ.clear()
    os.environ.update(question["environment"])  # type: ignore[call-overload]
    os.chdir(str(question["cwd"]))
    os.umask(int(str(question["umask"])))
    sys.argv = [NAME, *question["words"]]  # type: ignore[misc]
    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    begin(int(sys.argv[1]), int(sys.argv[2]))
