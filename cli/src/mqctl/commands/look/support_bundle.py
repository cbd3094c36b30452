"""`mqctl support-bundle`."""

from __future__ import annotations

import io
import json
import os
import platform
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from mqctl import __version__
from mqctl.admin import AdminClient
from mqctl.brokers import journald
from mqctl.brokers.requests import PLACE, AskOptions, nodes_meant
from mqctl.dev import log as dev_log
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.nodes import Node, open_admin
from mqctl.output import Column, Rows, write
from mqctl.progress import counting
from mqctl.world import World

# What each node is asked. None of these answers has a body, a password or a key; options name files and no contents.
ASKED: Final = (
    "status", "health", "metrics", "config-show", "topology", "discovery", "addresses", "queues", "quotas",
    "drain-show", "scale-down-show", "operations",
)  # fmt: skip
LINES_MAX: Final = 10_000
EVENTS_MAX: Final = 1000
COLUMNS = (Column("files", is_number=True), Column("missing"))

BundleFiles = dict[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and where to."""

    file: Annotated[Path, typer.Argument(help="New file to write to, a tar archive: bundle.tar.gz.")]
    lines: Annotated[int, typer.Option(min=0, max=LINES_MAX, help="The last so many lines of each log.")] = 2000


def run(world: World, options: Options) -> int:
    """Collect what helps to understand a cluster: state, options, metrics, topology, events, logs and versions.

    No messages, passwords or keys are in it; names of hosts, users, addresses and clients are, and the selectors of
    subscriptions. Exit code 3 if a node is missing in it or does not answer everything; what is missing, and why, is in
    it too.
    """
    nodes = nodes_meant(world, options)
    rows = Rows("mqctl.support-bundle/1", (*PLACE, *COLUMNS))
    files: BundleFiles = {"versions.json": _document(_versions())}
    with counting(world, "hosts asked", len(nodes)) as advance:
        for node, collected in on_each(nodes, lambda one: _collected(world, one, options.lines), lambda _: advance(1)):
            said, missing = ({}, [collected.what]) if isinstance(collected, CommandError) else collected
            place = f"{node.host}/{node.instance}"
            files |= {f"{place}/{name}": content for name, content in said.items()}
            if missing:
                files[f"{place}/missing.txt"] = "\n".join([*missing, ""]).encode()
            rows.rows.append(
                {"host": node.host, "instance": node.instance, "files": len(said), "missing": "; ".join(missing)}
            )
    _write(world.cwd / options.file, files)
    write(rows, options.shape, world.data)
    return Exit.DONE if all(not row["missing"] for row in rows.rows) else Exit.DEGRADED


def _collected(world: World, node: Node, lines: int) -> tuple[BundleFiles, list[str]]:
    """BundleFiles of one node, and what could not be had."""
    files: BundleFiles = {}
    missing: list[str] = []
    try:
        with open_admin(world, node) as session:
            for name, answer in _answers(session):
                if isinstance(answer, CommandError):
                    missing.append(answer.what)
                else:
                    files[f"{name}.json"] = _document(answer)
    except CommandError as error:
        missing.append(error.what)
    try:
        said = (f"{row['time']} {row['level']} {row['message']}\n" for row in _log(world, node, lines))
        files["log"] = "".join(said).encode(errors="replace")
    except (CommandError, OSError) as error:
        missing.append(f"{node.name}: log: {error}")
    return files, missing


def _answers(session: AdminClient) -> Iterator[tuple[str, Any]]:
    for name in ASKED:
        yield name, _answer(session, name, {})
    yield "events", _answer(session, "events", {"limit": EVENTS_MAX})


def _answer(session: AdminClient, name: str, arguments: dict[str, Any]) -> Any:
    try:
        return session.answer(session.submit(name, **arguments))
    except CommandError as error:
        return error


def _log(world: World, node: Node, lines: int) -> list[dict[str, Any]]:
    if not lines:
        return []
    if node.access is None:
        return list(dev_log.last_lines(Path(node.socket).parent / "log", lines))
    return journald.last_lines(world, node, lines, "")


def _versions() -> dict[str, str]:
    libraries = ("mqbroker", "ansible-core", "ansible-runner", "paramiko", "pydantic", "rich", "typer")
    versions = {name: metadata.version(name) for name in libraries}
    return {"mqctl": __version__, "python": platform.python_version(), "system": platform.platform(), **versions}


def _document(value: Any) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True).encode() + b"\n"


def _write(path: Path, files: BundleFiles) -> None:
    """A new file, for its owner: who talks to whom is nobody else's business."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _write_archive(descriptor, files)
        except BaseException:  # Ctrl-C as well: a part of it would be in the way of the next try
            path.unlink(missing_ok=True)
            raise
    except OSError as fault:
        raise CommandError(f"{path} cannot be made: {fault.strerror}", "mqctl support-bundle with a new file") from None


def _write_archive(descriptor: int, files: BundleFiles) -> None:
    with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"support-bundle/{name}")
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
