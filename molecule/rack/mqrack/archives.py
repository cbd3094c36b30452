"""Owns what Python keeps on a host of what it has compiled of zip archives, by the bytes of the source.

Ansible sends each module in an archive, with all that it imports, and Python compiles that anew each time, each file
twice: two fifths of what a task costs a host. On hosts this file is Python's sitecustomize, which is imported at each
start; so it imports next to nothing.

Invariant: what is kept is what its source is compiled to, whatever archive that lies in. Only root can make the folder.
"""

from __future__ import annotations

import _imp
import marshal
import os
import zipimport
from types import CodeType

FOLDER = "/run/python-archives"


def keep(folder: str) -> None:
    """Have this process take from the folder what was compiled before, and put there what was not."""
    compile_anew = zipimport._compile_source  # type: ignore[attr-defined]

    def compile_source(path: str, source: bytes) -> CodeType:
        place = f"{folder}/{_imp.source_hash(0, source).hex()}"
        try:
            with open(place, "rb") as file:
                code: CodeType = marshal.loads(file.read())
        except (OSError, EOFError, TypeError, ValueError):  # the last three: the power was cut while it was written
            code = compile_anew(path, source)
            _write(folder, place, marshal.dumps(code))
        else:
            _imp._fix_co_filename(code, path)  # type: ignore[attr-defined]
        return code

    zipimport._compile_source = compile_source  # type: ignore[attr-defined]


def _write(folder: str, place: str, content: bytes) -> None:
    """Whole or not at all; who may not write there, and who has no room, goes without."""
    new = f"{place}.{os.getpid()}"
    try:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        with open(new, "wb") as file:
            file.write(content)
        os.replace(new, place)
    except OSError:
        pass


if __name__ == "sitecustomize":
    keep(FOLDER)
