"""Which messages of another node have arrived."""

from __future__ import annotations

import random

import pytest
from mqbroker.core.address.address import ANYCAST
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster import arrivals
from mqbroker.core.cluster.arrivals import Arrival, Arrivals, ArrivedRanges
from mqbroker.core.cluster.remote_binding import RemoteBinding
from mqbroker.core.queue.moved_message import INGRESS_TIME
from mqbroker.wire.run import Run, single
from mqbroker.wire.scan import MESSAGE_ANNOTATIONS, scan_sections
from mqbroker.wire.sections import build_message, encode_section
from mqbroker.wire.values import Long, Symbol

from tests.support.bytecodes import Bytecodes
from tests.support.large_messages import Producer
from tests.support.stage import Stage, options_with

FURTHER = "00000003-0000-4000-8000-000000000000"
SOURCE = "00000001-0000-4000-8000-000000000000.$.sf.c.1"


def test_only_what_has_not_arrived_is_fresh() -> None:
    ranges = ArrivedRanges()
    ranges.add(1, 10, 5)
    ranges.add(2, 20, 5)
    assert ranges.fresh(25, 3) == [(0, 3)]
    assert ranges.fresh(10, 5) == []
    assert ranges.fresh(8, 20) == [(0, 2), (7, 5), (17, 3)]
    assert ranges.fresh(12, 8) == [(3, 5)]


def test_fresh_agrees_with_a_set_of_ids() -> None:
    rng = random.Random(7)
    ranges, seen = ArrivedRanges(), set[int]()
    for number in range(1, 200):
        first, count = rng.randrange(500), rng.randrange(1, 20)
        wanted = [each for each in range(first, first + count) if each not in seen]
        pieces = ranges.fresh(first, count)
        assert [each for index, n in pieces for each in range(first + index, first + index + n)] == wanted
        for index, n in pieces:
            ranges.add(number * 100 + index, first + index, n)
        seen.update(wanted)


def test_what_was_interleaved_is_found_among_many_as_among_few() -> None:
    """Two queues of a source share its ids: each has every second one, and all of them may come again."""

    def cost(total: int) -> int:
        ranges = ArrivedRanges()
        for number in range(1, total + 1):
            ranges.add(number, number * 2, 1)
        work = Bytecodes()
        work.of(lambda: [ranges.fresh(number * 2, 1) for number in range(total - 99, total + 1)])
        return work.count

    few, many = cost(100), cost(10_000)
    assert many < few * 2


def test_what_is_remembered_of_a_source_is_bounded() -> None:
    ranges = ArrivedRanges()
    for number in range(1, 30_001):
        ranges.add(number, number * 2, 1)
    assert ranges.count == arrivals.IDS_MAX
    assert ranges.oldest == 30_000 - arrivals.IDS_MAX + 1
    assert ranges.fresh(2 * ranges.oldest, 1) == []


@pytest.mark.slow
def test_sources_are_bounded_too() -> None:
    known = Arrivals(Stage().broker.store)
    for number in range(arrivals.SOURCES_MAX + 5):
        known._known(f"source-{number}")
    assert len(known._ranges) == len(known._keys) == arrivals.SOURCES_MAX
    assert "source-0" not in known._ranges


def test_who_has_a_link_is_not_forgotten_for_those_that_have_none() -> None:
    """The first that came is the busiest, and what it has not got an answer for comes again."""
    known = Arrivals(Stage().broker.store)
    known.attached("busiest")
    known._known("busiest").add(1, 1, 100)
    for number in range(arrivals.SOURCES_MAX + 5):
        known.attached(f"source-{number}")
        known._known(f"source-{number}")
        known.detached(f"source-{number}", is_for_good=False)
    known.detached("source-7", is_for_good=False)
    assert known._has_come("busiest", 1, 100)
    assert len(known._ranges) == arrivals.SOURCES_MAX
    assert "source-0" not in known._ranges


@pytest.mark.slow
def test_who_has_lost_one_of_two_links_has_one() -> None:
    known = Arrivals(Stage().broker.store)
    for _ in range(2):
        known.attached("busiest")
    known._known("busiest").add(1, 1, 100)
    known.detached("busiest", is_for_good=False)
    for number in range(arrivals.SOURCES_MAX + 5):
        known._known(f"source-{number}")
    assert known._has_come("busiest", 1, 100)


