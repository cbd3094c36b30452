"""Long lists: a piece a step, and what goes away meanwhile is not in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mqbroker.admin import connections, listing
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.queue import QueueKind
from mqbroker.node.values import inputs as given
from mqbroker.node.values.effects import AdminReply

from tests.unit.admin.site import Site

COUNT = 3 * listing.PIECE_ROWS + 1
ID = 900


def with_queues(count: int) -> Site:
    site = Site()
    for number in range(count):
        site.stage.broker.store.create_queue(QueueKind(f"q.{number:05}", f"q.{number:05}"), BROKER)
    site.stage.run()
    return site


def steps(site: Site, operation: str, **arguments: Any) -> Iterator[AdminReply | None]:
    """Each step that the request takes, and the answer with the last one."""
    inputs: list[given.Input] = [given.AdminRequest(ID, 1, operation, arguments)]
    while True:
        batch = site.stage.broker.step(inputs, site.stage.at)
        answer = next((each for each in batch.effects if isinstance(each, AdminReply)), None)
        assert batch.more is (answer is None)
        yield answer
        if answer is not None:
            return
        inputs = []


def answer_of(taken: Iterator[AdminReply | None]) -> Any:
    *_, last = taken
    assert last is not None
    return last.result


@pytest.mark.parametrize(("operation", "field"), [("queues", "name"), ("addresses", "name")])
def test_a_long_list_takes_many_steps(operation: str, field: str) -> None:
    taken = list(steps(with_queues(COUNT), operation))
    assert len(taken) == 3, "two pieces in the first step, then one each"
    assert taken[-1] is not None
    assert [row[field] for row in taken[-1].result[operation]] == [f"q.{number:05}" for number in range(COUNT)]


@pytest.mark.parametrize("operation", ["queues", "addresses", "connections", "sessions", "consumers", "producers"])
def test_a_short_one_is_answered_at_once(operation: str) -> None:
    site = with_queues(2)
    site.stage.connect("one")
    site.stage.run()
    assert len(list(steps(site, operation))) == 1


def test_what_is_gone_when_its_turn_comes_is_left_out() -> None:
    site = with_queues(COUNT)
    queues, last = steps(site, "queues"), f"q.{COUNT - 1:05}"
    assert next(queues) is None
    site.stage.broker.store.delete_queue(site.stage.broker.store.queues[last], BROKER)
    site.stage.broker.store.create_queue(QueueKind("r", "r"), BROKER)
    names = [row["name"] for row in answer_of(queues)["queues"]]
    assert names == [f"q.{number:05}" for number in range(COUNT - 1)]


@pytest.mark.parametrize("operation", ["connections", "sessions"])
def test_so_are_connections(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    monkeypatch.setattr(listing, "PIECE_ROWS", 1)
    site = Site()
    talkers = [site.stage.connect(name) for name in "abcd"]
    site.stage.run()
    rows = steps(site, operation)
    assert next(rows) is None
    site.stage.broker.step([given.Closed(talkers[-1].conn, "reset by peer")], site.stage.at)
    assert [row["container_id"] for row in answer_of(rows)[operation]] == ["a", "b", "c"]


def test_a_list_that_is_cut_ends_with_its_last_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PIECE_ROWS", 1)
    monkeypatch.setattr(connections, "ROWS_MAX", 3)
    site = Site()
    for name in "abcdefgh":
        site.stage.connect(name)
    site.stage.run()
    taken = list(steps(site, "sessions"))
    assert len(taken) == 3, "all but one of what is behind the last row is not looked at"
    assert taken[-1] is not None
    assert [row["container_id"] for row in taken[-1].result["sessions"]] == ["a", "b", "c"]
    assert taken[-1].result["is_whole"] is False


@pytest.mark.slow
def test_lists_are_made_while_the_disk_is_far_behind() -> None:
    site = with_queues(COUNT)
    site.stage.broker.step([given.UnsyncedBytes(site.stage.options.journal.disk_pending_bytes_max + 1)], site.stage.at)
    assert site.stage.broker.is_disk_full
    assert len(answer_of(steps(site, "queues"))["queues"]) == COUNT


def test_a_node_that_stops_answers_in_full() -> None:
    site = with_queues(COUNT)
    queues = steps(site, "queues")
    assert next(queues) is None
    batch = site.stage.broker.step([given.AdminRequest(ID + 1, 1, "stop", {})], site.stage.at)
    (answer,) = [each for each in batch.effects if isinstance(each, AdminReply) and each.id == ID]
    assert len(answer.result["queues"]) == COUNT
