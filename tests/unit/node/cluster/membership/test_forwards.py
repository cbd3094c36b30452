"""Messages that go to other nodes: each arrives once and in order, whatever becomes of the links."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.admin.metrics import of_node
from mqbroker.core.address.dead_letters import HOLD_MS
from mqbroker.node.broker import local
from mqbroker.node.cluster.forwarding.abandoned_messages import TAKEN_MAX
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Accepted, Rejected
from mqbroker.wire.sections import Header
from mqbroker.wire.types import Described, Symbol

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Consumer, Producer

SELECTOR = Symbol("apache.org:selector-filter:string")


def pair(**changes: Any) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """Two nodes that know each other."""
    cluster = ClusterStage()
    a, b = cluster.node("a", ["b"], **changes), cluster.node("b", ["a"], **changes)
    cluster.run()
    cluster.wait(600)
    assert (a.state("b"), b.state("a")) == ("up", "up")
    return cluster, a, b


def waiting(node: ClusterNode, name: str) -> int:
    """Messages for another node."""
    return sum(queue.message_count for queue in node.broker.store.remotes.queues_of(node_id_of(name)))


def test_messages_go_where_their_consumer_is() -> None:
    cluster, a, b = pair()
    consumer = Consumer(b, credit=100)
    cluster.run()
    producer = Producer(a)
    for number in range(20):
        producer.publish(b"%d" % number)
    cluster.run()
    assert consumer.bodies == [b"%d" % number for number in range(20)]
    assert len(producer.outcomes) == 20
    assert waiting(a, "b") == 0
    assert b.broker.store.arrivals.arrived_total == 20


def test_messages_that_expire_go_together_too() -> None:
    cluster, a, b = pair()
    Consumer(b, credit=0)
    cluster.run()
    producer = Producer(a)
    for number in range(20):
        producer.send(b"%02d" % number, header=Header(ttl=60_000))
    cluster.run()
    (found,) = b.broker.store.queues["orders"].backlog
    assert found.n == 20
    assert found.run.expires_ms == b.broker.at.wall_ms + 60_000
    assert len(producer.outcomes) == 20
    consumer = Consumer(b, "reader", credit=100)
    assert consumer.bodies == [b"%02d" % number for number in range(20)]


def test_what_cannot_go_waits_and_goes_when_the_node_is_back_in_order_and_once() -> None:
    cluster, a, b = pair()
    Consumer(b, credit=0)
    cluster.run()
    producer = Producer(a)
    for number in range(5):
        producer.publish(b"%d" % number)
    cluster.run()
    b.crash()
    cluster.run()
    for number in range(5, 10):
        producer.publish(b"%d" % number)
    assert waiting(a, "b") + a.broker.store.queues["orders"].message_count == 5
    b.start()
    cluster.run()
    cluster.wait(2_500)
    consumer = Consumer(b, "again", credit=100)
    cluster.run()
    cluster.wait(100)
    assert sorted(consumer.bodies, key=int)[:5] == [b"%d" % number for number in range(5)]
    assert len(consumer.bodies) == len(set(consumer.bodies))


def test_answers_that_were_lost_make_no_duplicates() -> None:
    cluster, a, b = pair()
    consumer = Consumer(b, credit=100)
    cluster.run()
    producer = Producer(a)
    b.is_disk_held = True
    for number in range(10):
        producer.publish(b"%d" % number)
    cluster.run()
    assert waiting(a, "b") == 10  # sent, and not answered
    cluster.cut_all(a)
    cluster.run()
    b.is_disk_held = False
    cluster.wait(2_500)
    assert consumer.bodies == [b"%d" % number for number in range(10)]
    assert waiting(a, "b") == 0
    assert b.broker.store.arrivals.dropped_total == 10
    assert [run.deliveries for run in b.broker.store.queues["orders"].backlog] == []


def test_a_link_that_nobody_needs_stays_until_it_is_on_disk_what_went() -> None:
    cluster, a, b = pair()
    Consumer(b, credit=100)
    cluster.run()
    producer = Producer(a)
    b.is_disk_held = True
    producer.send(b"once")
    cluster.run()
    a.is_disk_held, b.is_disk_held = True, False
    cluster.run()
    assert waiting(a, "b") == 0
    b.admin("queue-delete", name="orders", force=True)
    cluster.run()
    assert b.broker.store.arrivals._keys, "what comes again is known"
    a.is_disk_held = False
    cluster.run()
    assert not b.broker.store.arrivals._keys


def test_ids_that_a_node_gives_again_after_a_crash_hide_nothing() -> None:
    cluster, a, b = pair()
    consumer = Consumer(b, credit=100)
    cluster.run()
    producer = Producer(a)
    for number in range(10):
        producer.publish(b"fleeting %d" % number, durable=False)
    cluster.run()
    assert len(consumer.bodies) == 10
    a.crash()
    a.start()
    cluster.run()
    cluster.wait(2_500)
    again = Producer(a, "again")
    for number in range(10):
        again.publish(b"lasting %d" % number)
        again.publish(b"fleeting %d" % number, durable=False)
    cluster.run()
    assert consumer.bodies[10:] == [b"%s %d" % (kind, n) for n in range(10) for kind in (b"lasting", b"fleeting")]


@pytest.mark.option("cluster-connections.use-duplicate-detection")
def test_without_duplicate_detection_they_do() -> None:
    cluster, a, b = pair(use_duplicate_detection=False)
    consumer = Consumer(b, credit=100)
    cluster.run()
    producer = Producer(a)
    b.is_disk_held = True
    producer.publish(b"twice")
    cluster.run()
    cluster.cut_all(a)
    cluster.run()
    b.is_disk_held = False
    cluster.wait(2_500)
    assert consumer.bodies == [b"twice", b"twice"]


@pytest.mark.option("cluster-connections.confirmation-window-size")
def test_so_many_bytes_at_most_are_without_an_answer() -> None:
    cluster, a, b = pair(confirmation_window_size=3_000)
    Consumer(b, credit=0)
    cluster.run()
    producer = Producer(a)
    b.is_disk_held = True
    for _ in range(10):
        producer.publish(b"x" * 1_000)
    cluster.run()
    (queue,) = a.broker.store.remotes.queues_of(node_id_of("b"))
    assert (queue.delivering_count, queue.message_count) == (3, 10)
    b.is_disk_held = False
    cluster.run()
    assert queue.message_count == 0


def test_large_messages_go_too() -> None:
    tables = {"limits": {"amqp_min_large_message_size_bytes": 2_000, "large_message_in_memory_max_size_bytes": 0}}
    cluster, a, b = pair(options=tables)
    consumer = Consumer(b, credit=100)
    cluster.run()
    producer = Producer(a)
    bodies = [bytes([number]) * 40_000 for number in range(3)]
    for body in bodies:
        producer.publish(body)
        producer.publish(b"small")
    cluster.run()
    assert consumer.bodies == [bodies[0], b"small", bodies[1], b"small", bodies[2], b"small"]
    assert waiting(a, "b") == 0
    assert not a.large_files.sizes


def test_a_large_message_that_cannot_be_stored_there_stays_here_and_is_tried_again() -> None:
    tables = {"limits": {"amqp_min_large_message_size_bytes": 2_000, "large_message_in_memory_max_size_bytes": 0}}
    cluster, a, b = pair(options=tables, retry_interval=500)
    consumer = Consumer(b, credit=100)
    cluster.run()
    b.is_large_held = True
    Producer(a).publish(b"x" * 40_000)
    cluster.run()
    while b.large_effects:
        b.give(given.Failed(b.large_effects.pop(0).id, "the disk is full"))
        cluster.run()
    b.is_large_held = False
    cluster.run()
    assert (waiting(a, "b"), consumer.bodies) == (1, [])
    assert "the disk is full" in a.events("forwarding-refused")[0]["why"]
    cluster.wait(600)
    assert (waiting(a, "b"), consumer.bodies) == (0, [b"x" * 40_000])


def test_topics_reach_subscribers_everywhere() -> None:
    cluster, a, b = pair()
    here = Consumer(a, "here", "news", credit=100, source={"capabilities": ("topic",)})
    there = Consumer(b, "there", "news", credit=100, source={"capabilities": ("topic",)})
    cluster.run()
    producer = Producer(a, address="news")
    for number in range(5):
        producer.publish(b"%d" % number)
    cluster.run()
    assert here.bodies == there.bodies == [b"%d" % number for number in range(5)]


def test_two_subscribers_at_one_node_share_one_transfer() -> None:
    cluster, a, b = pair()
    both = [Consumer(b, f"there-{n}", "news", credit=100, source={"capabilities": ("topic",)}) for n in range(2)]
    cluster.run()
    producer = Producer(a, address="news")
    producer.publish(b"once")
    cluster.run()
    assert [each.bodies for each in both] == [[b"once"], [b"once"]]
    assert b.broker.store.arrivals.arrived_total == 1


def test_queues_whose_messages_meet_again_take_turns() -> None:
    """Of a route's messages none goes while another route to the same subscription has one from before it."""
    cluster, a, b = pair()
    topic = {"capabilities": ("topic",)}
    red = {SELECTOR: Described(SELECTOR, "colour = 'red'")}
    everything = Consumer(b, "everything", "news", credit=100, source=topic)
    some = Consumer(b, "some", "news", credit=100, source=topic, filter=red)
    cluster.run()
    cluster.hold_up("a", "b")
    for pipe in cluster.between("a", "b"):
        cluster.cut(pipe)
    cluster.run()
    producer = Producer(a, address="news")
    bodies = [b"%d" % number * (1 + number) for number in range(8)]  # of all sizes, so that runs have no stride
    for colour, numbers in (("blue", range(2)), ("red", range(2, 5)), ("blue", range(5, 8))):
        for number in numbers:
            producer.send(bodies[number], application_properties={"colour": colour})
        cluster.run()  # so they come in runs
    assert waiting(a, "b") == 8
    cluster.let_through("a", "b")
    cluster.wait(3_000)
    assert everything.bodies == bodies
    assert some.bodies == bodies[2:5]


