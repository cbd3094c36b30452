"""The log of brokers as journald of a host has it: the last lines, and those that come.

Invariant: nothing of a host is taken for granted. A line has a bound, and what is no entry is an error that says so.
Source: journalctl(1), systemd.journal-fields(7).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from mqctl.errors import CommandError
from mqctl.nodes import Node, shell
from mqctl.ssh import shell as remote
from mqctl.world import World

LEVELS = ("emerg", "alert", "crit", "error", "warning", "notice", "info", "debug")
JOURNAL_TIME_S = 60.0
LINE_BYTES_MAX = 1 << 20  # journald cuts what services say into lines of 48 KiB
UNIT_FIELDS = ("UNIT", "_SYSTEMD_UNIT")  # systemd speaks of a unit in UNIT, and a unit for itself


def last_lines(world: World, node: Node, count: int, since: str) -> list[dict[str, Any]]:
    """The last lines of one node, oldest first."""
    assert node.access is not None
    command = [*_command([node], count, since), "--no-pager"]
    result = remote.run(shell(world, node.access), command, timeout_s=JOURNAL_TIME_S)
    if result.code:
        raise CommandError(f"{node.name}: journalctl: {result.complaint}", f"mqctl logs --host {node.name}")
    return [_row(node.host, line, [node]) for line in result.out.splitlines() if line.strip()]


def followed(world: World, nodes: Sequence[Node], count: int, since: str) -> Iterator[dict[str, Any]]:
    """The last lines of nodes of one host and then those that come, until the host says no more: then CommandError.

    One stream for all of them, because sshd has a bound for each connection; `count` is for each node.
    """
    access = nodes[0].access
    assert access is not None
    command = [*_command(nodes, count * len(nodes), since), "--follow", "--no-pager"]
    return _entries(remote.open_stream(shell(world, access), command), nodes)


def _entries(stream: remote.PipeStream, nodes: Sequence[Node]) -> Iterator[dict[str, Any]]:
    host, rest = nodes[0].host, b""
    try:
        stream.settimeout(None)
        while chunk := stream.recv(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LINE_BYTES_MAX:
                raise CommandError(f"{host}: journalctl: a line has more than {LINE_BYTES_MAX} bytes")
            for line in lines:
                if line.strip():
                    yield _row(host, line, nodes)
        why = stream.complaint()
    except (OSError, EOFError):
        why = "the connection broke"
    finally:
        stream.close()
    raise CommandError(f"{host}: journalctl: {why}; it is followed no more", "mqctl logs --follow")


def _command(nodes: Sequence[Node], count: int, since: str) -> list[str]:
    fields = ",".join(("MESSAGE", "PRIORITY", *UNIT_FIELDS))
    command = ["journalctl", *(f"--unit={_unit(node)}" for node in nodes), f"--lines={count}", "--quiet"]
    return [*command, "--output=json", f"--output-fields={fields}", *([f"--since={since}"] if since else [])]


def _unit(node: Node) -> str:
    return f"mqbroker@{node.instance}.service"


def _row(host: str, line: bytes, nodes: Sequence[Node]) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict):
        said = line[:80].decode(errors="replace")
        raise CommandError(f"{host}: journalctl said what is no entry of a journal: {said}", f"ssh to {host} and look")
    units = {entry.get(name) for name in UNIT_FIELDS}
    of = next((node for node in nodes if _unit(node) in units), nodes[0])
    return {"host": of.host, "instance": of.instance} | of_journal(entry)


def of_journal(entry: dict[str, Any]) -> dict[str, Any]:
    """One entry of journalctl's JSON; a message that is not UTF-8 comes as a list of bytes."""
    message = entry.get("MESSAGE")
    text = bytes(message).decode(errors="replace") if isinstance(message, list) else str(message or "")
    priority = str(entry.get("PRIORITY", "6"))
    level = LEVELS[int(priority)] if priority in "01234567" else priority
    return {"time": stamp(int(entry.get("__REALTIME_TIMESTAMP", 0))), "level": level, "message": text}


def stamp(time_us: int) -> str:
    """UTC, with milliseconds, as brokers write it themselves."""
    seconds, us = divmod(time_us, 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{us // 1000:03}Z"
