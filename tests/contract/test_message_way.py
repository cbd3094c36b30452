"""How many files one message touches, as docs/ARCHITECTURE.md says: who follows a message has to open so many.

Counted are the files below `io/` of which a function runs while the node takes a durable message in, syncs and delivers
it, and is told its outcome. Of those, the ones that run in each step, also where nothing came, are counted by
themselves. Whoever changes one of the numbers says so on the page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import mqbroker
from mqbroker.base.time import At
from mqbroker.node.values.batch import Batch
from mqbroker.node.values.inputs import Input

from tests.support.large_messages import Consumer, Producer
from tests.support.stage import Stage

PAGE = Path(__file__).resolve().parents[2] / "docs/ARCHITECTURE.md"
SAID = re.compile(
    r"functions of (\d+) files below `io/` run for the first message of a link, and of (\d+) for each that follows\. "
    r"(\d+) of them run in each step"
)
BELOW_IO = str(Path(mqbroker.__file__).parent) + "/"


class WatchedStage(Stage):
    """A node whose steps note the files of the broker of which a function runs."""

    def start(self) -> None:
        super().start()
        self.files: set[str] = set()
        self._unwatched, self.broker.step = self.broker.step, self._watched  # type: ignore[method-assign]

    def _watched(self, inputs: list[Input], at: At) -> Batch:
        before = sys.getprofile()
        sys.setprofile(self._note)
        try:
            return self._unwatched(inputs, at)
        finally:
            sys.setprofile(before)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(BELOW_IO):
            self.files.add(frame.f_code.co_filename)

    def files_of_a_message(self, producer: Producer, consumer: Consumer) -> set[str]:
        """From its read to its settlement."""
        self.files = set()
        producer.publish(b"x")
        consumer.settle(-1)
        return self.files


def test_the_page_says_how_many_files_a_message_touches() -> None:
    earlier = WatchedStage()  # what is made once in a process and kept is no part of a message's way
    earlier.files_of_a_message(Producer(earlier), Consumer(earlier))
    stage = WatchedStage()
    producer, consumer = Producer(stage), Consumer(stage)
    first = stage.files_of_a_message(producer, consumer)
    next_one = stage.files_of_a_message(producer, consumer)
    assert len(producer.outcomes) == len(consumer.bodies) == 2
    stage.files = idle = set()
    stage.step()
    assert idle < next_one < first
    said = SAID.search(" ".join(PAGE.read_text().split()))
    assert said is not None
    assert [int(each) for each in said.groups()] == [len(first), len(next_one), len(idle)]
