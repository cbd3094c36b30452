"""Reloads: the files are read by `io/`. Where an administrator asked for it, the answer says what came of it.

Invariant of that: all or nothing. Where anything in the files is wrong, everything stays as it was, and the answer
names every fault. What of good files cannot be had beside what is there already, such as a declared queue whose name is
taken, is among the answer's remarks. Source: docs/ARCHITECTURE.md, "Follow an option".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mqbroker.config import compare
from mqbroker.config.compare import Verdict
from mqbroker.config.slices import BrokerOptions
from mqbroker.config.users import Verifier
from mqbroker.node.effects import LoadConfiguration
from mqbroker.node.inputs import OptionsChanged, UsersChanged
from mqbroker.node.revoking import revoke

if TYPE_CHECKING:
    from mqbroker.node.broker import Broker


class Reloads:
    """Those under way, by the id of their effect."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._requests: dict[int, int] = {}

    def ask(self, request_id: int) -> None:
        """Have the files read; the request is answered when they are."""
        effect_id = self._broker.next_effect_id()
        self._requests[effect_id] = request_id
        self._broker.effects.append(LoadConfiguration(effect_id))

    def done(self, effect_id: int, found: Any) -> bool:
        """Take what the files say; whether this was a reload."""
        request_id = self._requests.pop(effect_id, None)
        if request_id is None:
            return False
        broker, before = self._broker, self._broker.offered
        if broker.is_stopping:
            # What they bring would be journalled behind the journal's end; the next start reads them anyway.
            broker.reply_error(request_id, "amqp:connection:forced", "config-reload: the broker stops")
            return True
        users = _users_compared(broker.accounts.users, found.users)
        remarks = self._take(found.options, found.users)
        waiting = [one for one in compare.changes(broker.options, found.options) if one.needs is Verdict.RESTART]
        answer = {
            "changed": [
                {"option": one.path, "old": one.old, "new": one.new}
                for one in compare.taken(broker.options, before, found.options)
            ],
            "users": users,
            "restart": [{"option": one.path, "running": one.old, "file": one.new} for one in waiting]
            + self._kept_diverts(found.options),
            "remarks": remarks,
        }
        if broker.store.journal.latest_position == broker.store.journal.position:
            broker.store.decisions.wait(broker.reply, request_id, answer)  # addresses and queues came or went
        else:
            broker.reply(request_id, answer)
        return True

    def users_changed(self, given: UsersChanged) -> None:
        """Take users that were read by a signal, whose options cannot be used."""
        if not self._broker.is_stopping:
            self._take(None, given.users)

    def options_changed(self, given: OptionsChanged) -> None:
        """Take what was read by a signal."""
        if not self._broker.is_stopping:
            self._take(given.options, given.users)

    def _take(self, options: BrokerOptions | None, users: Mapping[str, Verifier] | None) -> list[str]:
        """What is there of both. Says what could not be done."""
        if users is not None:
            self._broker.take_users(users)
        remarks = [] if options is None else self._broker.take_options(options)
        revoke(self._broker)
        return remarks

    def _kept_diverts(self, options: BrokerOptions) -> list[dict[str, Any]]:
        """Those that an earlier reload brought, that are gone from the file, and that a restart alone ends."""
        old, new = {one.name for one in self._broker.options.diverts}, {one.name for one in options.diverts}
        names = [one.name for one in self._broker.store.diverts.options if one.name not in old | new]
        return [{"option": f"diverts.{name}", "running": name, "file": None} for name in names]

    def failed(self, effect_id: int, why: str) -> bool:
        """Answer with the faults; whether this was a reload."""
        request_id = self._requests.pop(effect_id, None)
        if request_id is None:
            return False
        count = len(why.splitlines())
        said = f"nothing was changed, the files have {count} fault{'s' if count > 1 else ''}:\n{why}"
        self._broker.reply_error(request_id, "amqp:precondition-failed", said)
        return True


def _users_compared(before: Mapping[str, Verifier], after: Mapping[str, Verifier]) -> dict[str, list[str]]:
    return {
        "added": sorted(after.keys() - before.keys()),
        "changed": sorted(name for name in after.keys() & before.keys() if after[name] != before[name]),
        "removed": sorted(before.keys() - after.keys()),
    }
