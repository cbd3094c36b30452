"""The reference of the command line as Markdown, made from the same declarations that parse it."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import typer

from mqctl.exits import MEANINGS, Exit
from mqctl.main import COMMANDS, make_app

HEAD = """\
<!-- Made by `make gen` from the declared commands; changes belong there. -->

# mqctl

Clusters of message brokers from an inventory file. Data goes to standard output, progress and remarks to standard
error. Readers take `-o table|json|csv` and `--columns`; JSON has a `schema` with a version. An error says what is
wrong and where, and ends with the command to try next.

The inventory is `-i`, else `MQCTL_INVENTORY`, else `inventory.yml`.
"""


def markdown() -> str:
    """The whole page of commands, as Markdown."""
    root = typer.main.get_command(make_app())
    parts = [HEAD, _exit_codes()]
    for words, module_name in COMMANDS.items():
        command: Any = root
        for word in words:
            command = command.commands[word]
        parts.append(_command(" ".join(words), command, importlib.import_module(f"mqctl.commands.{module_name}")))
    return "\n".join(parts)


def _exit_codes() -> str:
    rows = [f"| {code.value} | {MEANINGS[code]} |" for code in Exit]
    return "\n".join(["## Exit codes", "", "| code | meaning |", "|---|---|", *rows, "", "## Commands", ""])


def _command(name: str, command: Any, module: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    usage = " ".join([f"mqctl {name}", "[options]", *(_usage(one) for one in arguments)])
    text = inspect.getdoc(module.run) or ""
    parts = [f"### mqctl {name}", "", f"    {usage}", "", text, ""]
    rows = [*(_row(one, one.name) for one in arguments), *(_row(one, _switches(one)) for one in options)]
    return "\n".join([*parts, "| | | default |", "|---|---|---|", *rows, ""])


def _usage(argument: Any) -> str:
    shown = f"{argument.name}…" if argument.nargs != 1 else str(argument.name)
    return shown if argument.required else f"[{shown}]"


def _switches(option: Any) -> str:
    return ", ".join([*option.opts, *option.secondary_opts])


def _row(parameter: Any, name: str) -> str:
    # Typer marks a default that help texts give in words; the table has a column for it.
    help_text, _, worded = (parameter.help or "").partition(" [default: ")
    default = f"`{worded.rstrip(']')}`" if worded else "".join(_default(parameter))
    return f"| `{name}` | {help_text.replace('|', '¦')} | {default} |"


def _default(parameter: Any) -> Iterator[str]:
    value = parameter.default
    if callable(value) or value in (None, "", (), [], False):
        return
    if value is True:
        yield "on"
    else:
        yield f"`{getattr(value, 'value', value)}`"
