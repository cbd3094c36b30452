"""Who may do what at an address, from `[[security-settings]]`.

The most specific match holds as a whole: what it does not grant is refused, whatever wider matches say. Where there is
no table at all, everybody may do everything. Checks are made on behalf of somebody: what the broker does by itself
(moves to other addresses, ends of temporary queues, administration) is not checked. Source: Artemis's manual, "Role
based security for addresses".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.config.declaring import toml_name
from mqbroker.config.matching import DELIMITER, generality, matches
from mqbroker.config.slices import SecuritySettings
from mqbroker.core.settings import CACHED_MAX

SEND, CONSUME, BROWSE, CREATE_ADDRESS = "send", "consume", "browse", "create_address"
CREATE = {True: "create_durable_queue", False: "create_non_durable_queue"}
DELETE = {True: "delete_durable_queue", False: "delete_non_durable_queue"}
UNCHECKED = nullcontext()


class Actor(NamedTuple):
    """Somebody who is connected. Without a user: nobody knows who it is."""

    user: str | None
    roles: tuple[str, ...]


class Permissions:
    """See the module's docstring."""

    def __init__(self, tables: tuple[SecuritySettings, ...]) -> None:
        self._actor: Actor | None = None
        self.change(tables)

    def change(self, tables: tuple[SecuritySettings, ...]) -> None:
        """Other permissions hold from now on."""
        words = [(table.match.split(DELIMITER), table) for table in tables]
        LOOK.has_touched = True
        self._tables = sorted(words, key=lambda pair: generality(pair[0]))
        self._known: dict[str, SecuritySettings | None] = {}

    def acting(self, actor: Actor) -> AbstractContextManager[None]:
        """What is checked meanwhile is checked for this one."""
        return self._acting(actor) if self._tables else UNCHECKED

    @contextmanager
    def _acting(self, actor: Actor) -> Iterator[None]:
        before, self._actor = self._actor, actor
        try:
            yield
        finally:
            self._actor = before

    def check(self, permission: str, address: str) -> None:
        """Whether whoever acts may. Raises Refused."""
        if self._actor is None or not self._tables:
            return
        table = self._of(address)
        granted: tuple[str, ...] = () if table is None else getattr(table, permission)
        if not any(role in granted for role in self._actor.roles):
            who = "an anonymous user" if self._actor.user is None else f"user {self._actor.user!r}"
            why = f"{who} has no permission {toml_name(permission)} at address {address!r}"
            raise Refused("amqp:unauthorized-access", why)

    def _of(self, address: str) -> SecuritySettings | None:
        if address not in self._known:
            if len(self._known) >= CACHED_MAX:
                self._known.clear()
            words = address.split(DELIMITER)
            found = (table for pattern, table in self._tables if matches(pattern, words))
            self._known[address] = next(found, None)
        return self._known[address]
