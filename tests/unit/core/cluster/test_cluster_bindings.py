"""Shares and bounds of routing over nodes; what conversations do not show (tests/golden/conversations/cluster_*)."""

from __future__ import annotations

from collections import Counter

import pytest
from mqbroker.admin import moves
from mqbroker.core.address.address import Address
from mqbroker.core.cluster import forwarding
from mqbroker.core.cluster.cluster_bindings import ON_DEMAND, STRICT
from mqbroker.core.cluster.remote_binding import RemoteBinding
from mqbroker.core.store.store import Store
from mqbroker.wire.run import Run, parse_run, single
from mqbroker.wire.sections import build_message

from tests.support.stage import Stage
from tests.unit.admin.test_moves_within_bounds import pieces_of


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
