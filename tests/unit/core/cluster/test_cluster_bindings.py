"""Shares and bounds of routing over nodes; what conversations do not show (tests/golden/conversations/cluster_*)."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
from mqbroker.admin import moves
from mqbroker.core.address.address import MULTICAST, Address, Origin
from mqbroker.core.address.diverts import QUEUES_PER_COPY
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster import forwarding
from mqbroker.core.cluster.cluster_bindings import ON_DEMAND, STRICT, bindings_at
from mqbroker.core.cluster.remote_binding import RemoteBinding
from mqbroker.core.queue.backlog import Segment
from mqbroker.core.queue.kinds import QueueKind
from mqbroker.core.queue.moved_message import MessageOrigin, moved
from mqbroker.core.store.store import Store
from mqbroker.wire.run import Run, parse_run, single
from mqbroker.wire.sections import build_message

from tests.support.bytecodes import Bytecodes
from tests.support.stage import Stage
from tests.unit.admin.test_moves_within_bounds import pieces_of

FEW_BYTECODES = 6_000  # of a message that goes on; 300 queues that are each asked are 30,000 more


def node(number: int) -> str:
    return f"{number:036d}"


def know(store: Store, number: int, queue: str = "orders", *, mode: str = ON_DEMAND, **changes: str) -> RemoteBinding:
    """A queue of node `number` that has a consumer."""
    values = {"address": "orders", "routing": "anycast", "selector": ""} | changes
    binding = RemoteBinding(queue=queue, node_id=node(number), target=node(number), distance=1, **values)
    binding.consumer_created("")
    store.remotes.connection("c", mode).add(binding)
    return binding


def run_of(count: int) -> Run:
    """So many messages as one run."""
    one = single(build_message(b"m"))
    frames = bytes(one.block(0, 1)) * count
    parsed = parse_run(frames, 0, len(frames), count, 0xFFFFFFFF)
    assert parsed is not None or count == 1
    return parsed.run if parsed is not None and parsed.run.count == count else one


def shares(address: Address, counts: list[int]) -> Counter[str]:
    """Messages that each queue gets of runs of these sizes."""
    found: Counter[str] = Counter()
    for count in counts:
        run = single(build_message(b"m"))
        run.count = count
        for _, n, queues in address.route(run):
            for queue in queues:
                found[queue.kind.forwards_to[-1:] or "here"] += n
    return found


@pytest.mark.parametrize("counts", [[1] * 400, [3] * 133, [7, 1, 2] * 40, [400]])
def test_nodes_get_equal_shares_however_messages_come(counts: list[int]) -> None:
    store = Stage().broker.store
    for number in (1, 2, 3, 4):
        know(store, number)
    found = shares(store.addresses["orders"], counts)
    assert sum(found.values()) == sum(counts)
    assert max(found.values()) - min(found.values()) <= max(sum(counts) // 4 // 10, 1)


def test_a_run_is_cut_into_no_more_parts_than_there_are_bindings() -> None:
    store = Stage().broker.store
    for number in (1, 2, 3):
        know(store, number, mode=STRICT)
    run = single(build_message(b"m"))
    run.count = 1000
    parts = store.addresses["orders"].route(run)
    assert [(index, count) for index, count, _ in parts] == [(0, 334), (334, 333), (667, 333)]


def test_many_sets_of_subscriptions_do_not_make_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "ROUTES_MAX", 2)
    store = Stage().broker.store
    news = {"address": "news", "routing": "multicast"}
    bindings = [know(store, 1, f"s{number}", **news) for number in range(4)]
    address, via = store.addresses["news"], store.remotes.connection("c")
    assert len(via.queues_for(address, bindings[:2])) == 1
    assert len(via.queues_for(address, bindings[:3])) == 1
    # From here on each binding has a queue of its own, and a message goes once for each.
    assert len(via.queues_for(address, bindings)) == 4
    assert len(via.queues_for(address, bindings[1:])) == 3
    assert len(store.remotes.queues) == 6


def test_an_address_that_only_others_have_is_forgotten_with_them() -> None:
    store = Stage().broker.store
    binding = know(store, 1)
    assert "orders" in store.addresses
    store.remotes.connection("c").remove(binding)
    assert "orders" not in store.addresses


def test_a_move_makes_few_messages_in_a_step_of_which_queues_of_other_nodes_get_many_copies() -> None:
    stage = Stage()
    stage.admin("queue-create", name="source")
    wide = moves.LOOKS_MAX * moves.QUEUES_PER_LOOK
    for number in range(wide):
        know(stage.broker.store, 2, f"s{number}", address="news", routing="multicast")
    assert stage.admin("send", address="source", messages=[{"body": "x"}] * 4) == {"accepted": 4}
    assert max(pieces_of(stage, "source", address="news")) == 1


def takers(address: Address, moved_from: str = "") -> set[str]:
    """The queues of the cluster, by their names in it or here, that get a message which is moved from there."""
    routed = address.route(single(build_message(b"m")), Origin(moved_from))
    return {name for _, _, queues in routed for each in queues for name in each.kind.route or (each.kind.name,)}


DEAD = {"address": "dead", "routing": "multicast"}


def test_a_queue_for_what_is_moved_from_one_address_gets_nothing_else_at_whichever_node_it_is() -> None:
    store = Stage().broker.store
    of_q0, _ = (know(store, 2, f"DLQ.q{number}", **DEAD, moved_from=f"q{number}") for number in (0, 1))
    know(store, 2, "all", **DEAD)
    address, all_of_them = store.addresses["dead"], "all" + node(2)
    assert takers(address) == takers(address, "mine") == {all_of_them}
    assert takers(address, "q0") == {all_of_them, of_q0.cluster_name}
    assert address.copied_elsewhere == 1, "each message has those of one origin at most"
    store.remotes.connection("c").remove(of_q0)
    assert takers(address, "q0") == {all_of_them}


def test_queues_that_are_all_for_what_is_moved_take_nothing_that_is_sent() -> None:
    stage = Stage()
    know(stage.broker.store, 2, "DLQ.q0", **DEAD, moved_from="q0")
    address = stage.broker.store.addresses["dead"]
    assert not address.takes_each()
    assert not address.has_way
    assert takers(address) == set()
    stage.admin("queue-create", name="source")
    assert stage.admin("send", address="source", messages=[{"body": "x"}]) == {"accepted": 1}
    said = stage.admin("messages-move", queue="source", address="dead")
    assert "one address each, and none for who sends" in said["description"]


def test_of_queues_of_one_name_those_for_the_origin_of_a_message_share_it() -> None:
    """One was made by hand; or its node is of a release that does not say what it is for."""
    stage = Stage()
    store = stage.broker.store
    stage.admin("queue-create", name="DLQ.q0", address="dead", routing_type="multicast")
    know(store, 2, "DLQ.q0", **DEAD, moved_from="q0")
    by_hand = know(store, 3, "DLQ.q0", **DEAD)
    address = store.addresses["dead"]
    anybody = {by_hand.cluster_name}
    assert [takers(address, origin) for origin in ("", "q1")] == [anybody] * 2
    assert [takers(address, "q0") for _ in "ab"] == [{"DLQ.q0" + node(2)}, anybody]
    bindings = bindings_at(address)
    assert bindings is not None
    group = bindings.group_of(store.queues["DLQ.q0"])
    assert group is not None
    assert [each.binding for each in group.remotes] == [by_hand], "what is here is redistributed to no other one either"
    store.remotes.connection("c").remove(by_hand)
    assert bindings.group_of(store.queues["DLQ.q0"]) is None


def test_those_that_are_for_all_take_turns_also_where_one_of_their_name_is_for_one_origin() -> None:
    store = Stage().broker.store
    know(store, 2, "DLQ.q0", **DEAD, moved_from="q0")
    for_all = [know(store, number, "DLQ.q0", **DEAD).cluster_name for number in (3, 4)]
    address = store.addresses["dead"]
    for origin in ("", "q1"):
        assert [takers(address, origin) for _ in "abcd"] == [{name} for name in for_all * 2]


def test_a_message_asks_none_of_the_queues_that_are_for_what_is_moved_from_elsewhere() -> None:
    """There may be one for each address of each node."""
    store = Stage().broker.store
    for number in range(300):
        know(store, 2, f"DLQ.q{number}", **DEAD, moved_from=f"q{number}")
    address = store.addresses["dead"]
    expected: dict[str, set[str]] = {"": set(), "mine": set(), "q7": {"DLQ.q7" + node(2)}}
    for origin, names in expected.items():
        assert takers(address, origin) == names, "what is remembered once bindings have changed"
        cost = Bytecodes()
        assert cost.of(partial(takers, address, origin)) == names
        assert cost.count < FEW_BYTECODES


def test_a_subscription_that_is_here_and_elsewhere_gets_one_copy_and_counts_as_one() -> None:
    stage = Stage()
    store = stage.broker.store
    for number in range(2 * QUEUES_PER_COPY):
        stage.admin("queue-create", name=f"s{number}", address="news", routing_type="multicast")
        know(store, 2, f"s{number}", address="news", routing="multicast")
    address = store.addresses["news"]
    assert (address.copied_elsewhere, store.diverts.width_of("news")) == (0, 2)
    know(store, 2, "s", address="news", routing="multicast")
    assert address.copied_elsewhere == 1
    stage.admin("queue-delete", name="s0")
    assert address.copied_elsewhere == 2


def test_a_queue_here_for_what_is_moved_from_one_address_is_not_one_that_gets_copies_elsewhere() -> None:
    store = Stage().broker.store
    store.create_queue(QueueKind("DLQ.q0", "dead", MULTICAST, moved_from="q0"), BROKER)
    know(store, 2, "DLQ.q0", **DEAD)
    assert store.addresses["dead"].copied_elsewhere == 1


def test_copies_of_other_nodes_count_as_long_as_their_queues_are_known() -> None:
    store = Stage().broker.store
    both = [know(store, number, "s", routing="multicast") for number in (1, 2)]
    know(store, 1)
    address = store.addresses["orders"]
    assert address.copied_elsewhere == 1, "one queue of the cluster, and one that shares"
    assert address.again((), "multicast").copied_elsewhere == 1
    for left, binding in zip((1, 0), both, strict=True):
        store.remotes.connection("c", ON_DEMAND).remove(binding)
        assert address.copied_elsewhere == left


def retry(stage: Stage, queue: str, origin: MessageOrigin) -> dict[str, int]:
    """What an administrator is told who retries a queue that holds a message which was there."""
    stage.admin("queue-create", name=queue)
    letter = moved(Segment(single(build_message(b"m")), 0, 1, 0), 0, origin, "rejected")
    store = stage.broker.store
    store.publish(store.target_for(f"{queue}::{queue}", BROKER), letter, Origin(origin.address))
    stage.run()
    answer: dict[str, int] = stage.admin("dead-letters-retry", queue=queue)
    assert sum(each.message_count for each in store.remotes.queues.values()) == answer["retried"]
    return answer


def test_what_was_for_a_queue_elsewhere_goes_there_also_from_a_queue_of_its_name() -> None:
    stage = Stage()
    know(stage.broker.store, 2, "DLQ")
    assert retry(stage, "DLQ", MessageOrigin("orders", "DLQ", "anycast")) == {"retried": 1, "left": 0}


def test_what_is_back_where_it_was_is_not_retried() -> None:
    stage = Stage()
    know(stage.broker.store, 2, "DLQ", address="DLQ")
    assert retry(stage, "DLQ", MessageOrigin("DLQ", "DLQ", "anycast")) == {"retried": 0, "left": 1}


def test_what_was_in_a_queue_elsewhere_for_what_is_moved_goes_back_there() -> None:
    stage = Stage()
    know(stage.broker.store, 2, "DLQ.q0", **DEAD, moved_from="q0")
    assert retry(stage, "DLQ.dead", MessageOrigin("dead", "DLQ.q0", "multicast")) == {"retried": 1, "left": 0}
