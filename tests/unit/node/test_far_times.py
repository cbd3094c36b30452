"""Times that are further away than anything can hold: such messages wait for ever, and end nothing."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire.run import single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS, scan_sections
from mqbroker.wire.sections import build_message, encode_section
from mqbroker.wire.values import Long, Symbol, ULong

from tests.support.large_messages import Producer, restart
from tests.support.stage import Stage

YEAR_MS = 365 * 86_400_000


def annotated(name: str, value: Any) -> bytes:
    whole = build_message(b"x", durable=True)
    bare = scan_sections(whole, 0, len(whole)).bare
    return whole[:bare] + encode_section(MESSAGE_ANNOTATIONS, {Symbol(name): value}) + whole[bare:]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-opt-delivery-delay", Long(2**63 - 1)),
        ("x-opt-delivery-delay", ULong(2**64 - 1)),
        ("x-opt-delivery-time", Long(2**63 - 1)),
        ("x-opt-delivery-time", ULong(2**64 - 1)),
    ],
)
def test_a_message_that_is_never_due_can_be_moved(name: str, value: Any) -> None:
    stage = Stage()
    producer = Producer(stage)
    producer.link.session.send_run(producer.link, single(annotated(name, value)), 0, 1, "m")
    stage.run()
    stage.admin("queue-create", name="later")
    assert stage.admin("messages-move", queue="orders", address="later") == {"moved": 1, "left": 0}
    for _ in range(2):
        stage.wait(YEAR_MS)
        assert stage.broker.store.queues["later"].scheduled_count == 1
        restart(stage)
