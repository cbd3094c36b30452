"""What is known of another node's messages, and what is on disk of that when they are answered."""

from __future__ import annotations

import pytest
from mqbroker.core.cluster.arrivals import Arrival
from mqbroker.core.cluster.remote_binding import cluster_name_of
from mqbroker.wire.parts import part_of
from mqbroker.wire.run import Run, encode_payloads, heading, parse_run
from mqbroker.wire.sections import build_message

from tests.support.stage import Stage

SOURCE = "00000001-0000-4000-8000-000000000000.$.sf.c.1"
COUNT = 8


def messages() -> Run:
    payloads = [build_message(f"m{number}", durable=True) for number in range(COUNT)]
    frames = encode_payloads(payloads, heading(3, 4, False), 7)
    parsed = parse_run(frames, 0, len(frames), COUNT, 1 << 30)
    assert parsed is not None
    assert parsed.run.count == COUNT
    return parsed.run


def node() -> tuple[Stage, Arrival]:
    """With a link of another node on which messages for its queue come."""
    stage = Stage()
    stage.admin("queue-create", name="orders")
    return stage, link_of(stage)


def link_of(stage: Stage) -> Arrival:
    known = stage.broker.store.arrivals
    link = known.address_for("orders", SOURCE, (cluster_name_of("orders", known.node_id),))
    assert link is not None
    return link


@pytest.mark.parametrize("count", [1, COUNT])
def test_what_comes_again_is_answered_when_its_first_copy_is_on_disk(count: int) -> None:
    stage, link = node()
    known = stage.broker.store.arrivals
    stage.is_disk_held = True
    assert known.publish(link, part_of(messages(), 0, count), 1) is True
    stage.step()
    stage.run()
    assert known.publish(link, part_of(messages(), 0, count), 1) is True, "it waits for an append"
    assert stage.turn().append is not None, "and there is one"
    stage.is_disk_held = False
    stage.step()
    stage.run()
    assert known.publish(link, part_of(messages(), 0, count), 1) is False
    assert (known.arrived_total, known.dropped_total) == (count, 2 * count)


def test_all_that_is_fresh_of_a_run_is_known_after_a_crash() -> None:
    """Of a run that comes again in part, what comes for the first time lies before, between and behind."""
    stage, link = node()
    known = stage.broker.store.arrivals
    for begin, end in ((1, 2), (4, 6)):
        known.publish(link, part_of(messages(), begin, end), 1 + begin)
    stage.step()
    stage.run()
    assert known.publish(link, messages(), 1) is True
    stage.broker.store.decisions.wait(lambda: None)
    stage.step()
    stage.run()
    assert stage.broker.store.queues["orders"].message_count == COUNT
    stage.crash()
    stage.start()
    known, again = stage.broker.store.arrivals, link_of(stage)
    for number in range(COUNT):
        known.publish(again, part_of(messages(), number, number + 1), 1 + number)
    assert (known.arrived_total, known.dropped_total) == (0, COUNT)
    assert stage.broker.store.queues["orders"].message_count == COUNT
