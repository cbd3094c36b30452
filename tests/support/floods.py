"""Legal frames, again and again: what a client may send as fast as it likes, as bytes.

Each flood says of which performatives it is, so that a test sees that none was forgotten. `standing` is what its
connection says first; a piece is whole, and pieces may follow one another for ever in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mqbroker.wire.frames import EMPTY_FRAME
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode,
)
from mqbroker.wire.sections import Properties, build_message

from tests.support import frames

FLOODED = "flooded"
SENDING, QUIET, RELAYING, ASKING, SPARE = 0, 1, 2, 3, 7  # handles
VALUE = b"\x00\x53\x77"
MESSAGES = 50  # of a piece
POSTED = 5  # in a transaction
GROUPED = 200
FIRST_ID = 1 << 16  # lower ones are shorter in their frames


@dataclass(frozen=True, slots=True)
class Flood:
    """See the module's docstring. `links`: what stands besides the session."""

    of: tuple[type, ...]
    piece: Callable[[int], bytes]
    links: bytes = b""

    def bytes_of(self, count: int, first: int = 0) -> bytes:
        """So many pieces, in one."""
        return b"".join(map(self.piece, range(first, first + count)))


def _attach(handle: int, *, dynamic: bool = False, coordinator: bool = False) -> bytes:
    if dynamic:
        attach = Attach(name=f"d{handle}", handle=handle, role=True, source=Source(dynamic=True), target=Target())
    else:
        target = Coordinator() if coordinator else Target()
        attach = Attach(name=f"t{handle}", handle=handle, role=False, source=Source(), target=target,
                        initial_delivery_count=0)  # fmt: skip
    return frames.frame(attach)


def _messages(
    first: int, *, step: int = 1, handle: int = SENDING, durable: bool = False, settled: bool = False
) -> bytes:
    """Of one byte each. With a step other than 1 no two of them make a run."""
    return b"".join(
        frames.transfer(FIRST_ID + (first * MESSAGES + each) * step, handle=SENDING, durable=durable, settled=settled)
        for each in range(MESSAGES)
    )


def _head(handle: int, number: int, *, settled: bool) -> Transfer:
    tag = number.to_bytes(4, "big")
    return Transfer(handle=handle, delivery_id=FIRST_ID + number, delivery_tag=tag, message_format=0, settled=settled)


def _named(number: int) -> bytes:
    """A message that says itself where it goes."""
    head = _head(RELAYING, number, settled=True)
    return frames.frame(head, build_message(b"x", properties=Properties(to=FLOODED)))


def _empty(number: int) -> bytes:
    return frames.frame(Transfer(handle=SENDING, delivery_id=number, delivery_tag=b"e", message_format=0, settled=True))


def _request(number: int, value: Declare | Discharge) -> bytes:
    return frames.frame(_head(ASKING, number, settled=False), VALUE + encode(value))


def _transaction(number: int) -> bytes:
    """Declared and rolled back: ids of transactions are numbers."""
    txn_id = (number + 1).to_bytes(8, "big")
    return _request(2 * number, Declare()) + _request(2 * number + 1, Discharge(txn_id=txn_id, fail=True))


def _worked(number: int) -> bytes:
    """Declared, with some messages in it, and committed."""
    txn_id = (number + 1).to_bytes(8, "big")
    state = TransactionalState(txn_id=txn_id)
    posted = b"".join(
        frames.transfer(FIRST_ID + number * POSTED + each, handle=SENDING, durable=True, settled=True, state=state)
        for each in range(POSTED)
    )
    return _request(2 * number, Declare()) + posted + _request(2 * number + 1, Discharge(txn_id=txn_id))


def _grouped(number: int) -> bytes:
    """Declared, with many messages in it that are taken in one by one, and rolled back."""
    txn_id = (number + 1).to_bytes(8, "big")
    state, message = TransactionalState(txn_id=txn_id), build_message(b"x", properties=Properties(group_id="g"))
    posted = b"".join(
        frames.frame(replace(_head(SENDING, number * GROUPED + each, settled=True), state=state), message)
        for each in range(GROUPED)
    )
    return _request(2 * number, Declare()) + posted + _request(2 * number + 1, Discharge(txn_id=txn_id, fail=True))


