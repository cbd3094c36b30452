"""`mqbroker version`."""

from __future__ import annotations

import argparse

from mqbroker import __version__
from mqbroker.app import exits


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `version`."""
    subparsers.add_parser("version", help="print the version")


def run(args: argparse.Namespace) -> int:
    """Print the version and nothing else."""
    print(__version__)
    return exits.DONE
