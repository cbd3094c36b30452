"""`mqbroker journal info|check|export|import`: a journal without its broker.

The data directory is locked meanwhile, so none of them works while a broker runs in it, and no broker starts. The first
three change nothing, not even what a start would cut off; `import` makes a journal where there is none.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from mqbroker.app import exits, source
from mqbroker.app.commands.identity import unused
from mqbroker.app.importing import FiledBodies, put, written
from mqbroker.base.errors import ConfigFault, StorageFault
from mqbroker.base.text import safe_json
from mqbroker.config.declarations.options import defaults
from mqbroker.config.slices import JournalOptions
from mqbroker.core.address.stored_tables import kinds_in
from mqbroker.core.queue.large import DIRECTORY, fault_of
from mqbroker.core.store.exported_bodies import Read
from mqbroker.core.store.journal_export import large_runs, rows_of
from mqbroker.io.disk.files import MappedFiles
from mqbroker.io.disk.journal_directory import UNNAMED_SUFFIX, JournalDirectory
from mqbroker.io.disk.journal_directory import fault_of as io_fault_of
from mqbroker.io.disk.large_directory import LargeDirectory
from mqbroker.io.files import identity
from mqbroker.io.files.identity import NodeIdentity
from mqbroker.journal.recovered import Recovered

IMPORTING_NAME = "journal.importing"
IMPORTING_LARGE_NAME = f"{DIRECTORY}.importing"
# Of a row, which is in memory as a whole on either way. The longest is that of one message that is in no file: as large
# as this it takes a message of 768 MiB, which options of both sizes of messages, or of transactions, have to allow.
LINE_BYTES_MAX = 1 << 30


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `journal` and its actions."""
    parser = subparsers.add_parser("journal", help="look into the journal of a broker that does not run, or move it")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    info = actions.add_parser("info", help="what is in it: files, queues, messages")
    check = actions.add_parser("check", help=f"read all of it (exit code {exits.FAILED} names file and offset)")
    export = actions.add_parser("export", help="write queues and messages as lines of JSON")
    export.add_argument("file", nargs="?", type=Path, metavar="FILE", help="where to (else standard output)")
    import_ = actions.add_parser("import", help="make a journal of such lines, where there is none")
    import_.add_argument("file", nargs="?", type=Path, metavar="FILE", help="where from (else standard input)")
    for action in (info, check, export, import_):
        action.add_argument("--data-directory", type=Path, metavar="PATH", help="directory (else as the options say)")
        source.add_arguments(action)
    for action in (info, check, import_):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Do what `args.action` names; the exit code."""
    options = defaults().journal
    if args.data_directory is None:
        whole = source.options_of(args)
        options = whole.journal
        directory = Path(whole.node.data_directory)
    else:
        directory = args.data_directory
    with unused(directory), _damage_told(args):
        if args.action == "import":
            return _import(args, directory, options)
        owner = _owner(directory)
        recovered = _look(directory, owner, options)
        if args.action == "export":
            _check_large(directory, recovered)
            return _export(args, rows_of(recovered, owner.node_id, _reader(directory)))
        if args.action == "info":
            return _info(args, recovered, owner)
        _check_large(directory, recovered)
        return _check(args, recovered, owner, _strangers(directory, owner, options))


@contextmanager
def _damage_told(args: argparse.Namespace) -> Iterator[None]:
    """Who checks and wants JSON is told of damage in JSON too, so that it is not taken for another failure."""
    try:
        yield
    except StorageFault as fault:
        if args.action == "check" and args.json:
            place = {"file": fault.file, "offset": fault.offset if fault.offset >= 0 else None}
            print(json.dumps({"schema": 1, "good": False, **place, "why": fault.why, "remedy": fault.remedy}))
        raise


def _owner(directory: Path) -> NodeIdentity:
    owner = identity.load(directory)
    if owner is None:
        raise ConfigFault(str(directory), "has no identity, so it is no data directory; `mqbroker identity init`")
    return owner


def _look(directory: Path, owner: NodeIdentity, options: JournalOptions) -> Recovered:
    if not identity.has_journal(directory):
        raise ConfigFault(str(directory), "has no journal: no broker has run in it yet; `import` makes one")
    return _place(directory, owner, options).look()


def _place(directory: Path, owner: NodeIdentity, options: JournalOptions) -> JournalDirectory:
    return JournalDirectory(directory / identity.JOURNAL_NAME, owner.node_id_bytes, options, MappedFiles())


def _strangers(directory: Path, owner: NodeIdentity, options: JournalOptions) -> list[dict[str, str | int]]:
    """What lies among the files and is none of them; a start passes over it as well."""
    journal = (f"{identity.JOURNAL_NAME}/{name}" for name in _place(directory, owner, options).strangers())
    large = (f"{DIRECTORY}/{name}" for name in LargeDirectory(directory / DIRECTORY).strangers())
    why = "is not called as a file of the broker is, and was not read"
    return [{"event": "file-skipped", "file": file, "why": why} for file in (*journal, *large)]


# -- looking ----------------------------------------------------------------------------------------------------------


def _info(args: argparse.Namespace, recovered: Recovered, owner: NodeIdentity) -> int:
    queues = []
    kinds = dict(kinds_in(recovered))
    for queue_id, contents in sorted(recovered.queue_contents().items()):
        kind = kinds[queue_id]
        queues.append(
            {"id": queue_id, "name": kind.name, "address": kind.address,
             "messages": sum(n for _, n, _ in contents)}
        )  # fmt: skip
    row: dict[str, Any] = {
        "schema": 1, "format": recovered.format_version, "node_id": owner.node_id, "boot": recovered.boot,
        "was_clean": recovered.was_clean, "next_id": recovered.next_id, "position": recovered.last_position,
        "files": len(recovered.segments), "used_bytes": sum(use.used_bytes for use in recovered.segments),
        "messages": sum(queue["messages"] for queue in queues),
    }  # fmt: skip
    if args.json:
        print(safe_json(json.dumps(row | {"queues": queues})))
        return exits.DONE
    for name, value in row.items():
        if name != "schema":
            source.say(f"{name}: {value}")
    for queue in queues:
        source.say(f"queue {queue['id']}: {queue['name']} at {queue['address']}: {queue['messages']} messages")
    return exits.DONE


def _check(
    args: argparse.Namespace, recovered: Recovered, owner: NodeIdentity, strangers: list[dict[str, str | int]]
) -> int:
    messages = 0
    for row in rows_of(recovered, owner.node_id):  # each record is taken apart, as a start would
        messages += len(row.get("frames", ()))
    findings = [{"event": finding.event, **finding.fields} for finding in recovered.findings] + strangers
    if args.json:
        print(json.dumps({"schema": 1, "good": True, "messages": messages, "findings": findings}))
        return exits.DONE
    for finding in findings:
        source.say(" ".join(f"{name}={value}" for name, value in finding.items()))
    print(f"good: {len(recovered.segments)} files, {len(recovered.queues)} queues, {messages} messages")
    return exits.DONE


def _check_large(directory: Path, recovered: Recovered) -> None:
    """Whether each large message has its file. Raises StorageFault."""
    large = LargeDirectory(directory / DIRECTORY)
    try:
        sizes = large.sizes()
    except OSError as error:
        raise io_fault_of(error, large.path) from None
    for run in large_runs(recovered):
        fault = fault_of(run, sizes)
        if fault is not None:
            raise fault


def _reader(directory: Path) -> Read:
    large = LargeDirectory(directory / DIRECTORY)

    def read(file: int, offset: int, size_bytes: int) -> bytes:
        try:
            return large.read(file, offset, size_bytes)
        except OSError as error:
            raise io_fault_of(error, large.path_of(file)) from None

    return read


def _export(args: argparse.Namespace, rows: Iterator[dict[str, Any]]) -> int:
    if args.file is None:
        for row in rows:
            sys.stdout.buffer.write(_line(row))
        sys.stdout.flush()
        return exits.DONE
    try:
        # Messages are private, and a file that is there is somebody's.
        with args.file.open("xb") as file, _removed_if_not_whole(args.file):
            args.file.chmod(0o600)
            for row in rows:
                file.write(_line(row))
            file.flush()
    except OSError as error:
        raise ConfigFault(str(args.file), f"cannot be written ({error.strerror}); name a new file") from None
    return exits.DONE


def _line(row: dict[str, Any]) -> bytes:
    """One row. It is UTF-8 whatever the locale says: another host reads it. Raises ConfigFault where it could not."""
    line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
    if len(line) > LINE_BYTES_MAX:
        what = f"the row of type {row['type']}" + (f" from message {row['first_id']} on" if "first_id" in row else "")
        raise ConfigFault(what, f"is longer than {LINE_BYTES_MAX} bytes, which no import takes; have it consumed first")
    return line


@contextmanager
def _removed_if_not_whole(file: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        file.unlink(missing_ok=True)
        raise


# -- import -----------------------------------------------------------------------------------------------------------


def _import(args: argparse.Namespace, directory: Path, options: JournalOptions) -> int:
    owner = identity.check(directory, identity.machine_id())
    place, large = directory / IMPORTING_NAME, directory / IMPORTING_LARGE_NAME
    _clear(place, large)  # what an import left that was killed, whatever has become of the directory since
    if identity.has_journal(directory):
        why = "has a journal already; `mqbroker identity new` sets one aside, or name another directory"
        raise ConfigFault(str(directory), why)
    try:
        made = JournalDirectory(place, owner.node_id_bytes, replace(options, journal_sync=True))
        with _lines(args.file) as lines:
            numbered = enumerate(iter(lambda: lines.readline(LINE_BYTES_MAX + 1), b""), 1)
            rows = (_row(number, line) for number, line in numbered)
            importer = written(made, rows, FiledBodies(large))
        for file in place.glob(f"*{UNNAMED_SUFFIX}"):
            file.unlink()
        if large.exists():
            # Without a journal the files of another one are nobody's: a start would delete them.
            _clear(directory / DIRECTORY)
            put(large, directory / DIRECTORY)
        put(place, directory / identity.JOURNAL_NAME)
    finally:
        _clear(place, large)
    if args.json:
        print(json.dumps({"schema": 1, "queues": importer.queues, "messages": importer.messages}))
    else:
        print(f"imported: {importer.queues} queues, {importer.messages} messages")
    return exits.DONE


def _clear(*places: Path) -> None:
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


def _row(number: int, line: bytes) -> Any:
    if len(line) > LINE_BYTES_MAX:
        raise ConfigFault(f"line {number}", f"is longer than {LINE_BYTES_MAX} bytes, so it is none of an export")
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigFault(f"line {number}", f"is not JSON: {error}") from None


@contextmanager
def _lines(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdin.buffer
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        raise ConfigFault(str(file), f"cannot be read ({error.strerror})") from None
    with opened:
        yield opened
