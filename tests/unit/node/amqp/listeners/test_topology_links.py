"""Links to `mq:topology`: what a client that stands hears of the cluster, and when."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp import events as told
from mqbroker.amqp.links import ReceiverLink
from mqbroker.client.message import decode_message
from mqbroker.node.amqp.listeners import failover_list
from mqbroker.node.values import inputs as given
from mqbroker.wire.performatives import Attach, Detach, Open, Source, Target

from tests.support import frames
from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.stage import Stage, Talker
from tests.unit.node.amqp.listeners.test_failover_list import member

TOPOLOGY = "mq:topology"


@pytest.mark.parametrize("name", ["mq:topology", "mq:notices"])
def test_nobody_can_send_to_what_tells(name: str) -> None:
    stage = Stage()
    conn = stage.accept()
    said = stage.talk(conn, frames.anonymous() + frames.opened() + frames.begun() + frames.sender(name))
    (detach,) = frames.of_kind(said, Detach)
    assert detach.error.condition == "amqp:not-allowed"
    assert detach.error.description == f"{name} tells and takes nothing: attach a receiver to it"
    assert name not in stage.broker.store.addresses


class Ear:
    """A client of a node with a link to its topology."""

    def __init__(self, node: Stage, name: str = "app", credit: int = 10, mode: int | None = 1, **open_: Any) -> None:
        self.node = node
        self.talker: Talker = node.connect(name, open_=Open(container_id=name, **({"max_frame_size": 65536} | open_)))
        self.link = self.attach(mode)
        self.node.run()
        if credit:
            self.grant(credit)

    def attach(self, mode: int | None = 1, **fields: Any) -> ReceiverLink:
        assert self.talker.session is not None
        name = f"t{len(self.talker.events)}"
        attach = Attach(name=name, handle=0, role=True, snd_settle_mode=mode, source=Source(address=TOPOLOGY),
                        target=Target(), **fields)  # fmt: skip
        return self.talker.session.attach_receiver(attach)

    def grant(self, credit: int) -> None:
        self.link.grant(credit)
        self.node.run()

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.talker.events if isinstance(each, kind)]

    def lists(self) -> list[list[str]]:
        """The lists that came, as hosts; each was settled."""
        found = []
        for event in self.of(told.Incoming):
            assert event.is_settled
            for index in range(event.run.count):
                body = decode_message(bytes(event.run.payload(index))).body
                found.append([each["network-host"].removesuffix(".clients") for each in body])
        return found

    def refusals(self) -> list[str]:
        return [str(each.error.condition) for each in self.of(told.Detached) if each.error is not None]


def three() -> tuple[ClusterStage, ClusterNode, ClusterNode]:
    cluster = ClusterStage()
    a, b = member(cluster, "a", ["b"]), member(cluster, "b", ["a"])
    cluster.wait(1000)
    return cluster, a, b


def test_a_client_is_told_at_once_and_after_each_change() -> None:
    cluster, a, b = three()
    ear = Ear(a)
    assert ear.lists() == [["b"]]
    c = member(cluster, "c", ["a"])
    cluster.wait(1000)
    assert [sorted(each) for each in ear.lists()] == [["b"], ["b", "c"]]
    b.stop()
    cluster.run()
    assert ear.lists()[2:] == [["c"]]
    c.stop()
    cluster.run()
    assert ear.lists()[3:] == [[]]


def test_the_list_is_that_of_the_open() -> None:
    _, a, _ = three()
    ear = Ear(a)
    (opened,) = ear.of(told.Opened)
    (came,) = ear.of(told.Incoming)
    assert decode_message(bytes(came.run.payload(0))).body == opened.open.properties["failover-server-list"]
    assert set(opened.open.properties["failover-server-list"][0]) == {"hostname", "network-host", "port", "scheme"}


def test_what_changes_nothing_for_clients_is_not_told() -> None:
    cluster, a, b = three()
    ear = Ear(a)
    cluster.cut(cluster.between("a", "b")[0])
    cluster.wait(60_000)  # links come back, and members say again what they said
    assert a.state("b") == "up"
    assert ear.lists() == [["b"]]
    b.crash()  # nobody knows whether it comes back
    cluster.run()
    assert ear.lists() == [["b"]]


def test_a_node_that_is_forgotten_is_told_of_no_more() -> None:
    cluster, a, b = three()
    ear = Ear(a)
    b.crash()
    cluster.run()
    a.broker.cluster.connections["cluster"].forget(node_id_of("b"), "keep")
    a.step()
    a.run()
    assert ear.lists() == [["b"], []]


@pytest.mark.slow
def test_without_credit_only_the_newest_list_is_kept() -> None:
    cluster, a, _ = three()
    ear = Ear(a, credit=1)
    for name in "cde":
        member(cluster, name, ["a"])
        cluster.wait(1000)
    assert ear.lists() == [["b"]]
    ear.grant(5)
    assert [sorted(each) for each in ear.lists()] == [["b"], ["b", "c", "d", "e"]]


def test_a_change_that_was_undone_meanwhile_is_not_told() -> None:
    cluster, a, _ = three()
    ear = Ear(a, credit=1)
    c = member(cluster, "c", ["a"])
    cluster.wait(1000)
    c.stop()
    cluster.run()
    ear.grant(5)
    assert ear.lists() == [["b"]]


def test_a_client_that_does_not_read_hears_the_newest_when_it_does() -> None:
    cluster, a, _ = three()
    ear = Ear(a)
    a.give(given.WriteBlocked(ear.talker.conn, True))
    for name in "cd":
        member(cluster, name, ["a"])
        cluster.wait(1000)
    assert ear.lists() == [["b"]]
    a.give(given.WriteBlocked(ear.talker.conn, False))
    cluster.run()
    assert [sorted(each) for each in ear.lists()] == [["b"], ["b", "c", "d"]]


@pytest.mark.slow
def test_changes_of_one_step_make_one_message() -> None:
    cluster, a, _ = three()
    ear = Ear(a)
    for name in "cdef":
        member(cluster, name, ["b"])
    cluster.run()
    lists = ear.lists()
    assert len({tuple(sorted(each)) for each in lists}) == len(lists), "each tells something new"
    topology = a.broker.cluster.connections["cluster"].topology
    for each in topology.others:
        topology.remove(each.node_id)
        a.broker.cluster.changed()
    a.step()
    a.run()
    assert ear.lists()[len(lists) :] == [[]]


def test_many_clients_are_told_over_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover_list, "TOLD_MAX", 2)
    cluster, a, b = three()
    ears = [Ear(a, f"app{number}") for number in range(5)]
    b.stop()
    cluster.run()
    assert [ear.lists() for ear in ears] == [[["b"], []]] * 5


def test_each_client_hears_of_another_one_first() -> None:
    cluster, a, _ = three()
    ears = [Ear(a, f"app{number}") for number in range(6)]
    member(cluster, "c", ["a"])
    cluster.wait(1000)
    heads = [ear.lists()[-1][0] for ear in ears]
    assert sorted(heads) == ["b", "b", "b", "c", "c", "c"]


@pytest.mark.slow
def test_so_many_are_told_and_no_more() -> None:
    cluster, a, _ = three()
    ear = Ear(a, max_frame_size=512)  # and the list needs several frames
    for number in range(failover_list.ELSEWHERE_MAX + 3):
        member(cluster, f"n{number:02}", ["a"])
    cluster.wait(3000)
    assert len(ear.lists()[-1]) == failover_list.ELSEWHERE_MAX


def test_what_the_listener_says_is_told_once() -> None:
    cluster = ClusterStage()
    a = member(cluster, "a", ["b"], failover_server_list=("x:1", "y:2"))
    b = member(cluster, "b", ["a"])
    cluster.wait(1000)
    ear = Ear(a)
    b.stop()
    cluster.wait(1000)
    assert ear.lists() == [["x", "y"]]
    assert offered(a) is False, "there is nothing to hear of later"


def offered(node: Stage) -> bool:
    (opened,) = frames.of_kind(node.talk(node.accept(), frames.anonymous() + frames.opened()), Open)
    return TOPOLOGY in (opened.offered_capabilities or ())


def test_it_is_offered_where_members_come_and_go() -> None:
    _, a, _ = three()
    assert offered(a)
    assert not offered(Stage())
    assert Ear(Stage()).lists() == [[]]


def test_whatever_settle_mode_is_wished_for_it_is_settled() -> None:
    _, a, _ = three()
    for number, mode in enumerate((None, 0, 2)):
        ear = Ear(a, f"app{number}", mode=mode)
        assert ear.lists() == [["b"]]
        (attached,) = ear.of(told.Attached)
        assert attached.attach.snd_settle_mode == 1


def test_a_drain_is_answered() -> None:
    _, a, _ = three()
    conn = a.accept()
    said = a.talk(conn, frames.anonymous() + frames.opened() + frames.begun()
                  + frames.receiver(TOPOLOGY, credit=0, snd_settle_mode=1)
                  + frames.flow(1, 5, drain=True))  # fmt: skip
    flows = [each for each in frames.of_kind(said, frames.Flow) if each.handle is not None]
    assert [(each.delivery_count, each.link_credit) for each in flows] == [(5, 0)]
    transfers = [each for each in frames.heard(said) if isinstance(each, tuple)]
    assert len(transfers) == 1, "the list came first"


def test_one_link_a_connection_is_enough_and_another_one_may_follow_it() -> None:
    cluster, a, b = three()
    ear = Ear(a)
    ear.attach()
    a.run()
    assert ear.refusals() == ["amqp:resource-limit-exceeded"]
    ear.link.detach()
    a.run()
    ear.link = ear.attach()
    a.run()
    ear.grant(5)
    b.stop()
    cluster.run()
    assert ear.lists() == [["b"], ["b"], []]


def test_a_list_that_the_client_has_no_room_for_ends_the_link() -> None:
    _, a, _ = three()
    ear = Ear(a, credit=0)
    ear.link.detach()
    a.run()
    ear.link = ear.attach(max_message_size=10)
    a.run()
    ear.grant(1)
    assert ear.refusals()[-1] == "amqp:link:message-size-exceeded"
    assert not a.broker.failover_list.is_told(ear.talker.conn)


def test_clients_that_leave_are_forgotten() -> None:
    _, a, _ = three()
    ear = Ear(a)
    conn = ear.talker.conn
    assert a.broker.failover_list.is_told(conn)
    a.drop(ear.talker)
    assert not a.broker.failover_list.is_told(conn)


def test_it_is_neither_queue_nor_address_nor_consumer() -> None:
    _, a, _ = three()
    Ear(a)
    assert a.broker.store.queues.get(TOPOLOGY) is None
    assert a.broker.store.addresses.get(TOPOLOGY) is None
    assert a.admin("consumers")["consumers"] == []
    assert [each["consumers"] for each in a.admin("sessions")["sessions"] if each["container_id"] == "app"] == [0]
