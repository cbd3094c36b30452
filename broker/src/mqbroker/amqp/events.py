"""What a connection tells its owner, in the order in which it happened.

The end of something must reach its owner, so with it the look at the peer's bytes counts as having touched (base/look).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from mqbroker.amqp.deliveries import Incoming as Incoming
from mqbroker.amqp.deliveries import Settled as Settled
from mqbroker.base.frozen import frozen
from mqbroker.base.look import LOOK

if TYPE_CHECKING:
    from mqbroker.amqp.links import ReceiverLink, SenderLink
    from mqbroker.amqp.session import Session
    from mqbroker.amqp.unsettled import Taken
    from mqbroker.wire.performatives import Attach, Error, Open, TransactionalState
    from mqbroker.wire.run import Run


class Posted(NamedTuple):
    """Messages arrived as part of a transaction (§4.4.1). Unless settled they are owed an outcome."""

    link: ReceiverLink
    run: Run
    delivery_id: int
    is_settled: bool
    txn_id: bytes


class Retired(NamedTuple):
    """The peer gave deliveries of ours an outcome as part of a transaction (§4.4.2). Each comes with its first id.

    They are not among the unsettled any more; unless `is_settled` they belong there until the transaction's end.
    """

    session: Session
    taken: list[tuple[int, Taken]]
    state: TransactionalState
    is_settled: bool


class Unposted(NamedTuple):
    """A message that was to be part of a transaction came to nothing, because we ended its link or its session."""

    txn_id: bytes


class MessagePiece(NamedTuple):
    """A piece of a message that is too large for memory. The first one brings its `head`, all before the body."""

    link: ReceiverLink
    head: bytes
    data: bytes


class Whole(NamedTuple):
    """The last piece of such a message has come. The connection is held until `Connection.go_on`."""

    link: ReceiverLink
    delivery_id: int
    is_settled: bool


class Aborted(NamedTuple):
    """A delivery came to nothing: its sender gave it up, or resumed one that we do not know. Its credit is used."""

    link: ReceiverLink


class Empty(NamedTuple):
    """A delivery without a single byte of a message, which some clients send when they connect again.

    `txn_id`: the transaction that it was to be part of.
    """

    link: ReceiverLink
    delivery_id: int
    is_settled: bool
    txn_id: bytes | None


class CreditUsed(NamedTuple):
    """A sender has used up credit without a delivery (§2.6.7)."""

    link: ReceiverLink


class Numbered(NamedTuple):
    """A sender that is a node of our cluster said which id the next message on this link has there.

    `mark` of this id and those that follow; None: as before.
    """

    link: ReceiverLink
    first_id: int
    mark: str | None = None


class SenderSettled(NamedTuple):
    """The sender settled deliveries first…last that it sent us: our outcome is known to it for good."""

    session: Session
    first: int
    last: int


class CreditGiven(NamedTuple):
    """What a link of ours may send has changed (credit, drain, session window), or the transport takes it again."""

    link: SenderLink


@frozen()
class SaslDerive:
    """A login needs PBKDF2-HMAC of the password; answer with `Connection.derived(key)`, or see `recall` there.

    Equal `tag`, equal key. At a client `user` and `tag` are empty.
    """

    user: str
    tag: bytes = field(repr=False)
    password: bytes = field(repr=False)
    salt: bytes
    iterations: int
    hash_name: str


@frozen()
class LoggedIn:
    """The peer is who it says; `user` is None for ANONYMOUS."""

    user: str | None
    mechanism: str


@frozen()
class LoginDecided:
    """Whether the peer is let in. It is told by `Connection.conclude`, now or later; `why` is for the log."""

    user: str
    mechanism: str
    is_good: bool
    why: str = ""


@frozen()
class Opened:
    """The peer sent open. A server answers with `Connection.open`."""

    open: Open


@frozen()
class Began:
    """A session is mapped: both ends have begun it (AMQP 1.0 §2.5.1)."""

    session: Session


@frozen()
class Attaching:
    """The peer wants a link: answer with `link.accept` or `link.refuse`. The role is the link's class."""

    link: SenderLink | ReceiverLink
    attach: Attach


@frozen()
class Attached:
    """A link that we asked for stands (or was refused: then Detached follows at once)."""

    link: SenderLink | ReceiverLink
    attach: Attach


@frozen()
class Detached:
    """A link is gone. `returned`: deliveries of ours on it that had no outcome.

    `is_orderly`: the peer ended it, its session or its connection by saying so.
    """

    link: SenderLink | ReceiverLink
    error: Error | None
    returned: list[Taken]
    is_orderly: bool

    def __post_init__(self) -> None:
        LOOK.has_touched = True


@frozen()
class Returned:
    """Some of what a link had unsettled that is over and has very much; Detached brings the last of it."""

    link: SenderLink
    returned: list[Taken]
    is_orderly: bool

    def __post_init__(self) -> None:
        LOOK.has_touched = True


@frozen()
class Ended:
    """A session is gone, its links with it (Detached came for each)."""

    session: Session
    error: Error | None

    def __post_init__(self) -> None:
        LOOK.has_touched = True


@frozen()
class LinksLeft:
    """Links of sessions that are over are still to be handed back, by turns. Until then their owners count as there."""

    def __post_init__(self) -> None:
        LOOK.has_touched = True


@frozen()
class WorkDone:
    """What took a while and was left to the connection is done: `then` is what follows from it."""

    then: Callable[[], None]

    def __post_init__(self) -> None:
        LOOK.has_touched = True


@frozen()
class Dead:
    """The connection is to be closed now: nothing more will come of it. `condition` is None for a good end.

    `error`: what the peer said in its close.
    """

    condition: str | None
    description: str
    error: Error | None = None

    def __post_init__(self) -> None:
        LOOK.has_touched = True


ConnectionEvent = (
    Incoming | Posted | Unposted | MessagePiece | Whole | Aborted | Empty | Settled | Retired | Numbered | SenderSettled
    | CreditGiven | CreditUsed | SaslDerive | LoggedIn | LoginDecided | Opened | Began | Attaching | Attached
    | Returned | Detached | LinksLeft | WorkDone | Ended | Dead
)  # fmt: skip