def _in_bytes(number: int) -> bytes:
    """A message in frames of a byte each."""
    message = build_message(b"x" * 80)
    parts = [message[at : at + 1] for at in range(len(message))]
    more = b"".join(frames.frame(Transfer(handle=SENDING, more=True), part) for part in parts[1:-1])
    head = replace(_head(SENDING, number, settled=True), more=True)
    return frames.frame(head, parts[0]) + more + frames.frame(Transfer(handle=SENDING), parts[-1])


def _on_a_link_each(number: int) -> bytes:
    """A link, as many messages as it has credit for, and its end."""
    return frames.sender(FLOODED, handle=SENDING) + _messages(number, durable=True) + frames.detach(SENDING)


def _echo(handle: int | None) -> bytes:
    link = {} if handle is None else {"delivery_count": 0, "link_credit": 10}
    return frames.frame(Flow(next_incoming_id=0, incoming_window=2048, next_outgoing_id=0, outgoing_window=2048,
                             handle=handle, echo=True, **link))  # fmt: skip


SENDER, RECEIVER = frames.sender(FLOODED), frames.receiver("quiet", credit=10)
SENT = frames.frame(Disposition(role=False, first=0, last=0, settled=True, state=Accepted()))
PAIR = frames.begun(1) + frames.end(1)
MORE = frames.sender("more", handle=SPARE) + frames.detach(SPARE)
MORE_RECEIVED = frames.receiver("more", handle=SPARE) + frames.detach(SPARE)
TEMPORARY = _attach(SPARE, dynamic=True) + frames.detach(SPARE)
MANY = b"".join(_attach(SPARE + each) for each in range(100)) + b"".join(
    frames.detach(SPARE + each) for each in range(100)
)
SESSION_OF_MANY = (
    frames.begun(1) + b"".join(frames.receiver("more", handle=each, channel=1) for each in range(100)) + frames.end(1)
)
CONVERSATION = frames.anonymous() + frames.opened() + frames.close()

# On connections that are open.
FLOODS: dict[str, Flood] = {
    "begin, end": Flood((Begin, End), lambda _: PAIR),
    "begin, many attaches, end": Flood((Begin, Attach, End), lambda _: SESSION_OF_MANY),
    "attach, detach (sending)": Flood((Attach, Detach), lambda _: MORE),
    "attach, detach (receiving)": Flood((Attach, Detach), lambda _: MORE_RECEIVED),
    "attach, detach (temporary queue)": Flood((Attach, Detach), lambda _: TEMPORARY),
    "attach a hundred, detach them": Flood((Attach, Detach), lambda _: MANY),
    "flow of the session with echo": Flood((Flow,), lambda _: _echo(None)),
    "flow of a link with echo": Flood((Flow,), lambda _: _echo(QUIET), RECEIVER),
    "flow": Flood((Flow,), lambda _: frames.flow(QUIET, 10), RECEIVER),
    "disposition of a sender": Flood((Disposition,), lambda _: SENT),
    "empty frames": Flood((), lambda _: EMPTY_FRAME),
    "empty messages": Flood((Transfer,), _empty, SENDER),
    "messages": Flood((Transfer,), lambda at: _messages(at, settled=True), SENDER),
    "messages that make no runs": Flood((Transfer,), lambda at: _messages(at, step=2, settled=True), SENDER),
    "durable messages": Flood((Transfer,), lambda at: _messages(at, durable=True), SENDER),
    "durable messages that make no runs": Flood((Transfer,), lambda at: _messages(at, step=2, durable=True), SENDER),
    "durable messages, a link for every fifty": Flood((Attach, Transfer, Detach), _on_a_link_each),
    "messages in frames of a byte": Flood((Transfer,), _in_bytes, SENDER),
    "messages that say where they go": Flood((Transfer,), _named, _attach(RELAYING)),
    "declare, discharge": Flood((Transfer,), _transaction, _attach(ASKING, coordinator=True)),
    "transactions of messages of groups": Flood((Transfer,), _grouped, SENDER + _attach(ASKING, coordinator=True)),
    "transactions of messages": Flood((Transfer,), _worked, SENDER + _attach(ASKING, coordinator=True)),
}
# Each is a connection of its own.
CONNECTIONS: dict[str, Flood] = {"open, close": Flood((Open, Close), lambda _: CONVERSATION)}
