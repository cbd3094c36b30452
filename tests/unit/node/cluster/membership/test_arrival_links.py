"""Links on which another node forwards: what it may say of itself."""

from __future__ import annotations

from itertools import product

import pytest
from mqbroker.amqp.events import Detached
from mqbroker.node.amqp.listeners.accepted_peer import AcceptedPeer
from mqbroker.node.cluster.membership.arrival_links import SOURCE_BYTES_MAX, ArrivalEnd
from mqbroker.wire.performatives import Error
from mqbroker.wire.types import Symbol

from tests.support.large_messages import Consumer, Producer
from tests.unit.node.cluster.membership.test_forwards import pair


@pytest.mark.parametrize(
    ("size", "is_heard"), [(SOURCE_BYTES_MAX // 4, True), (SOURCE_BYTES_MAX, False), (70_000, False)]
)
def test_a_source_has_a_name_that_the_journal_can_keep(size: int, *, is_heard: bool) -> None:
    cluster, a, b = pair(listener={"max_frame_size_bytes": 1 << 20})
    consumer = Consumer(b, credit=10)
    cluster.run()
    a.broker.node_id = "é" * (size // 2)
    Producer(a).publish(b"one")
    cluster.run()
    assert (b.is_up, b.halted) == (True, None)
    assert consumer.bodies == [b"one"] * is_heard
    refused = [str(each["why"]) for each in a.events("forwarding-refused")]
    assert all(each.startswith("amqp:invalid-field: mq:source and the name of its link") for each in refused)
    assert bool(refused) is not is_heard
    b.crash()
    b.start()
    assert b.is_up


@pytest.mark.parametrize(("says_so", "is_orderly", "is_closed", "has_error"), list(product((True, False), repeat=4)))
def test_what_has_come_is_forgotten_only_with_a_link_that_ends_for_good(
    *, says_so: bool, is_orderly: bool, is_closed: bool, has_error: bool
) -> None:
    """Else the other node may send it again: a link that is cut, put down for now or ended by a fault comes back."""
    cluster, a, b = pair()
    Consumer(b, credit=10)
    cluster.run()
    Producer(a).publish(b"one")
    cluster.run()
    arrivals = b.broker.store.arrivals
    (peer,) = [each for each in b.broker.peers.values() if isinstance(each, AcceptedPeer) and each.hello]
    links = [link for session in peer.connection.sessions for link in session.by_handle.values()]
    (link,) = [each for each in links if isinstance(each.end, ArrivalEnd)]
    end = link.end
    end._closes_for_good = says_so
    link.is_closed = is_closed
    source = end.arrival.source
    assert source in arrivals._keys
    end.detached(
        peer, Detached(link, Error(condition=Symbol("amqp:internal-error")) if has_error else None, [], is_orderly)
    )
    assert (source not in arrivals._keys or not arrivals._keys[source]) is (
        says_so and is_orderly and is_closed and not has_error
    )
