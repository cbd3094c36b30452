# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Whether a release that is installed, and does not run, could run with the options and the data of a host.

Its own program is asked, before any broker is stopped: what it says of options holds also where it does not know some
of them any more, or not yet. Journals are locked by the brokers that run, so of these only the formats of the files are
looked at, which stand in their headers (journal/format.py of the broker), and what they say of queues that a release
takes for others or does not start with. That a journal is damaged is no reason: options may say what a start does then.

Options of another time, as a rollback has them, may name what is gone since, and lack what was declared since: where
their address settings delete what is not in the file any more, a start would delete that with its messages.
"""

from __future__ import annotations

import contextlib
import glob
import json
import mmap
import os
import re
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ansible_collections.mqops.cluster.plugins.module_utils import command
from ansible_collections.mqops.cluster.plugins.module_utils.loaded import PLACES, Places, link_name, text_of

FILE_MARK = b"MQOPSJNL"
HEAD = struct.Struct(">8sH")
# Entries of a file, and the records in them (journal/format.py, entry.py and records.py of the broker).
FILE_HEADER_BYTES, ENTRY_HEADER_BYTES, ALIGN_BYTES = 64, 32, 32
ENTRY_MARK = b"\xa5mQ\x9e"
ENTRY, RECORD, NUMBER = struct.Struct(">4sIQ"), struct.Struct(">BI"), struct.Struct(">Q")
QUEUE, QUEUE_DROP, CHECKPOINT = 3, 4, 10
CHECKPOINT_HEAD_BYTES, CHECKPOINT_QUEUE = 24, struct.Struct(">QxI")
DECLARES_QUEUES = (QUEUE, CHECKPOINT)
FIRST_FORMATS = (1,)  # of releases that do not say which they read
# Rings of addresses that came of nodes that have left. Where a release does not say that it knows them, it takes one
# for that of the address, makes that once more, and cannot start after that. Within a text of JSON quotes are escaped,
# so nothing but a name is found in what a record says of queues.
RING_OF = re.compile(rb'"name":"(\$\.retroactive-of\.[^"\x00-\x1f]{1,2048})"')
KNOWS_RINGS = "knows_moved_rings"
# A release that does not say that it knows queues which drain refuses a journal that has one.
KNOWS_DRAINS = "knows_drains"
UNKNOWN = "unknown operation"  # the answer of a broker that knows of none of it, so there is none
DRAINING = re.compile(rb'"(?:drains_as|drain_ends)":')
NAME = re.compile(rb'"name":"((?:[^"\\]|\\.)*)"')
# There while a restore moves things (io/files/identity.py of the broker). A release that does not say that it knows it
# starts with what there is.
KNOWS_RESTORES = "knows_unfinished_restores"
RESTORE_MARKER = "restore-unfinished.json"
# In broker.toml as the role writes it: a line for each option.
NAMED_FILE = re.compile(r'^tls-[a-z-]+-file = "(/[^"]*)"$', re.MULTILINE)
_Said = TypeVar("_Said")
CLUSTERED = re.compile(r"^\[\[(?:broadcast-groups|discovery-groups|cluster-connections)", re.MULTILINE)
DELETION = re.compile(r'^ *"?config-delete-(?:addresses|queues)"? *= *"FORCE"', re.MULTILINE)


def faults(release: str, options: Mapping[str, str], places: Places = PLACES) -> list[str]:
    """Why it could not, each as a sentence; nothing where it could. `options`: instance -> text of broker.toml."""
    executable = os.path.join(os.path.dirname(places.current), "releases", release, "bin", "mqbroker")
    try:
        said = said_by(executable)
        formats = formats_read(said)
        found = [
            one
            for name, text in sorted(options.items())
            for one in (*_options(executable, release, name, text, places), *_data(release, formats, name, places))
        ]
        for name in sorted(options):
            found += [] if said.get(KNOWS_RINGS) is True else _rings(release, name, places)
            unrestored = [] if said.get(KNOWS_RESTORES) is True else [*_restores(release, name, places)]
            found += unrestored
            # What is half restored says nothing of what holds, nor does the release that a host has refuse its own.
            if not (said.get(KNOWS_DRAINS) is True or unrestored or _in_use(name, places) == release):
                found += _drains(executable, release, name, places)
    except command.CommandFault as fault:
        return [f"release {release} does not run here: {fault}"]
    return found


def missing(options: Mapping[str, str], places: Places = PLACES) -> list[str]:
    """What these options need and is not there, each as a sentence."""
    found = []
    for name, text in sorted(options.items()):
        needed = [os.path.dirname(places.options(name)), os.path.join(places.data, name), *NAMED_FILE.findall(text)]
        if CLUSTERED.search(text):
            needed.append(os.path.join(places.data, name, "cluster-secret"))
        found += [f"instance {name} needs {path}, which is gone" for path in needed if not os.path.exists(path)]
    return found


def deletions(options: Mapping[str, str], places: Places = PLACES) -> list[str]:
    """Addresses and queues that a start with these options may delete with their messages, each as a sentence.

    The program of the current release compares, which knows the options of now.
    """
    found = []
    for name, text in sorted(options.items()):
        now = text_of(places.options(name))
        if now is None or now == text or not DELETION.search(text):
            continue
        if not DELETION.search(now):
            found.append(f"{name}: whatever was ever declared and is not among its options of then")
            continue
        found += [f"{name}: {one}" for one in _undeclared(name, text, places)]
    return found


def _undeclared(name: str, text: str, places: Places) -> Iterator[str]:
    """What the options of an instance declare, and these do not."""
    executable = os.path.join(places.current, "bin", "mqbroker")
    with _file_of(text) as path:
        try:
            answer = command.run(["config", "diff", "--json", places.options(name), path], executable).json()
        except command.CommandFault as fault:
            yield f"nobody can say what ({fault})"
            return
    if answer["note"]:
        yield f"nobody can say what ({answer['note']})"
    for one in answer["changes"]:
        table, *parts = one["option"].split(".")
        if table != "addresses":
            continue
        if one["new"] is None and isinstance(one["old"], str):
            yield f"address {one['old']}"
        elif parts[-1] in ("anycast", "multicast"):
            left = {queue["name"] for queue in one["new"] or ()}
            yield from (f"queue {queue['name']}" for queue in one["old"] or () if queue["name"] not in left)


@contextlib.contextmanager
def _file_of(text: str) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield file.name


def said_by(executable: str) -> dict[str, Any]:
    """What a release says of itself, nothing where it cannot say it so. Raises CommandFault where it does not run."""
    if command.run(["version"], executable).code != command.DONE:
        raise command.CommandFault(command.run(["version"], executable).complaint)
    try:
        answer = json.loads(command.run(["version", "--json"], executable).out)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def formats_read(said: Mapping[str, Any]) -> tuple[int, ...]:
    """Versions of journal files that a release reads, by what it says of itself."""
    try:
        return tuple(int(one) for one in said["journal_formats_read"])
    except (ValueError, LookupError, TypeError):
        return FIRST_FORMATS


def ring_in(journal: str) -> str:
    """The name of a queue that keeps what came of another node's ring, as a file says that is there; empty: none does.

    Files come and go while a broker runs. A file may be long, and messages may say anything: its records are gone
    through where the name is in it at all, and those of messages are stepped over.
    """
    return next(filter(None, _each_by(_ring, sorted(files_of(journal)))), "")


def _ring(text: mmap.mmap) -> str:
    said = declarations(text) if RING_OF.search(text) else ()
    name = next(filter(None, (RING_OF.search(text, *span) for span in said)), None)
    return name.group(1).decode("ascii", "replace") if name else ""


def drains_in(journal: str) -> list[str]:
    """Names of queues that drain to another node by the last word of a journal on each; damage it steps over.

    Each file opens with a checkpoint, which names all queues. So the last file has the last word on all of them, unless
    it has just been made.
    """
    last_words = _each_by(_draining, sorted(files_of(journal), reverse=True))
    return sorted(next((one for one in last_words if one is not None), {}).values())


def _each_by(look: Callable[[mmap.mmap], _Said], paths: Iterable[str]) -> Iterator[_Said]:
    """What each file says by `look`, one after the other; one that has gone, or is empty and so has no map, nothing."""
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                said = look(text)
            yield said


def _draining(text: mmap.mmap) -> dict[int, str] | None:
    """Number -> name of the queues that drain where a file ends; None where it does not begin as one does."""
    found: dict[int, str] | None = None
    for kind, start, end in _of_queues(text):
        if kind == CHECKPOINT:
            found = {}
        elif found is None:
            return None
        for number, begin, stop in _words(text, kind, start, end):
            found.pop(number, None)
            if DRAINING.search(text, begin, stop):
                name = NAME.search(text, begin, stop)
                found[number] = name.group(1).decode("ascii", "replace") if name else str(number)
    return found


def _words(text: mmap.mmap, kind: int, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number of each queue of a record, and from where to where its attributes are."""
    if kind != CHECKPOINT:
        if start + NUMBER.size <= end:
            yield NUMBER.unpack_from(text, start)[0], start + NUMBER.size, end
        return
    at = start + CHECKPOINT_HEAD_BYTES
    while at + CHECKPOINT_QUEUE.size <= end:
        number, length = CHECKPOINT_QUEUE.unpack_from(text, at)
        at += CHECKPOINT_QUEUE.size
        yield number, at, min(at + length, end)
        at += length


