"""What taking in a frame costs, in units of 45 bytecodes, which are about a microsecond of pure Python.

Only the proportions matter: they decide how much of what a peer sent is taken in before others have a turn. What grows
with something that the peer made before (its links, its deliveries that are not settled) is charged by that as well.
tests/unit/node/test_flood_work.py holds the figures against what is counted.
"""

from __future__ import annotations

from typing import Any, Final

from mqbroker.wire.performatives import Attach, Begin, Close, Detach, End, Open

NO_BOUND: Final = 1 << 62
EMPTY: Final = 4
DISPOSITION: Final = 13
FLOW: Final = 22
ECHO: Final = 20  # besides, for the answer
LINK_FLOW: Final = 15  # besides, for the queue that is looked at
PASSED: Final = 5  # some links of those that may have something to send,
WOKEN: Final = 5  # besides, for each that may send again, because a window or the transport is open
RUN: Final = 65
TRANSFER: Final = 50  # by itself
POSTED: Final = 20  # besides, for a run in a transaction
NAMED: Final = 60  # besides, for a message that says itself where it goes
NOTICE: Final = 60  # besides, for what a node of the cluster tells
OTHER: Final = 50
SETTLED: Final = 2  # besides, for each entry of a disposition
RETURNED: Final = 8  # the same, where they return to their queue
MOVED: Final = 25  # for each message that may go elsewhere instead; where it does, this is a third of what it costs
ENLISTED: Final = 15  # the same, where a transaction has them
COMMITTED: Final = 10  # for each part of a transaction, in one go
COMPARED: Final = 5  # besides, for each address that one with wildcards is compared with, or the other way round
COPIED: Final = 40  # besides, for each address with wildcards that gets a copy of a run
DUE: Final = 10  # a queue of which something is due,
SCHEDULED: Final = 8  # besides, for each scheduled message that is deliverable now,
GIVEN_BACK: Final = 3  # for each segment of messages of a queue that is gone,
PURGED: Final = 8  # for each that is purged,
DROPPED: Final = 15  # for each segment of messages that leave for good,
MADE_ANEW: Final = 75  # for each message that is made anew at another address,
FOLLOWED: Final = 25  # and for each divert that one of these may follow, or copy of it,
DELETED: Final = 30  # and for its end
DECLARED: Final = 20  # an address of the file of options that is made or looked at,
DEPLOYED: Final = 50  # a queue of it,
LOOKED_AT: Final = 3  # and what is looked at in a reload and stays as it is
REVOKED: Final = 80  # a link that a reload ends
PARTED_LINK: Final = 40  # one that is handed back
PARTED_ENTRY: Final = 3  # besides, for what it had unsettled
GENERAL: Final[dict[type[Any], int]] = {Open: 80, Begin: 45, Attach: 120, Detach: 60, End: 40, Close: 40}
# Of what is small, so many make a unit.
MESSAGES_SHIFT: Final = 2
BYTES_SHIFT: Final = 14
ENTRIES_SHIFT: Final = 3
