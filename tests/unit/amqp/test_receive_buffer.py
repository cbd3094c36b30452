"""What waits to be taken in costs by its bytes: counted are the bytes that are copied or looked at in columns."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp import sasl
from mqbroker.amqp.connection import Connection
from mqbroker.amqp.events import Attaching, LoginDecided, Opened
from mqbroker.amqp.limits import ConnectionLimits
from mqbroker.amqp.links import ReceiverLink
from mqbroker.amqp.receive_buffer import (
    CLOSE_LEADS,
    CLOSE_LOOKS_MAX,
    JOINED_BYTES,
    Unread,
    _ends_with_close,
    ends_in_order,
)
from mqbroker.wire.frames import EMPTY_FRAME, HEADER_SIZE
from mqbroker.wire.performatives import Close, Error, Open, Target, Transfer
from mqbroker.wire.types import Symbol

from tests.support import frames

COPIES_MAX = 3  # of each byte, with what is looked at in columns
LINK_CREDIT = 10


class Counted(bytes):
    """Bytes that count what is cut out of them, and what they are joined to."""

    cut_bytes = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if isinstance(found, bytes):
            Counted.cut_bytes += len(found)
            return Counted(found)
        return found

    def __add__(self, other: Any) -> Any:
        Counted.cut_bytes += len(self) + len(other)
        return Counted(super().__add__(other))


def opened() -> Connection:
    """A server's end with a session, and a link that has little credit."""
    server = sasl.SaslServer(("ANONYMOUS",), {}, bytes(32))
    connection = Connection(ConnectionLimits(65536, 65536, 60_000, 64, 1024, 1 << 30), server=server)
    connection.is_gradual = True

    def handle() -> None:
        events, connection.events = connection.events, []
        for event in events:
            if isinstance(event, LoginDecided):
                connection.conclude(handle)
            elif isinstance(event, Opened):
                connection.open(Open(container_id="ours", max_frame_size=65536))
            elif isinstance(event, Attaching) and isinstance(event.link, ReceiverLink):
                event.link.accept(event.attach, Target(address="orders"), 0)
                event.link.grant(LINK_CREDIT)

    take_in(connection, frames.anonymous() + frames.opened() + frames.begun() + frames.sender(), handle)
    assert connection.sessions
    return connection


def take_in(connection: Connection, data: bytes, handle: Any = None) -> None:
    """All of it, in as many calls as that takes."""
    connection.receive(data, handle)
    handle_ = handle or connection.events.clear
    handle_()
    while connection.is_behind:
        connection.receive(b"", handle)
        handle_()


FLOODS = {
    "begin and end": lambda count: (frames.begun(1) + frames.end(1)) * count,
    "beyond credit": lambda count: b"".join(frames.transfer(1000 + n, durable=True) for n in range(count)),
    "empty messages": lambda count: b"".join(
        frames.frame(Transfer(handle=0, delivery_id=1000 + n, delivery_tag=n.to_bytes(4, "big"), message_format=0))
        for n in range(count)
    ),
    "empty frames": lambda count: EMPTY_FRAME * count,
}


@pytest.mark.parametrize("kind", FLOODS)
def test_one_write_of_many_frames_costs_by_its_bytes(kind: str) -> None:
    connection, data = opened(), FLOODS[kind](3000)
    Counted.cut_bytes = 0
    take_in(connection, Counted(data))
    assert not connection.is_dead
    assert Counted.cut_bytes <= COPIES_MAX * len(data)


def test_a_large_frame_that_comes_byte_by_byte_is_joined_once() -> None:
    unread, size = Unread(), 300_000
    copied = 0
    for _ in range(size):
        unread.add(b"x")
        if unread.join(size):
            copied += len(unread.buffer)
    assert copied == size == unread.size_bytes


def test_small_pieces_are_joined_to_long_ones_and_each_byte_once() -> None:
    unread, pieces = Unread(), 50_000
    for number in range(pieces):
        unread.add(number.to_bytes(4, "big"))
    found, joins = b"", 0
    while True:
        found += unread.buffer[unread.offset :]
        unread.offset = len(unread.buffer)
        if not unread.join(1):
            break
        joins += 1
    assert found == b"".join(number.to_bytes(4, "big") for number in range(pieces))
    assert joins <= len(found) // JOINED_BYTES + 1


