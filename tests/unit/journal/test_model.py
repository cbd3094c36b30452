"""Any sequence of calls, restarts and compactions: what comes back is what plain dictionaries say is live."""

from __future__ import annotations

import pytest
from mqbroker.journal.plan import Journal
from mqbroker.journal.records import encode_attributes
from mqbroker.journal.recovered import Recovered

from tests.support.journal_model import Model, contents, options

from .disk_image import DiskImage, take


class Life:
    """A journal on a disk image, with its model."""

    def __init__(self, seed: int) -> None:
        self.model = Model(seed)
        self.disk = DiskImage()
        self.segments_most = 0
        self.deleted = 0
        self.start(Recovered())

    def start(self, found: Recovered) -> None:
        self.journal = Journal(options(), found)
        self.model.begin(self.journal)
        take(self.journal, self.disk)

    def step(self) -> None:
        self.model.act(self.journal)
        for number in self.journal.deletable():
            self.disk.delete(number)
            self.deleted += 1
        append = self.journal.take(sync=True)
        if append is not None:
            self.disk.write(append)
            if self.model.random.random() < 0.7:
                self.journal.synced(append.position)
        self.segments_most = max(self.segments_most, len(self.disk.files))

    def restart(self, is_clean: bool) -> None:
        if is_clean:
            self.journal.stop()
            take(self.journal, self.disk)
        found = self.disk.recover()
        assert found.was_clean is is_clean
        assert found.last_position == self.journal.position - 1
        assert found.next_id <= self.model.next_id
        assert contents(found) == self.model.state
        self.start(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_live_is_what_the_model_says(seed: int) -> None:
    life = Life(seed)
    for number in range(150):
        life.step()
        if number % 40 == 39:
            life.restart(is_clean=life.model.random.random() < 0.5)
    life.model.settle_all(life.journal)
    for queue in range(1000, 1003):
        life.journal.declare(queue, encode_attributes({}))
        life.journal.drop(queue)
        for segment in life.journal.deletable():
            life.disk.delete(segment)
        take(life.journal, life.disk)
    for segment in life.journal.deletable():
        life.disk.delete(segment)
    assert len(life.disk.files) == 1, "nothing is live, so everything but the current segment goes"


def test_the_model_sees_many_segments_compaction_and_deletion() -> None:
    lives = [Life(seed) for seed in range(100, 104)]
    for life in lives:
        for _ in range(150):
            life.step()
    assert max(life.segments_most for life in lives) >= 5
    assert sum(life.model.compacted for life in lives) >= 10
    assert sum(life.deleted for life in lives) >= 20


class HeldLife(Life):
    """The same with backups: files that nothing needs any more stay while one holds them, those behind them go, and
    some deletions fail. Ids of queues are used again after a restart, as a store does it."""

    def __init__(self, seed: int) -> None:
        self.held = 0
        self.gaps = 0
        super().__init__(seed)

    def step(self) -> None:
        random = self.model.random
        if random.random() < 0.03:
            self.held = max(self.disk.files) if random.random() < 0.8 else 0
        self.model.act(self.journal)
        for number in self.journal.deletable():
            if number in self.disk.files and number > self.held and random.random() < 0.9:
                self.disk.delete(number)
        append = self.journal.take(sync=True)
        if append is not None:
            self.disk.write(append)
            self.journal.synced(append.position)

    def restart(self, is_clean: bool) -> None:
        if self.model.state.queues:
            self.model.drop(self.journal, max(self.model.state.queues))
            self.step()
        numbers = sorted(self.disk.files)
        self.gaps += len(numbers) < numbers[-1] - numbers[0] + 1
        super().restart(is_clean)
        self.held = self.model.random.choice((0, max(self.disk.files)))
        self.model.next_queue = max(self.model.state.queues, default=0) + 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_what_is_live_is_so_also_where_files_are_kept_that_others_are_gone_behind(seed: int) -> None:
    life = HeldLife(seed)
    for number in range(600):
        life.step()
        if number % 60 == 59:
            life.restart(is_clean=life.model.random.random() < 0.2)
    assert life.gaps > 2
