"""Groups that are kept together over several nodes; what conversations do not show (tests/scenarios, 41)."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp import events as told
from mqbroker.cluster.notices import PROPOSAL, GroupClusterNotice
from mqbroker.config.slices import BrokerOptions
from mqbroker.core.cluster import group_owners
from mqbroker.node.cluster.grouping import group_hand_over
from mqbroker.node.cluster.grouping.grouping import GroupingHandler
from mqbroker.wire.performatives import Accepted, Attach, Rejected, Source, Target
from mqbroker.wire.run import single
from mqbroker.wire.sections import Properties, build_message

from tests.support import transactions
from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of, options_for
from tests.support.large_messages import BIG, SIZE_MIN, Consumer, Producer, content
from tests.support.stage import Stage, options_with

MIXED = ("g", "", "h", "g", "")


def grouped(group: str, **said: Any) -> dict[str, Any]:
    """What `build_message` is told for a message of a group."""
    return {"properties": Properties(group_id=group or None), **said}


class Site:
    """Nodes that know each other; `a` decides, unless `types` says otherwise."""

    def __init__(
        self,
        names: str = "ab",
        types: dict[str, str] | None = None,
        *,
        is_chain: bool = False,
        max_hops: int = 1,
        **handler: Any,
    ) -> None:
        self.cluster = ClusterStage()
        self.is_chain = is_chain
        self.max_hops = 2 if is_chain else max_hops
        self.handler = {"timeout": 1000, "reaper_period": 100, **handler}
        self.types = {name: "LOCAL" if name == "a" else "REMOTE" for name in names} | (types or {})
        self.names = names
        for name in names:
            self.start(name)
        self.wait(700)

    def start(self, name: str) -> ClusterNode:
        return self.cluster.make(name, self.options(name), {})

    def options(self, name: str) -> BrokerOptions:
        """What a node is."""
        limits = {"amqp_min_large_message_size_bytes": SIZE_MIN, "large_message_in_memory_max_size_bytes": 0}
        handler = {"type": self.types[name], **self.handler}
        if self.types[name] == "REMOTE" and self.handler.get("group_timeout", -1) > 0:
            handler["group_timeout"] = self.handler["group_timeout"] // 2  # as the manual wants it
        tables = {"grouping_handler": handler, "limits": limits}
        others = [each for each in self.names if each != name]
        if self.is_chain:
            others = [each for each in others if abs(ord(each) - ord(name)) == 1]
        said = {"retry_interval": 100, "max_hops": self.max_hops, "allow_direct_connections_only": self.is_chain}
        return options_for(name, others, {**said, "options": tables})

    def __getitem__(self, name: str) -> ClusterNode:
        return self.cluster.nodes[name]

    def wait(self, duration_ms: int) -> None:
        self.cluster.wait(duration_ms)

    def handler_of(self, name: str) -> GroupingHandler:
        handler = self[name].broker.grouping
        assert handler is not None
        return handler

    def owners(self, name: str) -> dict[str, str]:
        """Groups of `orders` with the nodes that own them, as a node knows them."""
        rows = self[name].admin("groups", queue="orders")["groups"]
        return {row["group"]: row["node"] for row in rows}

    def producer(self, name: str, address: str = "orders", **said: Any) -> Producer:
        made = Producer(self[name], f"p{len(self[name].talkers)}", address, **said)
        self.cluster.run()
        return made

    def consumer(self, name: str, address: str = "orders") -> Consumer:
        made = Consumer(self[name], f"c{len(self[name].talkers)}", address, credit=1000)
        self.cluster.run()
        return made

    def publish(self, producer: Producer, *groups: str, size: int = 20) -> None:
        """One message of each group, all in one read."""
        for number, group in enumerate(groups):
            producer.send(f"{group}{number}|".encode().ljust(size, b"x"), **grouped(group))
        self.cluster.run()


def kinds(producer: Producer) -> list[str]:
    return [type(each).__name__ for each in producer.outcomes]


@pytest.mark.option("grouping-handler.type")
def test_all_nodes_send_a_group_where_the_first_one_did() -> None:
    site = Site("abc")
    consumers = {name: site.consumer(name) for name in "abc"}
    for name in "cab":
        site.publish(site.producer(name), "g", "g")
    assert sorted(len(each.bodies) for each in consumers.values()) == [0, 0, 6]
    (owner,) = set(site.owners("a").values())
    assert [site.owners(name) for name in "abc"] == [{"g": owner}] * 3
    without = Site("abc", dict.fromkeys("abc", ""))
    consumers = {name: without.consumer(name) for name in "abc"}
    without.publish(without.producer("c"), *"gggggg")
    assert without["c"].admin("groups") == {"type": None, "arbiter": None, "groups": [], "is_whole": True}
    without.publish(without.producer("b"), "g")
    without.publish(without.producer("a"), "g")
    assert sum(len(each.bodies) > 0 for each in consumers.values()) > 1


@pytest.mark.option("grouping-handler.address")
def test_addresses_that_it_is_not_for_go_the_ordinary_way() -> None:
    site = Site(address="orders,!orders.eu")
    for address in ("orders", "orders.eu", "news"):
        site.consumer("a", address)
        site.publish(site.producer("b", address), "g")
    rows = site["a"].admin("groups")["groups"]
    assert [(row["queue"], row["group"]) for row in rows] == [("orders", "g")]


@pytest.mark.option("grouping-handler.timeout")
def test_messages_of_groups_that_nobody_decides_are_refused_in_time_and_those_beside_them_taken() -> None:
    for timeout_ms in (1000, 3000):
        site = Site(timeout=timeout_ms)
        site.consumer("b")
        producer = site.producer("b")
        site.publish(producer, "g")
        site.cluster.silence(site["a"])
        site.publish(producer, *MIXED)
        site.wait(timeout_ms - 100)
        assert kinds(producer) == ["Accepted"]
        site.wait(200)
        said = [type(each) for each in producer.outcomes[1:]]
        assert (said.count(Accepted), said.count(Rejected)) == (4, 1)
        (why,) = {str(each.error.description) for each in producer.outcomes if isinstance(each, Rejected)}
        assert f"has not answered within {timeout_ms} ms" in why
        assert node_id_of("a") in why
        assert [fields["arbiter"] for fields in site["b"].events("group-refused")] == [node_id_of("a")]
        assert site["b"].broker.counters.refused == 0, "there was room for them"


@pytest.mark.option("grouping-handler.name")
def test_without_an_arbiter_and_with_two_of_them_somebody_is_told() -> None:
    none = Site(types={"a": "REMOTE"}, name="sales")
    none.wait(500)
    assert [fields["name"] for fields in none["b"].events("grouping-arbiter-missing")] == ["sales"]
    producer = none.producer("b")
    none.publish(producer, "g")
    assert kinds(producer) == ["Rejected"]  # nobody waits for what is not there
    two = Site("abc", types={"b": "LOCAL"})
    for name in "abc":
        said = two[name].events("grouping-arbiters-several")
        assert [fields["arbiter"] for fields in said] == [node_id_of("a")]
    two.consumer("c")
    two.publish(two.producer("b"), "g")
    assert two.owners("a") == two.owners("b") == {"g": "c"}


@pytest.mark.option("grouping-handler.group-timeout")
def test_a_node_asks_again_after_a_while_so_that_a_group_in_use_stays() -> None:
    site = Site(group_timeout=2000)
    site.consumer("a")
    producer = site.producer("b")
    for _ in range(6):
        site.publish(producer, "g")
        site.wait(600)
    assert site.owners("a") == site.owners("b") == {"g": "a"}
    site.wait(2100)
    assert site.owners("a") == site.owners("b") == {}
    for never in (-1, 0):
        kept = Site(group_timeout=never)
        kept.consumer("a")
        kept.publish(kept.producer("b"), "g")
        kept.wait(40_000)
        assert kept.owners("a") == {"g": "a"}


@pytest.mark.option("grouping-handler.reaper-period")
@pytest.mark.parametrize(("period_ms", "left"), [(500, {}), (5000, {"g": "b"})])
def test_idle_groups_end_when_the_arbiter_looks(period_ms: int, left: dict[str, str]) -> None:
    site = Site(group_timeout=100, reaper_period=period_ms)
    site.consumer("b")
    site.publish(site.producer("a"), "g")
    assert site.owners("a") == {"g": "b"}
    site.wait(1000)
    assert site.owners("a") == left


def test_what_is_on_the_connection_behind_a_group_comes_behind_it_and_nothing_else_waits() -> None:
    site = Site()
    got = site.consumer("b")
    waiting, other = site.producer("b"), site.producer("b")
    site.cluster.silence(site["a"])
    site.publish(waiting, *MIXED)
    site.publish(other, "", "")
    assert (kinds(waiting), kinds(other)) == ([], ["Accepted"] * 2)
    assert site["b"].paused[waiting.talker.conn]
    site.wait(1100)
    assert not site["b"].paused[waiting.talker.conn]
    assert sorted(kinds(waiting)) == ["Accepted"] * 2 + ["Rejected"] * 3
    assert len(got.bodies) == 4


@pytest.mark.parametrize("end", ["detach", "close", "both in one read"])
def test_what_a_client_has_sent_before_it_leaves_in_order_is_taken_in(end: str) -> None:
    site = Site()
    got = site.consumer("a")
    site.consumer("b", "other")
    leaving = site.producer("b", settled=True)
    site["a"].is_disk_held = True  # so the answer is late
    for number in range(3):
        leaving.send(f"m{number}".encode(), **grouped("g"))
    if end != "both in one read":
        site.cluster.run()
    if end == "detach":
        leaving.link.detach()
    else:
        leaving.talker.connection.close()
    site.cluster.run()
    assert got.bodies == []
    site["a"].is_disk_held = False
    site.cluster.run()
    assert got.bodies == [b"m0", b"m1", b"m2"]


def test_a_connection_that_is_lost_while_it_waits_leaves_nothing() -> None:
    site = Site()
    site.consumer("b")
    waiting, consumer = site.producer("b"), site.consumer("b", "other")
    site.publish(site.producer("b", "other"), "", "")
    site.cluster.silence(site["a"])
    session = consumer.talker.session
    assert session is not None
    site.publish(waiting, "g")
    site["b"].drop(waiting.talker)
    site.wait(2000)
    assert site.handler_of("b").asked == {}
    assert site["b"].broker.store.queues["orders"].message_count == 0


def test_pins_outlive_the_process_of_the_arbiter() -> None:
    site = Site()
    consumer = site.consumer("b")
    site.publish(site.producer("a"), *"ghg")
    owners = site.owners("a")
    site["a"].crash()
    site["a"].start()
    site.wait(3000)
    assert site.owners("a") == owners == {"g": "b", "h": "b"}
    site.consumer("a")
    site.publish(site.producer("a"), "g")
    assert len(consumer.bodies) == 4
    site["a"].admin("queue-delete", name="orders", force=True)
    site["b"].admin("queue-delete", name="orders", force=True)
    site.cluster.run()
    site["a"].crash()
    site["a"].start()
    assert site.owners("a") == {}


@pytest.mark.parametrize("owes", [False, True])
def test_groups_end_with_a_node_that_is_forgotten_though_the_arbiter_has_restarted_since(owes: bool) -> None:
    """It knows the owner from its journal alone."""
    site = Site()
    site.consumer("b")
    site.publish(site.producer("b"), "g")
    if owes:
        site.cluster.silence(site["b"])
        site.publish(site.producer("a"), "g")
    site["b"].crash()
    site["a"].crash()
    site["a"].start()
    site.wait(3000)
    assert list(site.owners("a")) == ["g"]
    assert site["a"].admin("cluster-forget", node_id=node_id_of("b"))["messages"] == owes
    site.wait(100)
    assert site.owners("a") == ({"g": "a"} if owes else {}), "what waited for it chooses anew"
    got = site.consumer("a")
    site.publish(site.producer("a"), "g")
    assert len(got.bodies) == 1 + owes


def test_an_answer_waits_for_the_disk_of_the_arbiter() -> None:
    site = Site()
    got = site.consumer("b")
    producer = site.producer("b")
    site["a"].is_disk_held = True
    site.publish(producer, "g")
    assert kinds(producer) == got.bodies == []
    site["a"].is_disk_held = False
    site.cluster.run()
    assert (kinds(producer), len(got.bodies)) == (["Accepted"], 1)


def test_known_groups_go_on_without_the_arbiter_and_are_asked_for_when_it_is_back() -> None:
    site = Site("abc")
    got = site.consumer("b")
    producer = site.producer("c")
    site.publish(producer, "g")
    site["a"].crash()
    site.wait(3000)
    site.publish(producer, "g", "h")
    assert (sorted(kinds(producer)), len(got.bodies)) == (["Accepted", "Accepted", "Rejected"], 2)
    site["a"].start()
    site.wait(3000)
    site.publish(producer, "g", "h")
    assert (kinds(producer)[3:], len(got.bodies)) == (["Accepted"] * 2, 4)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_queue_that_is_not_known_is_looked_for_ten_times_and_then_messages_go_elsewhere(name: str) -> None:
    site = Site()
    got = site.consumer("b")
    owner = "orders" + node_id_of("z")
    site.handler_of("a").core.owners.put(("orders", "g"), owner)
    producer = site.producer(name)
    site.publish(producer, "g")
    site.wait(900)
    assert kinds(producer) == []
    site.wait(200)
    assert (kinds(producer), len(got.bodies)) == (["Accepted"], 1)
    assert [fields["owner"] for fields in site[name].events("group-not-kept")] == [owner]
    site.publish(producer, "g")
    assert (len(got.bodies), site.owners("a")) == (2, {"g": "b"})


def test_the_arbiter_keeps_a_bounded_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    site.consumer("b")
    monkeypatch.setattr(group_owners, "PINS_MAX", 2)
    for name in "ab":
        producer = site.producer(name)
        site.publish(producer, *"ghi", "")
        assert sorted(kinds(producer)) == ["Accepted"] * 3 + ["Rejected"]
    assert len(site["a"].events("groups-full")) == 1
    for name in "ab":
        assert len(site.handler_of(name).core.owners) == 2


def test_a_large_message_of_a_group_waits_in_its_file() -> None:
    site = Site()
    producer, got = site.producer("b"), site.consumer("b")
    site.cluster.silence(site["a"])
    producer.publish(content(1), **grouped("g"))
    site.wait(1100)
    assert kinds(producer) == ["Rejected"]
    assert site["b"].large_files.sizes == {}
    again = Site()
    producer, got = again.producer("b"), again.consumer("b")
    producer.publish(content(1), **grouped("g"))
    again.cluster.run()
    assert (kinds(producer), [len(body) for body in got.bodies]) == (["Accepted"], [BIG])


def test_transactions_ask_as_messages_are_posted() -> None:
    site = Site()
    site.consumer("a")
    talker = site["b"].connect("t")
    assert talker.session is not None
    control = talker.session.attach_sender(transactions.coordinator_attach())
    link = talker.session.attach_sender(
        Attach(name="s", handle=0, role=False, source=Source(), target=Target(address="orders"),
               initial_delivery_count=0)
    )  # fmt: skip
    site.cluster.run()

    def commit() -> str:
        transactions.declare(control, ["t"])
        site.cluster.run()
        declared = [each for each in talker.events if isinstance(each, told.Settled)][-1]
        txn_id = declared.outcome.txn_id
        payload = build_message(b"m", durable=True, **grouped("g"))
        transactions.post(link, bytes(single(payload).payload(0)), ["m"], txn_id)
        site.cluster.run()
        site.wait(1100)
        transactions.discharge(control, txn_id, ["t"], fail=False)
        site.cluster.run()
        settled = [each for each in talker.events if isinstance(each, told.Settled)][-1]
        return type(settled.outcome).__name__

    assert commit() == "Accepted"
    assert site.owners("b") == {"g": "a"}
    site.handler_of("b").core.owners.drop(("orders", "g"))
    site.cluster.silence(site["a"])
    assert commit() == "Rejected"
    assert site["b"].broker.counters.refused == 0, "there was room for it"


def test_messages_of_administrators_and_of_links_without_an_address_go_where_their_group_is() -> None:
    site = Site()
    got = site.consumer("a")
    site.publish(site.producer("a"), "g")
    message = {"body": "m", "properties": {"group_id": "g"}}
    site["b"].admin("send", address="orders", messages=[message])
    site.cluster.run()
    anonymous = Producer(site["b"], "anonymous", None)  # type: ignore[arg-type]  # no address
    anonymous.publish(b"m", properties=Properties(to="orders", group_id="g"))
    site.cluster.run()
    assert (kinds(anonymous), sum(event.run.count for event in got.incoming)) == (["Accepted"], 3)
    site.cluster.silence(site["a"])
    message["properties"] = {"group_id": "other"}
    assert site["b"].admin("send", address="orders", messages=[message]) is None
    site.wait(1100)
    (reply,) = [each for each in site["b"].replies.values() if each.error is not None]
    assert "has not answered" in str(reply.error)


def test_groups_are_asked_for_over_other_nodes() -> None:
    site = Site("abc", is_chain=True)
    assert (site["a"].state("c"), site["c"].state("a")) == ("", "")
    got = site.consumer("a")
    for name in "cab":
        site.publish(site.producer(name), "g")
    assert (len(got.bodies), site.owners("a"), site.owners("c")) == (3, {"g": "a"}, {"g": "a"})
    site["a"].admin("queue-delete", name="orders", force=True)
    site.cluster.run()
    assert site.owners("a") == site.owners("b") == site.owners("c") == {}


def test_no_notice_goes_in_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    original = GroupingHandler.heard

    def counted(self: GroupingHandler, *arguments: Any) -> None:
        heard.append(self.broker.node_id)
        original(self, *arguments)

    monkeypatch.setattr(GroupingHandler, "heard", counted)
    site = Site("abcd", max_hops=64)
    notice = GroupClusterNotice(
        PROPOSAL, "orders", "g", "orders" + node_id_of("b"), node_id_of("z"), node_id_of("y"), 5
    )
    site["a"].broker.cluster.connections["cluster"].announcer.tell(notice)
    site.wait(10)
    assert 3 <= len(heard) <= 12  # each node passes it on once
    assert all((node_id_of("z"), 5) in site.handler_of(name)._seen for name in "bcd")


def test_a_node_without_neighbours_decides_for_itself() -> None:
    stage = Stage(options_with(grouping_handler={"type": "LOCAL"}))
    producer, consumer = Producer(stage), Consumer(stage)
    producer.publish(b"m", **grouped("g"))
    assert (kinds(producer), len(consumer.bodies)) == (["Accepted"], 1)
    (row,) = stage.admin("groups")["groups"]
    assert (row["group"], row["decides"]) == ("g", True)


def test_a_node_whose_journal_was_wiped_is_answered_at_once() -> None:
    """Others know notices by their numbers, which did come from the journal."""
    site = Site("ab")
    consumer = site.consumer("a")
    for number in range(20):
        site.publish(site.producer("b"), f"g{number}")
    b = site["b"]
    b.crash()
    b.disk.stable.clear()
    b.start()
    site.wait(700)
    producer = site.producer("b")
    site.publish(producer, "new", "newer")
    assert kinds(producer) == ["Accepted"] * 2
    assert len(consumer.bodies) == 22
    assert b.events("group-refused") == []


def decided(site: Site, *groups: str) -> dict[str, str]:
    """Owners of so many groups, of which each message was sent at node c."""
    producer = site.producer("c")
    site.publish(producer, *groups)
    assert kinds(producer) == ["Accepted"] * len(groups)
    return site.owners("a")


def rolled_out(site: Site, *names: str, **types: str) -> None:
    """Some nodes are another kind of handler from now on, restarted one after the other."""
    site.types |= types
    for name in names:
        site[name].crash()
        site[name].options = site.options(name)
        site[name].start()
        site.wait(3_000)


GROUPS = [f"g{number}" for number in range(12)]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_another_arbiter_takes_over_what_the_one_before_had_decided(order: str) -> None:
    site = Site("abc")
    consumers = {name: site.consumer(name) for name in "bc"}
    before = decided(site, *GROUPS)
    assert set(before.values()) == {"b", "c"}
    rolled_out(site, *order, a="REMOTE", b="LOCAL")
    assert site.handler_of("c").arbiter == node_id_of("b")
    assert site.owners("b") == before, "also where b was restarted, and knew nothing of it"
    consumers["b"] = site.consumer("b")
    producer = site.producer("a")
    site.publish(producer, *GROUPS)
    assert kinds(producer) == ["Accepted"] * len(GROUPS)
    assert site.owners("b") == site.owners("a") == before
    site["a"].crash()
    site["a"].start()
    site.wait(3_000)
    assert not site.handler_of("a").core.owners.inherited, "it was told once that all is there"
    assert site.owners("a") == {}, "and has forgotten it"


def test_who_asks_the_new_arbiter_first_proposes_the_owner_that_it_was_told_last() -> None:
    site = Site("abc")
    for name in "bc":
        site.consumer(name)
    before = decided(site, *GROUPS)
    site.cluster.hold_up("a", "b")  # so a tells b nothing
    rolled_out(site, *"ab", b="LOCAL", a="REMOTE")
    site.consumer("b")
    assert site.handler_of("c").arbiter == node_id_of("b")
    assert site.owners("b") == {}
    producer = site.producer("c")
    site.publish(producer, *reversed(GROUPS))  # so that it would choose others now
    assert kinds(producer) == ["Accepted"] * len(GROUPS)
    assert site.owners("b") == before


def proposals_at(site: Site, name: str, monkeypatch: pytest.MonkeyPatch) -> list[GroupClusterNotice]:
    """What comes there from now on, as a list that grows."""
    found: list[GroupClusterNotice] = []
    original, node_id = GroupingHandler.heard, site[name].broker.node_id

    def counted(self: GroupingHandler, announcer: Any, neighbour: str, notice: GroupClusterNotice) -> None:
        if notice.act == PROPOSAL and self.broker.node_id == node_id:
            found.append(notice)
        original(self, announcer, neighbour, notice)

    monkeypatch.setattr(GroupingHandler, "heard", counted)
    return found


def test_an_arbiter_that_does_not_answer_is_told_seldom_and_one_that_does_all_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_hand_over, "ROUND_MAX", 4)
    site = Site("abc")
    for name in "bc":
        site.consumer(name)
    before = decided(site, *GROUPS)
    rolled_out(site, "b", b="LOCAL")
    heard = proposals_at(site, "b", monkeypatch)
    site["b"].is_disk_held = True
    rolled_out(site, "a", a="REMOTE")
    site.wait(7_000)  # it begins anew after 1, 2 and 4 s
    assert 4 <= len(heard) <= 4 * 4
    assert len(site.handler_of("a").core.owners.inherited) == len(GROUPS)
    site["b"].is_disk_held = False
    site.wait(300)
    assert not site.handler_of("a").core.owners.inherited, "each round begins when the last one is answered"
    assert len(heard) <= 4 * 4 + len(GROUPS)
    assert site.owners("b") == before


def test_an_arbiter_that_is_full_takes_nothing_over_and_both_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site("abc")
    for name in "bc":
        site.consumer(name)
    before = decided(site, *GROUPS)
    monkeypatch.setattr(group_owners, "PINS_MAX", 6)
    rolled_out(site, "b", b="LOCAL")
    rolled_out(site, "a", a="REMOTE")
    site.wait(3_000)
    (why,) = _hindrances(site)
    assert "has decided of 6 groups" in why
    assert "as it keeps no more (groups-full)" in why
    assert [each["arbiter"] for each in site["a"].events("groups-not-taken-over")] == [node_id_of("b")]
    assert len(site["b"].events("groups-full")) == 1
    heard = proposals_at(site, "b", monkeypatch)
    site.wait(10_000)
    assert 0 < len(heard) <= len(GROUPS)
    monkeypatch.setattr(group_owners, "PINS_MAX", 100)
    site.wait(11_000)
    assert _hindrances(site) == []
    assert site.owners("b") == before


def test_what_is_to_be_handed_over_is_not_pushed_out_by_what_others_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site("abc")
    for name in "bc":
        site.consumer(name)
    decided(site, *GROUPS)
    rolled_out(site, "a", a="REMOTE")
    owners = site.handler_of("a").core.owners
    monkeypatch.setattr(group_owners, "PINS_MAX", len(GROUPS))
    inherited = set(owners.inherited)
    for number in range(20):
        owners.put(("orders", f"later {number}"), "orders" + node_id_of("b"))
    assert set(owners.inherited) == inherited
    assert {key for key, _ in owners.items()} - inherited == {("orders", f"later {each}") for each in range(8, 20)}
    assert len(inherited) == len(GROUPS)


def test_a_node_leaves_once_its_groups_are_anothers_to_decide_and_they_stay_where_they_were() -> None:
    site = Site("abc")
    site.consumer("b")
    site.consumer("c")
    before = decided(site, *GROUPS)
    (hindrance,) = _hindrances(site)
    assert "make another node LOCAL and this one REMOTE" in hindrance
    rolled_out(site, "a", a="REMOTE")
    (hindrance,) = _hindrances(site)
    nobody = f"has decided of {len(GROUPS)} groups, and no node decides of them by now: make one LOCAL"
    assert hindrance == nobody
    rolled_out(site, "a")
    assert _hindrances(site) == [nobody], "also after one more start"
    rolled_out(site, "b", b="LOCAL")
    site.consumer("b")
    assert _hindrances(site) == []
    request = site["a"].ask("scale-down", node="b")
    site.cluster.run()
    assert site["a"].replies[request].error is None
    for _ in range(40):
        site.wait(500)
        if site["a"].admin("scale-down-show")["state"] == "moved":
            break
    assert site["a"].admin("scale-down-show")["state"] == "moved"
    site["a"].crash()
    for name in "bc":
        site[name].admin("cluster-forget", node_id=node_id_of("a"))
    site.publish(site.producer("c"), *GROUPS)
    assert site.owners("b") == before


def test_groups_of_a_node_that_leaves_end_and_the_others_stay() -> None:
    site = Site("abc")
    for name in "abc":
        site.consumer(name)
    before = decided(site, *GROUPS)
    assert set(before.values()) == {"a", "b", "c"}
    site["c"].ask("scale-down", node="b", force=True)
    site.cluster.run()
    site.wait(15_000)
    site["c"].crash()
    for name in "ab":
        site[name].admin("cluster-forget", node_id=node_id_of("c"))
    site.wait(500)
    site.publish(site.producer("a"), *GROUPS)
    after = site.owners("a")
    assert {group: after[group] for group, owner in before.items() if owner != "c"} == {
        group: owner for group, owner in before.items() if owner != "c"
    }
    assert set(after) == set(GROUPS)
    assert "c" not in after.values()


def _hindrances(site: Site) -> list[str]:
    request = site["a"].ask("scale-down", node="b", dry_run=True)
    site.cluster.run()
    reply = site["a"].replies[request]
    assert reply.result is not None, reply.error
    return [each["why"] for each in reply.result["hindrances"]]
