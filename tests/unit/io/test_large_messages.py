"""The threads for large messages: one answer for each effect, and the end of the node where there can be none."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqbroker.base.errors import StorageFault
from mqbroker.io.large_directory import LargeDirectory
from mqbroker.io.large_messages import LargeMessages
from mqbroker.node.effects import DeleteLarge, FinishLarge, ReadLarge, WriteLarge
from mqbroker.node.inputs import Done, Failed, Input

WAIT_S = 20.0


class Desk:
    """The threads, and what they say."""

    def __init__(self, path: Path) -> None:
        self.said: queue.Queue[Input | StorageFault] = queue.Queue()
        self.large = LargeMessages(LargeDirectory(path), self.said.put, self.said.put)

    def next(self) -> Input | StorageFault:
        return self.said.get(timeout=WAIT_S)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "large-messages")
    yield made
    made.large.close()


def test_effects_come_back_in_their_order(desk: Desk) -> None:
    desk.large.write(WriteLarge(1, 5, 0, (b"abc",)))
    desk.large.write(WriteLarge(2, 5, 3, (b"def",)))
    desk.large.finish(FinishLarge(3, 5, True))
    assert [desk.next() for _ in range(3)] == [Done(1), Done(2), Done(3)]
    desk.large.read(ReadLarge(4, 5, 1, 4))
    assert desk.next() == Done(4, b"bcde")
    desk.large.delete(DeleteLarge(5, 5))
    assert desk.next() == Done(5)
    assert desk.large.directory.sizes() == {}


def test_a_write_that_fails_says_so_and_so_does_the_finish(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "large-messages").write_text("in the way")
    desk.large.write(WriteLarge(1, 5, 0, (b"abc",)))
    desk.large.finish(FinishLarge(2, 5, True))
    for effect_id in (1, 2):
        answer = desk.next()
        assert isinstance(answer, Failed)
        assert answer.id == effect_id
        assert "File exists" in answer.why


def test_a_read_that_fails_ends_the_node(desk: Desk, tmp_path: Path) -> None:
    desk.large.read(ReadLarge(1, 5, 0, 4))
    fault = desk.next()
    assert isinstance(fault, StorageFault)
    assert fault.file == str(tmp_path / "large-messages" / "5.msg")


def test_what_was_asked_for_is_done_before_the_end(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.large.write(WriteLarge(1, 5, 0, (b"abc",)))
    desk.large.delete(DeleteLarge(2, 5))
    desk.large.close()
    assert [desk.next(), desk.next()] == [Done(1), Done(2)]
    assert desk.large.directory.sizes() == {}
