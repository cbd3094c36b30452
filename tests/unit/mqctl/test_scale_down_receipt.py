"""Receipts of scale-downs: they balance, or the difference is named."""

from __future__ import annotations

from typing import Any

import pytest
from mqctl.scaledown.receipt import differences, page, rows_of


def row(**changes: Any) -> dict[str, Any]:
    """A queue of 10 to which 5 came, of which 3 were consumed."""
    before = {"messages": 10, "bytes": 1000, "delivering": 1, "scheduled": 0, "paged": 0, "large": 0}
    return {
        "queue": "orders", "address": "orders", "before": before, "came": 5, "consumed": 3, "moved": 12, "left": 0,
        "moved_digest": "12:ab", "arrived": 12, "arrived_digest": "12:ab", **changes,
    }  # fmt: skip


def receipt(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"balances": True, "difference": [], "queues": list(rows), **changes}


def test_a_receipt_balances_where_every_message_is_accounted_for() -> None:
    assert differences(receipt(row(), row(queue="empty", before={"messages": 0}, came=0, consumed=0, moved=0,
                                          arrived=0))) == []  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"came": 6}, "queue orders: 10 before and 6 that came are 16, but 3 consumed, 12 moved and 0 left are 15"),
        ({"consumed": 4}, "but 4 consumed, 12 moved and 0 left are 16"),
        ({"moved": 11, "arrived": 11}, "11 moved and 0 left are 14"),
        ({"arrived": 11}, "queue orders: 12 moved and 11 arrived"),
        ({"arrived": 13}, "12 moved and 13 arrived"),
        ({"arrived_digest": "12:ac"}, "as many arrived as moved (12), but not the same messages"),
        ({"moved": 11, "arrived": 11, "left": 1}, "queue orders: 1 are left"),
    ],
)
def test_what_does_not_balance_is_named(changes: dict[str, Any], said: str) -> None:
    found = differences(receipt(row(**changes)))
    assert any(said in each for each in found), found
    (shown,) = rows_of("mq3", "default", "mq1", receipt(row(**changes)), is_forced=False)
    assert shown["balances"] is False


def test_the_brokers_own_word_counts_too() -> None:
    assert differences(None) == ["the broker has no receipt"]
    assert differences(receipt(row(), balances=False, difference=["queue orders: 1 too many"])) == [
        "queue orders: 1 too many"
    ]
    (said,) = differences(receipt(row(), balances=False))
    assert "does not say why" in said


def test_with_force_messages_may_be_left_and_are_still_counted() -> None:
    left = row(moved=11, arrived=11, left=1)
    assert differences(receipt(left), is_forced=True) == []
    assert differences(receipt(left | {"left": 2}), is_forced=True) != []


def test_the_page_says_it_in_words() -> None:
    rows = rows_of("mq3", "default", "mq1", receipt(row(), row(queue="audit")), is_forced=False)
    document = {"host": "mq3", "cluster": "main", "at": "2026-11-27T10:00:00+00:00", "node_ids": ["id"], "rows": rows}
    text = page({**document, "differences": []})
    assert text.splitlines()[0] == "Receipt: mq3 has left cluster main"
    assert "20 before + 10 came = 6 consumed + 24 moved + 0 left; 24 arrived" in text
    assert "It balances." in text
    assert "IT DOES NOT BALANCE:\n  queue orders: 1 too many\n" in page(
        {**document, "differences": ["queue orders: 1 too many"]}
    )
