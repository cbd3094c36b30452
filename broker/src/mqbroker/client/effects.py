"""What the machine wants done. The shell carries effects out in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mqbroker.client.errors import ClientError
from mqbroker.client.inputs import Sending
from mqbroker.client.uri import Endpoint
from mqbroker.wire.run import Run


class Dial(NamedTuple):
    """Make a transport, give up any that is being made, and tell Dialled or DialFailed."""

    attempt: int
    endpoint: Endpoint


class Write(NamedTuple):
    """Bytes for the transport of that attempt."""

    attempt: int
    chunks: list[bytes | bytearray | memoryview]


@dataclass(frozen=True, slots=True)
class Derive:
    """PBKDF2-HMAC for the login of that attempt, which takes milliseconds: not in the loop. Then tell Derived."""

    attempt: int
    hash_name: str
    password: bytes = field(repr=False)
    salt: bytes = field(repr=False)
    iterations: int


class PauseReading(NamedTuple):
    """Read nothing more from the transport of that attempt, or go on."""

    attempt: int
    is_paused: bool


class HangUp(NamedTuple):
    """Close the transport of that attempt behind what was written; also one that is still being made."""

    attempt: int


class Answer(NamedTuple):
    """A request is done: its token, and what it came to."""

    token: Any
    value: Any


class Failure(NamedTuple):
    """A request has failed: its token, and the error to raise."""

    token: Any
    error: BaseException


class Outcomes(NamedTuple):
    """Messages have their outcome. `failure` makes the error of each, None: they were accepted."""

    sendings: list[Sending]
    failure: Callable[[], ClientError] | None


class Arrived(NamedTuple):
    """Messages for a receiver, under the delivery ids from `delivery_id` on."""

    handle: int
    epoch: int
    run: Run
    delivery_id: int
    is_settled: bool


class Interrupted(NamedTuple):
    """The connection of a receiver is gone: what waited there will come again, and nothing of it can be settled."""

    handle: int


class Restored(NamedTuple):
    """A sender or receiver stands again, on another connection; a temporary queue under another address."""

    handle: int
    address: str


class AtEnd(NamedTuple):
    """A browser has seen all there was."""

    handle: int


class Gone(NamedTuple):
    """A sender or receiver is of no use any more."""

    handle: int
    error: ClientError


class Told(NamedTuple):
    """A line for the log. `is_up`: the connection stands."""

    text: str
    is_up: bool


Effect = (
    Dial | Write | PauseReading | Derive | HangUp | Answer | Failure | Outcomes | Arrived | Interrupted | Restored
    | AtEnd | Gone | Told
)  # fmt: skip


@dataclass(slots=True)
class Batch:
    """What one step wants. `wake_at_ns`: the next instant that matters; `more`: call again at once."""

    effects: list[Effect]
    wake_at_ns: int | None
    more: bool
