"""Compaction comes to an end, whatever share of the journal is to be in use, and begins again when it is worth it."""

from __future__ import annotations

import pytest

from tests.support.stage import Stage, options_with

FILE_BYTES = 8192


def send(stage: Stage, address: str, count: int) -> None:
    messages = [{"body": "x" * 100}] * count
    assert stage.admin("send", address=address, messages=messages) == {"accepted": count}


@pytest.mark.slow
@pytest.mark.option("journal.journal-compact-percentage")
@pytest.mark.parametrize("is_paging", [False, True])
@pytest.mark.parametrize("percentage", [30, 90, 100])
def test_a_round_of_compaction_is_no_reason_for_another(percentage: int, is_paging: bool) -> None:
    journal = {"journal_file_size_bytes": FILE_BYTES, "journal_compact_min_files": 2}
    bound = {"max_size_messages": 8} if is_paging else {}
    tables = {"journal": journal | {"journal_compact_percentage": percentage}}
    stage = Stage(options_with(address_settings={"kept": bound}, **tables))
    send(stage, "kept", 100)
    for number in range(20):
        send(stage, "gone", 100)
        stage.admin("queue-purge", name="gone")
        appends = len(stage.appends)
        stage.wait(60_000)
        assert len(stage.appends) - appends < 50, number
    assert stage.broker.journal.segments_count < 20, "and what is gone does not stay on disk"
    stage.crash()
    stage.start()
    assert stage.broker.store.queues["kept"].message_count == 100
