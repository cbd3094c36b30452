"""Backups: what `mqbroker backup` does on hosts and on the control node, and the way between the two.

A folder of backups is looked after by `mqbroker backup` where it is. Where it is here, one half of that command runs
here and the other one at the host, and what they say to each other goes through this process in chunks: the manifest
and what is wanted of it as lines, then as many bytes as these name, then a line from each end (the broker's
app/backup/transfer.py). Nothing counts before the last one.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from mqctl.brokers.requests import PLACE, AskOptions, nodes_meant
from mqctl.dev.process import broker_program
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.nodes import BROKER, Node, guarded, shell
from mqctl.output import Rows, counted, write
from mqctl.progress import counting
from mqctl.ssh.local import LocalStream
from mqctl.ssh.shell import CommandStream, open_stream
from mqctl.world import World

CHUNK_BYTES: Final = 1 << 18
LINE_BYTES_MAX: Final = 256 << 20
# Checksums, and what a start would read, are read in silence: for as long as that takes for a disk that is full.
SILENCE_S: Final = 6 * 3600.0
KILLED: Final = 128
HERE: Final = "the control node"
END: Final = b'{"end": true}\n'
READY: Final = b'{"ready": true}\n'
RESULT: Final = b'{"result": true}\n'
UNCHANGED: Final = "; nothing was changed"  # the last words of a restore that left all as it was (mqbroker backup)

JsonRow = dict[str, Any]
# Files to carry, of how many, and their bytes -> what is told of the bytes of each piece.
CopyProgress = Callable[[int, int, int], contextlib.AbstractContextManager[Callable[[int], object]]]
FolderArgument = Annotated[str, typer.Argument(help="Folder of backups, on this machine.")]


@dataclass(frozen=True, kw_only=True)
class BackupFolderOptions(AskOptions):
    """Which folder of backups, of commands that work in one."""

    folder: FolderArgument
    on_hosts: Annotated[
        bool, typer.Option("--on-hosts", help="The folder is on each host, and not on this machine.")
    ] = False


class BackupStream:
    """One half: a command that talks, by lines and by bytes."""

    def __init__(self, place: str, stream: CommandStream, silence_s: float) -> None:
        self.place = place
        self._silence_s = silence_s
        self.is_lost = False  # nobody knows how it ended, or whether
        self.is_done = False  # it has ended, and all is well
        self.is_unchanged = False  # it has failed, and says that it has changed nothing
        self._stream = stream
        self._buffer = bytearray()
        stream.settimeout(silence_s)

    def line(self) -> bytes:
        """The next line, with its end; less where it says no more."""
        start = 0
        while (end := self._buffer.find(b"\n", start)) < 0 and len(self._buffer) <= LINE_BYTES_MAX:
            start = len(self._buffer)
            if not self._read():
                break
        size = end + 1 if end >= 0 else len(self._buffer)
        return self._take(size)

    def chunk(self, size_max: int) -> bytes:
        """Some of the next bytes; nothing where it says no more."""
        if not self._buffer:
            self._read()
        return self._take(min(size_max, len(self._buffer)))

    def write(self, data: bytes) -> None:
        """What it reads. Where it has ended, it says why at its end. Raises CommandError where it reads no more."""
        try:
            self._stream.sendall(data)
        except TimeoutError:
            self.is_lost = True
            raise CommandError(f"{self.place}: it took nothing for {self._silence_s:g} s", "mqctl status") from None
        except (OSError, EOFError):
            return

    def end(self) -> str:
        """Nothing more comes to it, and it is waited for: why it failed, empty where it did not."""
        self.is_lost = True  # also where nobody waits for so long
        with contextlib.suppress(OSError, EOFError):
            self._stream.end_input()
        while self.chunk(CHUNK_BYTES):
            pass
        code = self._stream.exit_code()
        self.is_lost = not 0 <= code <= KILLED  # a shell says by more than that which signal has ended what it ran
        self.is_done = code == 0
        if self.is_done:
            return ""
        why = self._stream.complaint().removeprefix("mqbroker: ")
        self.is_unchanged = not self.is_lost and why.endswith(UNCHANGED)
        return "the connection broke, or the command was killed" if self.is_lost else why

    def close(self) -> None:
        """Close the stream of the command."""
        self._stream.close()

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _read(self) -> bool:
        try:
            chunk = self._stream.recv(CHUNK_BYTES)
        except TimeoutError:
            self.is_lost = True
            raise CommandError(f"{self.place}: nothing came for {self._silence_s:g} s", "mqctl status") from None
        except (OSError, EOFError):
            return False
        self._buffer += chunk
        return bool(chunk)


def here(words: Sequence[str], silence_s: float = SILENCE_S) -> BackupStream:
    """`mqbroker backup` on this machine, which may say nothing for so long."""
    return BackupStream(HERE, LocalStream(shlex.join([broker_program(), "backup", *words]), b""), silence_s)


def at(world: World, node: Node, words: Sequence[str], silence_s: float = SILENCE_S) -> BackupStream:
    """The same on the host of a node, with the rights to read its files."""
    if node.access is None:
        return BackupStream(node.name, LocalStream(shlex.join([broker_program(), "backup", *words]), b""), silence_s)
    command = guarded(world, node.access, [BROKER, "backup", *words])
    return BackupStream(node.name, open_stream(shell(world, node.access), command), silence_s)


def copying(world: World, what: str) -> CopyProgress:
    """A line that says how much is copied, and on a terminal a bar."""

    @contextlib.contextmanager
    def begun(wanted: int, of: int, size_bytes: int) -> Iterator[Callable[[int], object]]:
        world.note(f"{what}: {wanted} of {counted(of, 'file')}, {counted(size_bytes, 'byte')}")
        with counting(world, f"bytes {what}", size_bytes) as advance:
            yield advance

    return begun


def instance_words(node: Node) -> list[str]:
    """The options that say which broker of a host is meant."""
    if node.access is not None:
        return ["--instance", node.instance]
    return ["--config", node.socket.rpartition("/")[0] + "/broker.toml"]


def said(stream: BackupStream, *, may_fail: bool = False) -> JsonRow:
    """The one line of JSON that a command prints, also where it says so of something that is bad."""
    line = stream.line()
    document = _document(line)
    try:
        why = stream.end()
    except CommandError as error:
        why = error.what
    if (why and not (may_fail and document)) or not document:
        raise CommandError(f"{stream.place}: {why or 'mqbroker backup said nothing'}", "mqctl backup list")
    return document


def carried(
    source: BackupStream,
    target: BackupStream,
    begun: CopyProgress,
    before_end: Callable[[], object] = lambda: None,
    note: Callable[[str], object] = lambda said: None,
) -> JsonRow:
    """Both halves to their end; what the target says that became of it. Raises CommandError.

    `begun`: is told how much there is to carry, and then of each piece; `before_end`: what is looked at when all bytes
    are there and nothing counts yet; nothing does where that raises; `note`: is told of an end that went wrong when
    the target had said what became of it, which that does not change.
    """
    try:
        result = _carried(source, target, begun, before_end)
    except (KeyError, TypeError, ValueError):
        whys = [(each.place, each.end()) for each in (source, target)]
        place, why = next(((place, why) for place, why in whys if why and "cut off" not in why), whys[0])
        raise CommandError(f"{place}: {why or 'the backup was cut off'}", "mqctl backup list") from None
    try:
        source.write(RESULT)
        if why := source.end():
            note(f"{source.place}: {why}")
        target.end()
    except CommandError as error:
        note(error.what)
    return result


def _carried(
    source: BackupStream, target: BackupStream, begun: CopyProgress, before_end: Callable[[], object]
) -> JsonRow:
    line = source.line()
    sizes = {each["sha256"]: each["used_bytes"] for each in json.loads(line)["files"]}
    target.write(line)
    line = target.line()
    wanted = json.loads(line)["wanted"]
    left = sum(sizes[each] for each in wanted)
    source.write(line)
    with begun(len(wanted), len(sizes), left) as advance:
        while left:
            chunk = source.chunk(min(left, CHUNK_BYTES))
            if not chunk:
                raise ValueError("it was cut off")
            target.write(chunk)
            left -= len(chunk)
            advance(len(chunk))
    line = source.line()
    if json.loads(line)["end"] is not True:
        raise ValueError("it has no end")
    before_end()
    target.write(END)
    line = target.line()
    result: JsonRow = json.loads(line)["result"]
    return result


def show(
    world: World,
    options: BackupFolderOptions,
    words: Sequence[str],
    rows: Rows,
    rows_of: Callable[[JsonRow], list[JsonRow]],
) -> list[JsonRow]:
    """Ask about a folder, here or on each host; the rows, which are written. Where none answers, that is an error."""
    places: list[tuple[str, BackupStream | CommandError]] = []
    if options.on_hosts:
        by_host = {node.host: node for node in nodes_meant(world, options)}
        for host, node in by_host.items():
            try:
                places.append((host, at(world, node, [*words, "--json"])))
            except CommandError as error:
                places.append((host, error))
    else:
        places.append(("", here([*words, "--json"])))
    errors: list[CommandError] = []
    for host, stream in places:
        try:
            if isinstance(stream, CommandError):
                raise stream
            with contextlib.closing(stream):
                rows.rows += [{"host": host, **row} for row in rows_of(said(stream, may_fail=True))]
        except CommandError as error:
            errors.append(error)
    if errors and len(errors) == len(places):
        raise errors[0]
    written(world, options, rows, errors)
    return rows.rows


def written(world: World, options: AskOptions, rows: Rows, errors: Sequence[CommandError]) -> Exit:
    """Write rows, and tell which are missing; the exit code says that too."""
    for error in errors:
        world.note(f"mqctl: {error.what}")
    rows.columns = (PLACE[0], *rows.columns)
    rows.extra["is_whole"] = not errors
    write(rows, options.shape, world.data)
    return Exit.DEGRADED if errors else Exit.DONE


def _document(text: bytes) -> JsonRow:
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