def test_what_waits_for_the_disk_has_its_turn_too() -> None:
    """What is not durable does not wait, and overtakes nothing on its way to a queue that gets both."""
    cluster, a, b = pair()
    topic = {"capabilities": ("topic",)}
    red = {SELECTOR: Described(SELECTOR, "colour = 'red'")}
    everything = Consumer(b, "everything", "news", credit=100, source=topic)
    Consumer(b, "some", "news", credit=100, source=topic, filter=red)
    cluster.run()
    producer = Producer(a, address="news")
    for colour in ("red", "blue"):  # both queues are there, with their links
        producer.publish(colour.encode(), application_properties={"colour": colour})
    cluster.run()
    a.is_disk_held = True
    producer.publish(b"first", durable=True, application_properties={"colour": "red"})
    producer.publish(b"second", durable=False, application_properties={"colour": "blue"})
    cluster.run()
    assert everything.bodies == [b"red", b"blue"]
    a.is_disk_held = False
    cluster.run()
    cluster.wait(1_000)
    assert everything.bodies == [b"red", b"blue", b"first", b"second"]


def test_nothing_leaves_before_it_is_on_disk_how_far_ids_go() -> None:
    cluster, a, b = pair()
    consumer = Consumer(b, credit=100)
    cluster.run()
    Producer(a, "before").publish(b"before", durable=False)
    cluster.run()
    assert consumer.bodies == [b"before"]
    a.crash()
    cluster.run()
    a.is_disk_held = True
    a.start()
    cluster.wait(3_000)
    producer = Producer(a, "after")
    producer.publish(b"after", durable=False)
    cluster.wait(1_000)
    assert (a.state("b"), waiting(a, "b"), consumer.bodies) == ("up", 1, [b"before"])
    a.is_disk_held = False
    cluster.wait(1_000)
    assert consumer.bodies == [b"before", b"after"]


