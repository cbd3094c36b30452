"""Who may do what at an address, from `[[security-settings]]`.

The most specific match holds as a whole: what it does not grant is refused, whatever wider matches say. Where there is
no table at all, everybody may do everything. Who consumes from an address with wildcards needs the permission at every
address that it stands for. Who acts is an argument of whatever checks or makes something: whoever is connected, or the
broker itself, whose doings (moves to other addresses, ends of temporary queues, administration) are not checked.
Source: Artemis's manual, "Role based security for addresses".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from mqbroker.base.errors import Refused
from mqbroker.base.look import LOOK
from mqbroker.config.matching import DELIMITER, generality, includes, matches, overlap
from mqbroker.config.names import toml_name
from mqbroker.config.slices import SecuritySettings
from mqbroker.core.address.settings import CACHED_MAX
from mqbroker.core.address.wildcard_names import has_wildcards

SEND, CONSUME, BROWSE, CREATE_ADDRESS = "send", "consume", "browse", "create_address"
CREATE = {True: "create_durable_queue", False: "create_non_durable_queue"}
DELETE = {True: "delete_durable_queue", False: "delete_non_durable_queue"}
ANONYMOUS = "anonymous"  # all who have no user count as one


def may_see(check: Callable[[Actor | None, str, str], None], actor: Actor | None, address: str) -> bool:
    """Whether somebody may do anything with messages there, and so be told the name of the address."""
    for permission in (SEND, CONSUME, BROWSE):
        try:
            check(actor, permission, address)
        except Refused:
            continue
        return True
    return False


class Actor(NamedTuple):
    """Somebody who is connected. Without a user: nobody knows who it is.

    `conn` is the connection that what is made counts for; 0: for none, nor for the user (quotas.py).
    """

    user: str | None
    roles: tuple[str, ...]
    conn: int = 0

    @property
    def maker(self) -> str:
        """Whose things are counted together."""
        return (self.user or ANONYMOUS) if self.conn else ""


BROKER: Final = None  # acts where nobody does who is connected: an actor who may everything, and is counted nowhere


class Permissions:
    """See the module's docstring."""

    def __init__(self, tables: tuple[SecuritySettings, ...]) -> None:
        self.change(tables)

    def change(self, tables: tuple[SecuritySettings, ...]) -> None:
        """Other permissions hold from now on."""
        words = [(table.match.split(DELIMITER), table) for table in tables]
        LOOK.has_touched = True
        self._tables = sorted(words, key=lambda pair: generality(pair[0]))
        self._known: dict[str, SecuritySettings | None] = {}

    def check(self, actor: Actor | None, permission: str, address: str, queue: str = "") -> None:
        """Whether the actor may; BROKER may. Raises Refused.

        `queue`: what was named instead of the address, which is then nothing that whoever asks has to know.
        """
        if actor is None or not self._tables:
            return
        is_many = permission in (CONSUME, BROWSE) and has_wildcards(address)
        for table in self._of_all(address) if is_many else (self._of(address),):
            granted: tuple[str, ...] = () if table is None else getattr(table, permission)
            if not any(role in granted for role in actor.roles):
                who = "an anonymous user" if actor.user is None else f"user {actor.user!r}"
                where = f"every address that matches {address!r}" if is_many else f"address {address!r}"
                where = f"the address of queue {queue!r}" if queue and queue != address else where
                why = f"{who} has no permission {toml_name(permission)} at {where}"
                raise Refused("amqp:unauthorized-access", why)

    def _of_all(self, address: str) -> Iterator[SecuritySettings | None]:
        """What holds at any address that one with wildcards stands for; None: at some of them nothing does."""
        words = address.split(DELIMITER)
        for pattern, table in self._tables:
            if overlap(pattern, words):
                yield table
            if includes(pattern, words):
                return  # what is wider holds at none of them
        yield None

    def _of(self, address: str) -> SecuritySettings | None:
        if address not in self._known:
            if len(self._known) >= CACHED_MAX:
                self._known.clear()
            words = address.split(DELIMITER)
            matching = (table for pattern, table in self._tables if matches(pattern, words))
            self._known[address] = next(matching, None)
        return self._known[address]
