"""Whether a node may leave, and where its messages go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqctl.errors import CommandError
from mqctl.nodes import Node
from mqctl.scaledown.cluster_look import NodeLook
from mqctl.scaledown.plan import DrainPlan, _room, plan_of, rows_of, target_of, unfit

from tests.support.cluster_stage import node_id_of

HOSTS = ("mq1", "mq2", "mq3")
GIB = 2**30


def link(to: str, state: str = "up") -> dict[str, Any]:
    return {"node_id": node_id_of(to), "node": to, "state": state}


def queue(name: str, messages: int = 0, consumers: int = 0) -> dict[str, Any]:
    counts = {"message_count": messages, "consumer_count": consumers}
    return {"name": name, "address": name, "routing_type": "anycast", "durable": True, **counts}


def look(host: str, **changes: Any) -> NodeLook:
    """A node of a whole cluster of three with nothing in it."""
    status = {"node_id": node_id_of(host), "held_bytes": 0, "global_max_size_bytes": GIB}
    said: dict[str, Any] = {
        "status": status | changes.pop("status", {}),
        "topology": {"links": [link(each) for each in HOSTS if each != host]},
        "drain": {"state": "none"},
    }
    return NodeLook(Node(host, "default"), **{**said, **changes})


OTHERS = [look("mq1"), look("mq2")]


def test_the_node_with_the_most_links_and_then_the_most_room_is_chosen() -> None:
    leaving = look("mq3")
    assert target_of(leaving, OTHERS).name == "mq1"
    fuller = look("mq1", status={"held_bytes": 1000})
    assert target_of(leaving, [fuller, look("mq2")]).name == "mq2"
    lonely = look("mq2", topology={"links": [link("mq3"), link("mq1", "resting")]})
    assert target_of(leaving, [fuller, lonely]).name == "mq1"
    assert target_of(leaving, [look("mq1", free_disk_bytes=500), look("mq2")]).name == "mq2"


def test_a_node_of_an_earlier_release_is_chosen_only_where_there_is_no_other() -> None:
    def of_release(host: str, version: str, formats: list[int], **status: Any) -> NodeLook:
        own = [{"node_id": node_id_of(host), "is_self": True, "journal_formats": formats}]
        topology = {"links": [link(each) for each in HOSTS if each != host], "members": own}
        return look(host, topology=topology, status={"version": version, **status})

    leaving, fuller = of_release("mq3", "1.2.0", [1, 2]), of_release("mq2", "1.2.0", [1, 2], held_bytes=1000)
    reads_less, earlier = of_release("mq1", "1.2.0", [1]), of_release("mq1", "1.1.0", [1, 2])
    for one in (reads_less, earlier):
        assert target_of(leaving, [one, fuller]).name == "mq2"
        assert target_of(leaving, [one, fuller], "mq1").name == "mq1"
        assert target_of(leaving, [one]).name == "mq1"
    newer, reads_more = of_release("mq1", "1.3.0", [1]), of_release("mq2", "1.1.0", [1, 2])
    assert target_of(leaving, [newer, reads_more]).name == "mq2", "what it does not read is refused"


def test_of_a_target_that_says_no_version_nothing_is_said_of_its_release() -> None:
    leaving = look("mq3", status={"version": "1.2.0"})
    assert plan_of([leaving], [look("mq1")]).warnings == []
    assert len(plan_of([leaving], [look("mq1", status={"version": "1.1.0"})]).warnings) == 1


def test_the_node_that_is_meant_is_taken_whatever_room_others_have() -> None:
    fuller = look("mq1", status={"held_bytes": 1000})
    assert target_of(look("mq3"), [fuller, look("mq2")], "mq1").name == "mq1"
    assert target_of(look("mq3"), [fuller, look("mq2")], "mq1/default").name == "mq1"


@pytest.mark.parametrize(
    ("own", "chosen"), [("east", "mq2"), ("west", "mq1"), ("", "mq1"), ("nobody's", "mq1")]
)  # fmt: skip
def test_a_node_of_its_own_scale_down_group_is_chosen_before_one_with_more_room(own: str, chosen: str) -> None:
    """Where there is none its broker refuses, unless by force; and so it does where another one is meant."""
    groups = {"mq1": "west", "mq2": "east", "mq3": own}
    members = [{"node_id": node_id_of(name), "scale_down_group": group} for name, group in groups.items()]
    leaving = look("mq3", topology={"links": [link("mq1"), link("mq2")], "members": members})
    others = [look("mq1"), look("mq2", status={"held_bytes": 1000})]
    assert target_of(leaving, others).name == chosen
    assert target_of(leaving, others, "mq1").name == "mq1"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        (NodeLook(Node("mq1", "default"), fault="mq1: no answer"), "mq1: no answer"),
        (look("mq1", drain={}), "takes no messages of nodes that leave"),
        (look("mq1", drain={"state": "moving"}), "mq1 is leaving itself (mqctl scale-down mq1 --cancel)"),
        (look("mq1", drain={"state": "moved"}), "is leaving itself"),
        (look("mq1", drain={"state": "failed"}), "is leaving itself"),
        (look("mq1", drain={"state": "ends"}), "is just taking back"),
        (look("mq4"), "the link mq3 -> mq4 does not stand (there is none)"),
    ],
)
def test_who_cannot_take_the_messages_is_refused_with_the_reason(target: NodeLook, why: str) -> None:
    leaving = look("mq3")
    assert why in unfit(leaving, target)
    with pytest.raises(CommandError, match="nobody can take the messages of mq3"):
        target_of(leaving, [target])
    assert target_of(leaving, [target, look("mq2")]).name == "mq2"


def test_a_link_that_does_not_stand_leads_to_no_target() -> None:
    leaving = look("mq3", topology={"links": [link("mq1", "resting"), link("mq2")]})
    assert unfit(leaving, OTHERS[0]) == "the link mq3 -> mq1 does not stand (resting)"
    assert target_of(leaving, OTHERS).name == "mq2"


def test_the_last_node_of_a_cluster_does_not_leave() -> None:
    with pytest.raises(CommandError, match="mq3 is the last node of the cluster") as raised:
        plan_of([look("mq3")], [])
    assert "mqctl scale-up" in raised.value.attempt


@pytest.mark.parametrize("state", ["moving", "moved", "failed"])
def test_who_takes_the_messages_of_another_one_does_not_leave_meanwhile(state: str) -> None:
    source = look("mq2", drain={"state": state, "node_id": node_id_of("mq3")})
    with pytest.raises(CommandError, match="mq2 leaves, and its messages go to mq3") as raised:
        plan_of([look("mq3")], [look("mq1"), source])
    assert "mqctl scale-down mq2 --resume" in raised.value.attempt
    elsewhere = look("mq2", drain={"state": state, "node_id": node_id_of("mq1")})
    assert plan_of([look("mq3")], [look("mq1"), elsewhere]).targets["mq3"].name == "mq1"


def test_a_target_that_is_no_other_node_is_refused() -> None:
    with pytest.raises(CommandError, match="--to mq9: that is no other node"):
        plan_of([look("mq3")], OTHERS, "mq9")


def test_a_node_that_does_not_answer_or_knows_no_drain_is_refused() -> None:
    with pytest.raises(CommandError, match="mq3: no answer; nothing was changed"):
        plan_of([NodeLook(Node("mq3", "default"), fault="mq3: no answer")], OTHERS)
    with pytest.raises(CommandError, match="has a release that cannot be scaled down"):
        plan_of([look("mq3", drain={})], OTHERS)


def test_links_that_do_not_stand_and_missing_room_are_for_force() -> None:
    """Links to nodes that are none of the cluster's any more hinder nobody."""
    broken = look("mq1", topology={"links": [link("mq2", "dialling"), link("mq3"), link("mq7", "gone")]})
    plan = plan_of([look("mq3", status={"held_bytes": 501})], [broken, look("mq2", free_disk_bytes=500)], "mq2")
    assert plan.overruled == [
        "the link mq1 -> mq2 does not stand (dialling)",
        "mq2 has 500 bytes free on its disk, and mq3 stores up to 501",
    ]
    paged = look("mq3", status={"held_bytes": 1, "journal_segments": 3}, file_bytes=200)
    assert plan_of([paged], [look("mq2", free_disk_bytes=400)]).overruled == []
    assert len(plan_of([paged], [look("mq2", free_disk_bytes=399)]).overruled) == 1


