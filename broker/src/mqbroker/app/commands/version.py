"""`mqbroker version`."""

from __future__ import annotations

import argparse

from mqbroker import __version__
from mqbroker.app import exits
from mqbroker.base.native import NATIVE


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `version`."""
    subparsers.add_parser("version", help="print the version, and whether this is a native build")


def run(args: argparse.Namespace) -> int:
    """Print the version, and whether modules are compiled (docs/adr/0013-native-build.md)."""
    print(__version__)
    print(f"native: {NATIVE}")
    return exits.DONE
