"""The heir of a node that leaves is gone half-way: the next one takes over, and nothing is lost or comes twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from mqbroker.core.cluster import held_back
from mqbroker.core.cluster.held_back import HeldBack
from mqbroker.core.cluster.scale_down import HEIRS_MAX, OWED_MAX
from mqbroker.core.queue.id_ranges import IdRanges
from mqbroker.journal.records import ID_MAX
from mqbroker.wire.scan import scan_sections
from mqbroker.wire.sections import body_values

from tests.support.cluster_stage import ClusterNode, ClusterStage, node_id_of
from tests.support.large_messages import Consumer, Producer
from tests.unit.core.cluster.test_drains import LIMITS, bodies, count_at, filled, read_at
from tests.unit.node.test_scale_down import begin, moved, shown, with_id

BOUND_MS = 60_000
COUNT = 600


class Heirs:
    """Node a leaves, to b at first; c and d stay. Some 60 messages may be without an answer."""

    def __init__(
        self, *, bound_ms: int = BOUND_MS, names: str = "abc", bare: str = "",
        of_b: dict[str, Any] | None = None, **changes: Any,
    ) -> None:  # fmt: skip
        """`bare`: nodes that list nobody."""
        self.cluster = ClusterStage()
        tables = {**LIMITS, "scale_down": {"heir_timeout": bound_ms}, **changes.pop("options", {})}
        said = {"options": tables, "message_load_balancing": "OFF", "confirmation_window_size": 4_000, **changes}
        nodes = []
        for name in names:
            own = {**said, "options": {**tables, **(of_b or {})}} if name == "b" else said
            listed = [each for each in names if each != name and name not in bare]
            nodes.append(self.cluster.node(name, listed, **own))
        self.a, self.b, self.c = (*nodes, nodes[-1])[:3]
        self.nodes = nodes
        self.cluster.run()
        self.cluster.wait(600)

    def begin_half(self, *, has_it: bool, **said: Any) -> None:
        """Some has gone to b and is answered, and some is without an answer: b has it, or has lost it."""
        filled(self.a, COUNT // 2, self.cluster)
        assert begin(self.a, self.cluster, **said)["state"] == "moving"
        self.cluster.wait(3_000)
        assert (count_at(self.a), count_at(self.b)) == (0, COUNT // 2)
        if has_it:
            self.cluster.silence(self.b, is_deaf=False)
        else:
            self.b.is_disk_held = True
        self.a.admin("send", address="orders", messages=[{"body": each} for each in names(COUNT // 2, COUNT // 2)])
        self.cluster.run()
        self.cut = self.unanswered

    @property
    def unanswered(self) -> int:
        handed_over = self.a.broker.store.queues["orders"].handed_over
        return 0 if handed_over is None else handed_over.ids.count

    def lose(self, node: ClusterNode) -> None:
        node.is_disk_held = False
        node.crash()
        self.cluster.run()

    def bring_back(self, node: ClusterNode) -> None:
        node.start()
        self.cluster.wait(5_000)

    def everywhere(self) -> list[str]:
        """What is read at all nodes that let clients in."""
        found: list[str] = []
        for node in self.nodes:
            if node.is_up and "orders" in node.broker.store.queues:
                found += texts(read_at(node, self.cluster))
        return sorted(found)


def texts(reader: Consumer) -> list[str]:
    """Bodies, whether clients or administrators sent them."""
    payloads = [bytes(event.run.payload(index)) for event in reader.incoming for index in range(event.run.count)]
    found = [body_values(each, scan_sections(each, 0, len(each)))[1] for each in payloads]
    return [str(value) if isinstance(value, str) else bytes(value).decode() for (value,) in found]


def names(count: int, first: int = 0) -> list[str]:
    return [body.decode() for body in bodies(count, first)]


def row_in(said: Any) -> Any:
    (row,) = said["receipt"]["queues"]
    return row


@pytest.mark.option("scale-down.heir-timeout")
@pytest.mark.parametrize("has_it", [False, True])
def test_the_next_one_takes_what_waits_and_the_first_one_what_it_may_have(has_it: bool) -> None:
    of = Heirs()
    of.begin_half(has_it=has_it)
    assert 0 < of.cut < COUNT // 2
    of.lose(of.b)
    of.cluster.wait(BOUND_MS - 5_000)
    assert shown(of.a)["node"] == "b", "it may come back"
    of.cluster.wait(10_000)
    (told,) = of.a.events("scale-down-goes-on")
    assert (told["node_id"], told["before"], told["apart"]) == (node_id_of("c"), node_id_of("b"), of.cut)
    assert (count_at(of.a), count_at(of.c)) == (of.cut, COUNT // 2 - of.cut)
    said = shown(of.a)
    assert (said["state"], said["node"], said["left"]) == ("failed", "c", of.cut)
    (hindrance,) = said["hindrances"]
    assert f"{of.cut} messages of it may be at node {node_id_of('b')}" in hindrance["why"]
    assert [each["unanswered"] for each in row_in(said)["heirs"]] == [of.cut, 0]
    of.bring_back(of.b)
    said = moved(of.a, of.cluster)
    row = row_in(said)
    assert (said["receipt"]["balances"], said["hindrances"], said["left"]) == (True, [], 0)
    assert (row["before"]["messages"] + row["came"], row["moved"], row["arrived"], row["left"]) == (
        COUNT,
        COUNT,
        COUNT,
        0,
    )
    gone = COUNT // 2 + of.cut
    assert [(each["node_id"], each["moved"], each["arrived"]) for each in row["heirs"]] == [
        (node_id_of("b"), gone, gone), (node_id_of("c"), COUNT - gone, COUNT - gone)
    ]  # fmt: skip
    assert all(each["moved_digest"] == each["arrived_digest"] for each in (row, *row["heirs"]))
    assert of.b.broker.store.arrivals.dropped_total == (of.cut if has_it else 0)
    assert of.everywhere() == names(COUNT)


@pytest.mark.slow
@pytest.mark.parametrize(("later", "stays"), [("c", "d"), ("d", "c")])
def test_a_node_that_leaves_later_is_passed_over(later: str, stays: str) -> None:
    of = Heirs(names="abcd")
    of.begin_half(has_it=False, not_to=f"{node_id_of(later)},{node_id_of('z')}")
    of.lose(of.b)
    of.cluster.wait(BOUND_MS + 10_000)
    assert shown(of.a)["node"] == stays
    of.a.crash()
    of.a.start()
    assert of.a.broker.store.remotes.scale_down.passed_over == (node_id_of(later), node_id_of("z"))


@pytest.mark.slow
@pytest.mark.parametrize(("before", "later", "heir"), [("c", "", "c"), ("", "c", "d"), ("c", "d", "c")])
def test_who_is_passed_over_is_said_anew_while_its_heir_is_away(before: str, later: str, heir: str) -> None:
    of = Heirs(names="abcd")
    of.begin_half(has_it=False, not_to=ids_of(before))
    of.lose(of.b)
    said = of.a.admin("scale-down", node=node_id_of("b"), not_to=ids_of(later))
    assert (said["node"], said["passed_over"]) == ("b", [ids_of(later)] if later else [])
    of.cluster.wait(BOUND_MS + 10_000)
    assert shown(of.a)["node"] == heir
    of.a.crash()
    of.a.start()
    assert shown(of.a)["passed_over"] == said["passed_over"]


def test_who_is_passed_over_stays_so_where_nothing_is_said_of_that() -> None:
    of = Heirs(names="abcd", bound_ms=-1)
    assert shown(of.a)["passed_over"] == []
    begin(of.a, of.cluster, not_to=ids_of("d"))
    for said in ({"node": "b"}, {"node": "b", "force": True}, {"node": "c"}):
        assert of.a.admin("scale-down", **said)["passed_over"] == [ids_of("d")]
    assert of.a.admin("scale-down", node="b", not_to="")["passed_over"] == []
    assert (shown(of.a)["node"], shown(of.a)["passed_over"]) == ("b", [])


def ids_of(name: str) -> str:
    """Nobody's where no name is given."""
    return node_id_of(name) if name else ""


