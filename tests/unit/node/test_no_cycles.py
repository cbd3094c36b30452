"""What ends leaves nothing that only a full look of Python's collector would find, which stops everybody.

Connections, links, queues, transactions and nodes end here in each way that there is.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from mqbroker.amqp import sasl
from mqbroker.config.users import make_verifier
from mqbroker.core.selector import grammar
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Coordinator,
    Declare,
    Discharge,
    Rejected,
    Source,
    Target,
    TransactionalState,
)
from mqbroker.wire.types import Described, Symbol

from tests.support import frames
from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.cycles import leave_out_what_is_there, nothing_to_collect
from tests.support.floods import FLOODS
from tests.support.large_messages import Consumer, Producer
from tests.support.stage import Stage, options_with
from tests.support.transactions import request
from tests.unit.node.test_all_ends import STEPS, Walk

only_of_here = pytest.fixture(scope="module", autouse=True)(leave_out_what_is_there)

GO = frames.anonymous() + frames.opened() + frames.begun()
FOR_LONG_MS = 400_000  # transaction-timeout-ms and all other deadlines are over
BROKEN = b"\0\0\0\5\2\0\0\0\0"
QUEUE, TOPIC = "orders", Symbol("topic")
TXN = (1).to_bytes(8, "big")
IN_TXN = TransactionalState(txn_id=TXN, outcome=Accepted())
LARGE = {"amqp_min_large_message_size_bytes": 2000, "large_message_in_memory_max_size_bytes": 0}


@pytest.fixture(scope="module")
def stage() -> Stage:
    """One node for all cases, which has seen something before."""
    settings = {"auto_delete_queues": True, "max_delivery_attempts": 2, "dead_letter_address": "dead"}
    listener = {"frames_per_second_max": 1_000_000}
    made = Stage(options_with(listener, limits=LARGE, address_settings={"#": settings}))
    grammar.prepare()
    made.talk(made.accept(), GO + frames.close())
    made.wait(FOR_LONG_MS)
    return made


def _forget(stage: Stage) -> None:
    """What the stage keeps for tests."""
    for kept in (stage.batches, stage.appends, stage.notices, stage.sent, stage.closed, stage.replies):
        kept.clear()


@pytest.mark.slow
@pytest.mark.parametrize("kind", FLOODS)
def test_floods_leave_nothing_to_look_for(stage: Stage, kind: str) -> None:
    flood = FLOODS[kind]
    with nothing_to_collect():
        for end in (b"", frames.close()):
            conn = stage.accept()
            stage.talk(conn, GO + flood.links)
            stage.talk(conn, flood.bytes_of(3))
            stage.talk(conn, end)
            stage.drop_bare(conn)
        stage.wait(FOR_LONG_MS)
        _forget(stage)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_whatever_connections_do_leaves_nothing_to_look_for(seed: int) -> None:
    walk = Walk(seed)
    with nothing_to_collect():
        for _ in range(STEPS):
            walk.step()
        for name in list(walk.end().store.queues):
            walk.stage.admin("queue-delete", name=name)
        walk.stage.wait(FOR_LONG_MS)
        _forget(walk.stage)


# -- each end of connections that have something -----------------------------------------------------------------------


def _subscribed(**source: object) -> bytes:
    said = Source(**{"address": "news", "capabilities": (TOPIC,), **source})  # type: ignore[arg-type]
    attach = Attach(name="sub", handle=1, role=True, source=said, target=Target())
    return frames.frame(attach) + frames.flow(1, 10)


COORDINATOR = frames.frame(
    Attach(name="txn", handle=2, role=False, source=Source(), target=Coordinator(), initial_delivery_count=0)
)
MESSAGES = frames.sender(QUEUE) + b"".join(frames.transfer(100_000 + at, durable=at % 2 == 0) for at in range(6))
DELIVERED = MESSAGES + frames.receiver(QUEUE, credit=10)
DECLARED = DELIVERED + COORDINATOR + request(0, Declare())
WORKED = DECLARED + frames.transfer(200_000, state=IN_TXN) + frames.disposition(0, 1, IN_TXN, settled=False)
SELECTOR = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "colour = 'blue'")}
HAVE: dict[str, bytes] = {
    "nothing": b"",
    "a sender": MESSAGES,
    "deliveries": DELIVERED,
    "deliveries that were refused": DELIVERED + frames.disposition(0, 3, Rejected()),
    "a temporary queue": frames.frame(Attach(name="t", handle=1, role=True, source=Source(dynamic=True),
                                             target=Target())),
    "a browser": MESSAGES + frames.frame(Attach(name="b", handle=1, role=True, target=Target(),
        source=Source(address=QUEUE, distribution_mode=Symbol("copy")))) + frames.flow(1, 10),
    "a selector": MESSAGES + _subscribed(filter=SELECTOR, capabilities=None, address=QUEUE),
    "a subscription": _subscribed(),
    "a durable subscription": _subscribed(durable=2, expiry_policy=Symbol("never")),
    "a subscription that may outlive it": _subscribed(timeout=5, expiry_policy=Symbol("connection-close")),
    "a shared subscription": _subscribed(capabilities=(TOPIC, Symbol("shared"))),
    "a link of which nothing is there": frames.receiver("no::such"),
    "an open transaction": WORKED,
    "a commit": WORKED + request(1, Discharge(txn_id=TXN)),
    "a commit that fails": WORKED + frames.transfer(200_001, handle=77) + request(1, Discharge(txn_id=TXN)),
    "a rollback": WORKED + request(1, Discharge(txn_id=TXN, fail=True)),
    "an outcome outside of its transaction": WORKED + frames.disposition(0, 1, Accepted()),
    "a large message": frames.sender(QUEUE) + frames.transfer(5, b"x" * 5000) + frames.receiver(QUEUE, credit=10),
    "a part of a large message": frames.sender(QUEUE) + frames.transfer(5, b"x" * 5000, more=True),
    "a part of a message": frames.sender(QUEUE) + frames.transfer(5, b"x", more=True),
    "a message that is none": frames.sender(QUEUE) + frames.transfer(5, b"x", handle=0, message_format=0)[:-1] + b"y",
    "a fault of a link": MESSAGES + frames.transfer(9, b"x" * 10, state=TransactionalState(txn_id=b"none")),
    "a fault of a session": MESSAGES + frames.flow(77, 1) + frames.end(),
    "sessions that ended": DELIVERED + frames.end() + frames.begun() + DELIVERED + frames.end(),
}  # fmt: skip
ENDS: dict[str, Callable[[Stage, int], None]] = {
    "it closes": lambda stage, conn: stage.give(given.BytesReceived(conn, frames.close())),
    "it is lost": lambda stage, conn: None,
    "it says nonsense": lambda stage, conn: stage.give(given.BytesReceived(conn, BROKEN)),
    "it falls silent": lambda stage, conn: stage.wait(FOR_LONG_MS),
    "an administrator closes it": lambda stage, conn: stage.admin("connection-close", container_id="raw"),
    "its queue is deleted": lambda stage, conn: stage.admin("queue-delete", name=QUEUE, force=True),
    "it is lost while the disk is slow": lambda stage, conn: setattr(stage, "is_disk_held", True),
}


@pytest.mark.slow
@pytest.mark.parametrize("has", HAVE)
def test_no_end_of_a_connection_leaves_anything_to_look_for(stage: Stage, has: str) -> None:
    with nothing_to_collect():
        for end in ENDS.values():
            conn = stage.accept()
            stage.talk(conn, GO)
            stage.talk(conn, HAVE[has])
            end(stage, conn)
            stage.run()
            stage.drop_bare(conn)
            stage.is_disk_held = False
            stage.run()
            stage.wait(FOR_LONG_MS)
            for name in list(stage.broker.store.queues):
                stage.admin("queue-delete", name=name, force=True)
        stage.wait(FOR_LONG_MS)
        _forget(stage)
    assert stage.is_up
    assert not stage.broker.peers


def test_strangers_and_users_who_are_gone_leave_nothing_to_look_for() -> None:
    users = {"app": make_verifier("right", b"0123456789abcdef", ("client",))}
    stage = Stage(options_with({"sasl_mechanisms": ("SCRAM-SHA-256", "PLAIN")}), users)
    stage.wait(FOR_LONG_MS)
    with nothing_to_collect():
        for said in (b"", b"GET / HTTP/1.1\r\n", frames.SASL_HEADER, frames.plain("app", "wrong"), GO):
            conn = stage.accept()
            stage.talk(conn, said)
            stage.wait(FOR_LONG_MS)
        for password in ("right", "wrong"):
            stage.connect(password, sasl.SaslClient("app", password, b"n" * 32))
        stage.give(given.UsersChanged({}))
        stage.run()
        stage.wait(FOR_LONG_MS)
        stage.talkers.clear()
        stage.derives.clear()
        _forget(stage)


# -- nodes that find each other ----------------------------------------------------------------------------------------


def _restart(cluster: ClusterStage, node: ClusterNode) -> None:
    node.crash()
    cluster.wait(FOR_LONG_MS)
    node.start()


def _forgotten(cluster: ClusterStage, node: ClusterNode) -> None:
    node.crash()
    cluster.wait(FOR_LONG_MS)
    other = next(each for each in cluster.nodes.values() if each is not node)
    other.admin("cluster-forget", node_id=node_id_of(node.name), action="drop")


@pytest.mark.slow
@pytest.mark.parametrize("ends", [
    lambda cluster, node: cluster.cut_all(node),
    lambda cluster, node: cluster.silence(node),
    lambda cluster, node: cluster.unreachable.add(node.name) or cluster.cut_all(node),
    lambda cluster, node: node.stop(),
    _restart,
    _forgotten,
], ids=["cut", "silent", "unreachable", "stopped", "restarted", "forgotten"])  # fmt: skip
def test_bridges_that_end_leave_nothing_to_look_for(ends: Callable[[ClusterStage, ClusterNode], None]) -> None:
    cluster = ClusterStage()
    here, there = cluster.node("a", ["b"]), cluster.node("b", ["a"])
    cluster.wait(1000)
    kept = []  # nodes of earlier lives
    with nothing_to_collect():
        consumer = Consumer(there, credit=5)
        cluster.run()
        producer = Producer(here)
        for number in range(9):
            producer.publish(b"%d" % number)
        cluster.run()
        assert len(consumer.bodies) == 5
        del consumer, producer
        kept.append(there.broker)
        ends(cluster, there)
        cluster.wait(FOR_LONG_MS)
        kept.append(there.broker)
        for node in (here, there):
            node.talkers.clear()
            node.dials.clear()
            node.derives.clear()
            _forget(node)
