"""Where the body of a large message is (large.py): by itself, because every Run may have one."""

from __future__ import annotations

from typing import NamedTuple


class Large(NamedTuple):
    """The file that holds a message's body and what follows it: its id, and how much that is."""

    file: int
    size_bytes: int
