# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Users of an instance, kept by `mqbroker users set`: a password goes in by standard input, a verifier is stored.

Invariant: setting what is set already changes nothing, not even a salt; a check writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.mqops.cluster.plugins.module_utils import command


def set_user(file: str, user: Mapping[str, Any], is_check: bool = False, executable: str = command.EXECUTABLE) -> bool:
    """Add or change one user; whether that changed anything. `user` has name, password and roles."""
    arguments = ["users", "set", user["name"], "--stdin", "--json", "--file", file]
    for role in user["roles"]:
        arguments += ["--role", role]
    if is_check:
        if not os.path.exists(executable):
            return True
        arguments.append("--check")
    answer = command.run(arguments, executable, text=user["password"] + "\n")
    if answer.code != command.DONE:
        raise command.CommandFault(f"user {user['name']}: {answer.complaint}")
    return bool(answer.json()["changed"])
