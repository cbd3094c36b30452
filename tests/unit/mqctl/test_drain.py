"""A host is emptied for maintenance and serves again; what stands in the way is told before anything begins.

Hosts are folders here, in which `mqbroker` is a script that says what it was told to.
"""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqctl import confirmation, operation
from mqctl.commands.rollout import drain as drain_command
from mqctl.commands.rollout import scale_down
from mqctl.commands.rollout import undrain as undrain_command
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.remote import operation as noting
from mqctl.scaledown.cluster_look import look_at
from mqctl.scaledown.drain import DrainFollower
from mqctl.scaledown.drain_start import begin
from mqctl.scaledown.leaving_host import Leaver
from mqctl.scaledown.plan import plan_of
from mqctl.world import World

from tests.support.local_hosts import local_inventory
from tests.unit.mqctl.test_scale_down_on_hosts import VARIABLES, done, drain, leaving, made, said, says, world

__all__ = ["leaving", "world"]

INVENTORY = local_inventory("mq1", "mq3")
EMPTY = {"state": "moved", "node": "mq1", "node_id": "id-mq1", "moved": 3}


@pytest.fixture(autouse=True)
def inventory(tmp_path: Path, leaving: Leaver) -> None:
    (tmp_path / "inventory.yml").write_text(INVENTORY)
    made("default")
    says("mq3", then=drain(**EMPTY))


def noted(world: World) -> dict[str, tuple[int, bool]]:
    """Host -> number of the operation and whether it is held."""
    found = {name: noting.look(f"{world.cwd}/{name}/{Path(noting.PLACE).name}") for name in ("mq1", "mq3")}
    return {name: (note["number"], note["is_held"]) for name, note in found.items() if note}


def options(**changes: Any) -> drain_command.Options:
    return drain_command.Options(**{"host": "mq3", "move": True, "yes": True, "json": True, **changes})


def rows(world: World) -> list[dict[str, Any]]:
    assert isinstance(world.out, io.StringIO)
    return list(json.loads(world.out.getvalue())["rows"])


@pytest.mark.slow
@pytest.mark.parametrize("wait", [False, True])
def test_a_host_is_emptied_and_stays_in_the_cluster(world: World, *, wait: bool) -> None:
    assert drain_command.run(world, options(wait=wait)) == Exit.DONE
    assert done("asked").count("scale-down") == 2  # the first was a dry run
    assert [(row["host"], row["state"], row["to"], row["moved"]) for row in rows(world)] == [("mq3", "moved", "mq1", 3)]
    assert "mq3 is empty; mqctl undrain mq3 has it serve again" in said(world)
    assert noted(world) == {"mq1": (1, False), "mq3": (1, False)}
    assert done("systemctl") == []


@pytest.mark.slow
def test_what_pauses_there_is_told_before_and_afterwards(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"queue": "orders", "address": "orders", "left": 3, "bytes": 30, "paused": True, "paused_there": None}
    says("mq3", **{"scale-down": drain(queues=[row])})
    settings = [
        {"setting": name, "value": value}
        for name, value in {
            "address-full-policy": "BLOCK", "page-full-policy": "", "max-size-messages": -1, "max-size-bytes": -1,
        }.items()
    ]  # fmt: skip
    says("mq1", addresses={"addresses": []}, **{"address-settings-show": {"settings": settings}})
    heir = {"node_id": "id-mq1", "node": "mq1", "moved": 3, "paused_there": True}
    counted = {"balances": True, "difference": [], "queues": [{"queue": "orders", "paused": True, "heirs": [heir]}]}
    says("mq3", then=drain(**EMPTY, receipt=counted))
    follow = DrainFollower.until

    def comes(self: DrainFollower, wanted: str, timeout_s: float) -> dict[str, dict[str, Any]]:
        says("mq1", queues={"queues": [{"name": "orders", "paused": True, "message_count": 3, "address": "orders"}]})
        return follow(self, wanted, timeout_s)

    monkeypatch.setattr(DrainFollower, "until", comes)
    assert drain_command.run(world, options(wait=True)) == Exit.DONE
    assert "warning: queue orders: made paused at mq1, as here; what is there stands until mqctl queue" in said(world)
    assert "mq3: queue orders: paused at mq1; what is there stands until mqctl queue resume NAME --h" in said(world)