def of(host: str, instance: str, **changes: Any) -> NodeLook:
    """One of several instances of a host."""
    return replace(look(host, **changes), node=Node(host, instance))


def test_instances_of_one_host_need_their_room_together() -> None:
    leaving = [of("mq3", name, status={"held_bytes": 300}) for name in ("a", "b")]
    assert plan_of(leaving, [look("mq1", free_disk_bytes=600)]).overruled == []
    assert plan_of(leaving, [look("mq1", free_disk_bytes=599)]).overruled == [
        "mq1 has 599 bytes free on its disk, and mq3/a, mq3/b store together up to 600"
    ]
    assert plan_of(leaving, [look("mq1")]).overruled == []  # nobody knows


def test_targets_on_one_disk_need_their_room_together() -> None:
    """Each instance drains to its own namesake of another host."""
    sources = [of("mq3", name, status={"held_bytes": 300}) for name in ("a", "b")]
    taking = [of("mq1", name, free_disk_bytes=500) for name in ("a", "b")]
    plan = DrainPlan(sources, taking, dict(zip(("mq3/a", "mq3/b"), taking, strict=True)))
    assert _room(plan) == ["mq1 has 500 bytes free on its disk, and mq3/a, mq3/b store together up to 600"]
    elsewhere = replace(taking[1], node=Node("mq2", "b"))
    assert _room(replace(plan, targets={"mq3/a": taking[0], "mq3/b": elsewhere})) == []


