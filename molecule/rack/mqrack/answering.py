"""Owns asking whether ssh servers answer. Runs inside the controller namespace, as a process of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from mqrack.errors import RackError


def wait_for_ssh(addresses: Sequence[str], wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    for address in addresses:
        while not _greets(address):
            if time.monotonic() > deadline:
                raise RackError(f"no ssh server answers at {address}:22 after {wait_s:g} s; see `rack status`.")
            time.sleep(0.02)


def _greets(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
