"""What people are told of the formats of journal files that all nodes read, out of what each node says."""

from __future__ import annotations

from typing import Any

import pytest
from mqctl.commands.rollout.upgrade import said
from mqctl.plan.plan import Change
from mqctl.rollout.cluster_plan import Plan
from mqctl.rollout.journal_formats import FormatsRead, read_by_all, read_of, told
from mqctl.rollout.releases import HostReleases
from mqctl.rollout.rollout_run import is_release_changed

BOTH, FIRST = FormatsRead((1, 2), (1, 2)), FormatsRead((1, 2), (1,))
OLD = FormatsRead()
NO_WAY_BACK = "; where one is written that the release before does not read, there is no rollback to it any more"


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ({"members": [], "journal_formats": [1, 2]}, FormatsRead([1, 2], [1, 2])),
        ({"members": [{"is_self": True}]}, OLD),
        ({"members": []}, OLD),
        (
            {
                "members": [
                    {"is_self": True, "journal_formats": [1, 2]},
                    {"is_self": False, "journal_formats": [1]},
                ],
                "journal_formats": [1],
            },
            FormatsRead([1, 2], [1]),
        ),
    ],
)
def test_a_release_that_says_nothing_reads_the_first(topology: dict[str, Any], expected: FormatsRead) -> None:
    found = read_of(topology)
    assert (list(found.own), list(found.by_all)) == (list(expected.own), list(expected.by_all))


@pytest.mark.parametrize(
    ("found", "common", "text"),
    [
        ({}, [], ""),
        ({"mq1": None}, [1], ""),
        (
            {"mq1": BOTH, "mq2": BOTH},
            [1, 2],
            f"journal files: all nodes read format 1 and 2{NO_WAY_BACK}",
        ),
        (
            {"mq1": FIRST, "mq2": OLD},
            [1],
            "journal files: all nodes read format 1; 2 is not for certain read by mq2, so nobody may write it yet"
            + NO_WAY_BACK,
        ),
        (
            {"mq1": BOTH, "mq2": None},
            [1],
            "journal files: all nodes read format 1; 2 is not for certain read by mq2, so nobody may write it yet"
            + NO_WAY_BACK,
        ),
        (
            {"mq1": FIRST, "mq2": FIRST},
            [1],
            "journal files: all nodes read format 1; 2 is not for certain read by a node that is not in the inventory "
            "or not linked, so nobody may write it yet" + NO_WAY_BACK,
        ),
        (
            {"mq1": FormatsRead((2,), (2,)), "mq2": OLD},
            [],
            "journal files: all nodes read format (none); 1 is not for certain read by mq1, so nobody may write it "
            "yet; 2 is not for certain read by mq2, so nobody may write it yet" + NO_WAY_BACK,
        ),
    ],
)
def test_who_keeps_a_later_format_from_being_written_is_named(
    found: dict[str, FormatsRead | None], common: list[int], text: str
) -> None:
    assert read_by_all(found) == common
    assert told(found) == text


def test_a_status_says_which_releases_there_are_and_then_what_that_means_for_a_way_back() -> None:
    hosts = [HostReleases("mq1", "2", ("2",), {}), HostReleases("mq2", "1", ("1",), {})]
    formats = {"mq1": FIRST, "mq2": OLD}
    assert [text.split(":")[0] for text in said(hosts, formats)] == ["two releases work together", "journal files"]
    assert [text.split(":")[0] for text in said(hosts[:1], formats)] == ["journal files"]
    assert said(hosts[:1], {"mq1": None}) == []


def test_it_is_told_where_a_host_gets_another_release() -> None:
    first, other = (Change("mq1", "", "release", "create"), Change("mq2", "", "release", "replace", "0.1", "0.2"))
    usual = Change("mq1", "a", "service", "start", "0.1")
    assert [is_release_changed(Plan("main", [*each], {}, {})) for each in ((), (first, usual), (first, other))] == [
        False, False, True,
    ]  # fmt: skip
