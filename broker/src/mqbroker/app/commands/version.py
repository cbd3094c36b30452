"""`mqbroker version`."""

from __future__ import annotations

import argparse
import json

from mqbroker import __version__
from mqbroker.app import exits
from mqbroker.base.native import NATIVE
from mqbroker.journal.format import FORMAT_VERSION, READ_VERSIONS


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the sub-command `version` and its arguments."""
    parser = subparsers.add_parser("version", help="print the version, and whether this is a native build")
    parser.add_argument("--json", action="store_true", help="print JSON, with the formats of journals that it knows")


def run(args: argparse.Namespace) -> int:
    """Print the version, and whether modules are compiled (docs/adr/0013-native-build.md).

    As JSON also which formats of journal files this release reads, and which one it writes without being told of a
    term: whoever goes from one release to another asks both (docs/adr/0029-upgrade.md).
    """
    if args.json:
        formats = {"journal_formats_read": list(READ_VERSIONS), "journal_format_written": FORMAT_VERSION}
        # Releases that do not say these must not get a journal with such rings, or with queues that drain, nor a folder
        # in which a restore was cut off.
        knows = {"knows_moved_rings": True, "knows_drains": True, "knows_unfinished_restores": True}
        print(json.dumps({"schema": 1, "version": __version__, "native": NATIVE, **formats, **knows}))
        return exits.DONE
    print(__version__)
    print(f"native: {NATIVE}")
    return exits.DONE