@pytest.mark.slow
def test_who_drains_already_is_not_asked_again(world: World) -> None:
    says("mq3", **{"scale-down-show": drain(**EMPTY | {"state": "moving"})})
    assert drain_command.run(world, options()) == Exit.DONE
    assert "scale-down" not in done("asked")
    assert "mq3 drains; mqctl scale-down mq3 --show says how far it is" in said(world)


@pytest.mark.slow
def test_who_drains_already_goes_on_to_the_node_that_is_named(world: World) -> None:
    elsewhere = drain(state="moving", node="mq2", node_id="id-mq2", moved=1)
    says("mq3", **{"scale-down-show": elsewhere})
    with pytest.raises(CommandError, match="--to nosuch: that is no other node"):
        drain_command.run(world, options(to="nosuch"))
    with pytest.raises(UsageError, match="no terminal to ask on"):
        drain_command.run(world, options(to="mq1", yes=False))
    assert done("asked").count("scale-down") == 1, "a dry run"
    assert drain_command.run(world, options(to="mq1")) == Exit.DONE
    assert done("asked").count("scale-down") == 3
    assert drain_command.run(world, options(to="mq1")) == Exit.DONE
    assert done("asked").count("scale-down") == 3, "which goes there by now"
    assert "hinders" not in said(world), "nor does it that nothing leads to the node before"


@pytest.mark.slow
@pytest.mark.parametrize("is_forced", [False, True])
def test_what_hinders_there_keeps_it_from_going_on_to_another_node(world: World, *, is_forced: bool) -> None:
    says("mq3", **{"scale-down-show": drain(state="moving", node="mq2", node_id="id-mq2", moved=1)})
    says("mq3", **{"scale-down": drain(queues=[{"queue": "orders", "address": "orders", "left": 9, "bytes": 90}])})
    rows = {"address-full-policy": "BLOCK", "max-size-messages": 4, "max-size-bytes": -1}
    says("mq1", **{"address-settings-show": {
        "settings": [{"setting": name, "value": value} for name, value in rows.items()]
    }})  # fmt: skip
    if is_forced:
        assert drain_command.run(world, options(to="mq1", force=True)) == Exit.DONE
    else:
        with pytest.raises(CommandError, match="it goes on to mq2, and nothing was changed") as raised:
            drain_command.run(world, options(to="mq1"))
        assert "9 messages come, and it has room for 4" in raised.value.what
    assert done("asked").count("scale-down") == (2 if is_forced else 1)
    assert "hinders: address orders of mq1" in said(world)


def test_what_cannot_move_is_told_of_and_is_no_success(world: World) -> None:
    hindrance = {"kind": "queue", "name": "orders", "why": "the target is full"}
    says("mq3", **{"scale-down-show": drain(**EMPTY | {"state": "failed", "hindrances": [hindrance]})})
    with pytest.raises(CommandError, match="not all of it can move: mq3: queue orders: the target is full") as raised:
        drain_command.run(world, options())
    assert "mqctl drain mq3 --move --to OTHER, or mqctl undrain mq3" in raised.value.attempt
    assert noted(world) == {}


@pytest.mark.slow
def test_what_cannot_move_stays_by_force_that_is_said_later(world: World) -> None:
    hindrance = {"kind": "queue", "name": "orders", "why": "the target is full"}
    says("mq3", **{"scale-down-show": drain(**EMPTY | {"state": "failed", "hindrances": [hindrance]})})
    assert drain_command.run(world, options(force=True)) == Exit.DONE
    assert done("asked").count("scale-down") == 1
    assert "by force, where it cannot move, stays: mq3: queue orders: the target is full\n" in said(world)
    assert "mq3 is empty" in said(world)


