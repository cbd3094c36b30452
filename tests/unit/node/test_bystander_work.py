"""What a bystander's message waits behind while a peer says what it must not: at most as much again as for itself.

Counted, not timed: the bytecodes that the broker runs from the read that brings a durable message to the step that
settles it, and that is steady. The bad input comes in the same turn before the message, and every turn brings a thing
of the bystander's, so each message is the slowest that there is.
"""

from __future__ import annotations

import pytest
from mqbroker.node.values import inputs as given
from mqbroker.wire.frames import frame_at
from mqbroker.wire.performatives import Accepted, Disposition, Transfer

from tests.support import frames
from tests.support.bad_input import (
    AFTER,
    BEFORE,
    BEFORE_OPEN,
    FRAME_SIZE_MAX,
    GREETINGS,
    MESSAGE_SIZE_MAX,
    SELECTORS,
    SMALLER,
)
from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage, options_with

SILENT = b""
LOGIN = frames.anonymous()
GO = LOGIN + frames.opened(FRAME_SIZE_MAX) + frames.begun()
SESSION = GO + frames.sender("bad-input")
STEADY = 0.02  # now and then a message is the one after which a list is packed
CREDIT = 10_000  # for the messages of all cases that share a node
WARM = 3  # messages before those that count, so that caches are filled in both cases


def at_last(data: bytes) -> tuple[bytes, bytes]:
    """The last frame apart from all before it: what is within the bounds costs as any good input does."""
    start = at = 0
    while (found := frame_at(data, at, len(data), 1 << 31)) is not None:
        start, at = at, found.end
    return data[:start], data[start:]


GROWING = {name: at_last(data) for name, (data, _) in SMALLER.items() if "adding up" in name or "same" in name}
# What stands when it comes, and what comes.
CASES: dict[str, tuple[bytes, bytes]] = {
    **{f"greeting: {name}": (SILENT, data) for name, data in GREETINGS.items()},
    **{f"before login: {name}": (frames.SASL_HEADER, data) for name, data in BEFORE.items()},
    **{f"before open: {name}": (LOGIN, frames.AMQP_HEADER + data) for name, (data, _) in BEFORE_OPEN.items()},
    **{f"open: {name}": (SESSION, data) for name, (data, _) in AFTER.items()},
    **{f"link or session: {name}": (SESSION, data) for name, (data, _) in SMALLER.items()},
    **{f"link or session: {name}": (SESSION + good, bad) for name, (good, bad) in GROWING.items()},
    **{name: (SESSION, data) for name, (data, _) in SELECTORS.items()},
}


class Site:
    """A node with a bystander, who sends to itself, and room for others. `listener` is what that says besides."""

    def __init__(self, **listener: str) -> None:
        limits = {"max_message_size_bytes": MESSAGE_SIZE_MAX}
        self.stage = Stage(options_with({"max_frame_size_bytes": FRAME_SIZE_MAX, **listener}, limits=limits))
        self.bystander = self.stage.accept()
        links = frames.sender("others") + frames.receiver("others", credit=CREDIT)
        self.stage.talk(self.bystander, GO + links)
        self.count = 0
        for _ in range(WARM):
            self.work_of_message()

    def standing(self, said: bytes) -> int:
        """A peer that has said this, and may go on."""
        conn = self.stage.accept()
        self.stage.talk(conn, said)
        assert conn not in self.stage.closed
        return conn

    def work_of_message(self, *others: given.Input, is_answered: bool = False) -> int:
        """Bytecodes until a message is accepted, delivered and settled again, with these inputs before it. Or until it
        `is_answered` and delivered, where others always have more to do.
        """
        stage, work = self.stage, Bytecodes()
        before = len(stage.sent[self.bystander])
        step = stage.broker.step
        stage.broker.step = lambda inputs, at: work.of(lambda: step(inputs, at))  # type: ignore[method-assign]
        for each in others:
            stage.give(each)
        stage.give(given.BytesReceived(self.bystander, frames.transfer(self.count, b"x" * 10, durable=True)))
        stage.turn()
        stage.sync()
        stage.turn()
        answered = work.count
        heard = frames.heard(bytes(stage.sent[self.bystander][before:]))
        assert [each.state for each in heard if isinstance(each, Disposition)] == [Accepted()]
        assert sum(isinstance(each, tuple) and isinstance(each[0], Transfer) for each in heard) == 1
        stage.give(given.BytesReceived(self.bystander, frames.disposition(self.count, self.count, Accepted())))
        stage.turn()
        del stage.broker.step
        assert stage.broker.store.queues["others"].message_count == 0
        self.count += 1
        if is_answered:
            return answered
        stage.run()
        return work.count


@pytest.fixture(scope="module")
def site() -> Site:
    """One node for all cases: what one peer did must not show to the next."""
    return Site()


@pytest.mark.slow
def test_the_count_is_steady_and_counts_what_is_in_the_way(site: Site) -> None:
    alone = site.work_of_message()
    assert all(abs(site.work_of_message() - alone) < STEADY * alone for _ in range(200))
    assert alone > 2000
    peer = site.standing(SESSION)
    good = b"".join(frames.transfer(number, b"x" * number, settled=True) for number in range(100))
    assert site.work_of_message(given.BytesReceived(peer, good)) > 3 * alone


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_bad_input_costs_a_bystander_no_more_than_its_own_message(site: Site, case: str) -> None:
    said, data = CASES[case]
    alone = site.work_of_message()
    peer = site.standing(said)
    assert alone < site.work_of_message(given.BytesReceived(peer, data)) <= 2 * alone
    assert site.work_of_message() < (1 + STEADY) * alone, "nothing of it stays"