def test_a_node_without_the_queue_has_its_messages_routed_again() -> None:
    cluster, a, b = pair()
    Consumer(b, credit=0)
    cluster.run()
    cluster.silence(b)
    producer = Producer(a)
    producer.publish(b"waits")
    cluster.run()
    assert waiting(a, "b") == 1
    cluster.cut_all(b)
    b.crash()
    b.disk = type(b)(cluster, "b", b.options).disk  # with another disk: it has lost everything
    b.start()
    cluster.run()
    cluster.wait(3_000)
    assert waiting(a, "b") == 0
    consumer = Consumer(a, "here", credit=10)
    cluster.run()
    cluster.wait(100)
    dead = [queue for name, queue in a.broker.store.queues.items() if "DLQ" in name]
    assert consumer.bodies == [b"waits"] or sum(queue.message_count for queue in dead) == 1


def test_on_listeners_of_clients_nobody_forwards() -> None:
    from mqbroker.amqp import events as told
    from mqbroker.wire.performatives import Attach, Source, Target
    from mqbroker.wire.types import Symbol

    cluster, a, _ = pair()
    talker = a.connect("intruder")
    assert talker.session is not None
    target = Target(address="orders", capabilities=(Symbol("mq:store-and-forward"),))
    talker.session.attach_sender(Attach(name="x", handle=0, role=False, source=Source(), target=target,
                                        initial_delivery_count=0))  # fmt: skip
    talker.session.attach_receiver(Attach(name="y", handle=0, role=True, snd_settle_mode=1, target=Target(),
                                          source=Source(address="mq:notices")))  # fmt: skip
    cluster.run()
    refused = [event.error.condition for event in talker.events if isinstance(event, told.Detached) and event.error]
    assert refused == ["amqp:unauthorized-access"] * 2


