"""What a connection that stands learns of the cluster: real nodes in memory, then brokers that do it oddly."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp.events import Attaching, Opened
from mqbroker.amqp.links import SenderLink
from mqbroker.amqp.redirect import failover_servers, place_of
from mqbroker.client import effects
from mqbroker.client.inputs import OpenReceiver, OpenSender
from mqbroker.client.options import ReceiverTerms, SenderTerms
from mqbroker.client.stages import Stage as At
from mqbroker.client.uri import Endpoint
from mqbroker.wire.encode import encode_value
from mqbroker.wire.performatives import Attach, Open, Source
from mqbroker.wire.types import Symbol

from tests.support.client_stage import App
from tests.support.cluster_stage import ClusterNode, ClusterStage
from tests.unit.client.test_odd_brokers import Odd
from tests.unit.node.amqp.listeners.test_failover_list import member

TOPOLOGY = "mq:topology"
VALUE = b"\x00\x53\x77"
A, B, C, Z = (Endpoint(f"{name}.clients", 5672) for name in "abcz")
FOREVER = "?reconnect-attempts=-1&retry-interval=100"
S, R = 1, 2


class Site:
    """A cluster of `a` and more, and an application whose URI names `a` alone."""

    def __init__(self, *others: str, uri: str = f"amqp://a.clients{FOREVER}") -> None:
        self.cluster = ClusterStage()
        self.nodes: dict[str, ClusterNode] = {}
        for name in ("a", *others):
            self.nodes[name] = member(self.cluster, name, ["a"] if name != "a" else ["nowhere"])
        self.cluster.wait(1000)
        self.app = App({A: self.nodes["a"]}, uri)
        self.reach()
        self.app.connect()

    def reach(self) -> None:
        """The application can dial all nodes that there are."""
        self.app.brokers.update({Endpoint(f"{name}.clients", 5672): node for name, node in self.nodes.items()})

    def join(self, name: str, by: str = "a") -> None:
        self.nodes[name] = member(self.cluster, name, [by])
        self.reach()
        self.wait()

    def wait(self, duration_ms: int = 1000) -> None:
        """Time passes for all, in pieces."""
        for _ in range(10):
            self.cluster.wait(duration_ms // 10)
            self.app.step()
            self.app.run()

    def crash(self, name: str) -> None:
        self.nodes[name].crash()
        self.app.stage = next(node for node in self.nodes.values() if node.is_up)
        self.wait()

    def stop(self, name: str) -> None:
        self.nodes[name].stop()
        self.wait()

    @property
    def learned(self) -> list[Endpoint]:
        return sorted(self.app.machine.places.learned, key=str)


def test_a_node_that_came_after_the_client_is_where_it_goes_on() -> None:
    site = Site()
    site.app.ask(OpenSender(S, SenderTerms(address="orders"), "s"))
    assert site.learned == []
    site.join("c")
    assert site.learned == [C]
    site.crash("a")
    assert site.app.dialled == [A, C]
    site.app.send(S, "m")
    assert site.app.outcomes == {"m": None}
    assert site.nodes["c"].broker.store.queues["orders"].message_count == 1


def test_what_left_is_not_tried_and_the_uri_is_never_forgotten() -> None:
    site = Site("b")
    site.join("c")
    assert site.learned == [B, C]
    site.stop("b")
    assert site.learned == [C]
    site.stop("c")
    assert site.learned == []
    assert site.app.machine.places.known == (A,)
    site.app.cut()
    assert site.app.dialled == [A, A]


def test_statics_are_there_after_an_update_that_does_not_name_them() -> None:
    """Artemis's testStaticInfoAvailableAfterPattialUpdate."""
    site = Site("b", uri=f"amqp://a.clients,z.clients{FOREVER}")
    site.join("c")
    site.stop("b")
    assert site.app.machine.places.configured == (A, Z)
    assert site.app.machine.places.known == (A, Z, C)


def test_where_it_stands_is_not_forgotten_though_no_broker_names_itself() -> None:
    site = Site("b")
    site.crash("a")
    assert site.app.dialled == [A, B]
    site.join("c", by="b")
    site.stop("c")
    assert site.app.machine.places.known == (A, B)
    site.nodes["b"].crash()
    site.nodes["b"].start()
    site.wait(3000)
    assert site.app.machine.stage is At.UP
    assert site.app.dialled[-1] == B


def test_each_connection_asks_again() -> None:
    site = Site("b")
    site.crash("a")
    site.join("c", by="b")
    site.join("d", by="b")
    assert {C, Endpoint("d.clients", 5672)} <= set(site.learned)


def test_without_topology_nothing_is_asked() -> None:
    site = Site(uri=f"amqp://a.clients{FOREVER}&use-topology-for-load-balancing=false")
    site.join("c")
    assert site.learned == []
    assert links(site) == [0]
    assert links(Site()) == [1]


def links(site: Site) -> list[int]:
    rows = site.nodes["a"].admin("connections")["connections"]
    return [row["links"] for row in rows if row["container_id"] == "app"]


def test_the_application_sees_nothing_of_it() -> None:
    site = Site("b")
    app = site.app
    app.ask(OpenReceiver(R, ReceiverTerms(address="orders"), "r"))
    site.join("c")
    site.stop("c")
    site.crash("a")
    assert app.arrived == []
    assert app.gone == {}
    assert app.restored == {R: "orders"}
    assert list(app.machine.ends) == [R]


