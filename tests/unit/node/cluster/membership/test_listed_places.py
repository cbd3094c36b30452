"""Names that are listed, and where they lead: to this node, to others in turn, to nobody; each is tried without end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.config.slices import ConnectorOptions
from mqbroker.node.values import inputs as given
from mqbroker.node.values.effects import Connect

from tests.support.cluster_stage import PORT, ClusterNode, ClusterStage, node_id_of, options_for

SLOW_MS = 31_000


class Names(ClusterStage):
    """Hosts that `leads` knows are names, and lead to this node, or to nobody where that is empty."""

    def __init__(self, **leads: str) -> None:
        super().__init__()
        self.leads = leads

    def dial(self, node: ClusterNode, effect: Connect) -> None:
        """A name is resolved at each attempt."""
        super().dial(node, replace(effect, host=self.leads.get(effect.host, effect.host) or "nobody"))

    def named(self, name: str, connector: str, *static: str) -> ClusterNode:
        """A node that says that it is reached by this connector."""
        options = options_for(name, static, {})
        own = ConnectorOptions("own", connector, PORT, False)
        return self.make(name, replace(options, connectors=(own, *options.connectors[1:])), {})


def canary(cluster: ClusterStage, node: ClusterNode) -> dict[str, Any]:
    request = node.ask("cluster-canary", timeout_ms=1_000)
    cluster.wait(1_500)
    result: dict[str, Any] = node.replies[request].result
    return result


def moved(cluster: ClusterStage, node: ClusterNode, to: str) -> ClusterNode:
    """The node comes back at another host, with its id and in another process."""
    return cluster.node(to, identity={"node_id": node.identity["node_id"], "boot_id": to.encode().hex().ljust(32, "7")})


def test_a_listed_name_that_led_to_this_node_is_tried_again() -> None:
    cluster = Names(seed="a")
    a = cluster.node("a", ["seed"])
    cluster.wait(10 * SLOW_MS)
    assert len(a.dials) == 11, "once at the start, then every 30 s"
    assert canary(cluster, a) == {"is_whole": True, "links": []}
    cluster.node("b")
    cluster.leads["seed"] = "b"
    cluster.wait(SLOW_MS)
    assert a.state("b") == "up"
    assert canary(cluster, a)["is_whole"]


@pytest.mark.parametrize("end", [ClusterNode.stop, ClusterNode.crash])
def test_a_listed_name_is_tried_where_its_node_says_another_one_of_itself_and_comes_back_elsewhere(
    end: Callable[[ClusterNode], None],
) -> None:
    cluster = Names(seed="b")
    b = cluster.node("b")
    a = cluster.node("a", ["seed"])
    cluster.run()
    cluster.wait(2_000)
    assert (a.state("b"), a.bridge("b").connector.host) == ("up", "b")
    end(b)
    cluster.wait(5 * SLOW_MS)
    assert not canary(cluster, a)["is_whole"]
    told = [each.get("connector", "the node") for each in a.events("bridge-failed")]
    assert len(told) == len(set(told)), "once of the node, and once of its place"
    cluster.leads["seed"] = "b2"
    moved(cluster, b, "b2")
    cluster.wait(SLOW_MS)
    assert a.state("b") == "up"
    assert canary(cluster, a)["is_whole"]


def test_a_listed_name_is_tried_where_another_node_took_the_place_of_the_one_that_answered() -> None:
    cluster = Names(seed="b")
    b, c = cluster.node("b", ["c"]), cluster.node("c")
    a = cluster.node("a", ["seed"])
    cluster.wait(2_000)
    b.crash()
    cluster.leads.update(seed="c", b="c")
    cluster.wait(SLOW_MS)
    assert (a.state("b"), a.state("c"), a.bridge("c").connector.host) == ("gone", "up", "c")
    c.stop()
    cluster.wait(3 * SLOW_MS)
    rows = {row["node_id"]: row["state"] for row in canary(cluster, a)["links"]}
    assert rows == {node_id_of("b"): "gone", node_id_of("c"): "missing"}
    cluster.leads.update(seed="c2", c="")
    moved(cluster, c, "c2")
    cluster.wait(SLOW_MS)
    assert a.state("c") == "up"
    assert canary(cluster, a)["is_whole"]


def test_nobody_is_tried_for_names_whose_nodes_are_linked() -> None:
    cluster = Names(one="b", other="b")
    cluster.node("b")
    a = cluster.node("a", ["one", "other"])
    cluster.wait(10 * SLOW_MS)
    assert len(a.dials) == 2
    assert canary(cluster, a)["is_whole"]


def test_no_name_is_tried_again_where_nobody_that_stopped_is_to_be_looked_for() -> None:
    cluster = Names(seed="a")
    a = cluster.node("a", ["seed"], topology_scanner_attempts=0)
    cluster.wait(10 * SLOW_MS)
    assert len(a.dials) == 1


def test_a_node_is_dialled_that_is_told_of_while_its_listed_name_does_not_answer() -> None:
    cluster = Names(seed="a")
    a = cluster.node("a", ["seed"])
    cluster.run()
    cluster.leads["seed"], cluster.mute = "seed", {"seed"}
    cluster.wait(SLOW_MS)
    (look,) = a.broker.cluster.connections["cluster"].probes
    assert look.is_look
    cluster.leads["seed"] = "b"
    b = cluster.named("b", "seed", "a")
    cluster.wait(1_000)
    assert (b.state("a"), a.state("b")) == ("up", "up")


def test_reasons_that_come_in_turn_are_told_once_each_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads to several hosts fails for several reasons, and may do so for weeks."""
    cluster, reasons = ClusterStage(), 2

    def dial(node: ClusterNode, effect: Connect) -> None:
        node.give(given.Closed(effect.conn, f"reason {len(node.dials) % reasons}"))

    monkeypatch.setattr(cluster, "dial", dial)
    a = cluster.node("a", ["seed"])
    cluster.wait(60_000)
    assert len(a.dials) > 100
    assert sorted(each["why"] for each in a.events("bridge-failed")) == ["reason 0", "reason 1"]
    reasons = 1_000
    cluster.wait(60_000)
    assert len(a.events("bridge-failed")) == 10