def test_who_is_short_of_room_gives_no_credit_and_refuses_nothing() -> None:
    tables = {"limits": {"global_max_size_bytes": 1 << 20, "link_credit": 10}}
    cluster, a, b = pair(options=tables)
    b.broker.store.memory.is_shut = False
    consumer = Consumer(b, credit=0)
    cluster.run()
    producer = Producer(a)
    b.broker.store.memory.is_shut = True
    for number in range(30):
        if producer.link.credit:
            producer.publish(b"%d" % number)
    cluster.run()
    assert b.broker.store.queues["orders"].message_count <= 10
    b.broker.store.memory.is_shut = False
    b.broker.relieve()
    b.step()
    cluster.run()
    consumer.link.grant(100)
    cluster.run()
    cluster.wait(1_000)
    assert consumer.bodies == [b"%d" % number for number in range(len(consumer.bodies))]
    assert waiting(a, "b") == 0


def lost_with_five(action: str, *, takes_dead: bool = True) -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    """A node that is gone while five messages wait for it."""
    settings: dict[str, dict[str, Any]] = {"#": {"dead_letter_address": "dead"}}
    if takes_dead:
        settings["#"]["auto_create_dead_letter_resources"] = True
    else:
        settings["dead"] = {"auto_create_queues": False, "auto_create_addresses": False}
    cluster, a, b = pair(on_node_lost=action, node_lost_grace=60_000, options={"address_settings": settings})
    Consumer(b, credit=0)
    cluster.run()
    cluster.silence(b)
    producer = Producer(a)
    for number in range(5):
        producer.publish(b"%d" % number)
    cluster.run()
    b.crash()
    cluster.run()
    assert waiting(a, "b") == 5
    cluster.wait(59_000)
    assert waiting(a, "b") == 5
    cluster.wait(2_000)
    return cluster, a, b


@pytest.mark.option("cluster-connections.on-node-lost", "cluster-connections.node-lost-grace")
def test_what_waits_for_a_node_that_does_not_come_back_may_be_routed_again() -> None:
    cluster, a, b = lost_with_five("reroute")
    assert waiting(a, "b") == 0
    (told,) = a.events("node-abandoned")
    assert (told["action"], told["messages"], told["node_id"]) == ("reroute", 5, node_id_of("b"))
    consumer = Consumer(a, "here", credit=100)
    assert consumer.bodies == [b"%d" % number for number in range(5)]
    b.start()
    cluster.run()
    cluster.wait(2_500)
    assert a.state("b") == "up"
    there = Consumer(b, "there", credit=100)
    cluster.run()
    consumer.link.detach()
    cluster.run()
    Producer(a, "later").publish(b"later")
    cluster.run()
    assert there.bodies == [b"later"]


