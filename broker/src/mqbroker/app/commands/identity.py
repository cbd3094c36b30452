"""`mqbroker identity show|init|adopt|new`: whose messages a data directory holds, and what to do when it was copied."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from mqbroker.app import exits, source
from mqbroker.base.errors import ConfigFault
from mqbroker.io.files import durable_files, identity
from mqbroker.io.files.data_lock import DataLock
from mqbroker.io.files.identity import NodeIdentity

LOCK_NAME = "lock"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `identity` and its actions."""
    parser = subparsers.add_parser("identity", help="show, make or repair the identity of a data directory")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help=f"print the identity (exit code {exits.IDENTITY} if it does not fit here)")
    init = actions.add_parser("init", help="make an identity at first install; no change if there is a fitting one")
    adopt = actions.add_parser(
        "adopt", help="the directory was moved and the original is gone: keep node id and messages"
    )
    new = actions.add_parser("new", help="the directory was copied: new node id, the copied journal is set aside")
    new.add_argument("--even-if-original", action="store_true", help="do so although nothing says that this is a copy")
    for action in (show, init, adopt, new):
        action.add_argument("--data-directory", type=Path, metavar="PATH", help="directory (else as the options say)")
        action.add_argument("--json", action="store_true", help="print JSON")
        source.add_arguments(action)


def run(args: argparse.Namespace) -> int:
    """Do what `args.action` names; the exit code."""
    directory = args.data_directory or Path(source.options_of(args).node.data_directory)
    machine = identity.machine_id()
    if args.action == "show":
        return _show(directory, machine, args.json)
    if args.action == "init":
        owner, changed = identity.init(directory, machine)
        return _changed(owner, changed, args.json)
    with unused(directory):
        if args.action == "adopt":
            owner, changed = identity.adopt(directory, machine)
            return _changed(owner, changed, args.json)
        owner, aside = identity.new(directory, machine, even_if_original=args.even_if_original)
    note = (
        f"the copied journal is now {aside}; its messages are the original's, remove it when you are sure"
        if aside
        else ""
    )
    return _changed(owner, True, args.json, note)


@contextlib.contextmanager
def unused(directory: Path) -> Iterator[None]:
    """Hold the directory, so that no broker runs in it meanwhile. Raises StorageFault if one does."""
    lock = DataLock(directory)
    try:
        durable_files.give_path_to_owner(directory / LOCK_NAME)
        yield
    finally:
        lock.release()


def _show(directory: Path, machine: str, as_json: bool) -> int:
    owner = identity.load(directory)
    if owner is None:
        raise ConfigFault(str(directory), "has no identity; `mqbroker identity init` makes one")
    wrong = identity.mismatches(owner, directory, machine)
    row = {"schema": 1, **asdict(owner), "matches": not wrong, "mismatches": wrong}
    if as_json:
        print(json.dumps(row))
    else:
        _print_rows(owner)
        for sentence in wrong:
            source.say(f"does not fit: {sentence}")
    return exits.IDENTITY if wrong else exits.DONE


def _changed(owner: NodeIdentity, changed: bool, as_json: bool, note: str = "") -> int:
    if as_json:
        print(json.dumps({"schema": 1, **asdict(owner), "changed": changed, "note": note}))
    else:
        print("changed" if changed else "unchanged")
        _print_rows(owner)
        if note:
            source.say(note)
    return exits.DONE


def _print_rows(owner: NodeIdentity) -> None:
    for name, value in asdict(owner).items():
        source.say(f"{name}: {value}")