def test_hosts_that_leave_one_after_the_other_need_their_room_together() -> None:
    there = [look("mq1", free_disk_bytes=500)]
    first = plan_of([look("mq3", status={"held_bytes": 300})], there)
    assert first.overruled == []
    assert plan_of([look("mq2", status={"held_bytes": 200})], there, before=first).overruled == []
    second = plan_of([look("mq2", status={"held_bytes": 201})], there, before=first)
    assert second.overruled == [
        "mq1 has 500 bytes free on its disk, and mq3, mq2 store together up to 501 (mq3 300, mq2 201): make room "
        "there, or have each leave by a command of its own, with --to"
    ]


def test_a_later_one_goes_where_there_is_most_room_once_the_one_before_has_left() -> None:
    links = {"links": [link("mq1"), link("mq4")]}
    first, second = (look(name, topology=links, status={"held_bytes": 300}) for name in ("mq3", "mq2"))
    stay = [look("mq1", topology=links, free_disk_bytes=550), look("mq4", topology=links, free_disk_bytes=500)]
    before = plan_of([first], stay)
    assert [one.name for one in before.targets.values()] == ["mq1"]
    after = plan_of([second], stay, before=before)
    assert ([one.name for one in after.targets.values()], after.overruled) == (["mq4"], [])
    lacks = plan_of([replace(first, status={"held_bytes": 600})], stay)
    assert (len(lacks.overruled), plan_of([second], stay, before=lacks).overruled) == (1, [])


GB = 10**9


def of_size(host: str, *, memory: int = GIB, disk: int | None = None, held: int = 0, stored: int = 0) -> NodeLook:
    """Of a cluster where mq1 and mq4 stay; `stored` is in files of its journal, and most of it in no memory."""
    status = {"global_max_size_bytes": memory, "held_bytes": held, "journal_segments": 2}
    links = {"links": [link("mq1"), link("mq4")]}
    return look(host, topology=links, status=status, free_disk_bytes=disk, file_bytes=stored)


