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
from typing import Any

from mqbroker.app import admin_requests, source
from mqbroker.base.text import safe_json

READ_BYTES = 1 << 16


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "admin",
        help="send requests to the running broker of this host",
        description="Send requests to the running broker of this host. Exit code: 0 done, 1 refused or not running.",
    )
    admin_requests.add_arguments(parser)
    parser.add_argument("--stdio", action="store_true", help="carry JSON lines between stdin, stdout and the broker")
    parser.add_argument("operation", nargs="?", help="one operation, for example `status`; `operations` lists them all")
    parser.add_argument(
        "arguments", nargs="*", metavar="key=value", help="its arguments; values are JSON or plain text"
    )


def run(args: argparse.Namespace) -> int:
    if args.stdio == (args.operation is not None):
        print("mqbroker admin: give either --stdio or one operation, such as status", file=sys.stderr)
        return 2
    try:
        arguments = dict(_argument_of(text) for text in args.arguments)
    except ValueError as fault:
        source.say(f"mqbroker admin: {fault}", to_errors=True)
        return 2
    if not args.stdio:
        answer = admin_requests.ask(args, args.operation, arguments)
        if answer is not None:
            print(safe_json(json.dumps(answer.result, indent=2)))
        return 1 if answer is None else 0
    path = admin_requests.path_of(args)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(path)
            return _bridge(sock)
    except OSError as fault:
        source.say(admin_requests.unreachable(path, args, fault), to_errors=True)
        return 1


def _argument_of(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"{text!r} is not key=value")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


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
