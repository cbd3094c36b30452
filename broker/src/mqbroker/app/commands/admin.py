"""`mqbroker admin`: requests to the broker of this host through its admin socket.

With --stdio it carries JSON lines between standard input and output and the socket, unchanged, so that a remote tool
can talk to the broker through one SSH channel; with an operation it sends one request and prints the result. It never
speaks to a broker over the network. Source: docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from mqbroker.app import source
from mqbroker.base.text import safe_json

READ_BYTES = 1 << 16


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "admin",
        help="send requests to the running broker of this host",
        description="Send requests to the running broker of this host. Exit code: 0 done, 1 refused or not running.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--instance", default="default", help="name of the instance (default: %(default)s)")
    where.add_argument("--socket", help="path of the admin socket (default: /run/mq/INSTANCE/admin.sock)")
    where.add_argument(
        "--config", metavar="PATH", type=Path, help="take the path of the socket out of this broker.toml"
    )
    parser.add_argument("--stdio", action="store_true", help="carry JSON lines between stdin, stdout and the broker")
    parser.add_argument("operation", nargs="?", help="one operation, for example `status`")
    parser.add_argument(
        "arguments", nargs="*", metavar="key=value", help="its arguments; values are JSON or plain text"
    )


def run(args: argparse.Namespace) -> int:
    if args.stdio == (args.operation is not None):
        print("mqbroker admin: give either --stdio or one operation, such as status", file=sys.stderr)
        return 2
    path = _path_of(args)
    try:
        arguments = dict(_argument_of(text) for text in args.arguments)
    except ValueError as fault:
        source.say(f"mqbroker admin: {fault}", to_errors=True)
        return 2
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(path)
            return _bridge(sock) if args.stdio else _one_request(sock, args.operation, arguments)
    except OSError as fault:
        source.say(_unreachable(path, args.instance, fault), to_errors=True)
        return 1


def _path_of(args: argparse.Namespace) -> str:
    if args.config is not None:
        return source.read(args.config).node.admin_socket
    return args.socket or f"/run/mq/{args.instance}/admin.sock"


def _argument_of(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{text!r} is not key=value")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _unreachable(path: str, instance: str, fault: OSError) -> str:
    if isinstance(fault, PermissionError):
        why = "this user may not use it; run as root or as the user of the broker"
    elif isinstance(fault, FileNotFoundError | ConnectionRefusedError):
        why = f"the broker is not running; see `systemctl status mqbroker@{instance}`"
    else:
        why = f"{fault.strerror or fault}; see `journalctl -u mqbroker@{instance}`"
    return f"mqbroker admin: no broker answers at {path}: {why}"


def _one_request(sock: socket.socket, operation: str, arguments: dict[str, Any]) -> int:
    sock.sendall(json.dumps({"id": 1, "op": operation, "args": arguments}).encode() + b"\n")
    with sock.makefile("rb") as lines:
        line = lines.readline()
    if not line:
        raise ConnectionAbortedError(None, "the broker closed the connection without an answer")
    row = json.loads(line)
    error = row.get("error")
    if error is not None:
        why = f"{error.get('description')} ({error.get('condition')})"
        source.say(f"mqbroker admin: {operation}: {why}", to_errors=True)
        return 1
    print(safe_json(json.dumps(row.get("result"), indent=2)))
    return 0


def _bridge(sock: socket.socket) -> int:
    """Copy both ways until the broker closes. The end of stdin ends our direction; answers under way still arrive."""
    is_asked_all = threading.Event()
    threading.Thread(target=_copy_stdin, args=(sock, is_asked_all), name="stdin", daemon=True).start()
    try:
        while data := sock.recv(READ_BYTES):
            _write_all(sys.stdout.fileno(), data)
    except BrokenPipeError:
        # Nobody reads our output any more: the other end of the channel is gone, which is a normal end.
        return 0
    if not is_asked_all.is_set():
        print("mqbroker admin: the broker closed the connection", file=sys.stderr)
        return 1
    return 0


def _copy_stdin(sock: socket.socket, is_asked_all: threading.Event) -> None:
    # The reader of answers finds out about a socket that failed, so this direction may end silently.
    with contextlib.suppress(OSError):
        while data := os.read(sys.stdin.fileno(), READ_BYTES):
            sock.sendall(data)
        is_asked_all.set()
        sock.shutdown(socket.SHUT_WR)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
