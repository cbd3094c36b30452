"""Whether a `broker.toml` is all there, or what a full disk or a writer who is not done left of it.

A file may say at its beginning how it ends, as what the role writes does: then it is whole with that line as its last,
and nothing else. Of any other file a start knows one sign: what sets nothing may be all that is left. A reload knows
the text in force, and two more: what is nothing but the beginning of that, also in the middle of a word, is taken for
cut off; and so is what has everything but the last table of it, because whoever changes a line writes the file from its
beginning as well.
"""

from __future__ import annotations

import tomllib
from typing import Any, Final

from mqbroker.base.errors import ConfigFault
from mqbroker.config.names import REPEATED_TABLES, toml_name

TEXT_CHARACTERS_MAX: Final = 1024 * 1024
END: Final = "# end of broker.toml"
PROMISE: Final = f'# Without its last line, "{END}", this file is taken for cut off.'
BEGUN_SIZE: Final = 10  # characters of it that nobody writes for another reason

_KEYS: Final = {toml_name(table): toml_name(key) for table, key in REPEATED_TABLES.items()}


def fault_of(text: str) -> ConfigFault | None:
    """What is wrong with a file that says how it ends."""
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    is_begun = bool(lines) and len(lines[-1]) >= BEGUN_SIZE and PROMISE.startswith(lines[-1])
    if not (is_begun or PROMISE in lines) or _ends(text):
        return None
    why = f"says that its last line is {END!r}, and it is not: the file is cut off; write it again, or add the line"
    return ConfigFault("file", why)


def emptied_fault_of(text: str) -> ConfigFault | None:
    """What is wrong with a file that a broker starts with and that says nothing: a full disk leaves such.

    All options would be their defaults then: another node, without the permissions and listeners that there were.
    """
    if _saying(text) or _ends(text):
        return None
    why = f"sets no option, so it may have been emptied; write it again, or if that is meant {END!r} as its last line"
    return ConfigFault("file", why)


def cut_fault_of(text: str, in_force: str) -> ConfigFault | None:
    """What is wrong with a file at a reload, beside the text in force. Lines that say nothing do not count.

    Both are files that can be read. Lines that end what is in force are there where somebody took away others on
    purpose, and so is the line that says that this is the end.
    """
    if _ends(text):
        return None
    lines, before = _saying(text), _saying(in_force)
    remedy = f"it may be cut off; if that is meant, write {END!r} as its last line, or restart the broker"
    if _begins(before, lines):
        lost = before[max(0, len(lines) - 1)]
        return ConfigFault("file", f"is the beginning of what is in force and ends at {lost!r}: {remedy}")
    table = _last_table(before)
    if table is not None and not _has(text, *table):
        return ConfigFault("file", f"lacks the last table of what is in force, {table[0]} {table[1]!r}: {remedy}")
    return None


def _ends(text: str) -> bool:
    """Whether its last line says so, and is that line alone: what a file promises has the same words in its middle."""
    lines = text.rstrip().splitlines()
    return bool(lines) and lines[-1].rstrip() == END


def _begins(before: list[str], lines: list[str]) -> bool:
    """Whether these are less than what was before, and nothing else; the last one may be the beginning of a line."""
    if not lines:
        return bool(before)
    *whole, last = lines
    if lines == before or len(lines) > len(before):
        return False
    return whole == before[: len(whole)] and before[len(whole)].startswith(last)


def _last_table(lines: list[str]) -> tuple[str, str] | None:
    """Its kind and, of those that there are several of, its name. None where a line only looks like its heading."""
    heading = max((place for place, line in enumerate(lines) if line.startswith("[")), default=0)
    try:
        said = tomllib.loads("\n".join(lines[heading:]))
    except tomllib.TOMLDecodeError:
        return None
    for kind, rows in said.items():
        return kind, str(rows[-1].get(_KEYS.get(kind, ""), "")) if isinstance(rows, list) else ""
    return None


def _has(text: str, kind: str, name: str) -> bool:
    rows: Any = tomllib.loads(text).get(kind)
    if not isinstance(rows, list):
        return rows is not None
    return any(str(row.get(_KEYS.get(kind, ""), "")) == name for row in rows)


def _saying(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
