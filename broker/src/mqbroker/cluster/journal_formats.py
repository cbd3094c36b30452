"""Which formats of journal files the nodes of a cluster read: a later one is written only where all of them do.

A node says its own with what it says of itself as a member, so they come to all nodes, over any number of others. One
that says nothing is of a release before they were told, and so is whoever is not known: both read the first one.
Source: docs/adr/0029-upgrade.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mqbroker.cluster.notices import Member

UNSAID: Final = (1,)


def read_by(member: Member) -> tuple[int, ...]:
    """The formats of journal files that a member reads, ascending."""
    return member.journal_formats or UNSAID


def read_by_all(members: Iterable[Member], *, is_anybody_unknown: bool) -> tuple[int, ...]:
    """What each of them reads, ascending. `is_anybody_unknown`: there are nodes that are no members yet."""
    said = [set(read_by(each)) for each in members] + [set(UNSAID)] * is_anybody_unknown
    return tuple(sorted(set.intersection(*said))) if said else ()
