"""The Python of hosts that are folders of this machine, as forks of one that has imported what is run there.

    PYTHON.program()  # what stands in the place of sys.executable: in an inventory, and behind the #! of a script

It runs a script, `-c` code, and what it reads after `-`; for anything else Python itself is executed. A fork has the
arguments, environment, folder, umask and open files of who asked. What the broker and its commands import is there
already: tests of that, and of a start, execute Python.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import runpy
import socket
import sys
import types

from tests.support.ansible_forks import Programs, Question, end, serve

PYTHON = Programs("python3", sys.executable, "tests.support.python_forks")
READ_BEFORE = ("PYTHON", "LC_", "LANG", "LD_")
# What is run there imports of Python itself and of ours.
LIBRARY = ("asyncio", "json", "pathlib", "shutil", "socket", "subprocess", "tarfile", "tempfile")
ROOMS = ("mqbroker.app.commands", "mqbroker.app.backup")


def seen(environment: dict[str, str]) -> dict[str, str]:
    """What of an environment Python reads when it begins."""
    return {name: value for name, value in environment.items() if name.startswith(READ_BEFORE)}


def run(words: list[str]) -> None:
    """What Python does with these arguments."""
    kind, *rest = words
    if kind in ("-", "-c"):
        text, name = (sys.stdin.buffer.read(), "<stdin>") if kind == "-" else (rest.pop(0), "<string>")
        sys.argv = [kind, *rest]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(text, name, "exec", dont_inherit=True), vars(main))
    else:
        sys.argv = words
        sys.path.insert(0, os.path.dirname(os.path.realpath(kind)))
        runpy.run_path(kind, run_name="__main__")


def begin(listener: int, life: int) -> list[str]:
    """Import, then fork. Returns in each fork, with the arguments of its Python."""
    for name in LIBRARY:
        importlib.import_module(name)
    for room in map(importlib.import_module, ROOMS):
        for one in pkgutil.iter_modules(room.__path__):
            importlib.import_module(f"{room.__name__}.{one.name}")
    gc.collect()
    gc.freeze()
    began_with = seen(dict(os.environ))

    def may_be_forked(question: Question) -> bool:
        words = question["words"]
        is_known = bool(words) and (words[0] in ("-", "-c") or not words[0].startswith("-"))
        return is_known and seen(question["environment"]) == began_with

    words: list[str] = serve(socket.socket(fileno=listener), life, may_be_forked)["words"]
    return words


if __name__ == "__main__":
    asked = begin(int(sys.argv[1]), int(sys.argv[2]))
    end(lambda: run(asked))
