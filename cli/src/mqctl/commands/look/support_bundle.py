"""`mqctl support-bundle`."""

from __future__ import annotations

import io
import json
import os
import platform
import tarfile
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from mqctl import __version__, operation
from mqctl.admin import AdminClient
from mqctl.brokers import journald, journals, node_state
from mqctl.brokers.requests import PLACE, AskOptions, nodes_and_cluster
from mqctl.dev import log as dev_log
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.nodes import Node, open_admin
from mqctl.output import Column, Rows, write
from mqctl.playbook.redact import Redactor
from mqctl.progress import counting
from mqctl.world import World

# What each node is asked. None of these answers has a body, a password or a key; options name files and no contents.
ASKED: Final = (
    "status", "health", "metrics", "config-show", "topology", "discovery", "addresses", "queues", "quotas",
    "drain-show", "scale-down-show", "operations",
)  # fmt: skip
# What a broker that runs says of its journal, in its status; nobody else can look into it meanwhile.
OF_JOURNAL: Final = ("journal_segments", "journal_position", "synced_position")
JOURNAL_INFO: Final = "journal-info.json"
INFO: Final = "info"  # of `mqbroker journal`
UNIT_TIME_S: Final = 30
LINES_MAX: Final = 10_000
EVENTS_MAX: Final = 1000
COLUMNS = (Column("files", is_number=True), Column("missing"))

BundleFiles = dict[str, Any]  # name -> a text, or what becomes JSON


@dataclass(frozen=True, kw_only=True)
class Options(AskOptions):
    """Which nodes, and where to."""

    file: Annotated[Path, typer.Argument(help="New file to write to, a tar archive: bundle.tar.gz.")]
    lines: Annotated[int, typer.Option(min=0, max=LINES_MAX, help="The last so many lines of each log.")] = 2000


def run(world: World, options: Options) -> int:
    """Collect what helps to understand a cluster: state, options, metrics, topology, events, journals, logs, versions.

    Of a broker that does not run it has what `mqctl journal info` says, but where an operation holds its host: that
    one cannot start while its journal is read.

    No messages, passwords or keys are in it, and secrets of the inventory are taken out wherever they stand; names of
    hosts, users, addresses and clients are in it, and the selectors of subscriptions. Exit code 3 if a node is missing
    in it or does not answer everything; what is missing, and why, is in it too.
    """
    nodes, cluster = nodes_and_cluster(world, options)
    hosts = cluster.hosts if cluster else ()
    rows = Rows("mqctl.support-bundle/1", (*PLACE, *COLUMNS))
    notes, faults = operation.look(world, [one for one in hosts if one.name in {node.host for node in nodes}])
    held = {name: note["what"] for name, note in notes.items() if note and note["is_held"]}
    files = {**_operations(notes), "versions.json": _versions()}

    def collected_of(node: Node) -> tuple[BundleFiles, list[str]]:
        return _collected(world, node, options.lines, held.get(node.host, ""))

    with counting(world, "hosts asked", len(nodes)) as advance:
        for node, collected in on_each(nodes, collected_of, lambda _: advance(1)):
            said, missing = ({}, [collected.what]) if isinstance(collected, CommandError) else collected
            missing += [faults[node.host]] if node.host in faults else []
            missing = list(dict.fromkeys(missing))  # a broker that answers nothing says why once for each question
            place = f"{node.host}/{node.instance}"
            files |= {f"{place}/{name}": content for name, content in said.items()}
            if missing:
                files[f"{place}/missing.txt"] = "\n".join([*missing, ""])
            rows.rows.append(
                {"host": node.host, "instance": node.instance, "files": len(said), "missing": "; ".join(missing)}
            )
    redact = Redactor(host.variables for host in hosts)
    _write(world.cwd / options.file, {name: _encoded(content, redact) for name, content in files.items()})
    write(rows, options.shape, world.data)
    return Exit.DONE if all(not row["missing"] for row in rows.rows) else Exit.DEGRADED


def _operations(notes: Mapping[str, dict[str, Any] | None]) -> BundleFiles:
    """Which operation holds each host, or was the last one there."""
    for note in notes.values():
        if note:
            del note["token"]  # by which others would come in its place
    return {f"{name}/operation.json": note for name, note in notes.items()}


def _collected(world: World, node: Node, lines: int, holder: str) -> tuple[BundleFiles, list[str]]:
    """BundleFiles of one node, and what could not be had. `holder`: the operation that holds its host."""
    files: BundleFiles = {}
    missing: list[str] = []
    try:
        with open_admin(world, node) as session:
            for name, answer in _answers(session):
                if isinstance(answer, CommandError):
                    missing.append(answer.what)
                else:
                    files[f"{name}.json"] = answer
    except CommandError as error:
        missing.append(error.what)
    try:
        files[JOURNAL_INFO] = _journal_info(world, node, files.get("status.json"), holder)
    except CommandError as error:
        missing.append(error.what)
    try:
        said = (f"{row['time']} {row['level']} {row['message']}\n" for row in _log(world, node, lines))
        files["log"] = "".join(said)
    except (CommandError, OSError) as error:
        missing.append(f"{node.name}: log: {error}")
    return files, missing


def _journal_info(world: World, node: Node, status: Any, holder: str) -> Any:
    """Of a broker that answers what it says itself, of one that does not run what is found on the disk."""
    if isinstance(status, dict):
        return {name: status.get(name) for name in OF_JOURNAL}
    if holder:  # which may start it, or read its journal, in the next moment
        raise CommandError(f"{node.name}: its host is held by {holder}, so its journal was not read")
    state = node_state.STATES.get(node_state.unit_of(world, node, UNIT_TIME_S)) if node.access is not None else None
    if state is not None:  # systemd starts it again: it must not find its journal locked, and who runs has locked it
        raise CommandError(f"{node.name}: systemd says that its broker is {state}, so its journal was not read")
    return journals.ask(world, node, INFO)


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


def _encoded(content: Any, redact: Callable[[str], str]) -> bytes:
    """A file of the bundle without secrets: the second lock, should a broker or a library ever say one."""
    cleaned = _cleaned(content, redact)
    text = cleaned if isinstance(cleaned, str) else json.dumps(cleaned, indent=2, sort_keys=True) + "\n"
    return text.encode(errors="replace")


def _cleaned(value: Any, redact: Callable[[str], str]) -> Any:
    """All texts in it cleaned, names too. Not what becomes of it as JSON, which a short secret would break."""
    if isinstance(value, dict):
        cleaned: dict[str, Any] = {}
        for name, each in value.items():
            cleaned[_free_name(redact(str(name)), cleaned)] = _cleaned(each, redact)
        return cleaned
    if isinstance(value, list):
        return [_cleaned(each, redact) for each in value]
    return redact(value) if isinstance(value, str) else value


def _free_name(name: str, taken: Container[str]) -> str:
    """The name, with a number where another one has become the same: nothing falls out of what is cleaned."""
    numbered = (f"{name} ({number})" for number in count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def _write(path: Path, files: Mapping[str, bytes]) -> None:
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


def _write_archive(descriptor: int, files: Mapping[str, bytes]) -> None:
    with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"support-bundle/{name}")
            entry.size, entry.mode = len(content), 0o600
            archive.addfile(entry, io.BytesIO(content))