def test_a_restart_begins_the_grace_of_a_lost_node_anew() -> None:
    cluster, a, b = pair(on_node_lost="reroute", node_lost_grace=60_000)
    Consumer(b, credit=0)
    cluster.run()
    cluster.silence(b)
    Producer(a).publish(b"waits")
    b.crash()
    cluster.wait(30_000)
    a.crash()
    a.start()
    cluster.run()
    cluster.wait(59_000)
    assert waiting(a, "b") == 1
    cluster.wait(2_000)
    assert waiting(a, "b") == 0
    assert Consumer(a, "here", credit=100).bodies == [b"waits"]


def test_or_become_dead_letters() -> None:
    _, a, _ = lost_with_five("dead-letter")
    assert waiting(a, "b") == 0
    assert (
        sum(queue.message_count for name, queue in a.broker.store.queues.items() if "DLQ" in name or name == "dead")
        == 5
    )


def test_which_stay_where_the_address_does_not_take_them_and_go_once_it_does() -> None:
    cluster, a, _ = lost_with_five("dead-letter", takes_dead=False)
    for _ in range(3):
        cluster.wait(HOLD_MS)
        assert waiting(a, "b") == 5
    assert a.broker.store.dead_letters.lost_totals["killed"] == 0
    assert sum(each["count"] for each in a.events("messages-held")) >= 5
    a.admin("queue-create", name="letters", address="dead")
    cluster.wait(HOLD_MS)
    assert (waiting(a, "b"), a.broker.store.queues["letters"].message_count) == (0, 5)
    assert a.broker.store.dead_letters.left_totals["killed"] == 5


def test_which_go_to_the_node_where_it_is_back_first() -> None:
    cluster, a, b = lost_with_five("dead-letter", takes_dead=False)
    b.start()
    Consumer(b, "again", credit=0)
    cluster.wait(HOLD_MS + 2_500)
    assert (waiting(a, "b"), b.broker.store.queues["orders"].message_count) == (0, 5)
    assert a.broker.store.dead_letters.lost_totals["killed"] == 0


def test_a_refused_message_is_not_tried_with_all_that_are_behind_it() -> None:
    """As many as are taken in a step are enough to see it, once a minute."""
    cluster, a, b = pair(options={"address_settings": {"#": {"dead_letter_address": "dead"},
                                                       "dead": {"auto_create_queues": False}}})  # fmt: skip
    Consumer(b, credit=0)
    cluster.run()
    cluster.silence(b)
    producer = Producer(a)
    for number in range(3 * TAKEN_MAX):
        producer.send(b"%d" % number)
        if not producer.link.credit:
            a.run()
    cluster.run()
    b.crash()
    cluster.run()
    a.admin("cluster-forget", node_id=node_id_of("b"), action="dead-letter")
    cluster.run()
    assert 0 < a.broker.store.dead_letters.held_total <= TAKEN_MAX
    a.admin("queue-create", name="letters", address="dead")
    cluster.wait(HOLD_MS + 2_000)
    assert (waiting(a, "b"), a.broker.store.queues["letters"].message_count) == (0, 3 * TAKEN_MAX)


def test_or_wait() -> None:
    _, a, _ = lost_with_five("hold")
    assert waiting(a, "b") == 5
    assert a.events("node-abandoned") == []


def test_metrics_of_the_cluster() -> None:
    cluster, a, b = pair()
    Consumer(b, credit=0)
    cluster.run()
    Producer(a).publish(b"1")
    cluster.run()

    def value(node: ClusterNode, name: str) -> float:
        found: float = of_node(node.broker, per_object=False)[f"mqbroker_cluster_{name}"][0][1]
        return found

    shown = [value(a, name) for name in ("members", "links_up", "links_down", "waiting_messages")]
    assert shown == [2, 1, 0, 0]
    assert (value(a, "messages_arrived_total"), value(b, "messages_arrived_total")) == (0, 1)
    b.crash()
    cluster.run()
    assert (value(a, "links_up"), value(a, "links_down")) == (0, 1)