def declarations(text: mmap.mmap) -> Iterator[tuple[int, int]]:
    """From where to where a journal file says which queues there are; what was cut short is not gone through."""
    return ((start, end) for kind, start, end in _of_queues(text) if kind in DECLARES_QUEUES)


def _of_queues(text: mmap.mmap) -> Iterator[tuple[int, int, int]]:
    """Kind of each record that is about queues, and from where to where it goes."""
    at, last = FILE_HEADER_BYTES, None
    while at + ENTRY_HEADER_BYTES <= len(text):
        mark, length, position = ENTRY.unpack_from(text, at)
        # Entries are numbered through; what lies behind the last one may be of a file that was here before.
        if mark != ENTRY_MARK or last not in (None, position - 1):
            return
        last = position
        start = at + ENTRY_HEADER_BYTES
        end = min(start + length, len(text))
        while start + RECORD.size <= end:
            kind, size = RECORD.unpack_from(text, start)
            start += RECORD.size
            if kind in (*DECLARES_QUEUES, QUEUE_DROP):
                yield kind, start, min(start + size, end)
            start += size
        at += (ENTRY_HEADER_BYTES + length + ALIGN_BYTES) // ALIGN_BYTES * ALIGN_BYTES


def files_of(journal: str) -> list[str]:
    """The files of a journal."""
    return glob.glob(os.path.join(glob.escape(journal), "journal-*.mqj"))


