"""Senders whose messages wait until it is known where their groups go.

A connection takes nothing more in while a message of it waits, and what it had taken in behind that message waits with
it: so the order of each sender holds, and what waits is what one read brought. Nothing is accepted before it is routed.
Messages of groups that nobody has decided of in time are refused, those beside them are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mqbroker.amqp.events import Incoming, Posted
from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.node.amqp.links.refusals import refuse_run
from mqbroker.node.amqp.peers.gate import Gate
from mqbroker.node.values.link_ends import receiving_end
from mqbroker.wire.parts import part_of

if TYPE_CHECKING:
    from mqbroker.core.address.address import Address
    from mqbroker.core.cluster.group_owners import GroupKey
    from mqbroker.core.cluster.grouping import Grouping
    from mqbroker.node.amqp.peers.peer import Peer
    from mqbroker.node.cluster.grouping.grouping import Failures, GroupingHandler
    from mqbroker.node.values.ends import AddressPart, ReceivingEndOf
    from mqbroker.wire.run import Run

UNDECIDED: Final = "amqp:resource-limit-exceeded"


class GroupGate(Gate):
    """Holds back connections of a node whose messages are of groups that nobody owns yet."""

    def __init__(self, handler: GroupingHandler) -> None:
        self._handler = handler
        self._core: Grouping = handler.core
        self._held: dict[int, Callable[[], None]] = {}  # by connection: what goes on with it
        self._resumed: tuple[Any, Failures] | None = None  # an event that has waited, and which of its groups failed

    def act(self, peer: Peer, events: Sequence[Any]) -> None:
        """As `Peer.act`, which asks for this: as far as nothing has to wait. The rest comes again by `Peer.act`."""
        for place, event in enumerate(events):
            rest = events[place:]
            if self.holds(peer, event, partial(peer.act, rest)):
                return
            if self._admit(peer, event):
                peer.handlers[type(event)](peer, event)

    def holds(self, peer: Peer, event: Any, again: Callable[[], None]) -> bool:
        """Whether the event waits. `again` is called when it does not any more, also where its connection is gone."""
        if type(event) not in (Incoming, Posted) or not event.link.is_attached:
            return False
        if self._resumed is not None and self._resumed[0] is event:
            return False
        wanted = self._wanted(peer, event)
        if not wanted:
            return False

        def then(failures: Failures) -> None:
            LOOK.has_touched = True
            if self._held.pop(peer.conn, None) is not None:
                self._go_on(peer, (event, failures), again)

        failures = self._handler.ask(wanted, then)
        LOOK.has_touched = True
        if failures is not None:
            self._resumed = (event, failures)
            return False
        self._held[peer.conn] = again
        peer.connection.is_held = peer.uploads.awaits_group = True
        peer.pause_if_needed()
        return True

    def _go_on(self, peer: Peer, resumed: tuple[Any, Failures], again: Callable[[], None]) -> None:
        if peer.farewell.puts_off(peer, lambda: self._go_on(peer, resumed, again)):
            return
        peer.uploads.awaits_group = False
        self._resumed = resumed
        again()
        self._resumed = None
        if not peer.uploads.is_finishing and not peer.connection.is_dead:
            peer.uploads.go_on()

    def lost(self, peer: Peer) -> None:
        """The connection is gone: what it was to bring is dropped, what it has settled stays settled."""
        LOOK.has_touched = True
        again = self._held.pop(peer.conn, None)
        if again is not None:
            peer.uploads.awaits_group = False
            again()

    def _admit(self, peer: Peer, event: Any) -> bool:
        """Whether all of an event can be taken in; if not, that was done here, as far as it could be."""
        if self._resumed is None or self._resumed[0] is not event:
            return True
        LOOK.has_touched = True
        failures, self._resumed = self._resumed[1], None
        if not failures:
            return True
        why = next(iter(failures.values()))
        if isinstance(event, Posted):
            peer.transactions.fail(event.txn_id, Refused(UNDECIDED, why))
            return True
        for begin, end, is_refused in self._ranges(peer, event, set(failures)):
            if not event.link.is_attached:
                break
            run = part_of(event.run, begin, end, event.run.traits)
            part = Incoming(event.link, run, event.delivery_id + begin, event.is_settled)
            if is_refused:
                refuse_run(peer, part, Refused(UNDECIDED, why))
            else:
                peer.incoming(part)
        return False

    def refusal(self, address: Address, runs: Sequence[Run], then: Callable[[str], None]) -> str | None:
        """For those who have no connection: why their messages are refused, empty where they go, None: `then` is told
        that later."""
        wanted: dict[GroupKey, str] = {}
        for run in runs if self._core.covers(address) else ():
            wanted |= self._core.wanted(address, run)
        failures = self._handler.ask(wanted, lambda said: then(next(iter(said.values()), ""))) if wanted else {}
        return None if failures is None else next(iter(failures.values()), "")

    # -- what an event holds -------------------------------------------------------------------------------------------

    def _wanted(self, peer: Peer, event: Incoming | Posted) -> dict[GroupKey, str]:
        wanted: dict[GroupKey, str] = {}
        for address, begin, end in _parts(peer, event):
            if address is not None and self._core.covers(address):
                wanted |= self._core.wanted(address, part_of(event.run, begin, end, event.run.traits))
        return wanted

    def _ranges(self, peer: Peer, event: Incoming, failed: set[GroupKey]) -> list[tuple[int, int, bool]]:
        """The run in parts (from, to before, whether a group of them has failed)."""
        merged: list[tuple[int, int, bool]] = []
        for address, begin, end in _parts(peer, event):
            ranges: list[tuple[int, int, bool]] = [(0, end - begin, False)]
            if address is not None and self._core.covers(address):
                run = part_of(event.run, begin, end, event.run.traits)
                ranges = list(self._core.groups_in(address, run, failed))
            for low, high, is_refused in ranges:
                first = merged.pop()[0] if merged and merged[-1][2] == is_refused else begin + low
                merged.append((first, begin + high, is_refused))
        return merged


def _parts(peer: Peer, event: Incoming | Posted) -> list[AddressPart]:
    end: ReceivingEndOf[Peer] = receiving_end(event.link)
    return end.group_parts(peer, event)
