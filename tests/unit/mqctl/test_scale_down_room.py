"""Whether what moves fits what the addresses of the node that takes it hold at most."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from mqctl.admin import AdminClient, AdminError
from mqctl.commands.rollout import scale_down
from mqctl.errors import CommandError
from mqctl.scaledown.leaving_host import Leaver
from mqctl.scaledown.pauses import foreseen
from mqctl.scaledown.plan import DrainPlan
from mqctl.scaledown.refusals import refused
from mqctl.scaledown.room import AddressLoad, coming_to, unpaused_at, why_it_does_not_fit
from mqctl.world import World

from tests.unit.mqctl.test_gate import QUEUE
from tests.unit.mqctl.test_scale_down_on_hosts import drain, leaving, made, says, world
from tests.unit.mqctl.test_scale_down_plan import OTHERS, look

__all__ = ["leaving", "world"]
NONE = {"max-size-messages": -1, "max-size-bytes": -1, "page-limit-messages": -1, "page-limit-bytes": -1}


def settings(policy: str, **bounds: Any) -> dict[str, Any]:
    said = {name.replace("_", "-"): value for name, value in bounds.items()}
    return {**NONE, "page-full-policy": "", "address-full-policy": policy, **said}


@pytest.mark.parametrize(
    ("held", "what"),
    [
        (settings("BLOCK", max_size_messages=100), "71 messages come, and it has room for 70 (max-size-messages): by "),
        (settings("BLOCK", max_size_messages=101), ""),
        (settings("FAIL", max_size_messages=20), "has room for 0 (max-size-messages): by FAIL all is taken in"),
        (settings("DROP", max_size_bytes=9_999), "7000 bytes come, and it has room for 6999 (max-size-bytes): by DROP"),
        (settings("DROP", max_size_bytes=10_000), ""),
        (settings("DROP", max_size_messages=10), "what producers send there is dropped until somebody consumes"),
        (settings("PAGE", max_size_messages=10), ""),
        (settings("PAGE", page_limit_messages=99, max_size_messages=1), "(page-limit-messages): by PAGE all is taken "),
        (settings("PAGE", page_limit_messages=100, max_size_messages=1), ""),
        (settings("PAGE", page_limit_messages=0), ""),  # nothing leads to pages
        (settings("PAGE", page_limit_messages=10, max_size_bytes=10_000), ""),
        (settings("PAGE", page_limit_messages=10, max_size_bytes=5_000), "room for 30 (page-limit-messages): by PAGE"),
        (settings("PAGE", page_limit_bytes=10, max_size_messages=9, page_full_policy="DROP"), "send there is dropped"),
        (settings("BLOCK"), ""),
    ],
)  # fmt: skip
def test_each_bound_counts_by_what_its_policy_makes_of_more(held: dict[str, Any], what: str) -> None:
    why = why_it_does_not_fit(held, AddressLoad(30, 3_000), AddressLoad(71, 7_000))
    assert what in why
    assert bool(why) is bool(what)


@pytest.mark.parametrize(("here", "coming"), [(True, False), (False, True)])
def test_where_a_queue_cannot_page_it_stands_as_by_block(here: bool, coming: bool) -> None:
    held = settings("PAGE", max_size_messages=100)
    why = why_it_does_not_fit(held, AddressLoad(30, can_page=here), AddressLoad(71, can_page=coming))
    assert why.endswith(
        "room for 70 (max-size-messages): as a queue of it cannot page, by BLOCK the drain stands until "
        "somebody consumes"
    )
    assert why_it_does_not_fit(held, AddressLoad(30, can_page=here), AddressLoad(70, can_page=coming)) == ""


@pytest.mark.slow
@pytest.mark.parametrize(("is_paused", "is_refused"), [(False, True), (True, False)])
def test_where_it_pauses_and_the_release_does_not_say_so_there_it_has_to_pause_there_as_well(
    world: World, leaving: Leaver, is_paused: bool, is_refused: bool
) -> None:
    made("default")
    row = {"queue": "orders", "address": "orders", "left": 60, "bytes": 6_000, "address_paused": True}
    says("mq3", **{"scale-down": drain(queues=[row])})
    rows = [{"setting": name, "value": value} for name, value in settings("BLOCK").items()]
    said = {"addresses": {"addresses": [{"name": "orders", "paused": is_paused, "bytes": None}]}}
    says("mq1", **said, **{"address-settings-show": {"settings": rows}})
    if is_refused:
        with pytest.raises(CommandError, match="address orders of mq1: it does not pause there, so what moves is hand"):
            scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True), leaving)
    assert scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True, force=is_refused), leaving) is not None


def test_a_queue_that_is_there_has_to_pause_as_well() -> None:
    row = {"queue": "orders", "left": 3, "paused": True, "routing_type": "anycast"}
    served, idle = {"name": "orders", "paused": False}, {"name": "orders", "paused": True}
    said = ["queue orders of mq1: it does not pause there, so what moves is handed out; pause it there as well, or re"]
    for there, rows, wanted in (
        ([served], [row], said),
        ([served], [row, row], said),  # of two nodes that leave
        ([idle], [row], []),
        ([], [row], []),  # it is made so
        ([served], [{**row, "paused": False}, {**row, "left": 0}], []),
        ([served], [{"queue": "orders", "left": 3}], []),
    ):
        found = unpaused_at(replace(OTHERS[0], queues=there), rows)
        assert [text[: len(said[0])] for text in found] == wanted


def test_what_a_host_before_has_made_pauses_as_the_first_of_them_has_it() -> None:
    row = {"queue": "orders", "left": 3, "paused": True, "routing_type": "anycast"}
    served, target = {**row, "paused": False}, replace(OTHERS[0], queues=[])
    (why,) = unpaused_at(target, [row], {"mq3": [{**served, "left": 0}], "mq4": [row]})
    assert why.startswith("queue orders of mq1: one of the hosts before has it, and it does not pause, so what moves")
    assert len(unpaused_at(target, [row], {"mq3": [{"queue": "orders", "left": 3}]})) == 1, "an earlier release"
    assert unpaused_at(target, [row], {"mq3": [row], "mq4": [served]}) == []
    idle = replace(target, queues=[{"name": "orders", "paused": True}])
    assert unpaused_at(idle, [row], {"mq3": [served]}) == [], "it is there by now"
    (stands,) = foreseen(target, [served], {"mq3": [row]})
    assert stands.startswith("queue orders: paused at mq1, and not here; what is there stands until")
    assert foreseen(target, [row], {"mq3": [row]}) == [], "that was said of the first"
    assert foreseen(target, [{**row, "left": 0}], {"mq3": [served]})[0].startswith(
        "queue orders: paused here and empty"
    )


@pytest.mark.slow
def test_nothing_begins_where_it_would_be_handed_out_unless_by_force(world: World, leaving: Leaver) -> None:
    made("default")
    row = {"queue": "orders", "address": "orders", "left": 60, "bytes": 6_000, "paused": True, "address_paused": True}
    says("mq3", **{"scale-down": drain(queues=[row])})
    rows = [{"setting": name, "value": value} for name, value in settings("BLOCK").items()]
    there = {"name": "orders", "address": "orders", "routing_type": "anycast", "message_count": 0, "paused": False}
    says("mq1", **{"address-settings-show": {"settings": rows}})
    assert scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True), leaving) is not None
    says("mq1", queues={"queues": [{**QUEUE, **there}]})
    with pytest.raises(CommandError, match="queue orders of mq1: it does not pause there"):
        scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True), leaving)
    assert scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True, force=True), leaving) is not None


def test_what_comes_is_added_up_by_the_address_over_queues_and_nodes() -> None:
    leavers = [look("mq3"), replace(look("mq3"), node=replace(look("mq3").node, instance="second"))]
    plan = DrainPlan(leavers, OTHERS, {one.name: OTHERS[0] for one in leavers})
    row = {"address": "orders", "left": 3, "bytes": 300}
    rows = {leavers[0].name: [row, {**row, "left": 4}, {**row, "address": "empty", "left": 0}], leavers[1].name: [row]}
    assert coming_to(plan, rows) == {"mq1": {"orders": AddressLoad(10, 900)}}
    flags = {"can_page": False, "address_paused": True}
    assert coming_to(plan, {leavers[0].name: [{**row, **flags}, row]})["mq1"]["orders"] == AddressLoad(
        6, 600, False, True
    )
    going = {**row, **flags, "paused": True}  # its queues pause there, too
    assert coming_to(plan, {leavers[0].name: [going]})["mq1"]["orders"] == AddressLoad(3, 300, False)
    kept = {**row, **flags, "routing_type": "retroactive"}
    assert coming_to(plan, {leavers[0].name: [kept, row]}) == {"mq1": {"orders": AddressLoad(3, 300)}}, (
        "no bound counts"
    )
    older = {leavers[0].name: [{"address": "orders", "left": 3}]}
    assert coming_to(plan, older) == {"mq1": {"orders": AddressLoad(3, 0)}}, "an earlier release does not say how large"


class Asked:
    """A session with the node that takes the messages: what it says of each queue, and of queues-max."""

    condition = "amqp:not-found"  # by which it refuses

    def __init__(self, queues: dict[str, dict[str, Any]], queues_max: int = 100_000) -> None:
        self.queues, self.queues_max = queues, queues_max

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "queue-show":
            if arguments["name"] not in self.queues:
                raise AdminError("mq1", operation, {"condition": self.condition})
            return self.queues[arguments["name"]]
        assert operation == "config-show"
        return {"options": [{"option": "limits.queues-max", "value": self.queues_max}]}


TERMS = {"address": "orders", "routing_type": "anycast", "durable": True, "selector": ""}
MOVES = {"queue": "orders", "address": "orders", "routing_type": "anycast", "left": 1, "terms": TERMS}


@pytest.mark.parametrize(
    ("changes", "there", "said"),
    [
        ({}, {}, ""),
        ({}, {"selector": "color = 'red'"}, "what that one does: selector is \"color = 'red'\" there; del"),
        ({}, {"durable": False, "routing_type": "multicast"}, "is 'multicast' there, durable is False there; "),
        ({"left": 0}, {"selector": "x"}, ""),  # nothing waits for it
        ({"routing_type": "retroactive"}, {"selector": "x"}, ""),
        ({"terms": None}, {"selector": "x"}, ""),  # an earlier release does not say it
        ({"terms": None}, {"address": "other"}, "address is 'other' there"),
    ],
)  # fmt: skip
def test_a_namesake_on_other_terms_is_named_before_clients_leave(
    changes: dict[str, Any], there: dict[str, Any], said: str
) -> None:
    namesake = {"name": "orders", **TERMS, **there}
    row = {name: value for name, value in {**MOVES, **changes}.items() if value is not None}
    found = refused(cast(AdminClient, Asked({"orders": namesake})), replace(OTHERS[0], queues=[namesake]), [row], {})
    assert bool(found) is bool(said)
    assert all(text.startswith("queue orders of mq1: it is there on other terms") and said in text for text in found)


def test_a_namesake_that_has_gone_since_it_was_seen_has_no_terms() -> None:
    """As one that is deleted with its last consumer. Another refusal is one."""
    session, target = Asked({}), replace(OTHERS[0], queues=[{"name": "orders", **TERMS, "selector": "x"}])
    assert refused(cast(AdminClient, session), target, [MOVES], {}) == []
    session.condition = "amqp:unauthorized-access"
    with pytest.raises(AdminError, match="unauthorized-access"):
        refused(cast(AdminClient, session), target, [MOVES], {})


def test_a_namesake_that_has_gone_is_made_anew_as_any_other() -> None:
    """So its address has to be for such queues, and it is one more."""
    target = replace(OTHERS[0], queues=[{"name": name, **TERMS} for name in ("orders", "bills")])
    address = {"routing_types": ["multicast"], "auto_created": False, "configured": False}
    moving = [MOVES, {**MOVES, "queue": "empty", "left": 0}]
    kind, many = refused(cast(AdminClient, Asked({}, 2)), target, moving, {"orders": address})
    assert kind.startswith("address orders of mq1: it was made for multicast queues, and orders is anycast")
    assert many.startswith("mq1 has 1 queue, 2 more come, and it takes 2 (queues-max)")


@pytest.mark.parametrize(("most", "is_refused"), [(3, True), (4, False)])
def test_queues_of_hosts_that_leave_before_are_there_by_then(most: int, *, is_refused: bool) -> None:
    before = {"mq3": [MOVES, {**MOVES, "queue": "a"}, {**MOVES, "queue": "b", "left": 0}]}
    target, session = replace(OTHERS[0], queues=[{"name": "orders", **TERMS}]), Asked({"orders": TERMS}, most)
    moving = [MOVES, {**MOVES, "queue": "b"}, {**MOVES, "queue": "c"}]
    found = refused(cast(AdminClient, session), target, moving, {}, before)
    said = "mq1 has 1 queue, 1 more come beside 2 of the hosts before, and it takes 3 (queues-max): raise that there"
    assert found == ([f"{said}, or --to another"] if is_refused else [])


def test_a_queue_that_two_hosts_have_on_other_terms_is_named() -> None:
    other = {**MOVES, "terms": {**TERMS, "selector": "x"}}
    session = cast(AdminClient, Asked({}))
    assert refused(session, OTHERS[0], [MOVES], {}, {"mq3": [MOVES]}) == []
    (why,) = refused(session, OTHERS[0], [MOVES], {}, {"mq3": [other]})
    assert why.startswith("queue orders of mq1: one of the hosts before has it on other terms")
    assert "what this one does: selector is 'x' there; make both alike" in why
    assert refused(session, OTHERS[0], [{**MOVES, "left": 0}], {}, {"mq3": [other]}) == [], "nothing waits for it"
    before = {"mq3": [MOVES], "mq4": [{**other, "left": 0}]}
    assert refused(session, OTHERS[0], [MOVES], {}, before) == [], "the first has it made, and the next one finds it"
    (why,) = refused(session, OTHERS[0], [other], {}, before)
    assert "what this one does: selector is '' there; make both alike" in why


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({}, True), ({"routing_types": ["anycast", "multicast"]}, False), ({"configured": True}, False),
        ({"auto_created": True}, False),
    ],
)  # fmt: skip
def test_an_address_that_was_made_for_other_queues_is_named(changes: dict[str, Any], *, is_refused: bool) -> None:
    address = {"routing_types": ["multicast"], "auto_created": False, "configured": False, **changes}
    found = refused(cast(AdminClient, Asked({})), OTHERS[0], [MOVES], {"orders": address})
    why = "address orders of mq1: it was made for multicast queues, and orders is anycast; make it for both there"
    assert found == ([f"{why}, or --to another"] if is_refused else [])


@pytest.mark.parametrize(("most", "is_refused"), [(3, True), (4, False)])
def test_more_queues_than_there_may_be_are_named(most: int, *, is_refused: bool) -> None:
    """An empty one is made as well, and one that is there is none more."""
    there = [{"name": name, **TERMS} for name in ("orders", "bills")]
    moving = [MOVES, {**MOVES, "queue": "a"}, {**MOVES, "queue": "b", "left": 0}]
    session = cast(AdminClient, Asked({"orders": TERMS}, most))
    found = refused(session, replace(OTHERS[0], queues=there), moving, {})
    assert found == (
        ["mq1 has 2 queues, 2 more come, and it takes 3 (queues-max): raise that there, or --to another"]
        if is_refused
        else []
    )


@pytest.mark.parametrize(("left", "is_refused"), [(0, False), (1, True)])
def test_queues_that_are_empty_hold_up_nothing_where_no_more_are_made(left: int, *, is_refused: bool) -> None:
    there, kept = [{"name": "orders", **TERMS}], {**MOVES, "queue": "kept", "routing_type": "retroactive"}
    moving = [MOVES, {**MOVES, "queue": "a", "left": 0}, {**kept, "left": left}]
    session = cast(AdminClient, Asked({"orders": TERMS}, 2))
    assert bool(refused(session, replace(OTHERS[0], queues=there), moving, {})) is is_refused


@pytest.mark.slow
def test_nothing_begins_where_a_queue_is_refused(world: World, leaving: Leaver) -> None:
    made("default")
    says("mq3", **{"scale-down": drain(queues=[MOVES | {"bytes": 10}])})
    rows = [{"setting": name, "value": value} for name, value in settings("BLOCK").items()]
    address = {"name": "orders", "routing_types": ["multicast"], "auto_created": False, "configured": False}
    says("mq1", addresses={"addresses": [address]}, **{"address-settings-show": {"settings": rows}})
    with pytest.raises(CommandError, match="address orders of mq1: it was made for multicast queues"):
        scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True), leaving)


@pytest.mark.slow
def test_nothing_begins_where_it_does_not_fit_and_the_way_out_is_said(world: World, leaving: Leaver) -> None:
    made("default")
    row = {"queue": "orders", "address": "orders", "left": 60, "bytes": 6_000}
    says("mq3", **{"scale-down": drain(queues=[row])})
    rows = [{"setting": name, "value": value} for name, value in settings("BLOCK", max_size_bytes=10_000).items()]
    says(
        "mq1",
        addresses={"addresses": [{"name": "orders", "paused": False, "bytes": 5_000}]},
        **{"address-settings-show": {"settings": rows}},
    )
    why = (
        r"address orders of mq1: 6000 bytes come, and it has room for 5000 \(max-size-bytes\): by BLOCK the drain "
        "stands until somebody consumes; raise that there, have it consumed, or --to another; nothing was changed"
    )
    with pytest.raises(CommandError, match=why):
        scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True), leaving)
    assert scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True, force=True), leaving) is not None
    says("mq1", addresses={"addresses": [{"name": "orders", "paused": False, "bytes": None}]})
    assert scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True), leaving) is not None