@pytest.mark.option("cluster-connections.message-load-balancing")
@pytest.mark.parametrize(("mode", "there"), [("OFF", 0), ("ON_DEMAND", 0), ("STRICT", 5)])
def test_what_goes_to_a_node_without_consumers_is_a_matter_of_the_mode(mode: str, there: int) -> None:
    cluster, a, b = pair(message_load_balancing=mode)
    for node in (a, b):
        node.admin("queue-create", name="orders")
    cluster.run()
    producer = Producer(a)
    for number in range(10):
        producer.publish(b"%d" % number)
    cluster.run()
    counts = [node.broker.store.queues["orders"].message_count for node in (a, b)]
    assert counts == [10 - there, there]


def test_dead_letters_go_to_the_node_that_alone_has_their_queue() -> None:
    """As what is sent there does, where a queue of that name may not be made here."""
    settings = {"dead_letter_address": "dead", "auto_create_queues": False, "redistribution_delay": 0}
    cluster, a, b = pair(options={"address_settings": {"#": settings}})
    a.admin("queue-create", name="orders")
    b.admin("queue-create", name="dead")
    cluster.run()
    consumer = Consumer(a, credit=2)
    producer = Producer(a)
    for number in range(2):
        producer.publish(b"%d" % number)
        consumer.settle(number, Rejected())
    cluster.wait(100)
    assert [queue.message_count for queue in (a.broker.store.queues["orders"], b.broker.store.queues["dead"])] == [0, 2]


def reject_one(cluster: ClusterStage, node: ClusterNode, name: str) -> None:
    """A message of a queue of this node becomes a dead letter."""
    node.admin("queue-create", name=name)
    assert node.admin("send", address=name, messages=[{"body": name}]) == {"accepted": 1}
    cluster.run()
    tag = node.admin("receive", address=name, count_max=1, wait_ms=10)["tag"]
    node.admin("settle", tag=tag, outcome="rejected")
    cluster.run()


def test_dead_letters_go_to_the_queue_of_their_own_origin_alone_at_whichever_node() -> None:
    rules = {"dead_letter_address": "dead", "auto_create_dead_letter_resources": True}
    cluster, a, b = pair(options={"address_settings": {"#": rules}})
    for node, name in ((b, "q0"), (b, "q1"), (b, "q2"), (a, "mine")):
        reject_one(cluster, node, name)
    cluster.wait(500)
    kept = {
        (node.name, queue.kind.name): queue.message_count
        for node in (a, b)
        for queue in node.broker.store.queues.values()
        if queue.kind.moved_from
    }
    assert kept == {("a", "DLQ.mine"): 1, ("b", "DLQ.q0"): 1, ("b", "DLQ.q1"): 1, ("b", "DLQ.q2"): 1}
    for node, name in ((a, "DLQ.mine"), (b, "DLQ.q0"), (b, "DLQ.q1"), (b, "DLQ.q2")):
        assert node.admin("dead-letters-retry", queue=name) == {"retried": 1, "left": 0}
    cluster.wait(500)
    assert [node.broker.store.queues[name].message_count for node, name in ((a, "mine"), (b, "q0"))] == [1, 1]
    assert (waiting(a, "b"), waiting(b, "a")) == (0, 0)


def test_dead_letters_of_one_origin_go_to_the_node_that_reads_them() -> None:
    rules = {"dead_letter_address": "dead", "auto_create_dead_letter_resources": True, "redistribution_delay": 0}
    cluster, a, b = pair(options={"address_settings": {"#": rules}})
    for name in ("mine", "other"):
        reject_one(cluster, b, name)
    consumer = Consumer(b, "reader", "dead::DLQ.mine", 10)
    cluster.run()
    for name in ("mine", "other"):
        reject_one(cluster, a, name)
    cluster.wait(500)
    assert sum(event.run.count for event in consumer.incoming) == 2
    assert [node.broker.store.queues["DLQ.other"].message_count for node in (a, b)] == [1, 1]