# -- brokers that do it oddly -----------------------------------------------------------------------------------------


class Teller(Odd):
    """A broker that offers topology."""

    def __init__(self, *, is_offered: bool = True, refuses: bool = False) -> None:
        self.is_offered = is_offered
        self.refuses = refuses
        self.asked = 0
        super().__init__()

    def _on(self, event: Any) -> None:
        if isinstance(event, Opened) and self.is_offered:
            self.broker.open(Open(container_id="odd", max_frame_size=65536, offered_capabilities=(Symbol(TOPOLOGY),)))
            return
        if isinstance(event, Attaching) and event.attach.name == TOPOLOGY:
            self.asked += 1
            if self.refuses:
                event.link.refuse(event.attach, "amqp:not-found", "no")
                return
            assert isinstance(event.link, SenderLink)
            self.links[TOPOLOGY] = event.link
            event.link.accept(event.attach, Source(address=TOPOLOGY))
            return
        super()._on(event)

    def tell(self, body: Any) -> None:
        """A list, or what passes for one."""
        self.raw(VALUE + encode_value(body))

    def raw(self, payload: bytes) -> None:
        link = self.links[TOPOLOGY]
        assert link.session.send_message(link, [payload], None)
        self.say()

    @property
    def learned(self) -> tuple[Endpoint, ...]:
        return self.machine.places.learned


def servers(*places: str) -> Any:
    return failover_servers(map(place_of, places), has_tls=False)


def test_a_change_is_told_and_another_order_is_none() -> None:
    odd = Teller()
    odd.effects.clear()
    odd.tell(servers("b:2", "c:3"))
    odd.tell(servers("c:3", "b:2"))
    odd.tell([])
    assert odd.of(effects.Told) == [
        effects.Told("brokers are now amqp://a:5672, amqp://b:2, amqp://c:3", True),
        effects.Told("brokers are now amqp://a:5672", True),
    ]


def test_a_broker_that_does_not_offer_it_never_sees_an_attach() -> None:
    odd = Teller(is_offered=False)
    odd.step(OpenSender(S, SenderTerms(address="q"), "s"))
    assert list(odd.links) == ["sender-1"]


def test_a_broker_that_refuses_is_not_asked_again_and_links_go_on() -> None:
    odd = Teller(refuses=True)
    odd.step(OpenSender(S, SenderTerms(address="q"), "s"))
    odd.step(OpenReceiver(R, ReceiverTerms(address="q"), "r"))
    assert odd.asked == 1
    assert len(odd.of(effects.Answer)) == 3


def test_the_last_of_many_lists_counts_and_credit_does_not_run_out() -> None:
    odd = Teller()
    for number in range(1, 50):
        odd.tell(servers(f"b:{number}"))
        assert odd.learned == (Endpoint("b", number),)


@pytest.mark.parametrize("body", ["x", 7, None, {"network-host": "b"}])
def test_what_is_no_list_changes_nothing(body: Any) -> None:
    odd = Teller()
    odd.tell(servers("b:2"))
    odd.tell(body)
    assert odd.learned == (Endpoint("b", 2),)


def test_what_is_no_message_changes_nothing() -> None:
    odd = Teller()
    odd.tell(servers("b:2"))
    odd.raw(b"\x00\x53\x77\xff")
    assert odd.learned == (Endpoint("b", 2),)
    odd.tell(servers("c:3"))
    assert odd.learned == (Endpoint("c", 3),)


def test_a_list_that_is_much_too_long_ends_the_link_and_nothing_else() -> None:
    odd = Teller()
    odd.step(OpenSender(S, SenderTerms(address="q"), "s"))
    odd.raw(VALUE + encode_value("x" * 70_000))
    assert not odd.links[TOPOLOGY].is_attached
    assert odd.machine.stage is At.UP
    assert odd.of(effects.Gone) == []


def test_a_session_that_the_broker_ends_is_asked_on_again_with_the_next_link() -> None:
    odd = Teller()
    odd.links[TOPOLOGY].session.end("amqp:internal-error", "odd")
    odd.say()
    assert odd.asked == 1, "not by itself: who ends sessions for it would do so for ever"
    odd.step(OpenSender(S, SenderTerms(address="q"), "s"))
    odd.step(OpenReceiver(R, ReceiverTerms(address="q"), "r"))
    assert odd.asked == 2
    odd.tell(servers("b:2"))
    assert odd.learned == (Endpoint("b", 2),)


def test_an_unsettled_list_is_settled() -> None:
    odd = Teller()
    link = odd.links[TOPOLOGY]
    link.send_settled = False
    odd.tell(servers("b:2"))
    assert odd.learned == (Endpoint("b", 2),)
    assert link.session.unsettled.count == 0


def test_the_attach_says_what_it_wants() -> None:
    seen: list[Attach] = []

    class Watcher(Teller):
        def _on(self, event: Any) -> None:
            if isinstance(event, Attaching):
                seen.append(event.attach)
            super()._on(event)

    Watcher()
    (attach,) = seen
    assert attach.source is not None
    assert (attach.source.address, attach.snd_settle_mode, attach.role) == (TOPOLOGY, 1, True)