def test_a_node_that_is_linked_here_and_cannot_be_dialled_is_missing() -> None:
    """Two nodes say one connector: where it leads, another one answers."""
    cluster = Names(vip="b")
    a = cluster.node("a")
    b, c = cluster.named("b", "vip", "a"), cluster.named("c", "vip", "a")
    cluster.wait(5_000)
    assert (b.state("a"), c.state("a")) == ("up", "up")
    rows = {row["node_id"]: row["state"] for row in canary(cluster, a)["links"]}
    assert rows == {node_id_of("b"): "confirmed", node_id_of("c"): "missing"}


def test_a_listed_name_that_does_not_answer_is_tried_once_at_a_time() -> None:
    cluster = Names(seed="a")
    a = cluster.node("a", ["seed"])
    cluster.run()
    cluster.leads["seed"], cluster.mute = "seed", {"seed"}
    cluster.wait(4 * SLOW_MS)
    assert [each.is_look for each in a.broker.cluster.connections["cluster"].probes] == [True]
    assert len(a.dials) == 2


# -- places that DNS names ---------------------------------------------------------------------------------------------

GROUPS = {"discovery-groups": [{"name": "names", "discovery": "dns", "names": ["mq.example.org:5673"]}]}


def named_by(node: ClusterNode, *hosts: str) -> None:
    """The name leads to these hosts now, and to no others."""
    node.give(given.Resolved("names", tuple(("mq.example.org:5673", host, PORT) for host in hosts)))
    node.cluster.run()


def by_names(cluster: ClusterStage, name: str) -> ClusterNode:
    node = cluster.node(name, groups=GROUPS, discovery_group_ref="names")
    cluster.run()
    return node


def test_nodes_that_a_name_leads_to_are_linked_and_not_tried_again() -> None:
    cluster = Names(one="b", other="b")
    b, c = cluster.node("b"), cluster.node("c")
    a = by_names(cluster, "a")
    named_by(a, "one", "c", "other", "a")
    cluster.wait(10 * SLOW_MS)
    assert (a.state("b"), a.state("c"), b.state("a"), c.state("a")) == ("up", "up", "up", "up")
    assert len(a.dials) == 3
    assert canary(cluster, a)["is_whole"]


