"""Entry of `mqbroker`: finds the sub-command, imports that one only, and turns expected errors into plain sentences."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from mqbroker import __version__
from mqbroker.app import exits
from mqbroker.app.source import complain
from mqbroker.base.errors import MqError
from mqbroker.io.files.identity import IdentityMismatch

COMMANDS = {
    "run": "run a broker in the foreground",
    "admin": "ask or command a running broker",
    "backup": "copy a running broker's data, look into copies, and give them back",
    "config": "check, compare and document options",
    "identity": "show, make or repair the identity of a data directory",
    "reload": "have the running broker read its files again",
    "journal": "look into the journal of a broker that does not run, or move it",
    "secret": "keep the secret of the cluster",
    "users": "keep the users that may log in",
    "version": "print the version, and whether this is a native build",
}


class Command(Protocol):
    """What each module in `commands` offers."""

    def add_parser(self, subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        """Declare the sub-command and its arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the result is the exit code."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. argparse ends the process itself on wrong usage."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if not word.startswith("-")), "")
    command = _load(chosen) if chosen in COMMANDS else None
    args = _parser(chosen, command).parse_args(words)
    if command is None:
        _parser("", None).print_help(sys.stderr)
        return exits.USAGE
    try:
        return command.run(args)
    except MqError as error:
        complain(error)
        return exits.IDENTITY if isinstance(error, IdentityMismatch) else exits.FAILED
    except KeyboardInterrupt:
        return exits.FAILED
    except BrokenPipeError:
        # The reader of our output went away, as `| head` does; nothing is left to tell it.
        sys.stderr.close()
        return exits.FAILED


def _load(name: str) -> Command:
    # What is imported stays, and Python would look through all of it again and again for what can go.
    gc.disable()
    try:
        return cast(Command, importlib.import_module(f"mqbroker.app.commands.{name}"))
    finally:
        gc.enable()


def _parser(chosen: str, command: Command | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mqbroker",
        description="A message broker node.",
        epilog=exits.EXPLAINED,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, summary in COMMANDS.items():
        if name == chosen and command is not None:
            command.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


if __name__ == "__main__":
    sys.exit(main())
