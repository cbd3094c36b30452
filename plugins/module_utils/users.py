# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Users of an instance, kept by `mqbroker users`: a password goes in by standard input, a verifier is stored.

Invariant: setting what is set already changes nothing, not even a salt; a check writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.mqops.cluster.plugins.module_utils import command


@dataclass(frozen=True)
class Found:
    """A user that was set: its name as the broker keeps it, and whether anything changed.

    `is_first`: of a new file, because the old one cannot be read.
    """

    name: str
    is_changed: bool
    is_first: bool = False


def set_user(file: str, user: Mapping[str, Any], is_check: bool = False, executable: str = command.EXECUTABLE) -> Found:
    """Add or change one user. `user` has name, password and roles. A file that cannot be read is set aside, so that
    nothing is lost that somebody could still read in it. Raises CommandFault.
    """
    arguments = ["users", "set", "--stdin", "--json", "--set-aside", "--file", file]
    for role in user["roles"]:
        arguments += ["--role", role]
    if is_check:
        if not os.path.exists(executable):
            return Found(user["name"], True)
        arguments.append("--check")
    answer = command.run([*arguments, "--", user["name"]], executable, text=user["password"] + "\n")
    if answer.code != command.DONE:
        raise command.CommandFault(f"user {user['name']}: {answer.complaint}")
    found = answer.json()
    return Found(found["name"], bool(found["changed"]), bool(found["damaged"]))


def remove_others(
    file: str, kept: Collection[str], is_check: bool = False, executable: str = command.EXECUTABLE
) -> list[str]:
    """Remove all users but these, whose names are as the broker keeps them; who they were. Raises CommandFault."""
    if is_check and not os.path.exists(executable):
        return []
    answer = command.run(["users", "list", "--json", "--file", file], executable)
    if answer.code != command.DONE:
        raise command.CommandFault(f"{file}: {answer.complaint}")
    others = [row["name"] for row in answer.json()["users"] if row["name"] not in kept]
    for name in others if not is_check else []:
        answer = command.run(["users", "remove", "--json", "--file", file, "--", name], executable)
        if answer.code != command.DONE:
            raise command.CommandFault(f"user {name}: {answer.complaint}")
    return others
