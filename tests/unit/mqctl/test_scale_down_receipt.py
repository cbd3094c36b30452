"""Receipts of scale-downs: they balance, or the difference is named."""

from __future__ import annotations

from typing import Any

import pytest
from mqctl.inventory import Host, InventoryCluster
from mqctl.scaledown.leaving_host import Leaver, receipt_of
from mqctl.scaledown.receipt import differences, page, rows_of, shown, unaccounted
from mqctl.world import real_world


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
    (told,) = rows_of("mq3", "default", "mq1", receipt(row(**changes)), is_forced=False)
    assert told["balances"] is False


def heir(node: str | None, moved: int) -> dict[str, Any]:
    return {"node": node, "node_id": "id-of-it", "moved": moved}


def test_two_that_took_it_are_named_and_what_one_did_not_confirm_is_told() -> None:
    took = row(unconfirmed=5, arrived=7, heirs=[heir("mq1", 5), heir("mq2", 7), heir("mq4", 0)])
    assert differences(receipt(took)) == []
    (told,) = rows_of("mq3", "default", "mq2", receipt(took), is_forced=False)
    assert (told["to"], told["balances"], told["unconfirmed"]) == ("mq1, mq2", True, 5)
    assert differences(receipt({**took, "arrived": 12})) == ["queue orders: 7 moved and 12 arrived"]
    (told,) = rows_of("mq3", "default", "mq2", receipt(row(heirs=[heir(None, 12)])), is_forced=False)
    assert told["to"] == "id-of-it"


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


def test_what_a_journal_holds_beyond_the_receipt_is_named() -> None:
    """It came between the receipt and the end of the broker. What was allowed to stay is no such thing."""
    document = {
        "rows": [{"instance": "default", "queue": "orders", "left": 2}, {"instance": "b", "queue": "bills", "left": 9}],
        "stays": [{"instance": "default", "queue": "news", "why": "does not drain yet"}],
    }
    held = [{"name": "orders", "messages": 2}, {"name": "news", "messages": 7}, {"name": "empty", "messages": 0}]
    assert unaccounted(held, document, "default") == []
    late = [{"name": "orders", "messages": 3}, {"name": "bills", "messages": 1}]
    assert unaccounted(late, document, "default") == [
        "queue orders: 3 messages, 2 by the receipt",
        "queue bills: 1 messages, 0 by the receipt",
    ]


def test_of_a_queue_that_stays_no_more_may_be_left_than_was_counted() -> None:
    """Five are scheduled for tomorrow and stay; what came after the receipt is to move all the same."""
    document = {
        "rows": [{"instance": "default", "queue": "orders", "left": 5}],
        "stays": [{"instance": "default", "queue": "orders", "why": "5 messages of it are scheduled"}],
    }
    assert unaccounted([{"name": "orders", "messages": 5}], document, "default") == []
    assert unaccounted([{"name": "orders", "messages": 105}], document, "default") == [
        "queue orders: 105 messages, 5 by the receipt"
    ]


def test_a_queue_that_stays_without_a_row_holds_what_it_held_then() -> None:
    """Copies for a third node that were on their way when the receipt was made, and such as came since."""
    stays = {"instance": "default", "queue": "$.sf.1", "why": "is for a node without a link", "messages": 5}
    document = {"rows": [], "stays": [stays]}
    assert unaccounted([{"name": "$.sf.1", "messages": 5}], document, "default") == []
    assert unaccounted([{"name": "$.sf.1", "messages": 6}], document, "default") == [
        "queue $.sf.1: 6 messages, 5 by the receipt"
    ]


def test_the_page_says_it_in_words() -> None:
    rows = rows_of("mq3", "default", "mq1", receipt(row(), row(queue="audit")), is_forced=False)
    document = {"host": "mq3", "cluster": "main", "at": "2026-11-27T10:00:00+00:00", "node_ids": ["id"], "rows": rows}
    text = page({**document, "differences": []})
    assert text.splitlines()[0] == "Receipt: mq3 leaves cluster main"
    assert "20 before + 10 came = 6 consumed + 24 moved + 0 left; 24 arrived" in text
    assert "It balances." in text
    assert "IT DOES NOT BALANCE:\n  queue orders: 1 too many\n" in page(
        {**document, "differences": ["queue orders: 1 too many"]}
    )


def test_kinds_have_columns_for_people_where_there_are_any_and_others_a_line() -> None:
    """What waits for other nodes is in no queue of clients, and so in no row."""
    host = Host("mq3", "main", {}, {})
    leaver = Leaver(InventoryCluster("main", (host,)), host)
    others = [{"node_id": "id-mq2", "node": None, "before": 12, "left": 2}]
    kinds = {"delivering": 0, "scheduled": 0, "paged": 0}

    def made(own: dict[str, Any]) -> dict[str, Any]:
        said = {"mq3": {"node": "mq1", "receipt": receipt(own, others=others)}}
        return receipt_of(real_world(), leaver, said, ["id"], is_forced=True)

    before = {"messages": 10, "delivering": 1, "scheduled": 2, "paged": 0, "large": 3}
    document = made(row(before=before, after=kinds | {"scheduled": 4}))
    (shown_row,) = document["rows"]
    assert (shown_row["kinds"], shown_row["kinds_left"]["scheduled"]) == (before, 4)
    text = page(document)
    assert "before  of before                           came" in text
    assert "    10  1 delivering, 2 scheduled, 3 large     5         3     12       12     0  4 scheduled  mq1" in text
    assert "For id-mq2: 12 before, 2 left." in text
    assert "of_left" in [one.name for one in shown(document["rows"])]
    plain = made(row(before={"messages": 10}, after=kinds))
    assert "of before" not in page(plain)
    assert not [one.name for one in shown(plain["rows"]) if one.name.startswith("of_")]


def test_queues_that_stay_are_a_difference_unless_that_was_allowed() -> None:
    host = Host("mq3", "main", {}, {})
    leaver = Leaver(InventoryCluster("main", (host,)), host)
    stays = [{"kind": "queue", "name": "news", "why": "is a subscription"}, {"kind": "node", "name": "x", "why": "y"}]
    said = {"mq3": {"node": "mq1", "receipt": receipt(row()), "hindrances": stays}}
    document = receipt_of(real_world(), leaver, said, ["id"], is_forced=False)
    assert document["differences"] == ["queue news stays here: is a subscription"]
    document = receipt_of(real_world(), leaver, said, ["id"], is_forced=True)
    assert (document["differences"], document["node_ids"]) == ([], ["id"])
    assert document["archive"].startswith("scale-down-2")
    assert "Stays in the archive: queue news: is a subscription" in page(document)
