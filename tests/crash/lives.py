"""A process that writes its journal and dies, its successor that looks at what is left: workload and oracle."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from zlib import crc32

from mqbroker.base.errors import StorageFault
from mqbroker.io.disk.disk import Disk
from mqbroker.io.disk.files import Files
from mqbroker.io.disk.journal_directory import JournalDirectory
from mqbroker.journal import records
from mqbroker.journal.append import Append
from mqbroker.journal.plan import Journal
from mqbroker.journal.recovered import Leave, Recovered
from mqbroker.node.values.effects import DeleteJournalSegment
from mqbroker.node.values.inputs import Input, Synced

from tests.support.journal_model import Model, State, contents, options
from tests.support.patience import PATIENCE_S

NODE_ID = b"crash test node!"
# Much is deleted, so files are used again; the stock of them is small, so some are really deleted. The rest makes that
# so however full the disk of this machine is.
OPTIONS = options(journal_compact_percentage=90, journal_pool_files=2, min_disk_free_bytes=0)
UNSYNCED = replace(OPTIONS, journal_sync=False)
ANSWER_S = PATIENCE_S


class Oracle:
    """The truth after each position that was ever handed over, and the last one that was reported as synced."""

    def __init__(self) -> None:
        self.after: dict[int, State] = {0: State()}
        self.synced = 0

    def expect(self, position: int, state: State) -> None:
        self.after[position] = state.copy()

    def acknowledge(self, position: int) -> None:
        assert position > self.synced
        self.synced = position

    def check(self, found: Recovered) -> State:
        """Whole appends, in order, none of the acknowledged ones missing. Returns the state that holds from here on."""
        assert found.last_position >= self.synced, f"{self.synced} was acknowledged, {found.last_position} is there"
        assert found.last_position in self.after, "an append that nobody made"
        truth = self.after[found.last_position]
        assert contents(found) == truth
        self.after = {found.last_position: truth}
        self.synced = found.last_position
        return truth.copy()


class LooseOracle(Oracle):
    """The same without `journal-sync`: what was acknowledged may be lost from some append on, and nothing before it."""

    def check(self, found: Recovered) -> State:
        self.synced = 0
        return super().check(found)


def read_what_is_left(directory: JournalDirectory, recovered: Recovered) -> int:
    """Bring in from the files what recovery has left there; says how many records that were."""
    left = [run for run in recovered.runs if run.is_left]
    for run in left:
        assert run.place is not None
        segment, offset, length, crc = run.place
        data = directory.path_of(segment).read_bytes()[offset : offset + length]
        assert crc32(data) == crc
        (record,) = records.decode(memoryview(data))
        assert isinstance(record, records.RunRecord)
        assert (record.first_id, record.n) == (run.first_id, run.count)
        run.frames = record.frames
    return len(left)


class Life:
    """One run of the process, from load to its end."""

    def __init__(self, path: Path, model: Model, oracle: Oracle, files: Files, leave: Leave | None = None) -> None:
        options = UNSYNCED if isinstance(oracle, LooseOracle) else OPTIONS
        self.faults: list[StorageFault] = []
        self._model = model
        self._oracle = oracle
        self._changed = threading.Condition()
        directory = JournalDirectory(path, NODE_ID, options, files)
        recovered = directory.load(leave)
        self.left = read_what_is_left(directory, recovered)
        model.state = oracle.check(recovered)
        self._journal = Journal(options, recovered)
        model.begin(self._journal)
        self._disk = Disk(directory, recovered, self._post, self._fail)

    def run(self, steps: int) -> bool:
        """Work for some steps, then stop in good order. False: the disk failed on the way."""
        for number in range(steps):
            if number:
                self._model.act(self._journal)
            for segment in self._journal.deletable():
                self._disk.delete(DeleteJournalSegment(segment, segment))
            if not self._commit(number):
                break
        if not self.faults:
            self._journal.stop()
            append = self._take(sync=True)
            if append is not None:
                self._disk.submit(append)
        self._disk.close(ANSWER_S)
        return not self.faults

    def _take(self, sync: bool) -> Append | None:
        append = self._journal.take(sync)
        if append is not None:
            self._oracle.expect(append.position, self._model.state)
        return append

    def _commit(self, number: int) -> bool:
        """Some appends gather before one that is waited for, so groups of several are torn too."""
        is_waited_for = number == 0 or self._model.random.random() < 0.5
        append = self._take(is_waited_for)
        if append is not None:
            if not (is_waited_for and self._model.random.random() < 0.3 and self._disk.try_inline(append)):
                self._disk.submit(append)
            if is_waited_for:
                with self._changed:
                    assert self._changed.wait_for(
                        lambda: bool(self.faults) or self._oracle.synced >= append.position, ANSWER_S
                    )
                self._journal.synced(self._oracle.synced)
        return not self.faults

    def _post(self, item: Input) -> None:
        if isinstance(item, Synced):
            with self._changed:
                assert not self.faults
                self._oracle.acknowledge(item.position)
                self._changed.notify_all()

    def _fail(self, fault: StorageFault) -> None:
        with self._changed:
            self.faults.append(fault)
            self._changed.notify_all()