@pytest.mark.parametrize("are_alike", [True, False], ids=["by its settings", "by what the other node tells"])
def test_who_reads_dead_letters_of_one_origin_at_a_node_that_had_none_gets_no_others(are_alike: bool) -> None:
    rules = {"dead_letter_address": "dead", "auto_create_dead_letter_resources": True, "redistribution_delay": 0}
    cluster = ClusterStage()
    a = cluster.node("a", ["b"], options={"address_settings": {"#": rules}})
    b = cluster.node("b", ["a"], options={"address_settings": {"#": rules}} if are_alike else {})
    cluster.run()
    cluster.wait(600)
    if not are_alike:
        reject_one(cluster, a, "mine")
    reader = Consumer(b, "reader", "dead::DLQ.mine", 10)
    cluster.run()
    for name in ("other", "mine"):
        reject_one(cluster, a, name)
    cluster.wait(500)
    assert sum(event.run.count for event in reader.incoming) == 2 - are_alike
    assert a.broker.store.queues["DLQ.other"].message_count == 1


def test_a_link_that_nobody_needs_as_it_is_asked_for_is_asked_for_again_where_somebody_does() -> None:
    """The other node has lost its queue while this one was away, and has one of that name later."""
    cluster, a, b = pair()
    Consumer(b, credit=10)
    cluster.run()
    Producer(a).publish(b"before")
    cluster.run()
    a.crash()
    b.admin("queue-delete", name="orders", force=True)
    a.start()
    cluster.wait(600)
    assert (a.state("b"), waiting(a, "b")) == ("up", 0)
    consumer = Consumer(b, "later", credit=10)
    cluster.run()
    producer = Producer(a, "again")
    producer.publish(b"after")
    cluster.run()
    assert (producer.outcomes, consumer.bodies, waiting(a, "b")) == ([Accepted()], [b"after"], 0)


def test_dead_letters_go_back_to_an_address_of_which_another_node_alone_has_a_queue() -> None:
    rules = {"auto_create_queues": False, "dead_letter_address": "DLQ", "max_delivery_attempts": 1}
    cluster, a, b = pair(message_load_balancing="STRICT", options={"address_settings": {"#": rules}})
    for queue in ("orders", "DLQ"):
        a.admin("queue-create", name=queue)
    assert a.admin("send", address="orders", messages=[{"body": "x"}]) == {"accepted": 1}
    answer = a.admin("receive", address="orders", count_max=1, wait_ms=1)
    assert a.admin("settle", tag=answer["tag"], outcome="rejected") == {}
    b.admin("queue-create", name="orders")
    cluster.run()
    a.admin("queue-delete", name="orders")
    cluster.run()
    assert a.admin("dead-letters-retry", queue="DLQ") == {"retried": 1, "left": 0}
    cluster.run()
    assert b.broker.store.queues["orders"].message_count == 1


def test_what_a_filter_of_another_node_lets_in_is_moved_there_and_the_rest_is_left() -> None:
    cluster, a, b = pair(message_load_balancing="STRICT")
    a.admin("queue-create", name="source")
    b.admin("queue-create", name="reds", address="news", routing_type="multicast", selector="color = 'red'")
    cluster.run()
    messages = [{"body": color, "application_properties": {"color": color}} for color in ("red", "blue")]
    assert a.admin("send", address="source", messages=messages) == {"accepted": 2}
    assert a.admin("messages-move", queue="source", address="news") == {"moved": 1, "left": 1}
    cluster.run()
    assert [each.broker.store.queues[name].message_count for each, name in ((a, "source"), (b, "reds"))] == [1, 1]


def test_a_request_sends_few_messages_of_which_queues_of_another_node_get_many_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "SENT_COPIES_MAX", 9)
    cluster, a, b = pair()
    subscriptions = [f"s{number}" for number in range(24)]
    for each in subscriptions:
        b.admin("queue-create", name=each, address="news", routing_type="multicast")
    cluster.run()
    messages = [{"body": "x"}] * 4
    refused = a.admin("send", address="news", messages=messages)
    assert "each message cost 3 copies: send 3 at once" in refused["description"]
    assert a.admin("send", address="news", messages=messages[:3]) == {"accepted": 3}
    cluster.run()
    assert {b.broker.store.queues[each].message_count for each in subscriptions} == {3}
    for each in subscriptions:
        b.admin("queue-delete", name=each)
    b.admin("queue-create", name="all", address="news")
    cluster.run()
    assert a.admin("send", address="news", messages=messages) == {"accepted": 4}, "one of them gets it"