def test_the_longest_record_is_written_and_read() -> None:
    of = Heirs(bound_ms=-1)
    begin(of.a, of.cluster)
    record = of.a.broker.store.remotes.scale_down
    ids = [f"{number:08x}{node_id_of('z')[8:]}" for number in range(OWED_MAX)]
    record.owed_before = dict.fromkeys(ids, ID_MAX)
    record.past = [("n" * 63, one) for one in ids[:HEIRS_MAX]]
    assert of.a.admin("scale-down", node="b", not_to=",".join(ids))["passed_over"] == ids
    of.a.crash()
    of.a.start()
    read = of.a.broker.store.remotes.scale_down
    assert (read.passed_over, read.owed_before, read.past) == (tuple(ids), record.owed_before, record.past)


NO_NODES = ["x" * 70_000, ",".join([node_id_of("c")] * 1000), "x" * 36, ",".join(["\N{SNOWMAN}" * 36] * 400)]


@pytest.mark.parametrize("not_to", NO_NODES)
def test_who_is_no_node_is_not_passed_over(not_to: str) -> None:
    of = Heirs()
    said = of.a.admin("scale-down", node=node_id_of("b"), not_to=not_to)
    assert (said["condition"], len(said["description"]) < 200) == ("amqp:invalid-field", True)
    assert shown(of.a)["state"] == "none"