def test_what_was_promised_takes_of_the_disk_what_is_stored_and_of_memory_what_is_held() -> None:
    """A node that takes one large journal on a large disk has its memory as before."""
    stay = [of_size("mq1", memory=GB, disk=100 * GB), of_size("mq4", memory=GB * 8 // 10, disk=50 * GB)]
    first, second = of_size("mq3", held=GB // 10, stored=60 * GB), of_size("mq2", held=GB // 10, stored=8 * GB)
    before = plan_of([first], stay)
    assert before.targets["mq3"].name == "mq1"
    assert plan_of([second], stay, before=before).targets["mq2"].name == "mq1"
    third = plan_of([second], stay, before=plan_of([of_size("mq3", held=GB * 3 // 10)], stay))
    assert third.targets["mq2"].name == "mq4", "0.8 GB of memory are more than 0.7"


def test_where_the_disk_has_no_room_more_memory_is_none() -> None:
    """It would be refused, and the other one takes it."""
    stay = [of_size("mq1", memory=GB // 2, disk=100 * GB), of_size("mq4", memory=GB, disk=5 * GB)]
    for stored, target in ((5 * GB, "mq4"), (5 * GB + 1, "mq1")):
        plan = plan_of([of_size("mq2", stored=stored)], stay)
        assert (plan.targets["mq2"].name, plan.overruled) == (target, [])
    assert target_of(of_size("mq2"), [of_size("mq1", disk=0), of_size("mq4", disk=1)]).name == "mq4", "0 is no room"


def test_instances_of_one_host_go_where_there_is_room_beside_one_another() -> None:
    leaving = [replace(of_size("mq3", held=300), node=Node("mq3", name)) for name in ("a", "b")]
    plan = plan_of(leaving, [of_size("mq1", disk=550), of_size("mq4", disk=500)])
    assert {name: one.name for name, one in plan.targets.items()} == {"mq3/a": "mq1", "mq3/b": "mq4"}
    assert plan.overruled == []


def test_the_nodes_of_a_host_have_one_disk_to_promise() -> None:
    """What one of them was promised another one does not have."""
    second = replace(of_size("mq1", disk=500), node=Node("mq1", "b"))
    stay = [replace(of_size("mq1", disk=500), node=Node("mq1", "a")), second, of_size("mq4", disk=450)]
    before = plan_of([of_size("mq3", held=300)], stay)
    after = plan_of([of_size("mq2", held=300)], stay, before=before)
    assert [one.targets[name].name for name, one in (("mq3", before), ("mq2", after))] == ["mq1/a", "mq4"]
    assert after.overruled == []


def test_memory_of_hosts_that_leave_one_after_the_other_is_told_together() -> None:
    there = [look("mq1", status={"global_max_size_bytes": 599})]
    first, second = (look(name, status={"held_bytes": 300}) for name in ("mq3", "mq2"))
    (warning,) = plan_of([second], there, before=plan_of([first], there)).warnings
    assert warning.startswith("mq1 has 599 bytes of memory left for messages, and 600 come from mq3 and mq2: addresses")


def test_memory_that_is_too_little_is_told_and_hinders_nobody() -> None:
    leaving = [of("mq3", name, status={"held_bytes": 300}) for name in ("a", "b")]
    small = {"held_bytes": 401, "global_max_size_bytes": 1000}
    plan = plan_of(leaving, [look("mq1", status=small)])
    assert (plan.overruled, len(plan.warnings)) == ([], 1)
    assert plan.warnings[0].startswith("mq1 has 599 bytes of memory left for messages, and 600 come")
    assert plan_of(leaving, [look("mq1", status=small | {"held_bytes": 400})]).warnings == []


@pytest.mark.parametrize(
    ("own", "there", "is_older"),
    [([1, 2], [1, 2], False), ([1], [1, 2], False), ([1, 2], [1], True), ([1, 2], None, True), (None, None, False)],
)
def test_a_target_that_reads_earlier_journals_alone_is_for_force(
    own: list[int] | None, there: list[int] | None, *, is_older: bool
) -> None:
    """One that says nothing reads the first format."""

    def with_formats(name: str, formats: list[int] | None) -> NodeLook:
        row = {"is_self": True, "node_id": node_id_of(name)} | ({"journal_formats": formats} if formats else {})
        return look(name, topology={"links": [link(each) for each in HOSTS if each != name], "members": [row]})

    plan = plan_of([with_formats("mq3", own)], [with_formats("mq1", there)])
    said = "mq1 reads journal files of format 1, and mq3 of 2: it may refuse queues of a kind that it does not know"
    assert plan.overruled == ([f"{said} (mqctl rollout)"] if is_older else [])


@pytest.mark.parametrize(
    ("own", "there", "is_older"),
    [("0.10.0", "0.9.2", True), ("0.9.2", "0.10.0", False), ("1.0.0", "1.0.0+local.1", False), ("", "1.0.0", False)],
)
def test_a_target_of_an_earlier_release_is_told_of(own: str, there: str, *, is_older: bool) -> None:
    plan = plan_of([look("mq3", status={"version": own})], [look("mq1", status={"version": there})])
    assert bool(plan.warnings) is is_older
    assert plan.overruled == []


def test_consumers_that_are_not_where_messages_go_are_told_of() -> None:
    leaving = look("mq3", queues=[queue("both", 1, 1), queue("alone", 2, 1), queue("none", 3)])
    plan = plan_of([leaving], [look("mq1", queues=[queue("both", 0, 1)]), look("mq2")])
    alone = "alone: its only consumers are at mq3: what moves waits at {} until one is there"
    assert plan.warnings == [alone.format("mq1")]
    moved = plan_of([leaving], [look("mq1", queues=[queue("both", 0, 1)]), look("mq2")], "mq2")
    assert "both: has consumers, and none at mq2: they get what moves there only by redistribution" in moved.warnings[0]
    assert moved.warnings[1:] == [alone.format("mq2")]
    assert [(row["queue"], row["messages"], row["to"]) for row in rows_of(plan)] == [
        ("none", 3, "mq1"), ("alone", 2, "mq1"), ("both", 1, "mq1"),
    ]  # fmt: skip
    own = [queue("temporary.x", 1, 1), {**queue("c.l.1", 1, 1), "routing_type": "multicast", "durable": False}]
    assert plan_of([look("mq3", queues=own)], [look("mq1")]).warnings == [], "they end with their clients"


def test_whether_the_node_before_is_there_hinders_nobody_who_turns_from_it() -> None:
    silent = NodeLook(Node("mq2", "default"), fault="mq2: no route to host")
    source = look("mq3", topology={"links": [link("mq1"), link("mq2", "lost")]})
    for before in (silent, look("mq2")):
        assert len(plan_of([source], [look("mq1"), before], "mq1").overruled) == 1
        assert plan_of([source], [look("mq1"), before], "mq1", ["mq2", node_id_of("mq2")]).overruled == []