def test_a_named_place_where_nobody_answers_is_tried_until_somebody_does_or_no_name_leads_there() -> None:
    cluster = ClusterStage()
    a = by_names(cluster, "a")
    named_by(a, "b", "c")
    cluster.wait(5_000)
    assert [each["connector"] for each in a.events("bridge-failed")] == ["amqp://b:5673", "amqp://c:5673"]
    named_by(a, "b")
    before = len([each for each in a.dials if each.host == "c"])
    cluster.node("b")
    cluster.wait(3 * SLOW_MS)
    assert a.state("b") == "up"
    assert len([each for each in a.dials if each.host == "c"]) == before
    assert canary(cluster, a)["is_whole"]


def test_a_node_that_has_stopped_is_looked_for_while_a_name_leads_there() -> None:
    cluster = ClusterStage()
    b = cluster.node("b")
    a = by_names(cluster, "a")
    named_by(a, "b")
    b.stop()
    cluster.wait(5 * SLOW_MS)
    assert not canary(cluster, a)["is_whole"]
    named_by(a)
    before = len(a.dials)
    cluster.wait(5 * SLOW_MS)
    assert len(a.dials) == before
    assert canary(cluster, a) == {"is_whole": True, "links": []}
    named_by(a, "b")
    b.start()
    cluster.wait(1_000)
    assert a.state("b") == "up"


def test_a_link_that_stands_goes_on_when_no_name_leads_there() -> None:
    cluster = Names(alias="b")
    b = cluster.node("b")
    a = by_names(cluster, "a")
    named_by(a, "alias", "b")
    named_by(a, "alias")
    cluster.wait(SLOW_MS)
    assert a.bridge("b").is_listed, "by its other name"
    named_by(a)
    cluster.wait(SLOW_MS)
    assert (a.state("b"), a.bridge("b").is_listed) == ("up", False)
    b.stop()
    before = len(a.dials)
    cluster.wait(5 * SLOW_MS)
    assert (a.state("b"), len(a.dials)) == ("gone", before)
    named_by(a, "b")
    b.start()
    cluster.wait(1_000)
    assert a.state("b") == "up", "that a name leads there again is news"


def test_a_node_that_was_forgotten_is_linked_again_while_a_name_leads_there() -> None:
    cluster = ClusterStage()
    b = cluster.node("b")
    a = by_names(cluster, "a")
    named_by(a, "b")
    cluster.unreachable = {"a", "b"}
    cluster.cut_all(a)
    cluster.run()
    for node, other in ((a, b), (b, a)):
        node.ask("cluster-forget", node_id=other.identity["node_id"])
    cluster.run()
    assert (a.state("b"), b.state("a")) == ("", "")
    cluster.unreachable = set()
    cluster.wait(SLOW_MS)
    assert (a.state("b"), b.state("a")) == ("up", "up")


def test_a_name_that_leads_to_a_node_with_a_connector_of_its_own_is_heard() -> None:
    """Connectors may lead to others, as those of `[scale-down]` do: the places of this node alone are passed over."""
    cluster = ClusterStage()
    cluster.node("b")
    heirs = {"scale_down": {"connectors": ("to-b",)}}
    a = cluster.node("a", ["b"], groups=GROUPS, discovery_group_ref="names", options=heirs)
    cluster.run()
    named_by(a, "a", "b")
    assert (a.state("b"), [each.host for each in a.dials]) == ("up", ["b"])


BOUND = "mqbroker.node.cluster.membership.cluster_connection.BRIDGES_MAX"
IPV4, IPV6, OTHER_IPV4 = "192.0.2.1", "2001:db8::1", "192.0.2.2"


def test_who_has_no_answer_from_dns_yet_does_not_say_that_nobody_is_missing() -> None:
    cluster = ClusterStage()
    a = by_names(cluster, "a")
    cluster.wait(60_000)
    for _ in range(2):
        (row,) = canary(cluster, a)["links"]
        said = (row["state"], row["connector"], row["why"][:22])
        assert said == ("missing", "mq.example.org:5673", "no answer from DNS yet")
        named_by(a)  # that it does not exist is said of each name where there is no name server yet
    named_by(a, "a")
    assert canary(cluster, a) == {"is_whole": True, "links": []}
    named_by(a)
    assert canary(cluster, a) == {"is_whole": True, "links": []}, "it led somewhere before"


