"""Durable here is not committed: with one more position that lags behind, each thing waits for the one that it needs.

The other position is what a backup confirms. No node has one yet, so the tests say what it would.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.store.commits import Commits
from mqbroker.node.values.effects import DeleteJournalSegment, DeleteLarge, Effect, ReadPage
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

from tests.golden.conversation import Conversation, ScriptStage, gathered
from tests.support.large_messages import BIG, Consumer, Producer, content, stage_of
from tests.support.stage import Stage
from tests.unit.wire.strategies import steady

BACKUP = "backup"
PAGED = {"max_size_messages": 8, "address_full_policy": "PAGE"}


def conversation(**settings: Any) -> Conversation:
    """A producer and a consumer of `orders`, at a node that has somebody confirm from now on."""
    script = Conversation()
    script.stage = ScriptStage(script, address_settings={"orders": settings}, limits={"link_credit": 1000},
                               journal={"journal_file_size_bytes": 16384})  # fmt: skip
    for line in ("connect p", "connect c", "attach p to orders"):
        script.run(line)
    ask(script.stage)
    return script


def latest(stage: Stage) -> int:
    """The position of the last append."""
    return stage.broker.journal.position - 1


def ask(stage: Stage) -> None:
    stage.broker.commits.ask(BACKUP, latest(stage))


def confirm(stage: Stage, position: int | None = None) -> None:
    """The backup has everything up to there, or all there is. Then the node goes on."""
    stage.broker.commits.confirmed(BACKUP, latest(stage) if position is None else position)
    stage.step()
    stage.run()


def heard(script: Conversation, position: int | None = None) -> list[str]:
    """What clients learn by a confirmation."""
    script.lines.clear()
    confirm(script.stage, position)
    return gathered(list(script.lines))


def effects(stage: Stage, kind: type[Effect]) -> list[Any]:
    """Those of a kind, so far."""
    return [each for batch in stage.batches for each in batch.effects if isinstance(each, kind)]


def test_answers_and_messages_wait_until_the_backup_has_them() -> None:
    script = conversation()
    script.run("attach c from orders credit=9")
    confirm(script.stage)
    assert script.run("publish p orders durable") == []
    assert script.stage.broker.journal.synced_position == latest(script.stage), "all is durable here"
    assert heard(script, latest(script.stage) - 1) == []
    assert sorted(heard(script)) == ["c gets: m1", "p learns accepted: m1"]


def test_each_append_is_committed_when_its_own_position_is_confirmed() -> None:
    script = conversation()
    script.run("publish p orders durable")
    first = latest(script.stage)
    script.run("publish p orders durable")
    assert heard(script, first) == ["p learns accepted: m1"]
    assert heard(script) == ["p learns accepted: m2"]


def test_a_confirmation_is_not_enough_where_this_disk_is_behind() -> None:
    script = conversation()
    script.run("hold disk")
    script.run("publish p orders durable")
    assert heard(script) == []
    assert heard(script, latest(script.stage) - 1) == [], "an earlier one that comes late takes nothing back"
    assert script.run("sync") == ["p learns accepted: m1"]


def test_segments_are_deleted_while_the_backup_is_behind() -> None:
    """What recovery needs here is here, and the backup deletes its own by the same records."""
    script = conversation()
    script.run("attach c from orders credit=1000")
    confirm(script.stage)
    for number in range(1, 41):
        script.run("publish p orders durable size=2000")
        confirm(script.stage)
        assert ("c", f"m{number}") in script.held
    assert effects(script.stage, DeleteJournalSegment) == []
    confirmed = script.stage.broker.store.decisions.committed
    script.run("accept c " + " ".join(f"m{number}" for number in range(1, 41)))
    for _ in range(3):
        script.run("publish p orders durable")
    assert len(effects(script.stage, DeleteJournalSegment)) >= 5
    assert script.stage.broker.store.decisions.committed == confirmed
    assert sorted(heard(script)) == ["c gets: m41 m42 m43", "p learns accepted: m41 m42 m43"]


def test_files_of_large_messages_are_deleted_while_the_backup_is_behind() -> None:
    stage = stage_of()
    producer, consumer = Producer(stage), Consumer(stage)
    ask(stage)
    producer.publish(content(1, BIG))
    confirm(stage)
    assert stage.large_files.sizes
    committed = stage.broker.store.decisions.committed
    consumer.settle(0)
    assert len(effects(stage, DeleteLarge)) == 1
    assert stage.broker.store.decisions.committed == committed < latest(stage)


def test_a_page_comes_back_when_it_is_committed() -> None:
    """Its messages go to consumers, as those do that were never paged."""
    script = conversation(**PAGED)
    script.run("attach c from orders credit=100")
    confirm(script.stage)
    script.run("publish p orders count=9 durable")
    confirm(script.stage)
    script.run("publish p orders count=9 durable")
    script.run("accept c m1")
    assert script.stage.broker.store.queues["orders"].paged_count == 9
    assert script.stage.broker.journal.synced_position == latest(script.stage)
    assert effects(script.stage, ReadPage) == []
    said = heard(script)
    assert len(effects(script.stage, ReadPage)) > 0
    assert said[0] == "p learns accepted: " + " ".join(f"m{number}" for number in range(10, 19))
    assert " ".join(line.removeprefix("c gets: ") for line in said[1:]) == said[0].removeprefix("p learns accepted: ")


def test_an_administrator_looks_at_pages_that_are_durable_here() -> None:
    """It is shown what lies on this disk, and nothing is promised."""
    script = conversation(**PAGED)
    script.run("publish p orders count=9 durable")
    confirm(script.stage)
    script.run("publish p orders count=3 durable")
    shown = script.stage.admin("browse", queue="orders")
    assert [each["state"] for each in shown["messages"]] == ["ready"] * 9 + ["paged"] * 3
    assert len(effects(script.stage, ReadPage)) > 0


def test_an_administrator_waits_for_this_disk_and_no_longer() -> None:
    script = conversation(**PAGED)
    script.run("publish p orders count=9 durable")
    confirm(script.stage)
    script.run("hold disk")
    script.run("publish p orders count=3 durable")
    request = script.stage.ask("browse", queue="orders")
    assert request not in script.stage.replies
    script.run("sync")
    assert len(script.stage.replies[request].result["messages"]) == 12


def test_chores_go_on_while_the_backup_is_behind() -> None:
    """What is durable here makes no other step, and a confirmation may be long in coming."""
    stage = Stage()
    store = stage.broker.store
    for _ in range(5000):
        store.publish(store.address_for("orders", BROKER), single(build_message(b"x", durable=True)))
    stage.step()
    stage.run()
    ask(stage)
    assert stage.admin("queue-delete", name="orders") is None, "the answer waits for the backup"
    assert not store.remains.is_due
    assert store.memory.held_bytes == 0
    confirm(stage)
    assert [each.result for each in stage.replies.values()] == [{"name": "orders", "messages": 5000}]


def test_nobody_waits_for_one_who_is_excused() -> None:
    script = conversation()
    script.run("publish p orders durable")
    script.stage.broker.commits.excuse(BACKUP)
    script.stage.step()
    script.stage.run()
    assert script.lines[-1] == "p learns accepted: m1"
    assert script.run("publish p orders durable") == ["p learns accepted: m2"]
    assert heard(script, 1) == [], "who was not asked confirms nothing"


@steady
@given(st.lists(st.tuples(st.sampled_from(["append", "sync", "ask", "confirm", "excuse"]), st.integers(0, 1),
                          st.integers(0, 8)), max_size=50))  # fmt: skip
def test_any_history(script: list[tuple[str, int, int]]) -> None:
    """Committed is what all that were asked have and this disk has too, and it never goes back."""
    stage = Stage()
    commits, decisions, journal = Commits(stage.broker.store), stage.broker.store.decisions, stage.broker.journal
    journal.take(sync=False)
    start = durable = latest(stage)
    commits.synced(start)
    has: dict[str, int] = {}
    committed = [decisions.committed]
    for what, who, step in script:
        name = f"backup-{who}"
        if what == "append":
            journal.reserve(journal.next_id)
            journal.take(sync=False)
        elif what == "sync":
            durable = min(durable + step, latest(stage))
            commits.synced(durable)
        elif what == "ask":
            has[name] = start
            commits.ask(name, start)
        elif what == "confirm":
            commits.confirmed(name, start + step)
            if name in has:
                has[name] = max(has[name], start + step)
        else:
            has.pop(name, None)
            commits.excuse(name)
        committed.append(decisions.committed)
        assert decisions.committed <= durable
        if what in ("sync", "confirm", "excuse"):
            assert decisions.committed == max(committed[-2], min([durable, *has.values()]))
    assert all(before <= after for before, after in pairwise(committed))
