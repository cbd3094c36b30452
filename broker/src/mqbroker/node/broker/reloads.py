"""Reloads: the files are read by `io/`. Where an administrator asked for it, the answer says what came of it.

Invariant of that: all or nothing. Where anything in the files is wrong, everything stays as it was, and the answer
names every fault. What of good files cannot be had beside what is there already, such as a declared queue whose name is
taken, is among the answer's remarks. Source: docs/ARCHITECTURE.md, "Follow an option".

Settings, permissions and users hold at once. What is there and does not go with them (links, addresses, queues)
follows piece by piece, as there may be very many, and the answer comes when all of it is done. Files that are read
meanwhile wait until then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mqbroker.amqp import frame_costs
from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.config import compare
from mqbroker.config.slices import BrokerOptions
from mqbroker.config.users import UserVerifier
from mqbroker.node.amqp.listeners.revocations import revoke
from mqbroker.node.broker.deployment import deploy
from mqbroker.node.values.effects import LoadConfiguration
from mqbroker.node.values.inputs import OptionsChanged, UsersChanged

if TYPE_CHECKING:
    from mqbroker.node.broker.broker import Broker


AT_ONCE: Final = 150  # units of amqp/frame_costs.py, in the step in which the files come
WAITING_MAX: Final = 16  # reloads that administrators asked for and that are not done
STOPS: Final = ("amqp:connection:forced", "config-reload: the broker stops")


class ReadFiles(NamedTuple):
    """What was read. None: that file cannot be used. `request_id`: who is to be answered, 0: nobody."""

    options: BrokerOptions | None
    users: Mapping[str, UserVerifier] | None
    request_id: int = 0


class Reloads:
    """How many are under way, and then what they brought, the one that is being taken first.

    To take it is a chore (chores.py).
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._reading_count = 0
        self._waiting: deque[ReadFiles] = deque()
        self._pieces: Iterator[int] = iter(())  # what is left of the one that is being taken

    def ask(self, request_id: int) -> None:
        """Have the files read; the request is answered when all that they say holds. Raises Refused."""
        if self._reading_count + len(self._waiting) >= WAITING_MAX:
            why = f"config-reload: {WAITING_MAX} reloads are under way; try again when one is done"
            raise Refused("amqp:resource-limit-exceeded", why)
        self._reading_count += 1
        effect_id = self._broker.completions.expect(lambda found, why: self._read(request_id, found, why))
        self._broker.effects.append(LoadConfiguration(effect_id))

    def _read(self, request_id: int, configuration: Any, why: str) -> None:
        """Take what the files say, or answer with their faults."""
        self._reading_count -= 1
        if not why:
            self._add(ReadFiles(configuration.options, configuration.users, request_id))
            return
        count = len(why.splitlines())
        said = f"nothing was changed, the files have {count} fault{'s' if count > 1 else ''}:\n{why}"
        self._broker.reply_error(request_id, "amqp:precondition-failed", said)

    def users_changed(self, given: UsersChanged) -> None:
        """Take users that were read by a signal, whose options cannot be used."""
        self._add(ReadFiles(None, given.users))

    def options_changed(self, given: OptionsChanged) -> None:
        """Take what was read by a signal."""
        self._add(ReadFiles(given.options, given.users))

    def _add(self, files: ReadFiles) -> None:
        if not self._broker.is_running:
            # What they bring would be journalled behind the journal's end; the next start reads them anyway.
            self._call_off(files)
            return
        if not files.request_id and len(self._waiting) > 1 and not self._waiting[-1].request_id:
            before = self._waiting.pop()  # the newest that nobody asked for holds, but for what cannot be used of it
            files = ReadFiles(files.options or before.options, before.users if files.users is None else files.users)
        self._waiting.append(files)
        if len(self._waiting) == 1:
            self._pieces = self._taken(files)
            self.go_on(AT_ONCE)

    # -- piece by piece ------------------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether a reload has something to do (node/broker/chores.py:Chore)."""
        return bool(self._waiting)

    def go_on(self, work_max: int) -> None:
        """Do a piece of the reload that is under way (node/broker/chores.py:Chore)."""
        left = work_max
        while self._waiting and left > 0:
            cost = next(self._pieces, 0)
            left -= cost
            if not cost:
                self._waiting.popleft()
                if self._waiting:
                    self._pieces = self._taken(self._waiting[0])

    def stop(self) -> None:
        """The node stops, and other long work may have the turns that are left: who waits is told at once."""
        LOOK.has_touched = True
        self._pieces = iter(())
        while self._waiting:
            self._call_off(self._waiting.popleft())

    def _call_off(self, files: ReadFiles) -> None:
        if files.request_id:
            self._broker.reply_error(files.request_id, *STOPS)

    def _taken(self, files: ReadFiles) -> Iterator[int]:
        """Take it; each piece yields what it cost, in units of amqp/frame_costs.py."""
        broker, options, before = self._broker, files.options, self._broker.offered
        users = _users_compared(broker.accounts.users, files.users or {})
        if files.users is not None:
            broker.take_users(files.users)
        if options is not None:
            broker.take_options(options)
        yield from revoke(broker)
        remarks: list[str] = []
        if options is not None:
            yield from deploy(broker, options, remarks)
            yield from broker.termini.slow_consumers.watch_all()
            yield from broker.store.auto_delete.settings_changed()
            yield from broker.store.duplicates.settings_changed()
        if files.request_id and options is not None:
            changed: list[dict[str, Any]] = []
            for piece in compare.taken_pieces(broker.options, before, options):
                changed += [{"option": one.path, "old": one.old, "new": one.new} for one in piece]
                yield frame_costs.DEPLOYED if piece else frame_costs.DECLARED
            answer = {"changed": changed, "users": users, "restart": self._restarts(options), "remarks": remarks}
            self._answer(files.request_id, answer)

    def _restarts(self, options: BrokerOptions) -> list[dict[str, Any]]:
        waiting = compare.restarts(self._broker.options, options)
        restarts = [{"option": one.path, "running": one.old, "file": one.new} for one in waiting]
        return restarts + self._kept_diverts(options)

    def _answer(self, request_id: int, answer: dict[str, Any]) -> None:
        broker = self._broker
        if broker.store.journal.latest_position == broker.store.journal.position:
            broker.store.decisions.wait(broker.reply, request_id, answer)  # addresses and queues came or went
        else:
            broker.store.decisions.wait_for_earlier(broker.reply, request_id, answer)

    def _kept_diverts(self, options: BrokerOptions) -> list[dict[str, Any]]:
        """Those that an earlier reload brought, that are gone from the file, and that a restart alone ends."""
        old, new = {one.name for one in self._broker.options.diverts}, {one.name for one in options.diverts}
        names = [one.name for one in self._broker.store.diverts.options if one.name not in old | new]
        return [{"option": f"diverts.{name}", "running": name, "file": None} for name in names]


def _users_compared(before: Mapping[str, UserVerifier], after: Mapping[str, UserVerifier]) -> dict[str, list[str]]:
    return {
        "added": sorted(after.keys() - before.keys()),
        "changed": sorted(name for name in after.keys() & before.keys() if after[name] != before[name]),
        "removed": sorted(before.keys() - after.keys()),
    }