def test_one_of_two_names_that_leads_somewhere_does_not_answer_for_the_other() -> None:
    cluster = ClusterStage()
    cluster.node("b")
    names = ["mq1.example.org:5673", "mq2.example.org:5673"]
    groups = {"discovery-groups": [{"name": "names", "discovery": "dns", "names": names}]}
    a = cluster.node("a", groups=groups, discovery_group_ref="names")
    connection = a.broker.cluster.connections["cluster"]
    a.give(given.Resolved("names", ((names[0], "b", PORT),)))
    cluster.wait(2_000)
    told = canary(cluster, a)
    bad = [(row["connector"], row["state"]) for row in told["links"] if row["state"] != "confirmed"]
    assert (a.state("b"), told["is_whole"], bad) == ("up", False, [(names[1], "missing")])
    assert connection.journal_formats == (1,), "nobody knows which ones its node reads"
    a.give(given.Resolved("names", ((names[0], "b", PORT), (names[1], "a", PORT))))
    cluster.run()
    assert canary(cluster, a)["is_whole"]
    assert connection.journal_formats == (1, 2)


@pytest.mark.parametrize(
    ("places", "is_whole"),
    [
        ((IPV4, IPV6), True),  # one node with an address of each family
        ((IPV4, OTHER_IPV4), False),  # as many nodes as addresses of one
        ((IPV4, IPV6, OTHER_IPV4), False),
        ((IPV4, "a", IPV6), True),  # this node is one of those that the name stands for
        ((IPV4, "mq3"), False),  # the targets of a service are nodes each
    ],
)
def test_a_further_address_of_a_node_that_is_linked_is_nobody_that_is_missing(
    places: tuple[str, ...], is_whole: bool
) -> None:
    cluster = Names(**{IPV4: "b"})
    cluster.node("b")
    a = by_names(cluster, "a")
    named_by(a, *places)
    cluster.wait(200_000)
    assert (a.state("b"), canary(cluster, a)["is_whole"]) == ("up", is_whole)


@pytest.mark.parametrize("names", [("mq.example.org:5673",) * 2, ("mq2.example.org:5673", "mq3.example.org:5673")])
def test_nodes_of_one_family_each_are_told_apart_where_each_has_a_name(names: tuple[str, str]) -> None:
    """Behind one name the second is taken for a further address of the first."""
    cluster = Names(**{IPV4: "b"})
    cluster.node("b")
    groups = {"discovery-groups": [{"name": "names", "discovery": "dns", "names": sorted(set(names))}]}
    a = cluster.node("a", groups=groups, discovery_group_ref="names")
    a.give(given.Resolved("names", ((names[0], IPV4, PORT), (names[1], IPV6, PORT))))
    cluster.wait(200_000)
    assert (a.state("b"), canary(cluster, a)["is_whole"]) == ("up", len(set(names)) == 1)


def test_who_is_not_linked_is_missing_at_each_of_its_addresses() -> None:
    cluster = Names(**{IPV4: "b"})
    b = cluster.node("b")
    a = by_names(cluster, "a")
    named_by(a, IPV4, IPV6)
    cluster.wait(1_000)
    b.crash()
    cluster.wait(10_000)
    assert not canary(cluster, a)["is_whole"]


def test_places_of_names_keep_to_the_bound_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BOUND, 1)
    cluster = ClusterStage()
    nodes = [cluster.node(name) for name in "bcd"]
    a = by_names(cluster, "a")
    named_by(a, "b", "c", "d")
    assert len(a.dials) == 1
    cluster.wait(2 * SLOW_MS)
    connection = a.broker.cluster.connections["cluster"]
    assert ([a.state(each.name) for each in nodes], connection.probes) == (["up", "", ""], [])
    assert len(a.events("bridges-full")) == 1
    monkeypatch.setattr(BOUND, 3)
    cluster.wait(SLOW_MS)
    assert [a.state(each.name) for each in nodes] == ["up", "up", "up"]


def test_listed_places_keep_to_the_bound_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BOUND, 1)
    cluster = ClusterStage()
    for name in "bc":
        cluster.node(name)
    a = cluster.node("a", ["b", "c"])
    cluster.wait(2 * SLOW_MS)
    assert ([a.state(name) for name in "bc"], len(a.events("bridges-full"))) == (["up", ""], 1)


