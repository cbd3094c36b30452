"""Work of which a process needs the result and nothing that it took, done by a fork of the process.

To understand options takes a library that is as large in memory as all else that a broker imports, and a broker needs
it for a tenth of a second of its start. A fork has everything that the process has imported by then, imports the rest
for itself, and is gone with it. What a running broker reads again on reload is understood where it runs: it has threads
by then, which a fork does not take along.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn, TypeVar, cast

from mqbroker.base.errors import MqError

_Found = TypeVar("_Found")


def apart(work: Callable[[], _Found]) -> _Found:
    """What `work` returns, which plain values make up. Raises MqError where no other process can find it out.

    For a process that has no other thread. What `work` raises is a bug: its trace goes to standard error.
    """
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        os.close(reading)
        os.close(writing)
        why = error.strerror or str(error)
        raise MqError(f"a second process is needed to read the options: {why}; raise TasksMax of the unit") from None
    if not child:
        os.close(reading)
        _answer(work, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise MqError(f"the process that read the options ended with {os.waitstatus_to_exitcode(status)}; start again")
    return cast(_Found, pickle.loads(answer))


def _answer(work: Callable[[], object], writing: int) -> NoReturn:
    """In the fork: nothing that is open or buffered here is of its concern."""
    gc.disable()  # the end comes before anything has to go
    status = 1
    try:
        answer = pickle.dumps(work(), pickle.HIGHEST_PROTOCOL)
        # Who asked may have been killed, and wants no answer.
        with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "wb") as stream:
            stream.write(answer)
        status = 0
    except Exception:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)
