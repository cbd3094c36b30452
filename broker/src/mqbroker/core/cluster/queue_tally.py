"""What became of one queue of a node that leaves since its drain began, as the journal keeps it.

Its messages go to one heir after the other where one of them is given up half-way: each has a share of its own, with
its own digests, and sums and digests of all of them add up to those of the queue. Invariant, for durable messages:
before + came = consumed + moved + left. Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

import json
from typing import Any, Final

from mqbroker.core.address.stored_tables import unreadable
from mqbroker.core.cluster.id_digest import NO_IDS, IdDigest
from mqbroker.core.queue.id_ranges import IdRanges
from mqbroker.journal.records import as_json

COUNTS: Final = ("messages", "bytes", "delivering", "scheduled", "paged", "large")


class HeirShare:
    """Of one heir. `arrived` is what it has said last, when so many of them `went`; `arrived_before` what it knew under
    the name of that link before anything went."""

    __slots__ = (
        "arrived", "arrived_before", "asked_at", "connection", "has_come", "is_given_up", "is_paused_there", "link",
        "target", "went",
    )  # fmt: skip

    def __init__(self, connection: str = "", target: str = "", link: str = "") -> None:
        self.connection = connection
        self.target = target
        self.link = link  # under this name the other node knows it, also when it is made again or drains once more
        self.went = NO_IDS
        self.arrived_before: IdDigest | None = None
        self.arrived: IdDigest | None = None
        self.asked_at = -1
        self.has_come = False  # the other node had all of it once, and was told so
        self.is_given_up = False  # somebody said that nobody waits for what it would say
        self.is_paused_there: bool | None = None  # whether it hands out nothing of it, by its last link that said so

    @property
    def has_to_ask(self) -> bool:
        """Whether more has gone to that node than it has said that it has."""
        return not self.is_given_up and self.went.count > 0 and self.asked_at != self.went.count

    @property
    def is_unconfirmed(self) -> bool:
        """Whether it took what went, and was given up before it could be asked for the digest."""
        return self.is_given_up and self.asked_at != self.went.count

    def said(self) -> dict[str, Any]:
        """The share as a JSON object, as the journal and administrators have it."""
        return {
            "went": self.went.numbers, "asked_at": self.asked_at, "link": self.link, "has_come": self.has_come,
            "arrived_before": None if self.arrived_before is None else self.arrived_before.numbers,
            "arrived": None if self.arrived is None else self.arrived.numbers,
            "connection": self.connection, "target": self.target, "is_given_up": self.is_given_up,
            "paused_there": self.is_paused_there,
        }  # fmt: skip

    @staticmethod
    def of(said: dict[str, Any]) -> HeirShare:
        """The way back; earlier releases do not say whose it is. Raises ValueError, KeyError or TypeError."""
        share = HeirShare(str(said.get("connection", "")), str(said.get("target", "")), str(said.get("link", "")))
        share.went = IdDigest(*said["went"])
        paused_there = said.get("paused_there")
        share.is_paused_there = None if paused_there is None else bool(paused_there)
        share.has_come, share.is_given_up = bool(said.get("has_come", False)), bool(said.get("is_given_up", False))
        if said["arrived_before"] is not None:
            share.arrived_before = IdDigest(*said["arrived_before"])
        if said.get("arrived") is not None:
            share.arrived, share.asked_at = IdDigest(*said["arrived"]), int(said["asked_at"])
        return share


class QueueTally:
    """See the module's docstring. `before` is what the queue held when that began, by COUNTS; `shares` are those of its
    heirs, the one of now last."""

    __slots__ = (
        "address", "before", "came", "consumed", "name", "shares", "volatile", "volatile_came", "volatile_went",
    )  # fmt: skip

    def __init__(self, name: str, address: str, before: dict[str, int]) -> None:
        self.name: Final = name
        self.address: Final = address
        self.before: Final = before
        self.came = 0
        self.consumed = 0  # by clients, or expired, purged, deleted here
        self.shares = [HeirShare()]
        # Messages of it that no journal has: a crash takes them, and what is counted of them. With what it held when
        # that began, or since the process did.
        self.volatile = IdRanges()
        self.volatile_came = self.volatile_went = 0

    @property
    def now(self) -> HeirShare:
        """The share of the heir that takes the messages now."""
        return self.shares[-1]

    @property
    def went_count(self) -> int:
        """How many durable ones have gone, to whom ever."""
        return sum(share.went.count for share in self.shares)

    @property
    def left(self) -> int:
        """How many durable ones there should be."""
        return self.before["messages"] + self.came - self.consumed - self.went_count

    def share_of(self, link: str) -> HeirShare:
        """That of the heir to which a link of this name leads."""
        return next((share for share in self.shares if share.link == link), self.now)

    def encoded(self) -> bytes:
        """As the journal has it; the share of now stands in it as it did when there was one only."""
        said = {"address": self.address, "before": self.before, "came": self.came, "consumed": self.consumed}
        shares = {"past": [share.said() for share in self.shares[:-1]]} if len(self.shares) > 1 else {}
        return as_json(said | self.now.said() | shares).encode()

    @staticmethod
    def of(name: str, encoded: bytes) -> QueueTally:
        """The way back. Raises StorageFault."""
        try:
            said = json.loads(encoded)
            tally = QueueTally(name, said["address"], {each: int(said["before"][each]) for each in COUNTS})
            tally.came, tally.consumed = int(said["came"]), int(said["consumed"])
            tally.shares = [HeirShare.of(each) for each in (*said.get("past", ()), said)]
        except (ValueError, KeyError, TypeError) as error:
            raise unreadable(f"what is counted of queue {name!r}", str(error)) from error
        return tally
