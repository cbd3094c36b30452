"""One bit of a synced file flips between a crash and the next start; what recovery may and must make of it.

Nothing of the history changes: the flip is in a copy, and whoever runs the node puts the file back. So any history can
have any number of them. The rules, by the decision table of docs/adr/0002-journal.md:

- a start refuses and names the file, and the entry that has the bit; only where nothing is written may it also be as
  if there were no flip;
- with `truncate` the outcome is that of all entries before the damaged one, exactly, and says that it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from mqbroker.base.errors import StorageFault
from mqbroker.journal.entry import entry_bytes
from mqbroker.journal.format import (
    FILE_HEADER_BYTES,
    decode_entry_header,
    decode_file_header,
    file_name,
    has_whole_payload,
)
from mqbroker.journal.recovered import Recovered

Files = Mapping[int, bytes]
# Files and what to do on damage.
Recover = Callable[[Files, str], Recovered]


def flip(files: Files, recover: Recover, rng: random.Random) -> str:
    """Flip one bit: how it was found. Raises AssertionError where a rule is broken."""
    number = rng.choice(sorted(files))
    written = _written_bytes(files[number])
    # Files are zeros to their end for the most part; what is written is what matters.
    offset = rng.randrange(written if rng.random() < 0.9 else len(files[number]))
    content = bytearray(files[number])
    content[offset] ^= 1 << rng.randrange(8)
    flipped = {**files, number: bytes(content)}
    where = f"bit in {file_name(number)} at byte {offset} of {written}"
    fault = _fault_of(lambda: recover(flipped, "stop"))
    if fault is None:
        assert offset >= written, f"{where}: not found"
        assert facts(recover(flipped, "stop")) == facts(recover(files, "stop")), f"{where}: what is there has changed"
        return "nothing was there"
    assert fault.file == file_name(number), f"{where}: {fault}"
    assert fault.offset <= offset, f"{where}: {fault}"
    return _check_truncated(files, flipped, recover, (number, fault.offset, offset))


def _fault_of(start: Callable[[], Recovered]) -> StorageFault | None:
    try:
        start()
    except StorageFault as fault:
        return fault
    return None


def _check_truncated(files: Files, flipped: Files, recover: Recover, at: tuple[int, int, int]) -> str:
    number, start, offset = at
    assert offset < _end(files[number], start), "the damage that is named has the bit in it"
    before = {each: content for each, content in files.items() if each < number}
    if start >= FILE_HEADER_BYTES:
        before[number] = files[number][:start].ljust(len(files[number]), b"\0")
    found = recover(flipped, "truncate")
    told = [each.event for each in found.findings if each.event != "journal-tail-cut"]
    # What was given up may have said that a file before it, which is gone, is not needed.
    is_missing = told[1:] == ["journal-file-missing"]
    assert told == ["journal-damage-given-up", *(["journal-file-missing"] if is_missing else [])], "it is told"
    assert not found.was_clean
    lost = [each for each in files if each > number]
    assert found.set_aside[len(found.set_aside) - len(lost) :] == lost, "copies of later files are kept"
    try:
        expected = recover(before, "stop")
    except StorageFault:
        return "what was before it needs what is gone"
    assert not is_missing, "told for no reason"
    assert facts(found) == facts(expected), "exactly what was before the damage is there"
    return "header" if start < FILE_HEADER_BYTES else "entry"


def _end(content: bytes, start: int) -> int:
    """Where the entry ends that begins at `start`; without one the rest of the file is meant."""
    if start < FILE_HEADER_BYTES:
        return FILE_HEADER_BYTES
    file = decode_file_header(content[:FILE_HEADER_BYTES])
    assert file is not None
    entry = decode_entry_header(content, start, file.seed)
    return len(content) if entry is None else start + entry_bytes(entry.length)


def _written_bytes(content: bytes) -> int:
    """Up to where there are whole entries: one that a crash cut short may have its header."""
    offset = FILE_HEADER_BYTES
    file = decode_file_header(content[:FILE_HEADER_BYTES])
    assert file is not None
    while (entry := decode_entry_header(content, offset, file.seed)) and has_whole_payload(content, offset, entry):
        offset += entry_bytes(entry.length)
    return offset


def facts(found: Recovered) -> dict[str, Any]:
    """What a broker would start with: every message with its bytes, or where they are."""
    messages = {
        queue_id: [(first, n, run.first_id, bytes(run.frames), run.place) for first, n, run in contents]
        for queue_id, contents in found.queue_contents().items()
    }
    return {
        "queues": found.queues, "messages": messages, "counts": found.counts, "duplicates": found.duplicates,
        "consumed": found.consumed, "next_id": found.next_id, "boot": found.boot, "position": found.last_position,
    }  # fmt: skip
