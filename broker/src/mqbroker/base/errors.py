"""Error families, divided by blame: who erred decides what dies and who is told.

    MqError
    ├── PeerFault      the peer broke the protocol: answered with `condition` on `scope`, that scope ends
    ├── Refused        a request that was understood and is denied: answered with `condition`, nothing else ends
    │   └── NoRoom     for want of room
    ├── StorageFault   the disk or its content is not what it must be: the node stops
    │   └── Unusable   its content: every start would find the same, so a person decides
    ├── ConfigFault    an option is wrong: nothing starts, every fault of a file is reported at once
    └── Bug            our own invariant is broken: the node stops, or ends one connection
    (node/amqp/peers/containment.py)

A message says what, where, and what to do.
"""

from __future__ import annotations

import enum
from typing import Any, Self


class Scope(enum.Enum):
    """What ends with a PeerFault (AMQP 1.0 §2.8.14-2.8.18)."""

    LINK = "link"
    SESSION = "session"
    CONNECTION = "connection"


class MqError(Exception):
    """Base of all errors that this project raises on purpose."""

    def without_trace(self) -> Self:
        """For who keeps it: what it was raised in would stay with it, and that often knows who keeps it."""
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self


class PeerFault(MqError):
    """The peer broke the protocol. `condition` is the AMQP error symbol that it is told."""

    def __init__(self, condition: str, description: str, scope: Scope = Scope.CONNECTION) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description
        self.scope = scope


class Refused(MqError):
    """A well-formed request that is denied. `condition` is the AMQP error symbol that the peer is told.

    `info` is what else the error says to programs (AMQP 1.0 §2.8.14).
    """

    def __init__(self, condition: str, description: str, info: dict[Any, Any] | None = None) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description
        self.info = info


class NoRoom(Refused):
    """Neither memory, nor the disk, nor their transaction has room for messages. The condition alone says that of other
    bounds too."""

    def __init__(self, why: str) -> None:
        super().__init__("amqp:resource-limit-exceeded", why)


class StorageFault(MqError):
    """A file is missing, damaged or unwritable. `offset` is in bytes from its start, -1 where it has no place."""

    def __init__(self, file: str, offset: int, why: str, remedy: str) -> None:
        place = f"{file} at byte {offset}" if offset >= 0 else file
        super().__init__(f"{place}: {why}; {remedy}")
        self.file = file
        self.offset = offset
        self.why = why
        self.remedy = remedy


class Unusable(StorageFault):
    """What is stored cannot be taken as it is, and another start would find the same: a person decides."""


class ConfigFault(MqError):
    """An option is wrong. `path` is dotted, as a reader finds it in the file: `listeners.0.port`."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class Bug(MqError):
    """An invariant of ours does not hold. Nothing that was touched may go on from here."""
