"""What becomes of a peer that fails, and of rows that it missed."""

import pytest

from bench.faults import BenchFault
from bench.measure import Sample
from bench.rounds import EVERY_ROW, Plan, Record
from bench.rows import Choice, Row

ROW = Row("plain", "load plain", 1000, 100)
PLAN = Plan(("mqops", "artemis-1"), Choice((ROW,)), rounds=2, warm=False)


def _failing(record: Record, row: str, peer: str, said: list[str]) -> None:
    with record.tolerant([row], peer, said.append):
        raise BenchFault("no credit for 20 s\nend of the log: …")


def test_a_peer_that_fails_is_left_out_of_the_row_with_its_reason() -> None:
    record, said = Record(), list[str]()
    _failing(record, "plain", "artemis-1", said)
    assert record.omitted == {("plain", "artemis-1"): "no credit for 20 s"}
    assert "end of the log" in said[0]
    assert record.lacks("plain", "artemis-1")
    assert not record.lacks("other", "artemis-1")


def test_a_peer_that_does_not_start_lacks_every_row() -> None:
    record = Record()
    _failing(record, EVERY_ROW, "artemis-1", [])
    assert record.lacks("plain", "artemis-1")
    assert not record.lacks("plain", "mqops")


def test_ours_may_not_fail() -> None:
    with pytest.raises(BenchFault, match="no credit"):
        _failing(Record(), "plain", "mqops", [])


def test_a_peer_that_missed_a_round_has_no_figures_in_that_row() -> None:
    record = Record()
    for peer, rate in (("mqops", 3.0), ("artemis-1", 1.0), ("mqops", 5.0)):
        record.samples.append(Sample("plain", peer, {"rate": rate}))
    found = record.results(PLAN)
    assert [(one.peer, one.figures["rate"].samples) for one in found] == [("mqops", (3.0, 5.0))]
