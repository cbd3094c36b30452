"""What sessions of administrators send and have in delivery is bounded by what a step of it would cost."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.core.address.diverts import COPIES_MAX
from mqbroker.node.broker import local

from tests.support.stage import Stage
from tests.unit.core.address.test_diverts import counts, send, stage_with
from tests.unit.core.store.test_transactions_over_diverts import DIES, WIDE, circle, widen

DEAR = 1 + COPIES_MAX // local.DEAR_COPIES


def receive(stage: Stage, count: int) -> Any:
    request = stage.ask("receive", address="orders", count_max=count, wait_ms=1)
    stage.wait(2)
    return stage.replies[request]


def filled(stage: Stage, count: int) -> Stage:
    for queue in ("orders", "DLQ"):
        stage.admin("queue-create", name=queue)
    send(stage, *["red"] * count)
    return stage


def test_a_request_sends_few_messages_of_which_diverts_make_many_copies() -> None:
    stage = stage_with(*circle("orders", "b", "c", "d"))
    for queue in ("orders", "plain"):
        stage.admin("queue-create", name=queue)
    most = local.SENT_COPIES_MAX // COPIES_MAX
    messages = [{"body": "x"}] * (most + 1)
    error = stage.replies[stage.ask("send", address="orders", messages=messages)].error
    assert error is not None
    assert error["condition"] == "amqp:resource-limit-exceeded"
    assert f"each message cost {COPIES_MAX} copies: send {most} at once" in error["description"]
    assert counts(stage) == {}
    assert stage.admin("send", address="orders", messages=messages[:1]) == {"accepted": 1}
    for target in ("plain", "orders::orders"):
        assert stage.admin("send", address=target, messages=messages) == {"accepted": most + 1}


@pytest.mark.parametrize("by", WIDE)
def test_a_request_sends_few_messages_that_many_queues_or_addresses_with_wildcards_get(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SENT_COPIES_MAX", 350)
    stage = stage_with()
    stage.admin("queue-create", name="a.b")
    widen(stage, by, WIDE[by])
    messages = [{"body": "x"}] * 4
    error = stage.replies[stage.ask("send", address="a.b", messages=messages)].error
    assert error is not None
    assert "send 3 at once" in error["description"]
    assert counts(stage) == {}
    assert stage.admin("send", address="a.b", messages=messages[:3]) == {"accepted": 3}
    assert stage.admin("send", address="a.b::a.b", messages=messages) == {"accepted": 4}
    monkeypatch.setattr(local, "SENT_COPIES_MAX", 1)
    assert stage.admin("send", address="a.b", messages=messages[:1]) == {"accepted": 1}


@pytest.mark.parametrize("first", [5, local.COUNT_MAX])
def test_a_session_has_few_messages_in_delivery_of_whose_dead_letters_diverts_make_many_copies(first: int) -> None:
    most = local.COUNT_MAX // DEAR
    stage = filled(stage_with(*circle("DLQ", "b", "c", "d"), address_settings={"#": DIES}), most + 5)
    one = receive(stage, first).result
    assert len(one["messages"]) == min(first, most)
    if first < most:
        assert len(receive(stage, most).result["messages"]) == most - first
    assert "settle first" in receive(stage, 1).error["description"]
    assert stage.admin("settle", tag=one["tag"], outcome="accepted") == {}
    assert len(receive(stage, most).result["messages"]) == 5


def test_it_has_one_at_least_and_what_it_has_of_all_queues_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "COUNT_MAX", 10)
    stage = filled(stage_with(*circle("DLQ", "b", "c", "d"), address_settings={"#": DIES}), 5)
    assert len(receive(stage, 5).result["messages"]) == 1
    assert "settle first" in receive(stage, 1).error["description"]
    other = filled(stage_with(), 15)
    assert [len(receive(other, 6).result["messages"]) for _ in range(2)] == [6, 4]
    assert "settle first" in receive(other, 1).error["description"]