def test_it_is_shown_for_how_long_nothing_goes_and_another_heir_has_time_of_its_own() -> None:
    of = Heirs()
    assert shown(of.a)["stands_s"] == 0
    of.begin_half(has_it=False)
    going = shown(of.a)
    of.lose(of.b)
    of.cluster.wait(30_000)
    stands = shown(of.a)
    assert (stands["state"], stands["node"]) == ("failed", "b")
    assert 29 <= stands["stands_s"] - going["stands_s"] <= 31
    of.cluster.wait(BOUND_MS - 30_000)
    after = shown(of.a)
    assert after["node"] == "c"
    assert after["stands_s"] < 30
    of.a.admin("scale-down-cancel", force=True)
    of.cluster.wait(5_000)
    assert (shown(of.a)["state"], shown(of.a)["stands_s"]) == ("none", 0)


def test_what_waits_apart_does_so_after_a_crash_of_the_node_that_leaves() -> None:
    of = Heirs()
    of.begin_half(has_it=True)
    of.lose(of.b)
    of.cluster.wait(BOUND_MS + 5_000)
    for _ in range(2):
        of.a.crash()
        of.a.start()
        of.cluster.wait(3_000)
    assert (shown(of.a)["left"], count_at(of.c)) == (of.cut, COUNT // 2 - of.cut)
    of.bring_back(of.b)
    assert moved(of.a, of.cluster)["receipt"]["balances"]
    assert of.b.broker.store.arrivals.dropped_total == of.cut
    assert of.everywhere() == names(COUNT)


def test_a_person_names_the_next_one_before_the_time_is_up() -> None:
    of = Heirs(bound_ms=-1)
    of.begin_half(has_it=True)
    of.lose(of.b)
    of.cluster.wait(2 * BOUND_MS)
    assert shown(of.a)["node_id"] == node_id_of("b"), "nobody else is chosen by itself"
    said = of.a.admin("scale-down", node="c")
    assert (said["node"], said["state"]) == ("c", "moving")
    of.cluster.wait(3_000)
    assert count_at(of.c) == COUNT // 2 - of.cut
    of.bring_back(of.b)
    assert moved(of.a, of.cluster)["receipt"]["balances"]
    assert of.everywhere() == names(COUNT)


def test_forgotten_it_gives_back_what_it_may_have() -> None:
    of = Heirs()
    of.begin_half(has_it=False)
    of.lose(of.b)
    of.cluster.wait(BOUND_MS + 5_000)
    for node in (of.a, of.c):
        node.admin("cluster-forget", node_id=node_id_of("b"))
    said = moved(of.a, of.cluster)
    row = row_in(said)
    assert (said["receipt"]["balances"], row["moved"], row["arrived"]) == (True, COUNT, COUNT)
    assert (count_at(of.c), [each["given_up"] for each in row["heirs"]]) == (COUNT // 2, [True, False])
    of.bring_back(of.b)
    assert of.everywhere() == names(COUNT)


def test_forgotten_while_it_is_the_heir_the_next_one_follows_at_once() -> None:
    of = Heirs(bound_ms=-1)
    of.begin_half(has_it=False)
    of.lose(of.b)
    of.a.admin("cluster-forget", node_id=node_id_of("b"))
    of.cluster.wait(5_000)
    assert (shown(of.a)["node"], count_at(of.c)) == ("c", COUNT // 2)


@pytest.mark.parametrize("is_back", [False, True])
def test_where_all_was_answered_only_the_digest_is_waited_for(is_back: bool) -> None:
    of = Heirs(bound_ms=-1)
    filled(of.a, 10, of.cluster)
    with patch.object(of.a.broker.store.remotes.scale_down, "has_to_ask", lambda _: False):
        begin(of.a, of.cluster)
        of.cluster.wait(3_000)
    of.lose(of.b)
    of.a.admin("scale-down", node="c")
    of.a.admin("send", address="orders", messages=[{"body": "later"}])
    of.cluster.wait(5_000)
    assert (shown(of.a)["state"], count_at(of.c), count_at(of.a)) == ("failed", 1, 0)
    assert "what has gone to" in shown(of.a)["hindrances"][0]["why"]
    if is_back:
        of.bring_back(of.b)
    else:
        of.a.admin("cluster-forget", node_id=node_id_of("b"))
        of.a.crash()
        of.a.start()
        of.cluster.wait(2_000)
    said = moved(of.a, of.cluster)
    row = row_in(said)
    assert (said["receipt"]["balances"], row["moved"]) == (True, 11)
    assert (row["arrived"], row["unconfirmed"]) == ((11, 0) if is_back else (1, 10))
    assert row["moved_digest"] == row["arrived_digest"]


def test_by_force_it_has_moved_once_a_node_that_is_back_was_asked_for_its_digest() -> None:
    of = Heirs(bound_ms=-1)
    filled(of.a, 10, of.cluster)
    with patch.object(of.a.broker.store.remotes.scale_down, "has_to_ask", lambda _: False):
        begin(of.a, of.cluster, force=True)
        of.cluster.wait(3_000)
    of.lose(of.b)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(2_000)
    said = shown(of.a)
    assert (said["state"], len(said["hindrances"]), said["receipt"]["balances"]) == ("moved", 1, False)
    assert "did not say yet" in said["receipt"]["difference"][0]
    of.b.start()
    states = []
    for _ in range(100):
        of.cluster.wait(50)
        said = shown(of.a)
        states.append(said["state"])
        assert said["hindrances"] or said["state"] != "moved" or said["receipt"]["balances"]
    assert (states[-1], "moving" in states, said["receipt"]["balances"]) == ("moved", True, True)


def test_one_that_is_full_is_passed_over_and_answers_for_what_it_has() -> None:
    of = Heirs(of_b={"address_settings": {"#": {"max_size_messages": 100, "address_full_policy": "BLOCK"}}})
    filled(of.a, 90, of.cluster)
    begin(of.a, of.cluster)
    of.cluster.wait(3_000)
    of.a.admin("send", address="orders", messages=[{"body": f"{number}"} for number in range(50)])
    of.cluster.wait(5_000)
    assert count_at(of.a) > 0, "there is no room for all of it"
    of.cluster.wait(BOUND_MS)
    said = moved(of.a, of.cluster)
    assert (said["node"], said["receipt"]["balances"]) == ("c", True)
    assert count_at(of.b) + count_at(of.c) == 140


@pytest.mark.parametrize("bound_ms", [BOUND_MS, -1])
def test_one_that_gives_no_credit_is_named_where_nobody_takes_its_place(bound_ms: int) -> None:
    full = {"#": {"max_size_messages": 100, "address_full_policy": "BLOCK"}}
    of = Heirs(names="ab", bound_ms=bound_ms, of_b={"address_settings": full})
    filled(of.a, 90, of.cluster)
    begin(of.a, of.cluster)
    of.cluster.wait(3_000)
    assert shown(of.a)["state"] == "moved"
    of.a.admin("send", address="orders", messages=[{"body": f"{number}"} for number in range(50)])
    of.cluster.wait(BOUND_MS - 5_000)
    assert (shown(of.a)["state"], shown(of.a)["hindrances"]) == ("moving", []), "there may be room soon"
    of.cluster.wait(10_000)
    said = shown(of.a)
    (hindrance,) = said["hindrances"]
    assert (said["state"], said["node"], said["left"]) == ("failed", "b", count_at(of.a))
    assert f"node {node_id_of('b')} gives its link no credit" in hindrance["why"]
    assert f"{count_at(of.a)} messages of it wait" in hindrance["why"]
    assert of.b.admin("queue-purge", name="orders") == {"purged": 100}
    assert moved(of.a, of.cluster)["hindrances"] == []


def test_the_next_one_may_be_lost_as_well() -> None:
    of = Heirs(names="abcd")
    of.begin_half(has_it=True)
    of.lose(of.b)
    of.c.is_disk_held = True
    of.cluster.wait(BOUND_MS + 1_000)
    assert shown(of.a)["node"] == "c"
    assert of.unanswered > 0
    of.lose(of.c)
    of.cluster.wait(BOUND_MS + 1_000)
    of.a.crash()
    of.a.start()
    of.cluster.wait(3_000)
    assert shown(of.a)["node"] == "d"
    of.bring_back(of.c)
    of.bring_back(of.b)
    said = moved(of.a, of.cluster)
    assert (said["receipt"]["balances"], len(row_in(said)["heirs"])) == (True, 3)
    assert of.everywhere() == names(COUNT)


def test_what_one_heir_may_have_and_is_given_back_does_not_wait_for_the_next_one_after_a_start() -> None:
    of = Heirs(names="abcd")
    a, c, d, cluster = of.a, of.c, of.nodes[3], of.cluster
    of.begin_half(has_it=False)
    of.lose(of.b)
    c.is_disk_held = True
    a.admin("scale-down", node="c")
    cluster.wait(2_000)
    a.crash()
    a.start()  # nobody knows by now what of all that is there went to c
    cluster.wait(5_000)
    d.is_disk_held = True
    a.admin("scale-down", node="d", force=True)
    cluster.wait(2_000)
    a.admin("cluster-forget", node_id=node_id_of("b"))
    cluster.wait(2_000)
    assert of.unanswered == of.cut, "they are on their way to d"
    a.crash()
    a.start()
    cluster.wait(5_000)
    (held,) = a.broker.store.remotes.scale_down.held
    assert (held.kind.forwards_to, held.message_count) == (node_id_of("c"), COUNT // 2 - of.cut)
    c.is_disk_held = d.is_disk_held = False
    cluster.wait(10_000)
    assert (count_at(a), count_at(d)) == (0, of.cut)
    assert of.everywhere() == names(COUNT // 2, COUNT // 2)  # b has the others


def test_called_off_it_serves_what_waits_apart_once_that_is_answered() -> None:
    of = Heirs()
    of.begin_half(has_it=True)
    of.lose(of.b)
    of.cluster.hold_up("a", "c")
    of.a.admin("scale-down", node="c")
    of.cluster.wait(2_000)
    assert of.a.admin("scale-down-cancel")["state"] == "ends"
    of.a.crash()
    of.a.start()
    of.cluster.let_through("a", "c")
    of.cluster.wait(2_000)
    assert shown(of.a)["state"] == "ends", "b has not answered"
    of.bring_back(of.b)
    assert shown(of.a)["state"] == "none"
    assert not list(of.a.broker.store.remotes.scale_down.held)
    assert of.everywhere() == names(COUNT)


def test_called_off_by_force_what_waits_apart_is_served_at_once() -> None:
    of = Heirs()
    of.begin_half(has_it=False)
    of.lose(of.b)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(3_000)
    of.a.admin("scale-down-cancel", force=True)
    of.cluster.wait(2_000)
    assert shown(of.a)["state"] == "none"
    assert count_at(of.a) == of.cut
    assert len(texts(read_at(of.a, of.cluster))) == of.cut
    of.bring_back(of.b)
    assert of.b.broker.store.arrivals.dropped_total == 0


@pytest.mark.slow
def test_called_off_when_all_else_has_gone_it_is_over_with_the_last_answer() -> None:
    of = Heirs()
    of.begin_half(has_it=True)
    of.lose(of.b)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(3_000)
    assert of.a.admin("scale-down-cancel")["state"] == "ends"
    of.cluster.wait(3_000)
    assert shown(of.a)["state"] == "ends"
    assert [row["state"] for row in of.a.admin("drain-show")["drains"]] == ["ends"]
    of.bring_back(of.b)
    assert shown(of.a)["state"] == "none"
    assert of.everywhere() == names(COUNT)


def test_called_off_by_force_what_is_on_its_way_to_the_first_one_is_served_as_well() -> None:
    of = Heirs()
    of.begin_half(has_it=False)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(3_000)
    (held,) = of.a.broker.store.remotes.scale_down.held
    assert (held.queue.delivering_count, held.queue.backlog.count) == (of.cut, 0)
    of.a.admin("scale-down-cancel", force=True)
    of.cluster.run()
    assert count_at(of.a) == of.cut
    assert len(texts(read_at(of.a, of.cluster))) == of.cut


def test_where_all_that_is_left_may_be_at_the_first_one_it_stays_the_heir() -> None:
    of = Heirs(confirmation_window_size=1_000_000)
    of.begin_half(has_it=True)
    assert of.cut == COUNT // 2
    of.lose(of.b)
    of.cluster.wait(2 * BOUND_MS)
    assert (shown(of.a)["node"], count_at(of.a)) == ("b", COUNT // 2)


def test_ids_of_duplicate_detection_go_to_the_next_one_alone() -> None:
    of = Heirs(bound_ms=-1)
    of.cluster.hold_up("a", "b")
    Producer(of.a).publish(b"x", **with_id("one"))
    begin(of.a, of.cluster)
    of.cluster.wait(3_000)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(8_000)
    assert list(of.c.broker.store.duplicates.newest().values()) == [1]
    assert not any(queue.message_count for queue in of.a.broker.store.remotes.queues.values())


def test_what_is_paged_waits_apart_as_it_comes_from_the_disk() -> None:
    of = Heirs(bound_ms=-1, options={"limits": {"link_credit": 100_000, "global_max_size_bytes": 20_000}})
    of.a.admin("queue-create", name="orders", paused=True)
    producer = Producer(of.a)
    for number in range(500):
        producer.publish(b"%05d" % number)
    assert of.a.broker.store.queues["orders"].paged_count
    of.cluster.hold_up("a", "b")
    begin(of.a, of.cluster)
    of.cluster.wait(3_000)
    of.a.crash()
    of.a.start()  # nobody knows what b has of all these
    of.cluster.wait(2_000)
    of.a.admin("scale-down", node="c")
    of.a.admin("send", address="orders", messages=[{"body": "later"}])
    of.cluster.wait(5_000)
    assert count_at(of.c) <= 1
    assert shown(of.a)["left"] >= 500
    of.cluster.let_through("a", "b")
    of.cluster.wait(20_000)
    said = moved(of.a, of.cluster)
    assert (said["receipt"]["balances"], count_at(of.b), count_at(of.c)) == (True, 500, 1)


def test_a_queue_of_which_something_waits_apart_is_not_deleted() -> None:
    of = Heirs(bound_ms=-1)
    of.begin_half(has_it=True)
    of.lose(of.b)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(2_000)
    assert "in use" in of.a.admin("queue-delete", name="orders", force=True, store_and_forward=True)["description"]
    assert of.a.admin("queue-purge", name="orders", store_and_forward=True)["purged"] == 0
    assert shown(of.a)["left"] == of.cut


def test_no_more_of_what_is_paged_waits_apart_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    of = Heirs()
    of.begin_half(has_it=True)
    of.lose(of.b)
    of.a.admin("scale-down", node="c")
    of.cluster.wait(1_000)
    record = of.a.broker.store.remotes.scale_down
    (held,) = record.held
    queue = of.a.broker.store.queues["orders"]
    segment = held.queue.backlog.head
    assert record.held.aside(queue, segment) == (segment.n, 0)
    monkeypatch.setattr(held_back, "PAGED_MAX", held.message_count)
    assert record.held.aside(queue, segment) == (0, 0)
    assert isinstance(record.held, HeldBack)


def test_what_is_apart_goes_to_a_node_that_is_cordoned_by_now() -> None:
    """Nothing of it was on the disk there, so that node knows of none that has begun."""
    of = Heirs()
    filled(of.a, 300, of.cluster)
    begin(of.a, of.cluster)
    of.cluster.wait(900)
    of.b.is_disk_held = True
    of.cluster.wait(3_000)
    assert of.unanswered > 0
    of.lose(of.b)
    of.cluster.wait(BOUND_MS + 5_000)
    (told,) = of.a.events("scale-down-goes-on")
    assert told["apart"] > 0
    of.b.start()
    of.b.admin("cordon")
    of.cluster.wait(40_000)
    assert (shown(of.a)["state"], shown(of.a)["hindrances"]) == ("moved", [])
    of.b.admin("uncordon")
    of.cluster.wait(1_000)
    assert of.everywhere() == names(300)


def test_what_an_heir_that_is_back_refuses_of_what_is_apart_is_named() -> None:
    of = Heirs()
    filled(of.a, 300, of.cluster)
    begin(of.a, of.cluster)
    of.cluster.wait(900)
    of.b.is_disk_held = True
    of.cluster.wait(3_000)
    of.lose(of.b)
    of.cluster.wait(BOUND_MS + 5_000)
    of.b.start()
    of.b.admin("queue-create", name="orders", address="elsewhere", routing_type="anycast")
    of.cluster.wait(40_000)
    (hindrance,) = shown(of.a)["hindrances"]
    assert "which refuses" in hindrance["why"]
    assert "is here on other terms" in hindrance["why"]
    of.b.admin("queue-delete", name="orders")
    of.cluster.wait(40_000)
    assert (shown(of.a)["state"], shown(of.a)["hindrances"]) == ("moved", [])


def test_what_is_to_wait_apart_neither_expires_nor_is_outdated_before_it_is_taken_out() -> None:
    of = Heirs()
    filled(of.a, 10, of.cluster)
    queue = of.a.broker.store.queues["orders"]
    segment = next(queue.segments())
    ids = IdRanges()
    ids.add(segment.first_id + 4, segment.first_id + 5)
    assert queue.free_count(segment) == segment.n
    kind = replace(queue.kind, forwards_to=node_id_of("b"), drains_as="link.1")
    held = of.a.broker.store.remotes.scale_down.held.add(queue, kind, ids)
    assert queue.free_count(segment) == min(4, segment.n)
    of.a.broker.store.remotes.scale_down.held.end(held)
    assert queue.free_count(segment) == segment.n
