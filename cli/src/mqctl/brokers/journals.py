"""Journals of brokers that do not run, through `mqbroker journal` on their hosts.

The host's command keeps a broker out meanwhile, and refuses while one runs. What is moved goes through in chunks: the
size of a journal costs no memory here. An export is whole only with its last row, an import only with the host's word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mqctl.brokers.requests import LONG_WORK_S, AskOptions, nodes_meant
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.nodes import Node, open_broker_command
from mqctl.output import Rows, write
from mqctl.progress import counting
from mqctl.ssh.shell import OUTPUT_BYTES_MAX, CommandStream
from mqctl.world import World

CHUNK_BYTES = 1 << 16
LAST_ROW_BYTES_MAX = 4096
IN_USE = "uses this data directory"

JournalRow = dict[str, Any]


def ask(world: World, node: Node, action: str) -> JournalRow:
    """What `mqbroker journal ACTION --json` prints; also that of a check which found damage."""
    stream = open_broker_command(world, node, ["journal", action, "--json"])
    try:
        stream.settimeout(LONG_WORK_S)
        out = _output(node, stream)
        document = _document(out)
        if stream.exit_code() and "good" not in document:
            raise _refusal(node, stream)
    finally:
        stream.close()
    if not document:
        raise CommandError(f"{node.name}: mqbroker journal {action} printed no JSON", "mqctl status")
    return document


def take(world: World, node: Node, write_chunk: Callable[[bytes], object]) -> tuple[int, JournalRow]:
    """Export the journal of a node: its bytes go to `write_chunk`. Their number, and the last row."""
    size, tail = 0, b""
    stream = open_broker_command(world, node, ["journal", "export"])
    try:
        stream.settimeout(LONG_WORK_S)
        while chunk := _received(node, stream):
            write_chunk(chunk)
            size += len(chunk)
            tail = (tail + chunk)[-LAST_ROW_BYTES_MAX:]
        if stream.exit_code():
            raise _refusal(node, stream)
    finally:
        stream.close()
    last = _document(tail.rstrip(b"\n").rpartition(b"\n")[2])
    if last.get("type") != "end":
        raise CommandError(f"{node.name}: the export ended before its last row", "the same command again")
    return size, last


def bring(world: World, node: Node, chunks: Iterable[bytes]) -> JournalRow:
    """Import such bytes as the journal of a node; what the host says that it took."""
    stream = open_broker_command(world, node, ["journal", "import", "--json"])
    try:
        stream.settimeout(LONG_WORK_S)
        _send(stream, chunks)
        document = _document(_output(node, stream))
        if stream.exit_code() or not document:
            raise _refusal(node, stream)
    finally:
        stream.close()
    return document


def _send(stream: CommandStream, chunks: Iterable[bytes]) -> None:
    source = iter(chunks)
    while chunk := next(source, b""):
        try:
            stream.sendall(chunk)
        except (OSError, EOFError):
            return  # it wants no more: why, it says on standard error
    try:
        stream.end_input()
    except (OSError, EOFError):
        return


def _received(node: Node, stream: CommandStream) -> bytes:
    try:
        return stream.recv(CHUNK_BYTES)
    except TimeoutError:
        raise CommandError(f"{node.name}: nothing came for {LONG_WORK_S:g} s", "mqctl status") from None
    except (OSError, EOFError):
        return b""  # its exit code says whether that was the end


def _output(node: Node, stream: CommandStream) -> bytes:
    out = bytearray()
    while chunk := _received(node, stream):
        out += chunk
        if len(out) > OUTPUT_BYTES_MAX:
            raise CommandError(f"{node.name}: mqbroker journal said more than {OUTPUT_BYTES_MAX} bytes")
    return bytes(out)


def _document(text: bytes) -> JournalRow:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _refusal(node: Node, stream: CommandStream) -> CommandError:
    if stream.exit_code() < 0:
        return CommandError(f"{node.name}: the connection broke, or the command was killed", "the same command again")
    why = stream.complaint().removeprefix("mqbroker: ")
    if IN_USE not in why:
        return CommandError(f"{node.name}: {why}")
    if node.access is None:
        return CommandError(f"{node.name}: its broker runs: {why}", "mqctl dev down")
    unit = f"mqbroker@{node.instance}.service"
    return CommandError(f"{node.name}: its broker runs: {why}", f"on {node.host}: systemctl stop {unit}")


def show(
    world: World, options: AskOptions, action: str, rows: Rows, row_of: Callable[[Mapping[str, Any]], JournalRow]
) -> list[JournalRow]:
    """Ask all nodes and write what they say; the rows. Where none has a journal to look into, that is an error."""
    nodes = nodes_meant(world, options)
    errors: list[CommandError] = []
    with counting(world, "journals read", len(nodes)) as advance:
        for node, answer in on_each(nodes, lambda one: ask(world, one, action), lambda _: advance(1)):
            if isinstance(answer, CommandError):
                errors.append(answer)
            else:
                rows.rows.append({"host": node.host, "instance": node.instance, **row_of(answer)})
    if errors and not rows.rows:
        for error in errors[1:]:
            world.note(f"mqctl: {error.what}")
        raise errors[0]
    for error in errors:
        world.note(f"mqctl: {error.what}")
    rows.extra["is_whole"] = not errors
    write(rows, options.shape, world.data)
    return rows.rows


def code_of(rows: Rows, *, is_good: bool = True) -> Exit:
    """3 where something is damaged, or a node is missing in the rows."""
    return Exit.DONE if is_good and rows.extra["is_whole"] else Exit.DEGRADED
