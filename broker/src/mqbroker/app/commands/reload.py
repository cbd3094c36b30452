"""`mqbroker reload`: has the running broker read its files again, and waits for what it says.

The unit reloads by it, so that `systemctl reload` fails where the broker refuses. Source: systemd.service(5),
ExecReload.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from mqbroker.app import admin_requests, exits, source
from mqbroker.base.text import safe_json

OPERATION = "config-reload"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the sub-command `reload` and its arguments."""
    parser = subparsers.add_parser(
        "reload",
        help="have the running broker read its files again",
        description="Have the running broker of this host read its options, users and certificates again, all or "
        "nothing. Exit code: 0 taken, 1 refused, with every reason on standard error, or not running.",
    )
    admin_requests.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Ask the running broker to read its files again; the exit code."""
    answer = admin_requests.ask(args, OPERATION, {})
    if answer is None:
        return exits.FAILED
    if args.json:
        print(safe_json(json.dumps(answer.result)))
        return exits.DONE
    for line in lines_of(answer.result) or ["nothing has changed"]:
        source.say(line)
    return exits.DONE


def lines_of(answer: Mapping[str, Any]) -> list[str]:
    """What came of it, a line for each thing."""

    def lines() -> Iterator[str]:
        for one in answer["changed"]:
            yield f"{one['option']}: {json.dumps(one['old'])} -> {json.dumps(one['new'])}"
        for state, names in answer["users"].items():
            yield from (f"user {name}: {state}" for name in names)
        for one in answer["restart"]:
            yield f"{one['option']}: {json.dumps(one['running'])} -> {json.dumps(one['file'])}, needs a restart"
        yield from answer["remarks"]

    return list(lines())
