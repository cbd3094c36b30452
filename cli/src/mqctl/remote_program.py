"""Programs of `remote/` that are sent to a host and then talked to: its text comes first on standard input."""

from __future__ import annotations

from importlib import resources

# Reads as many bytes as the program has, and leaves the rest of standard input to it.
BOOT = """\
import os
code = b""
while len(code) < {size}:
    code += os.read(0, {size} - len(code)) or exit("the program was cut off")
exec(compile(code, "{name}", "exec"))
"""


def command_of(python: str, name: str) -> tuple[list[str], bytes]:
    """The command that runs `remote/<name>`, and what it has to be sent first."""
    program = resources.files("mqctl.remote").joinpath(name).read_bytes()
    return [python, "-c", BOOT.format(size=len(program), name=name)], program