@pytest.mark.slow
@pytest.mark.parametrize("move", [False, True])
def test_who_goes_on_with_what_has_failed_gives_the_hosts_back(world: World, leaving: Leaver, *, move: bool) -> None:
    """The brokers try it again whoever holds them; what is said to do next has to be possible."""
    operation.begin(world, leaving.cluster, "mqctl drain mq3")
    says("mq3", **{"scale-down-show": drain(**EMPTY | {"state": "failed"})})
    with pytest.raises(CommandError, match="not all of it can move") as raised:
        drain_command.run(world, options(move=move, resume=True))
    assert "mqctl drain mq3 --resume --move --to OTHER, or mqctl undrain mq3" in raised.value.attempt
    assert noted(world) == {"mq1": (2, False), "mq3": (2, False)}


@pytest.mark.usefixtures("one_of_two")
def test_where_a_part_moves_the_way_out_goes_on_in_its_place(world: World, leaving: Leaver) -> None:
    operation.begin(world, leaving.cluster, "mqctl drain mq3")
    says("mq3", silent=[], **{"scale-down-show": drain(state="ends", node="mq1")})
    with pytest.raises(CommandError, match="is just taking back a drain") as raised:
        drain_command.run(world, keeping(resume=True))
    assert raised.value.attempt == "mqctl drain mq3 --resume --move, or mqctl undrain mq3"


@pytest.mark.slow
@pytest.mark.parametrize("is_forced", [False, True])
def test_nothing_begins_where_somebody_would_not_be_served(world: World, *, is_forced: bool) -> None:
    """mq1 does not say how clients reach it, so those of mq3 are not sent there."""
    row = {"name": "orders", "address": "orders", "routing_type": "anycast", "durable": True, "consumer_count": 1,
           "paused": False, "message_count": 0}  # fmt: skip
    says("mq3", queues={"queues": [row]})
    if is_forced:
        assert drain_command.run(world, options(force=True)) == Exit.DONE
    else:
        with pytest.raises(CommandError, match="queue orders: is consumed from at mq3 alone") as raised:
            drain_command.run(world, options())
        assert "--force" in raised.value.attempt
    assert done("asked").count("scale-down") == (2 if is_forced else 1)
    assert ("hinders: queue orders" in said(world)) is True


@pytest.mark.slow
def test_nothing_begins_under_another_operation(world: World, leaving: Leaver) -> None:
    operation.begin(world, leaving.cluster, "mqctl rollout")
    for changes in ({}, {"resume": True}):
        with pytest.raises(CommandError, match=r"operation 1 \(mqctl rollout, "):
            drain_command.run(world, options(**changes))
    says("mq3", **{"scale-down-show": drain(**EMPTY)})
    with pytest.raises(CommandError, match=r"operation 1 \(mqctl rollout, "):
        undrain_command.run(world, undrain_command.Options(host="mq3", yes=True))
    assert done("asked").count("scale-down") == done("asked").count("scale-down-cancel") + 1  # a dry run


@pytest.mark.slow
def test_what_was_killed_while_it_waited_is_gone_on_with(world: World, leaving: Leaver) -> None:
    operation.begin(world, leaving.cluster, "mqctl drain mq3")
    says("mq3", **{"scale-down-show": drain(**EMPTY)})
    with pytest.raises(CommandError, match="mqctl drain mq3 --resume"):
        drain_command.run(world, options(wait=True))
    assert drain_command.run(world, options(wait=True, resume=True)) == Exit.DONE
    assert noted(world) == {"mq1": (2, False), "mq3": (2, False)}


@pytest.mark.slow
@pytest.mark.parametrize("wait", [False, True])
def test_a_drained_host_serves_again(world: World, *, wait: bool) -> None:
    says("mq3", **{"scale-down-show": drain(**EMPTY)})
    assert undrain_command.run(world, undrain_command.Options(host="mq3", wait=wait, yes=True)) == Exit.DONE
    assert "scale-down-cancel" in done("asked")
    assert "mq3 serves again; what has moved is at mq1" in said(world)
    assert noted(world) == {"mq1": (1, False), "mq3": (1, False)}
    assert undrain_command.run(world, undrain_command.Options(host="mq3", wait=wait, yes=True)) == Exit.DONE
    assert "mq3 does not drain: nothing is to be taken back" in said(world)


