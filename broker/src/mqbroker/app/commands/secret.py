"""`mqbroker secret set`: the secret that the nodes of a cluster prove by who they are. It comes on standard input."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from mqbroker.app import exits, source
from mqbroker.base.errors import ConfigFault
from mqbroker.io.files import cluster_secret


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `secret` and its action."""
    parser = subparsers.add_parser("secret", help="keep the secret of the cluster")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    change = actions.add_parser("set", help="put the secret in its place; no change if it is there already")
    change.add_argument("--stdin", action="store_true", required=True, help="read the secret from standard input")
    change.add_argument("--check", action="store_true", help="change nothing, only say whether it would")
    change.add_argument("--json", action="store_true", help="print JSON")
    change.add_argument("--file", type=Path, metavar="PATH", help="file of the secret (else as the options say)")
    source.add_arguments(change)


def run(args: argparse.Namespace) -> int:
    """Write the secret that standard input gives, or see whether it differs; the exit code."""
    file = args.file or Path(source.options_of(args).node.cluster_secret_file)
    secret = cluster_secret.checked(_of_stdin())
    changed = _differs(file, secret) if args.check else cluster_secret.write(file, secret)
    if args.json:
        print(json.dumps({"schema": 1, "changed": changed}))
    else:
        print("changed" if changed else "unchanged")
    return exits.DONE


def _differs(file: Path, secret: str) -> bool:
    try:
        return cluster_secret.read(file) != secret
    except ConfigFault:
        return True  # what cannot be used is replaced


def _of_stdin() -> str:
    content = sys.stdin.buffer.read(cluster_secret.FILE_BYTES_MAX + 1)
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigFault("secret", "on standard input is not UTF-8") from None
