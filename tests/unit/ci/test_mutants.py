"""What a run of breaks tells of itself at its end."""

from __future__ import annotations

from tests.mutants.tally import Tally


def test_each_module_that_was_tried_has_its_counts_and_all_have_theirs() -> None:
    tally = Tally({"journal/plan": 90, "core/cluster/marks": 20, "io/disk/disk": 70})
    tally.noticed.update({"journal/plan": 7, "core/cluster/marks": 1})
    tally.survived.update({"journal/plan": 2})
    assert [" ".join(line.split()) for line in str(tally).splitlines()] == [
        "journal/plan 9 tried 7 noticed 2 survived, of 90 lines",
        "core/cluster/marks 1 tried 1 noticed 0 survived, of 20 lines",
        "all 10 tried 8 noticed 2 survived, of 180 lines",
    ]


def test_a_run_that_tried_nothing_says_so() -> None:
    told = " ".join(str(Tally({"io/disk/disk": 70})).split())
    assert told == "all 0 tried 0 noticed 0 survived, of 70 lines"
