"""The journal killed at numbered calls while messages are paged: what recovery leaves on disk is there and whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from mqbroker.base.errors import StorageFault
from mqbroker.io.disk.files import Files
from mqbroker.journal.places import Written
from mqbroker.journal.plan import Journal
from mqbroker.journal.recovered import Leave

from tests.support.journal_model import Model

from .faulty_files import MODES, FaultyFiles, Point
from .lives import Life, Oracle
from .test_crash_points import STEPS, hash_of

LEAVE = Leave(lambda attributes: attributes["max"] > 2, 500)
POINTS = (
    [("write", number) for number in (2, 5, 12, 30)]
    + [("sync", number) for number in (2, 5, 11, 31)]
    + [("rename", 3), ("sync_directory", 4), ("unlink", 1), ("unlink", 2)]
)


class PagingModel(Model):
    """Stores some messages so that their places are known, and some that recovery has to pass over."""

    def __init__(self, seed: int, body_bytes: int = 12) -> None:
        super().__init__(seed, body_bytes)
        self.before: Written | None = None

    def begin(self, journal: Journal) -> None:
        super().begin(journal)
        self.before = None

    def _store(self, journal: Journal) -> None:
        queues = list(self.state.queues)
        if not queues or self.random.random() < 0.3:
            super()._store(journal)
            return
        n = self.random.choice((1, 2, 7))
        chosen = tuple(sorted(self.random.sample(queues, self.random.randint(0, min(2, len(queues))))))
        bodies = [self._body(self.next_id + i) for i in range(n)]
        frames = memoryview(b"".join(bodies))
        self.before = journal.store_paged((self.next_id, n), chosen, frames, 0, self.before)
        for i, body in enumerate(bodies):
            for queue in chosen:
                self.state.live[queue, self.next_id + i] = body
        self.next_id += n


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "number"), POINTS)
def test_power_cut(tmp_path: Path, kind: str, number: int, mode: str) -> None:
    point = Point(kind, number, mode)
    path, seed = tmp_path / "journal", hash_of(point)
    model, oracle = PagingModel(seed, body_bytes=200), Oracle()
    for life in range(2):
        files = FaultyFiles(path, point, seed + life)
        try:
            Life(path, model, oracle, files, LEAVE).run(STEPS)
        except StorageFault:
            if not files.is_off:
                raise
        files.leave(point.mode)
    assert Life(path, model, oracle, FaultyFiles(path, None, 0), LEAVE).run(10)
    assert Life(path, model, oracle, Files()).run(1)


def test_much_is_left(tmp_path: Path) -> None:
    model, oracle = PagingModel(7, body_bytes=200), Oracle()
    assert Life(tmp_path, model, oracle, Files(), LEAVE).run(STEPS)
    assert Life(tmp_path, model, oracle, Files(), LEAVE).left > 3
