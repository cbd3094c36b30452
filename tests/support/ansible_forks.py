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
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from mqctl.ansible_cli import PLAIN, program

from tests.support.ansible_question import NOT_HERE, OWN, QUESTION_BYTES_MAX, SOCKET, STANDARD

Question = dict[str, Any]  # of ansible_question.py
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
    """A folder with a program, and the process that it asks; begun at the first need, ended with the tests.

    `module` is what that process runs, and `own` the program that is executed where a fork cannot stand in for it.
    """

    def __init__(self, name: str, own: str, module: str) -> None:
        self._name, self._own, self._module = name, own, module
        self._folder: Any = None
        self._process: Any = None
        self._life = -1

    def folder(self) -> str:
        """That of the program, which can be asked."""
        self.begin()
        return self._place()

    def program(self) -> str:
        """The path of the program; before `begin` it executes its own."""
        return os.path.join(self._place(), self._name)

    def _place(self) -> str:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="mqops-forks-")
            place = self._folder.name
            os.symlink(self._own, os.path.join(place, OWN))
            shim = os.path.join(place, self._name)
            with open(shim, "w", encoding="utf-8") as file:
                file.write(SHIM.format(python=sys.executable, place=os.path.dirname(__file__), folder=place))
            os.chmod(shim, 0o755)
        return str(self._folder.name)

    def begin(self) -> None:
        """Have forks stand in for the program, until the end."""
        if self._process is not None:
            return
        theirs, self._life = os.pipe()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(os.path.join(self._place(), SOCKET))
            listener.listen()
            passed = (listener.fileno(), theirs)
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, *map(str, passed)], cwd=ROOT,
                env={**BEGAN_WITH, **PLAIN}, pass_fds=passed, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        os.close(theirs)

    def close(self) -> None:
        """The end of it; what it and its forks have computed is ours then."""
        if self._process is not None:
            os.close(self._life)
            self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()
        self._folder = self._process = None


PROGRAMS = Programs(NAME, program(NAME), "tests.support.ansible_forks")


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


def serve(listener: socket.socket, life: int, may_be_forked: Callable[[Question], bool]) -> Question:
    """Answer until nobody holds the other end of `life`. Returns in each fork, with what it is to be, once it is in
    the place and has the environment that are asked for."""
    waiting: dict[int, tuple[socket.socket, int]] = {}
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
        if not may_be_forked(question):
            with channel:
                channel.send(str(NOT_HERE).encode())
        elif pid := os.fork():
            waiting[os.pidfd_open(pid)] = (channel, pid)
        else:
            for place, each in enumerate(files):
                os.dup2(each, place)
            os.closerange(STANDARD, os.sysconf("SC_OPEN_MAX"))
            return become(question)
        for each in files:
            os.close(each)


def become(question: Question) -> Question:
    os.environ.clear()
    os.environ.update(question["environment"])
    os.chdir(question["cwd"])
    os.umask(question["umask"])
    return question


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
    began_with = seen(dict(os.environ))

    def is_as_it_began(question: Question) -> bool:
        has_settings = os.path.lexists(os.path.join(question["cwd"], SETTINGS_FILE))
        return not has_settings and seen(question["environment"]) == began_with

    question = serve(socket.socket(fileno=listener), life, is_as_it_began)
    sys.argv = [NAME, *question["words"]]
    end(main)


def end(main: Callable[[], object]) -> NoReturn:
    """Run it and end as Python does, but for taking apart what was imported."""
    code: object = 1
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # threads that are no daemons come to their end
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    begin(int(sys.argv[1]), int(sys.argv[2]))
