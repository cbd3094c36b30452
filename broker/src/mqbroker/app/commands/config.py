"""`mqbroker config check|diff|reference|schema`: everything about options that needs no running broker."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mqbroker.app import exits, source
from mqbroker.config import compare
from mqbroker.config.compare import OptionChange, OptionsVerdict
from mqbroker.config.declarations import clustering, reference


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `config` and its actions."""
    parser = subparsers.add_parser("config", help="check, compare and document options")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="find every fault of a broker.toml")
    check.add_argument("file", nargs="?", type=Path, metavar="FILE", help="file to check (else as --config says)")
    source.add_arguments(check)
    diff = actions.add_parser("diff", help="say what a change needs: none, reload or restart (exit code 3 if not none)")
    diff.add_argument("old", type=Path, metavar="OLD")
    diff.add_argument("new", type=Path, metavar="NEW")
    diff.add_argument(
        "--started", type=Path, metavar="FILE", help="options that a process began with which has taken OLD since"
    )
    diff.add_argument("--json", action="store_true", help="print JSON")
    actions.add_parser("reference", help="print all options as Markdown")
    actions.add_parser("schema", help="print the JSON schema of broker.toml")


def run(args: argparse.Namespace) -> int:
    """Do what `args.action` names; the exit code."""
    if args.action == "check":
        return _check(args.file or source.path_of(args))
    if args.action == "diff":
        return _diff(args.started or args.old, args.old, args.new, args.json)
    if args.action == "reference":
        print(reference.markdown(), end="")
    else:
        print(json.dumps(reference.schema(), indent=2))
    return exits.DONE


def _check(file: Path) -> int:
    options = source.checked(file)
    source.doubt(file, clustering.doubts(options))
    source.say(f"{file}: good, node {options.node.name} with {len(options.listeners)} listener(s)")
    return exits.DONE


def _diff(started: Path, old: Path, new: Path, as_json: bool) -> int:
    after = source.read(new)
    try:
        first, before = source.read(started), source.read(old)
    except source.UnusableOptions as error:
        # What runs now was started from something that this version does not understand: only a restart is sure.
        return _show(OptionsVerdict.RESTART, [], as_json, f"the old file cannot be used: {error.faults[0]}")
    changes = compare.due(first, before, after)
    return _show(compare.verdict(changes), changes, as_json, "")


def _show(verdict: OptionsVerdict, changes: list[OptionChange], as_json: bool, note: str) -> int:
    if as_json:
        rows = [
            {"option": row.path, "old": row.old, "new": row.new, "needs": row.needs.value, "why": row.why}
            for row in changes
        ]
        print(json.dumps({"schema": 1, "verdict": verdict.value, "changes": rows, "note": note}))
    else:
        print(verdict.value)
        for row in changes:
            source.say(f"{row.path}: {json.dumps(row.old)} -> {json.dumps(row.new)} ({row.needs.value}: {row.why})")
        if note:
            source.say(note)
    return exits.DONE if verdict is OptionsVerdict.NONE else exits.DIFFERENT
