"""One request to the broker of this host, through its admin socket, never over a network.

Source: docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import argparse
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqbroker.app import source
from mqbroker.base.errors import ConfigFault


@dataclass(frozen=True, slots=True)
class OperationResult:
    """What an operation came to."""

    result: Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--instance`, `--socket` and `--config`, which exclude each other."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--instance", default="default", help="name of the instance (default: %(default)s)")
    where.add_argument("--socket", help="path of the admin socket (default: /run/mq/INSTANCE/admin.sock)")
    where.add_argument(
        "--config", metavar="PATH", type=Path, help="take the path of the socket out of this broker.toml"
    )


def path_of(args: argparse.Namespace) -> str:
    """The socket that the arguments mean."""
    if args.config is not None:
        return source.read(args.config).node.admin_socket
    return args.socket or f"/run/mq/{args.instance}/admin.sock"


def unreachable(path: str, args: argparse.Namespace, fault: OSError) -> str:
    """Why no broker answers there."""
    if isinstance(fault, PermissionError):
        why = "this user may not use it; run as root or as the user of the broker"
    elif isinstance(fault, FileNotFoundError | ConnectionRefusedError):
        why = f"the broker is not running; see `systemctl status mqbroker@{args.instance}`"
    else:
        why = f"{fault.strerror or fault}; see `journalctl -u mqbroker@{args.instance}`"
    return f"mqbroker {args.command}: no broker answers at {path}: {why}"


class LocalAdmin:
    """One admin session of several requests. What the broker does for it is over when it is closed."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Raises ConfigFault where no broker answers."""
        path = path_of(args)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError as fault:
            self._socket.close()
            raise ConfigFault(path, unreachable(path, args, fault)) from None

    def call(self, operation: str, **arguments: Any) -> Any:
        """The result. Raises ConfigFault where the broker refuses, or is gone."""
        try:
            row = _answer(self._socket, operation, arguments)
        except OSError as fault:
            raise ConfigFault(operation, f"the broker is gone: {fault.strerror or fault}") from None
        error = row.get("error")
        if error is not None:
            raise ConfigFault(operation, str(error.get("description")).removeprefix(f"{operation}: "))
        return row.get("result")

    def close(self) -> None:
        """End the session; nothing more is asked in it."""
        self._socket.close()


def ask(args: argparse.Namespace, operation: str, arguments: dict[str, Any]) -> OperationResult | None:
    """The result; None where the broker refuses or does not answer, which was said on standard error then."""
    path = path_of(args)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(path)
            row = _answer(sock, operation, arguments)
    except OSError as fault:
        source.say(unreachable(path, args, fault), to_errors=True)
        return None
    error = row.get("error")
    if error is None:
        return OperationResult(row.get("result"))
    # Each reason is a line of its own.
    first, *others = str(error.get("description")).splitlines() or [""]
    condition = f" ({error.get('condition')})" if not others else ""
    for line in [f"mqbroker {args.command}: {operation}: {first}{condition}", *others]:
        source.say(line, to_errors=True)
    return None


def _answer(sock: socket.socket, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
    sock.sendall(json.dumps({"id": 1, "op": operation, "args": arguments}).encode() + b"\n")
    with sock.makefile("rb") as lines:
        line = lines.readline()
    if not line:
        raise ConnectionAbortedError(None, "the broker closed the connection without an answer")
    row: dict[str, Any] = json.loads(line)
    return row
