"""What a person said of an address goes along with its queues to the node that takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from mqbroker.base.notice import Level
from mqbroker.core.address.address_records import told_of
from mqbroker.core.cluster.drains import PAUSE_PREFIX
from mqbroker.core.cluster.id_digest import IdDigest
from mqbroker.node.cluster.forwarding.forwarding_terms import ARRIVED, address_wanted, makes_queues
from mqbroker.node.cluster.membership import arrival_links
from mqbroker.wire.performatives import Target

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Producer
from tests.unit.core.cluster.test_drains import LIMITS, bodies, count_at, drain, filled, pair, read_at, row_of
from tests.unit.node.cluster.departure.test_next_heir import Heirs
from tests.unit.node.test_scale_down import begin, moved, scheduled
from tests.unit.node.test_scale_down_at_stop import cluster_of, stop


def created(node: ClusterNode, *routing_types: str) -> None:
    node.admin("address-create", name="orders", routing_types=list(routing_types))
    node.admin("queue-create", name="orders")


def described(node: ClusterNode) -> tuple[list[str], bool, bool]:
    """Routing types, whether it pauses, and whether it was only made by using it."""
    (row,) = [each for each in node.admin("addresses")["addresses"] if each["name"] == "orders"]
    return row["routing_types"], row["paused"], row["auto_created"]


@pytest.mark.parametrize("crashes", [False, True])
def test_an_address_that_somebody_made_is_one_there_too_and_stays(crashes: bool) -> None:
    cluster, a, b = pair()
    created(a, "anycast", "multicast")
    filled(a, 10, cluster)
    begin(a, cluster)
    assert moved(a, cluster)["receipt"]["balances"]
    if crashes:
        b.crash()
        b.start()
        cluster.wait(5_000)
    assert described(b) == (["anycast", "multicast"], False, False)
    assert read_at(b, cluster).bodies == bodies(10)
    b.admin("queue-delete", name="orders", force=True)
    cluster.wait(5_000)
    assert described(b)[0] == ["anycast", "multicast"], "nobody deletes it but a person"


def test_which_types_it_may_have_is_said_of_no_other_node_and_hinders_none_that_comes_next() -> None:
    cluster = ClusterStage()
    said: dict[str, Any] = {"options": LIMITS, "message_load_balancing": "OFF"}
    a, b, c = cluster.node("a", ["b"], **said), cluster.node("b", ["a", "c"], **said), cluster.node("c", ["b"], **said)
    cluster.run()
    cluster.wait(600)
    created(c, "anycast")
    a.admin("queue-create", name="topic", address="orders", routing_type="multicast")
    producer = Producer(a, "producer", "orders")
    for index in range(5):
        producer.send(b"%d" % index, durable=True)
    cluster.run()
    begin(c, cluster)
    moved(c, cluster)
    assert described(b)[2] is False, "somebody made it"
    begin(a, cluster)
    assert moved(a, cluster)["hindrances"] == []
    assert b.broker.store.queues["topic"].message_count == 5


PAUSES = ("drain-paused", "drain-unpaused")


def told_of_pauses(node: ClusterNode) -> list[tuple[str, str]]:
    return [(event, fields["queue"]) for event in PAUSES for fields in node.events(event)]


def levels_of_pauses(node: ClusterNode) -> list[tuple[str, Level]]:
    return [(one.event, one.level) for one in node.notices if one.event in PAUSES]


@pytest.mark.parametrize("persist", [True, False])
@pytest.mark.parametrize("pause", ["queue-pause", "address-pause"])
def test_what_is_paused_is_made_so_there_and_that_is_told(pause: str, persist: bool) -> None:
    cluster, a, b = pair()
    filled(a, 10, cluster)
    (row,) = begin(a, cluster, dry_run=True)["queues"]
    assert (row["paused"], row["paused_there"], row["address_paused"]) == (False, None, False)
    a.admin(pause, name="orders", **({"persist": persist} if pause == "address-pause" else {}))
    (row,) = begin(a, cluster, dry_run=True)["queues"]
    assert (row["paused"], row["paused_there"], row["address_paused"]) == (True, None, pause == "address-pause")
    begin(a, cluster)
    (row,) = moved(a, cluster)["queues"]
    assert (row["paused"], row["paused_there"]) == (True, True)
    assert told_of_pauses(a) == [("drain-paused", "orders")]
    assert described(b)[1] is False, "who comes to the address is another queue's"
    b.crash()
    b.start()
    cluster.wait(5_000)
    reader = read_at(b, cluster)
    assert reader.bodies == []
    b.admin("queue-resume", name="orders")
    cluster.run()
    assert reader.bodies == bodies(10)


@pytest.mark.parametrize("pause", ["queue-pause", "address-pause"])
def test_a_queue_that_is_served_there_goes_on_and_that_is_told(pause: str) -> None:
    cluster, a, b = pair()
    b.admin("queue-create", name="orders")
    filled(a, 10, cluster)
    a.admin(pause, name="orders")
    begin(a, cluster)
    (row,) = moved(a, cluster)["queues"]
    assert (row["paused"], row["paused_there"]) == (True, False)
    assert told_of_pauses(a) == [("drain-unpaused", "orders")]
    assert read_at(b, cluster).bodies == bodies(10)


def test_a_stop_and_the_next_heir_tell_it_too() -> None:
    stage, (a, b) = cluster_of()
    b.admin("queue-create", name="orders")
    filled(a, 10, stage)
    a.admin("address-pause", name="orders")
    stop(a, stage, 5_000)
    assert (a.halted, told_of_pauses(a)) == (0, [("drain-unpaused", "orders")])
    of = Heirs(bound_ms=-1)
    of.c.admin("queue-create", name="orders")
    filled(of.a, 10, of.cluster)
    of.a.admin("address-pause", name="orders")
    begin(of.a, of.cluster)
    of.cluster.wait(3_000)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(8_000)
    assert [(fields["queue"], fields["node_id"]) for event in PAUSES for fields in of.a.events(event)] == [
        ("orders", node_id_of("b")), ("orders", node_id_of("c")),
    ]  # fmt: skip
    assert of.b.broker.store.queues["orders"].is_paused
    assert not of.c.broker.store.queues["orders"].is_paused


def test_what_an_earlier_release_takes_is_told_of_as_unknown() -> None:
    cluster, a, b = pair()
    b.admin("queue-create", name="orders")
    filled(a, 10, cluster)
    a.admin("queue-pause", name="orders")

    def silent(answer: Target, arrived: IdDigest, **_: bool) -> Target:
        said = makes_queues(answer, arrived, is_paused=True)
        return replace(said, dynamic_node_properties={ARRIVED: arrived.packed()})

    with patch.object(arrival_links, "makes_queues", silent):
        begin(a, cluster)
        (row,) = moved(a, cluster)["queues"]
    assert (row["paused"], row["paused_there"], told_of_pauses(a)) == (True, None, [])


def test_what_is_served_and_comes_where_it_is_paused_is_told() -> None:
    cluster, a, b = pair()
    b.admin("queue-create", name="orders", paused=True)
    filled(a, 10, cluster)
    begin(a, cluster)
    (row,) = moved(a, cluster)["queues"]
    assert (row["paused"], row["paused_there"]) == (False, True)
    assert levels_of_pauses(a) == [("drain-paused", Level.WARNING)]


def test_what_is_served_at_both_says_nothing_of_it() -> None:
    cluster, a, b = pair()
    b.admin("queue-create", name="orders")
    filled(a, 10, cluster)
    begin(a, cluster)
    (row,) = moved(a, cluster)["queues"]
    assert (row["paused"], row["paused_there"]) == (False, False)
    assert told_of_pauses(a) == []


def test_of_two_that_leave_the_one_that_served_tells_that_the_other_has_its_queue_paused_there() -> None:
    of = Heirs(bound_ms=-1)
    filled(of.a, 10, of.cluster)
    of.a.admin("address-pause", name="orders")
    begin(of.a, of.cluster)
    moved(of.a, of.cluster)
    filled(of.c, 5, of.cluster)
    begin(of.c, of.cluster)
    (row,) = moved(of.c, of.cluster)["queues"]
    assert (row["paused"], row["paused_there"]) == (False, True)
    assert (levels_of_pauses(of.a), levels_of_pauses(of.c)) == (
        [("drain-paused", Level.INFO)], [("drain-paused", Level.WARNING)],
    )  # fmt: skip


def test_a_pause_that_ends_with_the_process_is_told_after_it_too() -> None:
    cluster, a, b = pair()
    filled(a, 10, cluster)
    a.admin("address-pause", name="orders", persist=False)
    begin(a, cluster)
    moved(a, cluster)
    a.crash()
    a.start()
    (row,) = moved(a, cluster)["queues"]
    assert (row["paused"], row["paused_there"]) == (False, True)
    assert levels_of_pauses(a)[-1] == ("drain-paused", Level.WARNING)
    assert b.broker.store.queues["orders"].message_count == 10


@pytest.mark.parametrize("pause", ["queue-pause", "address-pause"])
@pytest.mark.parametrize("who", ["a", "b"])
def test_what_was_resumed_there_and_read_is_served_there_after_the_link_has_come_again(who: str, pause: str) -> None:
    cluster, a, b = pair()
    filled(a, 10, cluster)
    a.admin(pause, name="orders")
    begin(a, cluster)
    moved(a, cluster)
    b.admin("queue-resume", name="orders")
    reader = read_at(b, cluster)
    assert reader.bodies == bodies(10)
    for number in range(10):
        reader.settle(number)
    reader.talker.connection.close()
    cluster.wait(60_000)
    assert "orders" not in b.broker.store.queues, "who made it by using it has it go by itself"
    node = cluster.nodes[who]
    node.crash()
    node.start()
    moved(a, cluster)
    cluster.wait(5_000)
    filled(b, 3, cluster)
    assert read_at(b, cluster).bodies == bodies(3)


@pytest.mark.parametrize("pause", ["queue-pause", "address-pause"])
@pytest.mark.parametrize("begins", [begin, drain])
def test_an_empty_one_is_made_paused_too_and_what_comes_later_stands(begins: Any, pause: str) -> None:
    cluster, a, b = pair()
    a.admin("queue-create", name="orders")
    a.admin(pause, name="orders")
    begins(a, cluster)
    cluster.wait(2_000)
    assert told_of_pauses(a) == [("drain-paused", "orders")]
    a.admin("send", address="orders", messages=[{"body": "late", "durable": True}] * 3)
    cluster.wait(2_000)
    assert (count_at(a), count_at(b)) == (0, 3)
    assert row_of(a)["paused_there"] is True
    reader = read_at(b, cluster)
    assert reader.incoming == []
    b.admin("queue-resume", name="orders")
    cluster.run()
    assert sum(event.run.count for event in reader.incoming) == 3


@pytest.mark.parametrize("who_comes", ["link", "reader"])
@pytest.mark.parametrize("begins", [begin, drain])
def test_the_pause_of_an_empty_one_that_made_itself_is_there_still_when_it_has_not_been_used(
    begins: Any, who_comes: str
) -> None:
    cluster, a, b = pair()
    filled(a, 1, cluster)
    a.admin("queue-purge", name="orders")
    a.admin("queue-pause", name="orders")
    begins(a, cluster)
    cluster.wait(2_000)
    b.crash()
    b.start()
    for _ in range(8):
        cluster.wait(5_000)
    if who_comes == "link":
        for pipe in cluster.between("a", "b"):
            cluster.cut(pipe)
        cluster.wait(5_000)
    reader = read_at(b, cluster)
    a.admin("send", address="orders", messages=[{"body": "late", "durable": True}] * 3)
    cluster.wait(3_000)
    assert (count_at(a), count_at(b), reader.incoming) == (0, 3, [])
    b.admin("queue-resume", name="orders")
    cluster.run()
    assert sum(event.run.count for event in reader.incoming) == 3


def test_what_another_node_has_on_its_way_to_an_empty_one_stands_too() -> None:
    stage = ClusterStage()
    said: dict[str, Any] = {"options": LIMITS, "message_load_balancing": "STRICT"}
    a, b, c = [stage.node(name, [each for each in "abc" if each != name], **said) for name in "abc"]
    stage.run()
    stage.wait(600)
    a.admin("queue-create", name="orders")
    a.admin("queue-pause", name="orders")
    c.admin("queue-create", name="orders")
    stage.wait(2_000)
    stage.hold_up("a", "c")
    producer = Producer(c)
    for number in range(6):
        producer.send(b"%05d" % number, durable=True)
    stage.run()
    a.ask("scale-down", node="b")
    stage.wait(1_000)
    stage.let_through("a", "c")
    (row,) = moved(a, stage)["queues"]
    assert (row["moved"], row["paused"], row["paused_there"]) == (3, True, True)
    assert (count_at(b), read_at(b, stage).bodies) == (3, [])


@pytest.mark.parametrize("who", ["a", "b", "link"])
@pytest.mark.parametrize("begins", [begin, drain])
def test_an_empty_one_that_was_resumed_and_deleted_there_is_not_paused_there_again(begins: Any, who: str) -> None:
    cluster, a, b = pair()
    a.admin("queue-create", name="orders")
    a.admin("queue-pause", name="orders")
    begins(a, cluster)
    cluster.wait(2_000)
    b.admin("queue-resume", name="orders")
    b.admin("queue-delete", name="orders")
    if who == "link":
        for pipe in cluster.between("a", "b"):
            cluster.cut(pipe)
    else:
        cluster.nodes[who].crash()
        cluster.nodes[who].start()
    cluster.wait(6_000)
    assert (row_of(a)["paused"], row_of(a)["paused_there"]) == (True, False)
    filled(b, 3, cluster)
    assert read_at(b, cluster).bodies == bodies(3)


@pytest.mark.parametrize("begins", [begin, drain])
def test_who_pauses_it_here_once_all_has_gone_has_it_made_paused_there_as_that_was_never_told(begins: Any) -> None:
    cluster, a, b = pair()
    filled(a, 3, cluster)
    begins(a, cluster)
    cluster.wait(2_000)
    assert (count_at(a), count_at(b), b.broker.store.queues["orders"].is_paused) == (0, 3, False)
    b.admin("queue-delete", name="orders")
    a.admin("queue-pause", name="orders")
    for pipe in cluster.between("a", "b"):
        cluster.cut(pipe)
    cluster.wait(6_000)
    assert told_of_pauses(a)[-1] == ("drain-paused", "orders")
    a.admin("send", address="orders", messages=[{"body": "late", "durable": True}])
    cluster.wait(2_000)
    assert (count_at(a), count_at(b), read_at(b, cluster).incoming) == (0, 1, [])


def test_the_next_heir_is_told_of_the_pause_of_an_empty_one_as_well() -> None:
    of = Heirs(bound_ms=-1)
    of.a.admin("queue-create", name="orders")
    of.a.admin("queue-pause", name="orders")
    begin(of.a, of.cluster)
    of.cluster.wait(3_000)
    of.lose(of.b)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(3_000)
    assert [node.broker.store.queues["orders"].is_paused for node in (of.a, of.c)] == [True, True]


def heirs_of(a: ClusterNode) -> list[tuple[str, bool | None]]:
    (row,) = a.admin("scale-down-show")["receipt"]["queues"]
    assert row["paused"] is True
    return [(each["node_id"], each["paused_there"]) for each in row["heirs"]]


@pytest.mark.parametrize("crashes", [False, True])
def test_the_receipt_says_of_each_node_that_took_some_whether_it_is_paused_there(crashes: bool) -> None:
    of = Heirs(bound_ms=-1)
    of.c.admin("queue-create", name="orders")
    filled(of.a, 10, of.cluster)
    of.a.admin("queue-pause", name="orders")
    begin(of.a, of.cluster)
    of.cluster.wait(3_000)
    assert heirs_of(of.a) == [(node_id_of("b"), True)]
    of.lose(of.b)
    of.a.admin("send", address="orders", messages=[{"body": "late", "durable": True}])
    of.a.admin("scale-down", node="c")
    of.cluster.wait(3_000)
    if crashes:
        of.cluster.hold_up("a", "c")
        of.a.crash()
        of.a.start()
        of.cluster.run()
    assert heirs_of(of.a) == [(node_id_of("b"), True), (node_id_of("c"), False)]


@pytest.mark.parametrize("crashes", [False, True])
def test_that_a_pause_was_told_says_nothing_of_a_later_drain(crashes: bool) -> None:
    cluster, a, b = pair()
    a.admin("queue-create", name="orders")
    a.admin("queue-pause", name="orders")
    drain(a, cluster)
    link = a.broker.store.queues["orders"].kind.drains_as
    assert a.broker.store.remotes.drains.knows_pause(a.broker.store.queues["orders"])
    a.admin("drain-cancel", queue="orders")
    cluster.wait(1_000)
    b.admin("queue-delete", name="orders")
    if crashes:
        a.broker.store.journal.duplicates.add(PAUSE_PREFIX + "orders", 1, link.encode(), 1)  # it was left over
        filled(a, 1, cluster)  # it is on disk
        a.admin("queue-purge", name="orders")
        a.crash()
        a.start()
        cluster.wait(1_000)
    a.broker.store.remotes.begin_drain(a.broker.store.queues["orders"], "cluster", node_id_of("b"), link)
    cluster.wait(1_000)
    assert b.broker.store.queues["orders"].is_paused, "numbers of links begin anew"


def test_the_pause_goes_along_where_all_that_is_to_come_waits_for_its_time() -> None:
    cluster, a, b = pair()
    scheduled(Producer(a), 60_000)
    cluster.run()
    a.admin("queue-pause", name="orders")
    begin(a, cluster)
    (row,) = moved(a, cluster)["queues"]
    assert (row["moved"], row["paused_there"]) == (1, True)
    cluster.wait(61_000)
    assert (b.broker.store.queues["orders"].message_count, read_at(b, cluster).bodies) == (1, [])


def test_who_pauses_it_there_before_has_it_paused() -> None:
    cluster, a, b = pair()
    filled(a, 10, cluster)
    b.admin("address-pause", name="orders")
    begin(a, cluster)
    moved(a, cluster)
    reader = read_at(b, cluster)
    assert reader.bodies == []
    b.admin("address-resume", name="orders")
    cluster.run()
    assert reader.bodies == bodies(10)


def test_what_was_said_there_stays() -> None:
    cluster, a, b = pair()
    cluster.hold_up("a", "b")  # else the second one to make it would find that of the other
    created(b, "anycast")
    created(a, "anycast", "multicast")
    assert (described(a)[0], described(b)[0]) == (["anycast", "multicast"], ["anycast"])
    cluster.let_through("a", "b")
    filled(a, 10, cluster)
    begin(a, cluster)
    moved(a, cluster)
    assert described(b) == (["anycast"], False, False)
    assert read_at(b, cluster).bodies == bodies(10)


def test_it_is_kept_also_where_it_was_made_by_using_it() -> None:
    cluster, a, b = pair()
    created(a, "anycast")
    filled(a, 10, cluster)
    b.admin("queue-create", name="other", address="orders", routing_type="multicast")
    begin(a, cluster)
    moved(a, cluster)
    assert described(b) == (["anycast", "multicast"], False, False)


def test_what_a_file_declares_is_said_by_the_file_there() -> None:
    cluster, a, _ = pair()
    filled(a, 1, cluster)
    address = a.broker.store.addresses["orders"]
    a.broker.store.address_records.configure("orders", ("anycast",))
    assert told_of(address) == {}


@pytest.mark.parametrize(
    "said", ["[]", "{", '{"routing_types": 1}', '{"routing_types": ["x"]}', 5, "x" * 70_000, "[" * 60_000]
)
def test_what_is_no_such_thing_is_refused(said: Any) -> None:
    with pytest.raises((ValueError, RecursionError)):
        address_wanted(said)


def test_what_later_releases_say_besides_is_passed_over() -> None:
    said = '{"routing_types": ["anycast"], "paused": true, "configured": true, "later": 5}'
    assert address_wanted(said) == {"routing_types": ["anycast"]}
    assert address_wanted(None) == {}