def formats_in(journal: str) -> set[int]:
    """Versions of the journal files in a folder; what is none has none. Files come and go while a broker runs."""
    found = set()
    for path in files_of(journal):
        try:
            with open(path, "rb") as file:
                head = file.read(HEAD.size)
        except OSError:
            continue
        if len(head) == HEAD.size and head.startswith(FILE_MARK):
            found.add(HEAD.unpack(head)[1])
    return found


def _options(executable: str, release: str, name: str, text: str, places: Places) -> Iterator[str]:
    with _file_of(text) as path:
        answer = command.run(["config", "check", path], executable)
    if answer.code != command.DONE:
        complaint = answer.complaint.replace(path, places.options(name))
        yield f"release {release} refuses the options of {name}: {'; '.join(complaint.splitlines())}"


def _data(release: str, formats: tuple[int, ...], name: str, places: Places) -> Iterator[str]:
    unread = sorted(formats_in(os.path.join(places.data, name, "journal")) - set(formats))
    if unread:
        yield (
            f"release {release} reads journals of format {_and(formats)}, and that of {name} has files of format "
            f"{_and(unread)}, which a later one has written: there is no way back to it with this data"
        )


def _rings(release: str, name: str, places: Places) -> Iterator[str]:
    ring = ring_in(os.path.join(places.data, name, "journal"))
    if ring:
        yield (
            f"release {release} does not know what addresses keep that came of nodes that have left, and the journal "
            f"of {name} has {ring}: it would start once, and then not again. Let the address keep nothing "
            "(retroactive-message-count), and go back when no file of the journal names it any more"
        )


def _restores(release: str, name: str, places: Places) -> Iterator[str]:
    if os.path.lexists(os.path.join(places.data, name, RESTORE_MARKER)):
        yield (
            f"release {release} does not know that a restore of {name} was cut off, and would start with a part of it "
            "or with nothing: repeat that restore, or move back what there was"
        )


def _in_use(name: str, places: Places) -> str:
    """The release that an instance runs, or would, where it does not run."""
    return link_name(places.loaded(name, "release")) or link_name(places.current)


def _drains(executable: str, release: str, name: str, places: Places) -> Iterator[str]:
    """A broker that runs knows what holds, while files of its journal go on to say what is over. Where none answers,
    because it does not run, hangs or comes to no start, a way back is wanted most: so only what the files say last of
    queues keeps from it, which needs neither the lock nor a whole journal. That a node is cordoned nobody sees then.
    """
    journal, admin = os.path.join(places.data, name, "journal"), ["admin", "--instance", name]
    if not files_of(journal):
        return
    try:
        shown = command.run([*admin, "scale-down-show"], executable)
        if UNKNOWN in shown.complaint:
            return
        state = shown.json()["state"]
        queues = [one["queue"] for one in command.run([*admin, "drain-show"], executable).json()["drains"]]
    except (command.CommandFault, LookupError, TypeError):
        queues = drains_in(journal)
        if queues:
            yield (
                f"release {release} does not start with queues that drain to another node, and by the journal of "
                f"{name}, whose broker does not answer, {queues[0]} does: have it run with the release that it has, "
                "and take that back (mqctl undrain, or mqctl scale-down --cancel)"
            )
    else:
        yield from _drained(release, name, state, queues)


def _drained(release: str, name: str, state: str, queues: list[str]) -> Iterator[str]:
    """`state`: of the node, as it says itself (node/cluster/departure/scale_down_progress.py of the broker)."""
    if state == "cordoned" and not queues:
        yield f"release {release} does not know that {name} is cordoned, and would let clients in: mqctl undrain first"
    elif state != "none" or queues:
        what = f"queue {queues[0]} of {name} does" if queues else f"{name} leaves ({state})"
        yield (
            f"release {release} does not start with queues that drain to another node, and {what}: take that back and "
            "wait until it is over (mqctl undrain or mqctl scale-down --cancel; of a queue alone, drain-cancel)"
        )


def _and(numbers: tuple[int, ...] | list[int]) -> str:
    return " and ".join(str(one) for one in numbers)
