"""The grouping handler of a node: it asks the arbiter for the owners of groups, or is the arbiter and answers.

Members of the cluster say of themselves what handler they have: the arbiter is the LOCAL one, of several that with the
lowest node id. Proposals are said again, a tenth of `timeout` apart, because notices may be lost with a link. One that
was the arbiter hands over to the one that is (group_hand_over.py). Who waits for an
answer is in group_gate.py. Invariants: an answer leaves when its pin is on disk; whoever waits hears something
within `timeout`. Source: Artemis's manual, "Clustered Grouping"; docs/adr/0012-cluster-connections.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from mqbroker.base.look import LOOK
from mqbroker.base.notice import Level
from mqbroker.base.time import NS_PER_MS
from mqbroker.cluster.address_match import AddressPrefixes
from mqbroker.cluster.notices import DISTANCE_MAX, PROPOSAL, RESPONSE, UNPROPOSAL, GroupClusterNotice
from mqbroker.config.slices import GroupingHandlerOptions
from mqbroker.core.cluster.group_owners import PINS_MAX, GroupKey
from mqbroker.core.cluster.grouping import Grouping
from mqbroker.core.queue.kinds import NODE_ID_SIZE
from mqbroker.journal.recovered import Recovered
from mqbroker.node.cluster.grouping.group_hand_over import HandOver

if TYPE_CHECKING:
    from mqbroker.cluster.announcer import Announcer
    from mqbroker.cluster.remote_table import RemoteTable
    from mqbroker.cluster.topology import Topology
    from mqbroker.core.cluster.cluster_store import ClusterStore
    from mqbroker.node.values.base_broker import BaseBroker

LOCAL: Final = "LOCAL"
TRIES_MAX: Final = 10
SEEN_MAX: Final = 10_000  # notices that may come once more on another way
IDLE_MAX: Final = 1_000  # groups that one look ends
Failures = dict[GroupKey, str]


@dataclass(slots=True)
class Waiter:
    """Somebody who goes on when all of `left` have an owner, or have failed."""

    left: set[GroupKey]
    then: Callable[[Failures], None]
    failures: Failures = field(default_factory=dict)


@dataclass(slots=True)
class Asked:
    """A group whose owner is asked or looked for."""

    proposed: str
    tries: int = 0
    refusal: str = ""
    waiters: list[Waiter] = field(default_factory=list)


class GroupingConnection(Protocol):
    """A cluster connection as a grouping handler sees it."""

    topology: Topology
    announcer: Announcer
    tables: dict[str, RemoteTable]

    def is_linked(self, node_id: str) -> bool | None:
        """Whether the link to a node stands; None: there is none, and it is reached over others."""


class GroupingHandler:
    """See the module's docstring."""

    judges_others: ClassVar[bool] = True

    def __init__(
        self,
        broker: BaseBroker,
        core: Grouping,
        recovered: Recovered,
        connections: Callable[[], Iterable[GroupingConnection]],
    ) -> None:
        """`core`: what the store of this node keeps groups together by."""
        self.broker = broker
        self._connections = connections
        self.options = options = broker.options.grouping_handler
        is_local = options.type == LOCAL
        self.core: Grouping = core
        self.core.owners.load(recovered)
        self.hand_over: HandOver = HandOver(self.core.owners, options.timeout * NS_PER_MS)
        self.arbiter = broker.node_id if is_local else ""
        self.asked: dict[GroupKey, Asked] = {}
        self._locals: list[str] = [self.arbiter] if is_local else []
        self._seen: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._number = _beginning(broker.boot_id)
        self._is_silent = False  # it has not answered in time, and nothing was heard of it since
        self._told: set[str] = set()  # what was logged, until it is otherwise
        self._gone: dict[str, None] = {}  # queues that may own groups, and were removed
        self._has_news = False  # somebody may have waited long enough
        self._unreached_ns = broker.at.monotonic_ns
        self._tick_ns = 0
        self._reap_ns = self._reap_next() if is_local and options.group_timeout > 0 else 0
        self.due_ns = 0
        self.scheduled_ns = 0
        self._set_due()

    # -- time ----------------------------------------------------------------------------------------------------------

    def on_time(self, now_ns: int) -> None:
        """Ask again, end what has waited long enough, and groups that nobody uses."""
        if self._gone:
            self._end_gone()
        LOOK.has_touched = True
        if self._has_news:
            self._has_news = False
            for key in list(self.asked):
                self._look(key)
        if self._reap_ns and now_ns >= self._reap_ns:
            self._reap_ns = self._reap_next()
            self._reap(now_ns)
        if self.hand_over.due_ns and now_ns >= self.hand_over.due_ns:
            for key, owner in self.hand_over.next_round(now_ns):
                self._propose(key, owner)
        if self._tick_ns and now_ns >= self._tick_ns:
            self._tick_ns = now_ns + self._interval_ns
            for key in list(self.asked):
                self._look(key, is_tick=True)
        if not self.arbiter and self._is_overdue:
            self._tell(
                Level.ERROR,
                "grouping-arbiter-missing",
                remedy="no node that is heard has a grouping-handler of type LOCAL: start it, or make one LOCAL",
            )
        self._set_due()

    def _set_due(self) -> None:
        LOOK.has_touched = True
        if not self.asked:
            self._tick_ns = 0
        is_heir_known = self.core.is_reached and not self.core.is_arbiter
        self.hand_over.look(self.broker.at.monotonic_ns, is_reached=is_heir_known)
        overdue_ns = self._unreached_ns + self.options.timeout * NS_PER_MS
        is_watched = not self.arbiter and "grouping-arbiter-missing" not in self._told
        dues = [self._tick_ns, self.hand_over.due_ns, self._reap_ns, overdue_ns if is_watched else 0]
        is_now = self._gone or self._has_news
        self.due_ns = self.broker.at.monotonic_ns if is_now else min(filter(None, dues), default=0)
        self.broker.timers.add(self)

    @property
    def _interval_ns(self) -> int:
        return self.options.timeout * NS_PER_MS // TRIES_MAX

    def _reap_next(self) -> int:
        return self.broker.at.monotonic_ns + self.options.reaper_period * NS_PER_MS

    # -- who decides ---------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Members of the cluster, or links to them, are other ones."""
        members = {
            member.node_id: member for connection in self._connections() for member in connection.topology.members
        }
        known = {node_id for node_id, member in members.items() if member.grouping == LOCAL}
        arbiters = sorted(known | ({self.broker.node_id} if self.options.type == LOCAL else set()))
        LOOK.has_touched = True
        if arbiters != self._locals and len(arbiters) > 1:
            self._told.discard("grouping-arbiters-several")
            self._tell(Level.ERROR, "grouping-arbiters-several", node_ids=", ".join(arbiters), arbiter=arbiters[0],
                       remedy="make all but one of them REMOTE: groups may be split between them")  # fmt: skip
        self._locals = arbiters
        before, self.arbiter = self.arbiter, arbiters[0] if arbiters else ""
        self.core.is_arbiter = self.arbiter == self.broker.node_id
        if self.core.is_arbiter:
            self.core.owners.decide()
        elif before == self.broker.node_id:
            self.core.owners.bequeath()
        if self.arbiter and self.arbiter != before:
            self.hand_over.anew(is_other=True)
            self._told.discard("groups-not-taken-over")
            self._told.discard("grouping-arbiter-missing")
            self.broker.notice(Level.INFO, "grouping-arbiter-found", name=self.options.name, node_id=self.arbiter)
        self._reach()
        self._set_due()

    def _reach(self) -> None:
        """Whether there is somebody to ask: a node without a link of its own is reached over others."""
        linked = [each.is_linked(self.arbiter) for each in self._connections()]
        links = [is_linked for is_linked in linked if is_linked is not None]
        is_reached = self.core.is_arbiter or (bool(self.arbiter) and (not links or any(links)))
        if is_reached and not self.core.is_reached:
            self._is_silent = False
            self.hand_over.anew(is_other=False)
            for key, asked in list(self.asked.items()):
                self._propose(key, asked.proposed)
        elif self.core.is_reached and not is_reached:
            self._unreached_ns = self.broker.at.monotonic_ns
        self.core.is_reached = is_reached

    @property
    def _is_overdue(self) -> bool:
        """Whether the arbiter has been away for so long that nobody waits for it any more."""
        if self.core.is_reached:
            return self._is_silent
        return self.broker.at.monotonic_ns >= self._unreached_ns + self.options.timeout * NS_PER_MS

    def _tell(self, level: Level, event: str, **fields: str | int) -> None:
        """Once, until it is otherwise."""
        LOOK.has_touched = True
        if event not in self._told:
            self._told.add(event)
            self.broker.notice(level, event, name=self.options.name, **fields)

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, wanted: dict[GroupKey, str], then: Callable[[Failures], None]) -> Failures | None:
        """Find the owners of these groups. None: `then` is called later; else what fails at once, if anything."""
        waiter = Waiter(set(), then)
        LOOK.has_touched = True
        for key, proposed in wanted.items():
            if key not in self.asked:
                self._propose(key, proposed)  # also in vain: an answer shows that the arbiter is back
            why = self._refusal(key)
            if why:
                waiter.failures[key] = why
            else:
                waiter.left.add(key)
                self.asked.setdefault(key, Asked(proposed)).waiters.append(waiter)
        if not waiter.left:
            return waiter.failures
        self._tick_ns = self._tick_ns or self.broker.at.monotonic_ns + self._interval_ns
        self._set_due()
        return None

    def _refusal(self, key: GroupKey) -> str:
        """Why it makes no sense to wait, if it does not."""
        if self.core.is_arbiter:
            return self._full() if self.core.owners.get(key) is None else ""
        return self._unanswered() if self._is_overdue else ""

    def _unanswered(self) -> str:
        self._tell(Level.WARNING, "group-refused", arbiter=self.arbiter or "none", timeout_ms=self.options.timeout)
        where = f"node {self.arbiter}, which decides where groups go," if self.arbiter else "no node that decides it"
        return f"{where} has not answered within {self.options.timeout} ms: the group cannot be kept together"

    def _full(self) -> str:
        self._tell(Level.ERROR, "groups-full", groups=PINS_MAX, remedy="set group-timeout, or use fewer groups")
        return f"there are {PINS_MAX} groups in the cluster, which is all that its arbiter keeps"

    def _propose(self, key: GroupKey, proposed: str) -> None:
        if not self.core.is_arbiter and self.arbiter:
            self._send(PROPOSAL, key, proposed, self.arbiter)

    def _send(self, act: str, key: GroupKey, owner: str, to: str) -> None:
        LOOK.has_touched = True
        self._number += 1
        notice = GroupClusterNotice(act, *key, owner, self.broker.node_id, to, self._number)
        connections = list(self._connections())
        for each in [each for each in connections if to and each.topology.get(to) is not None] or connections:
            each.announcer.tell(notice)

    def _look(self, key: GroupKey, *, is_tick: bool = False) -> None:
        """Whether somebody's waiting for a group has an end."""
        asked = self.asked.get(key)
        if asked is None:
            return
        if asked.refusal or self.core.is_settled(key):
            self._end(key, asked.refusal)
            return
        asked.tries += is_tick
        if asked.tries >= TRIES_MAX:
            self._give_up(key)
        elif is_tick:
            self._propose(key, asked.proposed)

    def _give_up(self, key: GroupKey) -> None:
        pin = self.core.owners.get(key)
        if pin is None or self.core.knows(pin.owner):
            self._is_silent = self.core.is_reached
            self._end(key, self._unanswered())
            return
        # Its owner is no queue that this node knows: the broker of Artemis tries ten times, too.
        owner, why = pin.owner, "the queue that owns it is not known here; its next messages go elsewhere"
        self.broker.notice(Level.WARNING, "group-not-kept", name=self.options.name, queue=key[0], group=key[1][:100],
                           owner=owner, why=why)  # fmt: skip
        self.core.owners.drop(key)
        self._send(UNPROPOSAL, key, owner, "" if self.core.is_arbiter else self.arbiter)
        self._end(key, "")

    def _end(self, key: GroupKey, why: str) -> None:
        LOOK.has_touched = True
        for waiter in self.asked.pop(key).waiters:
            waiter.left.discard(key)
            if why:
                waiter.failures[key] = why
            if not waiter.left:
                waiter.then(waiter.failures)

    # -- what others say -----------------------------------------------------------------------------------------------

    def heard(self, announcer: Announcer, neighbour: str, notice: GroupClusterNotice) -> None:
        """A neighbour said or passed on something of a group."""
        mark = notice.node_id, notice.number
        if notice.node_id == self.broker.node_id or mark in self._seen:
            return
        LOOK.has_touched = True
        self._seen[mark] = None
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        if notice.node_id == self.arbiter:
            self._is_silent = False
            self._told.discard("group-refused")
        if notice.to != self.broker.node_id and notice.distance < DISTANCE_MAX:
            further = GroupClusterNotice(notice.act, notice.queue, notice.group_id, notice.cluster_name, notice.node_id,
                                  notice.to, notice.number, notice.distance + 1)  # fmt: skip
            announcer.tell(further, neighbour)
        if notice.to in ("", self.broker.node_id):
            ACTS[notice.act](self, (notice.queue, notice.group_id), notice)

    def missed(self) -> None:
        """A neighbour tells everything anew: what it has said of groups meanwhile may be lost."""
        LOOK.has_touched = True
        self.core.age += 1

    def _proposal(self, key: GroupKey, notice: GroupClusterNotice) -> None:
        core = self.core
        if not core.is_arbiter:
            return
        pin = core.owners.get(key)
        if pin is not None and self._is_gone(pin.owner):
            self._unpin(key)
            pin = None
        if pin is None and (not notice.cluster_name or core.owners.is_full):
            self._full()
            self._send(RESPONSE, key, "", notice.node_id)
        elif pin is None:
            core.owners.put(key, notice.cluster_name)
            self.broker.store.decisions.wait(self._send, RESPONSE, key, notice.cluster_name, notice.node_id)
        else:
            core.owners.use(key, pin)
            self.broker.store.decisions.wait_for_earlier(self._send, RESPONSE, key, pin.owner, notice.node_id)

    def _response(self, key: GroupKey, notice: GroupClusterNotice) -> None:
        if self.core.is_arbiter:
            return
        LOOK.has_touched = True
        if notice.cluster_name:
            self.core.owners.put(key, notice.cluster_name, self.core.age)
        elif key in self.asked:
            self.asked[key].refusal = f"node {notice.node_id} keeps no more groups"
        if notice.node_id == self.arbiter:
            self._handed_over(key, is_taken=bool(notice.cluster_name))
        self._stir()

    def _handed_over(self, key: GroupKey, *, is_taken: bool) -> None:
        self.hand_over.answered(key, self.broker.at.monotonic_ns, is_taken=is_taken)
        if self.hand_over.is_refused:
            self._tell(Level.ERROR, "groups-not-taken-over", arbiter=self.arbiter, why="it keeps no more groups",
                       groups=len(self.core.owners.inherited),
                       remedy="set group-timeout there, or use fewer groups")  # fmt: skip
        else:
            self._told.discard("groups-not-taken-over")

    def why_not_handed_over(self) -> str:
        """What this node has decided of groups and the arbiter of now has not taken over, and why; empty: nothing."""
        count = len(self.core.owners.inherited)
        if not count:
            return ""
        if not self.arbiter:
            return f"has decided of {count} groups, and no node decides of them by now: make one LOCAL"
        why = f"has decided of {count} groups that the one which decides now has not taken over"
        if self.hand_over.is_refused:
            return f"{why}, as it keeps no more (groups-full): set group-timeout there, or use fewer groups"
        return why if self.core.is_reached else f"{why}, as no link to it stands: {self.arbiter}"

    def _stir(self) -> None:
        """Look in this step who need not wait any more, but not in the middle of something else."""
        LOOK.has_touched = True
        self._has_news = bool(self.asked)
        self._set_due()

    def _unproposal(self, key: GroupKey, notice: GroupClusterNotice) -> None:
        pin = self.core.owners.get(key)
        if pin is None or pin.owner != notice.cluster_name:
            return
        if not self.core.is_arbiter:
            self.core.owners.drop(key)
        elif not self._is_connected(pin.owner):
            self._unpin(key)

    def _unpin(self, key: GroupKey) -> None:
        """The arbiter lets a group go, and all others are to forget its owner."""
        pin = self.core.owners.get(key)
        if pin is not None:
            self.core.owners.drop(key)
            self._send(UNPROPOSAL, key, pin.owner, "")

    # -- the end of groups ---------------------------------------------------------------------------------------------

    def _is_connected(self, owner: str) -> bool:
        remote = self.broker.store.remotes.by_name.get(owner)
        return self.core.is_here(owner) or (remote is not None and remote.binding.is_connected)

    def _is_gone(self, owner: str) -> bool:
        """Whether a queue is known not to be there: its node tells of its queues, and not of this one."""
        if self.core.knows(owner):
            return False
        node_id = owner[-NODE_ID_SIZE:]
        tables = [each.tables.get(node_id) for each in self._connections()]
        return node_id == self.broker.node_id or any(table is not None and table.is_live for table in tables)

    def removed(self, owner: str) -> None:
        """A queue is gone, here or elsewhere, or is only reached on another way: the end of the step knows."""
        LOOK.has_touched = True
        if self.core.owners.of(owner):
            self._gone[owner] = None
            self._set_due()

    def is_owner(self, node_id: str) -> bool:
        """Whether a queue of that node has groups."""
        return any(owner.endswith(node_id) for owner in self.core.owners.owners())

    def left(self, node_id: str) -> None:
        """A node is given up, or has stopped: its queues own nothing any more, also those not known here."""
        LOOK.has_touched = True
        for owner in self.core.owners.owners():
            if owner.endswith(node_id):
                self._gone[owner] = None
        self._set_due()

    def added(self, owner: str) -> None:
        """A queue is known from now on: somebody may wait for it."""
        if self.asked and self.core.owners.of(owner):
            self._stir()

    def _end_gone(self) -> None:
        LOOK.has_touched = True
        gone, self._gone = self._gone, {}
        for owner in gone:
            if not self.core.knows(owner):
                for key in self.core.owners.of(owner):
                    if self.core.is_arbiter:
                        self._unpin(key)
                    else:
                        self.core.owners.drop(key)

    def _reap(self, now_ns: int) -> None:
        """Groups that were not used for `group-timeout`, the oldest first; what is too many comes soon."""
        before_ns = now_ns - self.options.group_timeout * NS_PER_MS
        idle: list[GroupKey] = []
        for key, pin in self.core.owners.items():
            if pin.used_ns > before_ns or len(idle) >= IDLE_MAX:
                break
            idle.append(key)
        for key in idle:
            self._unpin(key)
        if len(idle) >= IDLE_MAX:
            self._reap_ns = now_ns + NS_PER_MS


def grouping_of(store: ClusterStore, options: GroupingHandlerOptions) -> Grouping | None:
    """What the store of a node that has such a handler keeps groups together by; None: there is no handler."""
    if not options.type:
        return None
    is_local = options.type == LOCAL
    told_ms_max = -1 if is_local else options.group_timeout
    matches = AddressPrefixes(options.address).matches
    return Grouping(store, store.node_id, matches, told_ms_max, is_kept=is_local)


def _beginning(boot_id: str) -> int:
    """Where the numbers of a process's notices begin: far from those of its earlier ones, whatever its journal says."""
    return int.from_bytes(sha256(boot_id.encode()).digest()[:7])


ACTS: Final[dict[str, Callable[[GroupingHandler, GroupKey, GroupClusterNotice], None]]] = {
    PROPOSAL: GroupingHandler._proposal,
    RESPONSE: GroupingHandler._response,
    UNPROPOSAL: GroupingHandler._unproposal,
}
