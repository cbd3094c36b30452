"""Store-and-forward queues: what conversations do not show (tests/golden/conversations/cluster_*)."""

from __future__ import annotations

import pytest
from mqbroker.base.errors import Refused
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.cluster import forwarding
from mqbroker.core.cluster.remote_binding import RemoteBinding
from mqbroker.core.store.store import Store

from tests.support.stage import Stage
from tests.unit.core.store.test_store import restart, send

NODE = "n" * 36


def know(store: Store) -> None:
    """Another node with such a queue, which has a consumer."""
    binding = RemoteBinding("orders", "orders", "anycast", "", NODE, NODE, 1)
    binding.consumer_created("")
    store.remotes.connection("c").add(binding)


def ids(store: Store) -> list[int]:
    """Of messages that wait for the other node."""
    queues = store.remotes.queues_of(NODE)
    return [segment.first_id + at for queue in queues for segment in queue.segments() for at in range(segment.n)]


def test_no_id_comes_twice_after_a_crash_although_no_journal_has_it() -> None:
    stage = Stage()
    know(stage.broker.store)
    send(stage, 3, durable=False)
    before = ids(stage.broker.store)
    restart(stage)
    assert not ids(stage.broker.store)
    know(stage.broker.store)
    send(stage, 3, durable=False)
    after = ids(stage.broker.store)
    assert len(before) == len(after) == 3
    assert min(after) > max(before)


def test_ids_are_reserved_again_long_before_they_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "IDS_RESERVED", 8)
    stage = Stage()
    know(stage.broker.store)
    highest = 0
    for _ in range(10):
        send(stage, 2, durable=False)
        highest = max(ids(stage.broker.store))
        assert stage.broker.store.remotes._reserved_until > highest
    restart(stage)
    assert stage.broker.store.next_id > highest


def test_what_is_reserved_outlives_restarts() -> None:
    stage = Stage()
    know(stage.broker.store)
    send(stage, 1, durable=False)
    reserved = stage.broker.store.remotes._reserved_until
    for _ in range(3):
        restart(stage)
    assert stage.broker.store.next_id >= reserved


def test_clients_cannot_reach_them() -> None:
    stage = Stage()
    know(stage.broker.store)
    send(stage, 1)
    name = stage.broker.store.remotes.queues_of(NODE)[0].kind.name
    with pytest.raises(Refused, match="another node"):
        stage.broker.store.queue_for(name, BROKER)
    with pytest.raises(Refused, match="internal"):
        stage.broker.store.create_queue(stage.broker.store.queues[name].kind.__class__("$.mine", "$.mine"), BROKER)