def test_a_link_that_stands_is_that_of_a_listed_place_once_a_name_leads_there() -> None:
    cluster = ClusterStage()
    b = cluster.node("b", ["a"])
    a = by_names(cluster, "a")
    cluster.wait(1_000)
    assert (a.state("b"), a.bridge("b").is_listed) == ("up", False)
    named_by(a, "b")
    assert (a.bridge("b").is_listed, len(a.dials)) == (True, 1)
    named_by(a)
    named_by(a, "b")
    assert a.bridge("b").is_listed, "again"
    b.stop()
    cluster.wait(5 * SLOW_MS)
    assert not canary(cluster, a)["is_whole"]
    b.start()
    cluster.wait(SLOW_MS)
    assert a.state("b") == "up"


def test_who_crashed_and_is_named_no_more_is_dialled_slowly_until_it_is_told_of() -> None:
    cluster = ClusterStage()
    b = cluster.node("b", ["a"])
    a = by_names(cluster, "a")
    named_by(a, "b")
    cluster.wait(1_000)
    b.crash()
    cluster.wait(5_000)
    named_by(a)
    cluster.wait(60_000)
    before = len(a.dials)
    cluster.wait(10 * SLOW_MS)
    assert len(a.dials) - before in (10, 11)
    b.start()
    cluster.wait(1_000)
    assert a.state("b") == "up", "it dials by itself"


def test_a_named_place_where_nobody_ever_answered_is_dialled_slowly_after_a_while() -> None:
    cluster = ClusterStage()
    a = by_names(cluster, "a")
    named_by(a, "b")
    cluster.wait(60_000)
    before = len(a.dials)
    cluster.wait(10 * SLOW_MS)
    assert len(a.dials) - before in (10, 11)
    cluster.node("b")
    cluster.wait(SLOW_MS)
    assert a.state("b") == "up"


def test_a_node_that_is_linked_is_no_doubt_once_a_name_leads_there_again() -> None:
    """Its link has the connector that it says itself, and the name leads there by another."""
    cluster = Names(alias="b")
    b = cluster.node("b", ["a"])
    a = by_names(cluster, "a")
    named_by(a, "alias")
    cluster.wait(2_000)
    assert a.bridge("b").connector.host == "b"
    named_by(a)
    named_by(a, "alias")
    cluster.wait(2_000)
    bridge = a.bridge("b")
    assert (bridge.state.value, bridge.is_listed, bridge.is_doubtful) == ("up", True, False)
    b.crash()
    cluster.wait(60_000)
    before = len(a.dials)
    cluster.wait(60_000)
    assert len(a.dials) - before > 100, "at the full rate, as without that"


def test_a_lost_node_is_dialled_at_once_when_a_name_leads_there_again() -> None:
    cluster = ClusterStage()
    b = cluster.node("b")
    a = by_names(cluster, "a")
    named_by(a, "b")
    cluster.wait(1_000)
    b.crash()
    cluster.wait(3_000)
    named_by(a)
    cluster.wait(100_000)
    assert a.state("b") == "resting"
    b.start()
    named_by(a, "b")
    assert a.state("b") == "up"


@pytest.mark.option("cluster-connections.topology-scanner-attempts")
@pytest.mark.parametrize("attempts", [0, 1])
def test_nodes_that_start_together_are_linked_soon_however_few_looks_for_stopped_ones_there_are(attempts: int) -> None:
    cluster = ClusterStage()
    a = cluster.node("a", groups=GROUPS, discovery_group_ref="names", topology_scanner_attempts=attempts)
    named_by(a, "b")
    cluster.wait(5_000)
    cluster.node("b")
    cluster.wait(1_000)
    assert a.state("b") == "up"


def test_places_that_do_not_answer_keep_to_the_bound_of_nodes_when_they_are_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BOUND, 3)
    hosts = [f"h{number}" for number in range(20)]
    cluster = ClusterStage()
    cluster.mute = set(hosts)
    a = by_names(cluster, "a")
    named_by(a, *hosts)
    connection = a.broker.cluster.connections["cluster"]
    for _ in range(3):
        assert len(connection.probes) == 3
        cluster.wait(SLOW_MS)
    assert len(connection.probes) == 3