@pytest.mark.slow
def test_ctrl_c_while_it_waits_leaves_the_brokers_at_it_and_nothing_held(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    says("mq3", then=drain(**EMPTY | {"state": "moving"}))

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(world, "sleep_s", interrupt)
    with pytest.raises(KeyboardInterrupt):
        drain_command.run(world, options(wait=True))
    ways = "interrupted: the brokers go on; mqctl drain mq3 --resume follows it, mqctl undrain mq3 takes it back"
    assert ways in said(world)
    assert noted(world) == {"mq1": (1, False), "mq3": (1, False)}


@pytest.mark.slow
@pytest.mark.parametrize("refuses", [["second"], ["default", "second"]])
def test_what_begins_at_one_of_several_instances_stays_held(world: World, leaving: Leaver, refuses: list[str]) -> None:
    """Where none of them drains the hosts are given back."""
    variables = {**VARIABLES, "mq_instances": [{"name": "default"}, {"name": "second"}]}
    host = replace(leaving.host, variables=variables)
    both = replace(leaving, cluster=replace(leaving.cluster, hosts=(leaving.cluster.hosts[0], host)), host=host)
    plan = plan_of(look_at(world, both.nodes), look_at(world, both.others), "mq1")
    says("mq3", refuses=refuses, then=drain(state="moving", node="mq1"))

    def fail() -> None:
        with operation.holding(world, both.cluster, both.command) as own:
            begin(world, both, plan, own)

    with pytest.raises(CommandError, match="no room"):
        fail()
    stays = len(refuses) == 1
    assert noted(world) == {"mq1": (1, stays), "mq3": (1, stays)}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cancel", "resume"])
def test_what_was_killed_before_a_broker_was_asked_has_both_ways_out(world: World, leaving: Leaver, kind: str) -> None:
    operation.begin(world, leaving.cluster, leaving.command)
    how = scale_down.Options(hosts=["mq3"], yes=True, **{kind: True})
    if kind == "cancel":
        assert scale_down.run(world, how) == Exit.DONE
        assert noted(world) == {"mq1": (2, False), "mq3": (2, False)}
    else:
        assert scale_down._agreed(world, how, leaving) is not None
        assert "peers of gossip and certificates of the others follow by: mqctl rollout" in said(world)
    operation.give_up(world, leaving.cluster.hosts, operation.look(world, leaving.cluster.hosts)[0])
    with pytest.raises(CommandError, match="mq3 does not drain"):
        scale_down._agreed(world, scale_down.Options(hosts=["mq3"], yes=True, resume=True), leaving)


@pytest.mark.slow
def test_a_plan_that_is_agreed_to_late_is_not_carried_out(
    world: World, leaving: Leaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the question was open another operation has been there."""

    def yes(*_: Any, **__: Any) -> None:
        with operation.holding(world, leaving.cluster, "mqctl rollout"):
            pass

    monkeypatch.setattr(confirmation, "yes", yes)
    with pytest.raises(CommandError, match="has been there since the plan was made"):
        drain_command.run(world, options())
    with pytest.raises(CommandError, match="has been there since the plan was made"):
        scale_down.run(world, scale_down.Options(hosts=["mq3"]))
    assert done("asked").count("scale-down") == 2  # dry runs
    says("mq3", **{"scale-down-show": drain(**EMPTY)})
    with pytest.raises(CommandError, match="has been there since the plan was made"):
        undrain_command.run(world, undrain_command.Options(host="mq3"))
    assert "scale-down-cancel" not in done("asked")


# -- messages stay ----------------------------------------------------------------------------------------------------


def keeping(**changes: Any) -> drain_command.Options:
    return options(move=False, **changes)


def consumed_here() -> None:
    row = {"name": "orders", "address": "orders", "routing_type": "anycast", "durable": True, "consumer_count": 1,
           "paused": False, "message_count": 3}  # fmt: skip
    says("mq3", queues={"queues": [row]})


@pytest.mark.slow
@pytest.mark.parametrize("wait", [False, True])
def test_without_move_a_host_lets_no_client_in_and_keeps_its_messages(world: World, *, wait: bool) -> None:
    assert drain_command.run(world, keeping(wait=wait)) == Exit.DONE
    assert ("cordon" in done("asked"), "scale-down" in done("asked")) == (True, False)
    assert [(row["host"], row["state"], row["to"], row["left"]) for row in rows(world)] == [
        ("mq3", "cordoned", None, 3)
    ]
    assert "mq3 lets no client in, and keeps its messages; mqctl undrain mq3 has it serve again" in said(world)
    assert noted(world) == {"mq1": (1, False), "mq3": (1, False)}
    assert drain_command.run(world, keeping(wait=wait)) == Exit.DONE
    assert "mq3 is drained already" in said(world)
    assert done("asked").count("cordon") == 1


@pytest.mark.slow
@pytest.mark.parametrize("is_forced", [False, True])
def test_it_is_refused_where_somebody_would_not_be_served(world: World, *, is_forced: bool) -> None:
    consumed_here()
    if is_forced:
        assert drain_command.run(world, keeping(force=True)) == Exit.DONE
    else:
        with pytest.raises(CommandError, match="queue orders: is consumed from at mq3 alone") as raised:
            drain_command.run(world, keeping())
        assert "--force" in raised.value.attempt
    assert ("cordon" in done("asked")) is is_forced
    assert "mq3: 3 messages stay, and are not served meanwhile; 0 clients connected" in said(world)


@pytest.mark.slow
def test_who_waits_is_told_of_clients_that_are_still_there(world: World) -> None:
    """And that ends by its time, when the brokers go on."""
    says("mq3", cordon=drain(state="cordoned", left=3, connections=2))
    with pytest.raises(CommandError, match="2 clients are still there") as raised:
        drain_command.run(world, keeping(wait=True, json=False))
    assert raised.value.code == Exit.RUNNING
    assert "mq3: cordoned, 3 messages stay, 2 clients still here" in said(world)


@pytest.mark.parametrize("state", ["moving", "none", "ends"])
def test_who_waits_is_told_that_somebody_wants_something_else(world: World, leaving: Leaver, state: str) -> None:
    says("mq3", **{"scale-down-show": drain(state=state)})
    with pytest.raises(CommandError, match="mq3 is no longer draining: somebody"):
        DrainFollower(world, leaving.nodes).until("cordoned", 60.0)


@pytest.mark.slow
def test_a_host_that_moves_its_messages_is_followed_and_one_of_which_a_part_does_is_refused(world: World) -> None:
    says("mq3", **{"scale-down-show": drain(**EMPTY)})
    assert drain_command.run(world, keeping(wait=True)) == Exit.DONE
    assert "mq3 is empty" in said(world)
    says("mq3", **{"scale-down-show": drain(state="ends", node="mq1")})
    with pytest.raises(CommandError, match="mq3 is just taking back a drain; nothing was changed"):
        drain_command.run(world, keeping())
    assert "cordon" not in done("asked")


def test_where_messages_go_is_said_with_move_alone(world: World) -> None:
    with pytest.raises(UsageError, match="without --move they stay"):
        drain_command.run(world, keeping(to="mq1"))
    assert done("asked") == []


@pytest.mark.slow
def test_what_is_kept_may_move_after_all(world: World) -> None:
    says("mq3", **{"scale-down-show": drain(state="cordoned", left=3)})
    assert drain_command.run(world, options(wait=True)) == Exit.DONE
    assert done("asked").count("scale-down") == 2
    assert "mq3 is empty" in said(world)


@pytest.mark.slow
@pytest.mark.parametrize("wait", [False, True])
def test_a_host_that_kept_its_messages_serves_them_again(world: World, *, wait: bool) -> None:
    says("mq3", **{"scale-down-show": drain(state="cordoned", left=3)})
    how = undrain_command.Options(host="mq3", wait=wait, yes=True, force=wait)
    assert undrain_command.run(world, how) == Exit.DONE
    assert ("uncordon" in done("asked"), "scale-down-cancel" in done("asked")) == (True, False)
    assert "mq3 serves again\n" in said(world)
    assert noted(world) == {"mq1": (1, False), "mq3": (1, False)}


@pytest.mark.slow
def test_a_scale_down_that_is_not_on_takes_back_no_cordon(world: World) -> None:
    says("mq3", **{"scale-down-show": drain(state="cordoned", left=3)})
    assert scale_down.run(world, scale_down.Options(hosts=["mq3"], yes=True, cancel=True)) == Exit.DONE
    assert "mq3 does not drain: nothing is to be taken back" in said(world)
    assert "uncordon" not in done("asked")
    with pytest.raises(CommandError, match="mq3 does not drain"):
        scale_down.run(world, scale_down.Options(hosts=["mq3"], yes=True, resume=True))


@pytest.mark.slow
def test_of_several_instances_those_that_serve_are_cordoned(world: World, leaving: Leaver) -> None:
    """Where one refuses nothing moves, so the hosts are given back."""
    says("mq3", refuses=["default"])
    with pytest.raises(CommandError, match="no room"):
        drain_command.run(world, keeping())
    assert noted(world) == {"mq1": (1, False), "mq3": (1, False)}


@pytest.mark.slow
def test_no_messages_go_to_a_node_that_is_cordoned(world: World) -> None:
    says("mq1", **{"scale-down-show": drain(state="cordoned")})
    with pytest.raises(CommandError, match=r"mq1 is cordoned \(mqctl undrain mq1\)"):
        drain_command.run(world, options())


@pytest.mark.slow
def test_a_release_that_knows_no_cordon_is_told_of_with_the_way_out(world: World) -> None:
    says("mq3", refuses=["default"], refusal={"condition": "amqp:not-found", "description": "unknown operation"})
    with pytest.raises(
        CommandError, match=r"mq3: its release cannot keep messages .*; mqctl rollout first, or .*--move"
    ):
        drain_command.run(world, keeping())


# -- some of its brokers do not answer --------------------------------------------------------------------------------


@pytest.fixture
def one_of_two(world: World, tmp_path: Path) -> None:
    """mq3 has two instances, of which the second one says nothing, and is stopped."""
    (tmp_path / "inventory.yml").write_text(INVENTORY.replace(
        "192.0.2.3", "192.0.2.3, mq_instances: [{name: default}, {name: second, port_offset: 100}]"
    ))  # fmt: skip
    says("mq3", silent=["second"])
    (tmp_path / "mq3" / "unit").write_text("inactive\n")


@pytest.mark.slow
@pytest.mark.usefixtures("one_of_two")
@pytest.mark.parametrize("move", [False, True])
def test_those_that_answer_drain_and_the_others_are_named(world: World, *, move: bool) -> None:
    assert drain_command.run(world, options(move=move, wait=True)) == Exit.DEGRADED
    assert ("scale-down" if move else "cordon") in done("asked")
    assert [row["instance"] for row in rows(world)] == ["default"]
    assert "mq3/second stays as it is: " in said(world)
    assert "once it answers: mqctl drain mq3" in said(world)
    assert noted(world) == {"mq1": (1, False), "mq3": (1, False)}


@pytest.mark.slow
@pytest.mark.usefixtures("one_of_two")
def test_those_that_answer_serve_again_and_the_others_are_named(world: World) -> None:
    says("mq3", **{"scale-down-show": drain(state="cordoned", left=3)})
    assert undrain_command.run(world, undrain_command.Options(host="mq3", yes=True)) == Exit.DEGRADED
    assert "uncordon" in done("asked")
    assert "mq3/second stays as it is: " in said(world)
    assert "once it answers: mqctl undrain mq3" in said(world)


@pytest.mark.slow
@pytest.mark.usefixtures("one_of_two")
def test_where_none_answers_nothing_is_done(world: World) -> None:
    says("mq3", silent=["default", "second"])
    with pytest.raises(CommandError, match="the connection broke"):
        drain_command.run(world, keeping())
    with pytest.raises(CommandError, match="the connection broke"):
        undrain_command.run(world, undrain_command.Options(host="mq3", yes=True))
    assert noted(world) == {}


@pytest.mark.usefixtures("one_of_two")
def test_a_scale_down_is_taken_back_as_a_whole_or_not_at_all(world: World) -> None:
    says("mq3", **{"scale-down-show": drain(state="moving", node="mq1")})
    with pytest.raises(CommandError, match="the connection broke"):
        scale_down.run(world, scale_down.Options(hosts=["mq3"], yes=True, cancel=True))
    assert "scale-down-cancel" not in done("asked")
