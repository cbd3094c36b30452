"""Following a drain: what is told, and when it is given up. The nodes are real below their sockets."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqctl.errors import CommandError
from mqctl.nodes import Node
from mqctl.scaledown import cluster_look
from mqctl.scaledown.cluster_look import look_at
from mqctl.scaledown.drain import SILENCE_S_MAX, STANDSTILL_S_MAX, DrainDisplay, DrainFollower, line_of
from mqctl.world import World, real_world
from rich.console import Console

from tests.support.admin_stage import AdminStage
from tests.support.patience import PATIENCE_S


def console(**changes: Any) -> Console:
    return Console(file=io.StringIO(), width=200, **changes)


def said(world: World) -> str:
    assert isinstance(world.err.file, io.StringIO)
    return world.err.file.getvalue()


@pytest.fixture
def world() -> World:
    """In which time goes by when somebody sleeps."""
    slept_s: list[float] = []
    return replace(
        real_world(), err=console(), monotonic_s=lambda: sum(slept_s), sleep_s=lambda each: slept_s.append(each * 20)
    )


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with AdminStage(tmp_path, "mq3"):
        yield Node("mq3", "default", socket=str(tmp_path / "mq3" / "admin.sock"))


def answer(**changes: Any) -> dict[str, Any]:
    row = {"queue": "orders", "moved": 30, "left": 70, "why": None}
    return {
        "state": "moving", "node": "mq1", "moved": 30, "left": 70, "rate": 10.0, "connections": 0, "hindrances": [],
        "queues": [row], **changes,
    }  # fmt: skip


def test_a_line_says_how_far_it_is_and_how_long_it_takes() -> None:
    assert line_of("mq3", answer()) == "mq3 -> mq1: moving, 30 of 100 moved, 7 s to go at 10/s"
    assert line_of("mq3", answer(rate=0.0, connections=1)) == "mq3 -> mq1: moving, 30 of 100 moved, 1 client still here"
    late = {"conn": 7, "peer": "192.0.2.9:4711", "why": "has a transaction open", "for_s": 3}
    assert line_of("mq3", answer(connections=2, staying=[late])) == (
        "mq3 -> mq1: moving, 30 of 100 moved, 7 s to go at 10/s, 2 clients still here "
        "(192.0.2.9:4711 has a transaction open, for 3 s)"
    )
    assert line_of("mq3", answer(state="moved", moved=100, left=0)) == "mq3 -> mq1: moved, 100 of 100 moved"


def test_beyond_a_terminal_there_is_a_line_now_and_then_and_one_at_the_end(world: World) -> None:
    with DrainDisplay(world, is_json=False) as display:
        for moved in range(10):
            display.show({"mq3": answer(moved=moved)})
        display.show({"mq3": answer(state="moved", moved=100, left=0)})
    assert len(said(world).splitlines()) == 2


def test_on_a_terminal_each_queue_has_a_bar() -> None:
    world = replace(real_world(), err=console(force_terminal=True))
    with DrainDisplay(world, is_json=False) as display:
        display.show({"mq3": answer()})
    assert "orders" in said(world)
    assert "30/100" in said(world)


def test_a_node_that_does_not_drain_says_so_and_is_followed_no_longer(world: World, node: Node) -> None:
    (look,) = look_at(world, [node])
    assert (look.fault, look.state, look.drain["receipt"]) == ("", "none", None)
    assert DrainFollower(world, [node]).until("none", PATIENCE_S)["mq3"]["state"] == "none"
    with pytest.raises(CommandError, match="mq3 is no longer draining: somebody has taken it back"):
        DrainFollower(world, [node]).until("moved", PATIENCE_S)


@pytest.mark.parametrize(("stands_s", "is_stuck"), [(3, False), (500, True), (None, True)])
def test_what_goes_and_is_not_counted_is_followed(
    world: World, node: Node, monkeypatch: pytest.MonkeyPatch, stands_s: int | None, *, is_stuck: bool
) -> None:
    """Messages that are not durable, and those for third nodes, for longer than nothing may move; an earlier release
    does not say it."""
    hindrances = [{"kind": "queue", "name": "latest", "why": "is full"}]
    looks = iter([*["moving"] * 30, "moved"])

    def show(_: object) -> dict[str, Any]:
        said = {} if stands_s is None else {"stands_s": stands_s}
        return answer(state=next(looks), hindrances=hindrances, **said)

    monkeypatch.setattr(cluster_look, "show", show)
    if is_stuck:
        with pytest.raises(CommandError, match=r"nothing moves any more: .* is full"):
            DrainFollower(world, [node]).until("moved", 10_000)
    else:
        assert DrainFollower(world, [node]).until("moved", 10_000)["mq3"]["state"] == "moved"
    assert world.monotonic_s() > STANDSTILL_S_MAX


def test_a_node_that_is_silent_for_long_is_given_up(world: World, tmp_path: Path) -> None:
    """And it is said how to go on: it may drain all the same."""
    lost = Node("mq3", "default", socket=str(tmp_path / "nobody"))
    with pytest.raises(CommandError, match="no broker answers at") as caught:
        DrainFollower(world, [lost], again="mqctl scale-down mq3 --resume").until("moved", 10_000)
    assert caught.value.attempt == "mqctl status; once it answers: mqctl scale-down mq3 --resume"
    assert SILENCE_S_MAX < world.monotonic_s() < SILENCE_S_MAX + 60
    assert look_at(world, [lost])[0].fault