@pytest.mark.slow
def test_nobody_that_has_a_link_is_forgotten_however_many_there_are() -> None:
    """Each queue that drains here has one, and what it has no answer for comes again."""
    known = Arrivals(Stage().broker.store)
    names = [f"source-{number}" for number in range(arrivals.SOURCES_MAX + 5)]
    for name in names:
        known.attached(name)
        known._known(name)
    assert list(known._ranges) == names
    known.detached(names[7], is_for_good=False)
    known._known("new")
    assert names[7] not in known._ranges


def test_of_those_without_a_link_that_goes_first_whose_link_ended_first() -> None:
    known = Arrivals(Stage().broker.store)
    names = [f"source-{number}" for number in range(arrivals.SOURCES_MAX)]
    for name in names:
        known.attached(name)
        known._known(name)
    for name in reversed(names):
        known.detached(name, is_for_good=False)
    known._known("new")
    assert names[-1] not in known._ranges
    assert names[0] in known._ranges


def test_a_source_is_forgotten_when_the_last_of_its_links_ends_for_good() -> None:
    stage = Stage()
    taken_on_the_way(stage)
    known = stage.broker.store.arrivals
    known.attached(SOURCE)
    known.attached(SOURCE)
    known.detached(SOURCE, is_for_good=True)
    assert known._keys
    known.detached(SOURCE, is_for_good=False)
    assert known._keys
    known.attached(SOURCE)
    known.detached(SOURCE, is_for_good=True)
    stage.step()
    stage.run()
    assert not known._keys
    stage.crash()
    stage.start()
    assert not stage.broker.store.arrivals._keys


# -- marks -------------------------------------------------------------------------------------------------------------


def arrived(known: Arrivals, mark: str, first: int, count: int) -> None:
    key = f"{SOURCE}#{mark}" if mark else SOURCE
    known._known(key)
    known._note(key, first, count, is_durable=True)


def test_one_id_under_two_marks_is_two_messages() -> None:
    known = Arrivals(Stage().broker.store)
    for mark in ("", "m1", "m2"):
        assert not known._has_come(f"{SOURCE}#{mark}" if mark else SOURCE, 7, 1)
        arrived(known, mark, 7, 1)
    assert all(known._has_come(key, 7, 1) for key in (SOURCE, f"{SOURCE}#m1", f"{SOURCE}#m2"))


def test_a_mark_is_forgotten_when_those_after_it_hold_all_that_may_be_without_an_answer() -> None:
    known = Arrivals(Stage().broker.store)
    arrived(known, "", 1, 5)
    arrived(known, "m1", 1, arrivals.IDS_MAX - 1)
    arrived(known, "m2", 1, 1)
    assert list(known._ranges) == [SOURCE, f"{SOURCE}#m1", f"{SOURCE}#m2"]
    arrived(known, "m3", 1, 1)  # those after the first one hold enough; without m1 they would not
    assert known._keys == {SOURCE: [f"{SOURCE}#m1", f"{SOURCE}#m2", f"{SOURCE}#m3"]}


def test_a_link_may_go_back_to_what_has_no_mark() -> None:
    store = Stage().broker.store
    link = Arrival(store.add_address("orders"), SOURCE, ("orders" + FURTHER,))
    keys = [link.key]
    for mark in ("m1", "m2", "", "m1"):
        link.numbered_under(mark)
        keys.append(link.key)
    assert keys == [SOURCE, f"{SOURCE}#m1", f"{SOURCE}#m2", SOURCE, f"{SOURCE}#m1"]


def test_marks_of_a_source_are_bounded() -> None:
    known = Arrivals(Stage().broker.store)
    for number in range(arrivals.SOURCE_MARKS_MAX + 3):
        arrived(known, f"m{number}", 1, 1)
    assert len(known._keys[SOURCE]) == len(known._ranges) == arrivals.SOURCE_MARKS_MAX
    known.forget(SOURCE)
    assert (known._keys, known._ranges) == ({}, {})


def test_marks_are_known_after_a_crash_in_the_order_in_which_they_came() -> None:
    stage = Stage()
    known = stage.broker.store.arrivals
    for mark in ("zz", "", "aa", "mm"):
        arrived(known, mark, 7, 2)
    before = known._keys
    stage.broker.store.remotes.touch()
    stage.broker.store.decisions.wait(lambda: None)
    stage.step()
    stage.run()
    stage.crash()
    stage.start()
    assert stage.broker.store.arrivals._keys == before
    assert len(before[SOURCE]) == 4


def test_a_mark_is_told_from_the_name_of_its_source() -> None:
    odd = "00000001-0000-4000-8000-000000000000.$.sf.c#d.e.1"
    assert [arrivals.source_of(each) for each in (SOURCE, f"{SOURCE}#m", odd, f"{odd}#m", f"{odd}.unnumbered")] == [
        SOURCE, SOURCE, odd, odd, f"{odd}.unnumbered"
    ]  # fmt: skip


