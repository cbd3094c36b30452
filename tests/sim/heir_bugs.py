"""Seeded bugs of nodes whose heirs fall out: what histories of these have to find."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import PropertyMock, patch

from mqbroker.core.cluster.held_back import Held, kind_for
from mqbroker.core.cluster.queue_tally import HeirShare, QueueTally
from mqbroker.core.cluster.scale_down import ScaleDown
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.core.queue.queue import Queue


def _keeps_nothing_apart(self: ScaleDown, queue: Queue) -> Held | None:
    """All goes to the next one, also what the first one may have."""
    return None


def _takes_nothing_out(self: Held, room: int) -> int:
    """What waits apart stays where the next heir gets it from."""
    self.ids.remove(0, 1 << 60)
    return 0


def _under_a_new_name(of: QueueKind, share: HeirShare) -> QueueKind:
    """The node that may have it does not know it again."""
    return replace(kind_for(of, share), drains_as=f"{share.link}9")


def _share_of_now(self: QueueTally, link: str) -> HeirShare:
    """Whatever is answered counts for the heir of now."""
    return self.now


HEIR_BUGS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nothing waits apart": lambda: patch.object(ScaleDown, "keep_apart", _keeps_nothing_apart),
    "what waits apart is not taken out": lambda: patch.object(Held, "take_out", _takes_nothing_out),
    "it is over while something waits apart": lambda: patch.object(
        Held, "has_any", new_callable=PropertyMock, return_value=False
    ),
    "nobody is asked what has arrived": lambda: patch.object(
        HeirShare, "has_to_ask", new_callable=PropertyMock, return_value=False
    ),
    "what waits apart goes under a new name": lambda: patch(
        "mqbroker.core.cluster.scale_down.kind_for", _under_a_new_name
    ),
    "an answer counts for the heir of now": lambda: patch.object(QueueTally, "share_of", _share_of_now),
}