@pytest.mark.parametrize(("said", "is_in_order"), [
    (frames.transfer(1) + frames.close(), True),
    (frames.close(), True),
    (frames.transfer(1), False),
    (frames.close() + frames.transfer(1), False),
    (frames.close()[:-1], False),
    (b"", False),
])  # fmt: skip
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_whether_a_close_comes_last(said: bytes, is_in_order: bool, size: int) -> None:
    unread = Unread()
    for at in range(0, len(said), size):
        unread.add(said[at : at + size])
    assert unread.ends_in_order is is_in_order
    assert unread.size_bytes == len(said)


class Whole(bytes):
    """Bytes that nobody may look for anything in."""

    def rfind(self, *_: object) -> int:
        """All of them would be looked at."""
        raise AssertionError("a look at everything")


@pytest.mark.parametrize("last", [b"", frames.close()])
def test_only_the_end_of_much_is_looked_at_for_a_close(last: bytes) -> None:
    much = Whole(b"x" * (64 << 10))
    unread = Unread()
    for each in (much, much, last):
        unread.add(each)
    assert unread.ends_in_order is bool(last)
    assert unread.buffer is much, "nor is it copied"


def test_a_close_may_have_a_long_text() -> None:
    said = frames.frame(Close(error=Error(condition=Symbol("amqp:internal-error"), description="x" * 4000)))
    assert ends_in_order([frames.transfer(1), said])
    assert not ends_in_order([frames.transfer(1), said + b"x"])


def spelt(descriptor: bytes) -> bytes:
    """A close that says so in this way."""
    frame = frames.close()
    body = frame[HEADER_SIZE:].replace(b"\x53\x18", descriptor, 1)
    return (HEADER_SIZE + len(body)).to_bytes(4, "big") + frame[4:HEADER_SIZE] + body


@pytest.mark.parametrize("said", [
    spelt(b"\x80" + (0x18).to_bytes(8, "big")),
    spelt(b"\xa3\x0famqp:close:list"),
    *(
        frames.frame(Close(error=Error(condition=Symbol("amqp:internal-error"), description=text * count)))
        for text in ("\x00S\x18", "\x00S\x18\xc0", "\x00\xa3\x0famqp:close:list") for count in (1, 3)
    ),
])  # fmt: skip
def test_a_close_may_be_spelt_otherwise_and_hold_what_looks_like_one(said: bytes) -> None:
    assert ends_in_order([frames.transfer(1), said])
    assert ends_in_order([frames.transfer(1) + said[:9], said[9:]])
    assert not ends_in_order([frames.transfer(1), said, frames.transfer(2)])
    assert not ends_in_order([said[:-1]])


def test_what_looks_like_very_many_closes_is_not_looked_at_for_ever() -> None:
    assert not ends_in_order([b"x" * 100 + CLOSE_LEADS[0] * (CLOSE_LOOKS_MAX + 1)])
    found = Finds(b"x" * 100 + CLOSE_LEADS[0] * 1000)
    assert not _ends_with_close(found, CLOSE_LEADS[0])
    assert found.count == CLOSE_LOOKS_MAX


class Finds(bytes):
    """Counts how often something is looked for in it."""

    count = 0

    def rfind(self, *said: object) -> int:
        """As of bytes."""
        self.count += 1
        return super().rfind(*said)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [9, 12])
def test_what_is_no_close_at_all_ends_in_no_order(size: int) -> None:
    """Nine bytes before what is not found is no place: what stands there looks like the beginning of a close."""
    looking = (size + 9).to_bytes(4, "big") + b"\x02\x00" + b"abc"
    data = b"x" * (size - len(looking)) + looking
    assert not ends_in_order([data])
    assert not ends_in_order([data[:5], data[5:]])


def test_who_asks_for_more_while_something_is_taken_in_has_it_once() -> None:
    """Whoever handles events may call for what is kept, as the end of a wait does; it comes when its turn has come."""
    connection = opened()
    seen: list[str] = []

    def handle() -> None:
        events, connection.events = connection.events, []
        seen.extend(event.attach.name for event in events if isinstance(event, Attaching))
        connection.receive(b"", handle)

    names = [f"link-{number}" for number in range(5)]
    said = [frames.sender(handle=number + 1, name=name) for number, name in enumerate(names)]
    take_in(connection, b"".join(said), handle)
    assert seen == names
    assert connection.unread_bytes == 0