# -- a node on the way ------------------------------------------------------------------------------------------------


def message() -> Run:
    return single(build_message("m", durable=True))


def way() -> RemoteBinding:
    """A queue of a node further on."""
    return RemoteBinding("orders", "orders", ANYCAST, "", FURTHER, FURTHER, 1)


def on_its_way(stage: Stage) -> int:
    """Messages that wait for the node further on."""
    return sum(queue.message_count for queue in stage.broker.store.remotes.queues_of(FURTHER))


def taken_on_the_way(stage: Stage) -> None:
    """One message has come, gone into the queue for the node further on, and the way there is forgotten then."""
    store, binding = stage.broker.store, way()
    via = store.remotes.connection("c")
    via.add(binding)
    link = store.arrivals.address_for("orders", SOURCE, (binding.cluster_name,))
    assert link is not None
    assert store.arrivals.publish(link, message(), 7) is True
    via.remove(binding)
    stage.step()
    stage.run()
    assert on_its_way(stage) == 1


def test_what_went_on_from_here_is_taken_again_once_the_way_is_forgotten() -> None:
    """The source has no answer and sends it again. Refused, it would take another way as well, and come twice."""
    stage = Stage()
    taken_on_the_way(stage)
    known = stage.broker.store.arrivals
    again = known.address_for("orders", SOURCE, (way().cluster_name,))
    assert again is not None, "who has sent before is heard"
    assert known.publish(again, message(), 7) is not None
    assert (known.arrived_total, known.dropped_total, on_its_way(stage)) == (1, 1, 1)


def test_what_has_not_come_before_is_refused_then() -> None:
    stage = Stage()
    taken_on_the_way(stage)
    known = stage.broker.store.arrivals
    assert known.address_for("orders", "another" + SOURCE, (way().cluster_name,)) is None
    again = known.address_for("orders", SOURCE, (way().cluster_name,))
    assert again is not None
    assert known.publish(again, message(), 8) is None
    assert known.publish(again, message(), 6) is None
    assert (known.arrived_total, on_its_way(stage)) == (1, 1)


def test_it_is_known_after_a_crash_and_without_its_address() -> None:
    stage = Stage()
    taken_on_the_way(stage)
    stage.crash()
    stage.start()
    store = stage.broker.store
    for queue in store.remotes.queues_of(FURTHER):
        store.delete_queue(queue, BROKER)  # the node further on has it
    store.forget_address("orders")
    assert "orders" not in store.addresses
    again = store.arrivals.address_for("orders", SOURCE, (way().cluster_name,))
    assert again is not None
    assert store.arrivals.publish(again, message(), 7) is not None
    assert store.arrivals.dropped_total == 1
    assert "orders" not in store.addresses, "nobody would forget it"


def annotated(message: bytes, name: Symbol, value: object) -> bytes:
    bare = scan_sections(message, 0, len(message)).bare
    return message[:bare] + encode_section(MESSAGE_ANNOTATIONS, {name: value}) + message[bare:]


def test_an_older_value_is_known_after_a_crash_although_no_queue_has_it() -> None:
    """It is sent again by a node that has no answer, and the later one is gone meanwhile."""
    stage = Stage(options_with(address_settings={"orders": {"default_last_value_queue": True}}))
    stage.admin("queue-create", name="orders")
    named = {"_AMQ_LVQ_NAME": "gold"}
    stage.wait(10)
    Producer(stage).publish(b"later", application_properties=named)
    store = stage.broker.store
    older = annotated(build_message(b"older", durable=True, application_properties=named), INGRESS_TIME, Long(1))
    link = store.arrivals.address_for("orders", SOURCE, ("orders" + store.arrivals.node_id,))
    assert link is not None
    assert store.arrivals.publish(link, single(older), 7) is True, "its source is answered when that is on disk"
    stage.step()
    stage.run()
    assert (store.queues["orders"].message_count, store.queues["orders"].replaced_total) == (1, 1)
    stage.admin("queue-purge", name="orders")
    stage.crash()
    stage.start()
    store = stage.broker.store
    link = store.arrivals.address_for("orders", SOURCE, ("orders" + store.arrivals.node_id,))
    assert link is not None
    store.arrivals.publish(link, single(older), 7)
    assert (store.queues["orders"].message_count, store.arrivals.dropped_total) == (0, 1)
