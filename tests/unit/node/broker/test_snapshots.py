"""The files of a backup: those of one position, whatever the node does while they are read, and not for ever."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.admin.backups import HOLD_MS
from mqbroker.core.store.journal_export import large_runs
from mqbroker.journal.recover import recover
from mqbroker.journal.recovered import Recovered
from mqbroker.node.values.effects import DeleteJournalSegment
from mqbroker.node.values.inputs import AdminClosed, AdminRequest, JournalSpace

from tests.support.large_messages import Producer
from tests.support.stage import Stage, options_with

FILE_BYTES = 8192
NODE_ID = b"stage".ljust(16, b"\0")


def stage_with_small_files() -> Stage:
    return Stage(options_with(journal={"journal_file_size_bytes": FILE_BYTES}))


def send(stage: Stage, count: int, address: str = "orders") -> None:
    """In pieces, as an entry that is larger than a file has one of its own."""
    for begin in range(0, count, 30):
        messages = [{"body": "x" * 100, "durable": True}] * min(30, count - begin)
        assert stage.admin("send", address=address, messages=messages) == {"accepted": len(messages)}


def purge(stage: Stage, name: str = "orders") -> None:
    assert "purged" in stage.admin("queue-purge", name=name)
    stage.run()


def copied(stage: Stage, snapshot: dict[str, Any]) -> Recovered:
    """What a start would find in the copy: of each file what was written by then, and zeros."""
    files = {}
    for number, used in snapshot["segments"]:
        content = bytes(stage.disk.stable[number])
        files[number] = content[:used] + bytes(len(content) - used)
    return recover(iter(sorted(files.items())), NODE_ID, "stop")


def counts(found: Recovered) -> dict[str, int]:
    contents = found.queue_contents()
    return {
        attributes["name"]: sum(n for _, n, _ in contents[queue_id]) for queue_id, attributes in found.queues.items()
    }


def test_what_is_read_is_the_state_of_one_position_whatever_comes_after() -> None:
    stage = stage_with_small_files()
    send(stage, 300)
    snapshot = stage.admin("backup-begin")
    before = len(stage.disk.stable)
    purge(stage)
    send(stage, 200, "later")
    purge(stage, "later")
    send(stage, 1, "later")
    assert len(stage.disk.stable) >= before, "nothing of it is deleted"
    found = copied(stage, snapshot)
    assert counts(found) == {"orders": 300}
    assert found.last_position == snapshot["position"]
    assert found.boot == snapshot["boot"]
    assert stage.admin("backup-end") == {"held": True}
    assert len(stage.disk.stable) == 1


def test_the_position_is_that_of_the_step_also_where_more_comes_in_it() -> None:
    """What the same step says after the request is in the same append: it is in the copy, or neither of both is."""
    stage = stage_with_small_files()
    send(stage, 5)
    producer = Producer(stage)
    producer.publish(b"L" * 3_000_000)
    large = stage.broker.store.large.count
    assert large == 1
    stage.give(AdminRequest(901, 1, "queue-purge", {"name": "orders"}))
    stage.give(AdminRequest(902, 1, "backup-begin", {}))
    stage.give(AdminRequest(903, 1, "send", {"address": "orders", "messages": [{"body": "a", "durable": True}] * 2}))
    stage.run()
    snapshot = stage.replies[902].result
    assert stage.replies[903].result == {"accepted": 2}
    assert counts(copied(stage, snapshot))["orders"] == 2 + len(snapshot["large"])
    assert {run.large.file for run in large_runs(copied(stage, snapshot)) if run.large} == set(snapshot["large"])


def test_the_list_comes_when_all_of_it_is_on_disk() -> None:
    stage = stage_with_small_files()
    stage.is_disk_held = True
    stage.give(AdminRequest(901, 1, "send", {"address": "orders", "messages": [{"body": "a", "durable": True}]}))
    stage.give(AdminRequest(902, 1, "backup-begin", {}))
    stage.run()
    assert 902 not in stage.replies
    stage.is_disk_held = False
    stage.run()
    assert counts(copied(stage, stage.replies[902].result)) == {"orders": 1}


def test_files_of_large_messages_stay_until_they_are_read() -> None:
    stage = Stage()
    producer = Producer(stage)
    producer.publish(b"L" * 3_000_000)
    (file,) = stage.large_files.sizes
    assert stage.admin("backup-begin")["large"] == [file]
    purge(stage)
    assert stage.broker.store.queues["orders"].message_count == 0
    assert list(stage.large_files.sizes) == [file]
    stage.admin("backup-end")
    stage.run()
    assert list(stage.large_files.sizes) == []


def let_go_by_time(stage: Stage) -> None:
    stage.wait(HOLD_MS + 1)


def let_go_by_disk(stage: Stage) -> None:
    stage.give(JournalSpace(True, 1))
    stage.run()


def let_go_before_publishers_are_held_back(stage: Stage) -> None:
    stage.give(JournalSpace(False, 1, is_scarce=True))
    stage.run()
    assert not stage.broker.store.memory.is_shut
    assert "disk-has-room" not in [each.event for each in stage.notices]


@pytest.mark.parametrize("let_go", [let_go_by_time, let_go_by_disk, let_go_before_publishers_are_held_back])
def test_what_is_let_go_before_its_end_is_deleted_and_told(let_go: Any) -> None:
    stage = stage_with_small_files()
    send(stage, 300)
    stage.admin("backup-begin")
    purge(stage)
    assert len(stage.disk.stable) > 3
    let_go(stage)
    assert len(stage.disk.stable) == 1
    assert "backup-let-go" in [each.event for each in stage.notices]
    assert "let go before they were read" in stage.admin("backup-end")["description"]
    assert stage.admin("backup-end", session=2)["description"] == "backup-end: no backup of this session is under way"


def test_it_ends_with_the_session_that_asked() -> None:
    stage = stage_with_small_files()
    send(stage, 300)
    stage.admin("backup-begin", session=7)
    assert "under way already" in stage.admin("backup-begin", session=8)["description"]
    assert "no backup of this session" in stage.admin("backup-end", session=8)["description"]
    purge(stage)
    kept = len(stage.disk.stable)
    stage.give(AdminClosed(8))
    stage.run()
    assert len(stage.disk.stable) == kept
    stage.give(AdminClosed(7))
    stage.run()
    assert len(stage.disk.stable) == 1
    assert stage.admin("backup-begin", session=8)["segments"]


def test_deletions_that_were_kept_back_go_one_after_the_other() -> None:
    stage = stage_with_small_files()
    send(stage, 600)
    stage.admin("backup-begin")
    purge(stage)
    begun = len(stage.batches)
    stage.admin("backup-end")
    deletions = [
        sum(isinstance(effect, DeleteJournalSegment) for effect in batch.effects) for batch in stage.batches[begun:]
    ]
    assert sum(deletions) > 5
    assert max(deletions) == 1


def test_a_full_disk_has_no_room_for_a_backup() -> None:
    stage = stage_with_small_files()
    for space in (JournalSpace(True, 1), JournalSpace(True, 1, is_scarce=True), JournalSpace(False, 1, is_scarce=True)):
        stage.give(space)
        assert "the disk is nearly full" in stage.admin("backup-begin")["description"]
    stage.give(JournalSpace(False, 1 << 40))
    assert stage.admin("backup-begin")["large"] == []


def test_room_that_gets_scarce_in_the_step_that_asks_is_no_room() -> None:
    stage = stage_with_small_files()
    send(stage, 3)
    stage.give(AdminRequest(902, 1, "backup-begin", {}))
    stage.give(JournalSpace(True, 1))
    stage.run()
    assert "the disk is nearly full" in stage.replies[902].error["description"]
    assert "no backup of this session" in stage.admin("backup-end")["description"]


def test_a_crash_in_the_middle_leaves_nothing_behind() -> None:
    stage = stage_with_small_files()
    send(stage, 300)
    stage.admin("backup-begin")
    purge(stage)
    send(stage, 3, "later")
    stage.crash()
    stage.start()
    stage.run()
    assert len(stage.disk.stable) <= 2
    assert stage.broker.store.queues["later"].message_count == 3


def test_a_crash_while_files_are_held_loses_nothing_of_a_queue_with_an_id_that_was_used_before() -> None:
    """The drop of the first queue is in a file that is held, the declaration of the second in one that is gone."""
    stage = stage_with_small_files()
    send(stage, 30, "first")
    send(stage, 30, "second")
    assert "purged" in stage.admin("queue-purge", name="second")
    assert "error" not in str(stage.admin("queue-delete", name="second"))
    stage.crash()
    stage.start()
    stage.run()
    stage.admin("backup-begin")
    held = max(stage.disk.stable)
    send(stage, 60, "first")
    send(stage, 3, "third")
    for _ in range(20):
        send(stage, 120, "first")
        purge(stage, "first")
    numbers = sorted(stage.disk.stable)
    assert numbers[0] <= held
    assert len(numbers) < numbers[-1] - numbers[0] + 1, "files behind those that are held are gone"
    stage.crash()
    stage.start()
    stage.run()
    assert stage.broker.store.queues["third"].message_count == 3
