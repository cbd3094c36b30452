"""Drains of running nodes: begun, followed to their end, taken back. All state is at the brokers.

Invariant: whoever looks away loses nothing. Ctrl-C, a lost connection and a killed mqctl leave the brokers at what they
do; another one asks them how far they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from mqctl.admin import AdminClient
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.fanout import on_each
from mqctl.nodes import Node, open_admin
from mqctl.output import counted
from mqctl.scaledown import cluster_look
from mqctl.scaledown.plan import told
from mqctl.world import World

LOOK_S: Final = 0.5
LINE_S: Final = 5.0  # so often there is a line where there is no terminal
SILENCE_S_MAX: Final = 120.0  # for a broker that is killed and starts again
BARS_MAX: Final = 15  # queues that have a bar of their own
PROGRESS: Final = "mqctl.scale-down-progress/1"
MOVING, MOVED, ENDED, CORDONED = "moving", "moved", "none", "cordoned"
STANDS_S_MAX: Final = 5  # a rate says nothing of what has not gone on for longer
STANDSTILL_S_MAX: Final = (
    120.0  # so long nothing may move where the broker says what hinders: a target is away, or full
)
TAKEN_BACK: Final = {"ends": "somebody takes it back", "none": "somebody has taken it back"}
MOVES: Final = "somebody has its messages moved"
NOT_ON: Final = {  # wanted -> states that do not lead there, and why
    MOVED: {**TAKEN_BACK, CORDONED: "somebody has taken it back, and cordoned it"},
    CORDONED: {**TAKEN_BACK, **dict.fromkeys(("moving", "moved", "failed"), MOVES)},
    ENDED: {},
}


@dataclass(slots=True)
class DrainFollower:
    """Looks at some nodes again and again until each is as wanted. `again`, `back`: what goes on, and takes it back."""

    world: World
    nodes: Sequence[Node]
    is_json: bool = False
    again: str = "the same command with --resume"
    back: str = "--cancel"
    _sessions: dict[str, AdminClient] = field(default_factory=dict)
    _said: str = ""  # the line before, which is not told twice

    def until(self, wanted: str, timeout_s: float) -> dict[str, dict[str, Any]]:
        """Node -> what it said last, when all are so. Raises CommandError where one cannot get there any more.

        CORDONED: and no client is there.
        """
        start_s = heard_s = moving_s = self.world.monotonic_s()
        before = 0
        try:
            with DrainDisplay(self.world, self.is_json, self._said) as display:
                while True:
                    answers, faults = self._look()
                    now_s = self.world.monotonic_s()
                    heard_s = heard_s if faults else now_s
                    moved = sum(int(one.get("moved", 0)) for one in answers.values())
                    hindered = [one for one in answers.values() if one.get("hindrances")]
                    # What is not durable, or for third nodes, goes as well and is not in `moved`.
                    goes_on = wanted == MOVED and any(map(_has_just_gone, hindered))
                    if moved != before or not hindered or goes_on:
                        moving_s, before = now_s, moved
                    if answers:
                        self._said = display.show(answers)
                    if not faults and all(_is_so(wanted, one) for one in answers.values()):
                        return answers
                    _require_way(wanted, answers)
                    if now_s - moving_s > STANDSTILL_S_MAX:
                        raise self._stuck(wanted, answers)
                    if now_s - heard_s > SILENCE_S_MAX:
                        raise CommandError("; ".join(faults), f"mqctl status; once it answers: {self.again}")
                    if now_s - start_s > timeout_s:
                        raise self._late(wanted, answers, timeout_s)
                    self.world.sleep_s(LOOK_S)
        finally:
            for each in self._sessions.values():
                each.close()
            self._sessions.clear()

    def _look(self) -> tuple[dict[str, dict[str, Any]], list[str]]:
        answers, faults = {}, []
        for node, answer in on_each(self.nodes, self._ask):
            if isinstance(answer, CommandError):
                faults.append(answer.what)
            else:
                answers[node.name] = answer
        return answers, faults

    def _ask(self, node: Node) -> dict[str, Any]:
        """Over the session of the look before; where that is broken, over a new one at the next look."""
        session = self._sessions.pop(node.name, None) or open_admin(self.world, node)
        try:
            answer = cluster_look.show(session)
        except CommandError:
            session.close()
            raise
        self._sessions[node.name] = session
        return answer

    def _stuck(self, wanted: str, answers: Mapping[str, Mapping[str, Any]]) -> CommandError:
        why = "; ".join(text for one in answers.values() for text in (*told(one.get("hindrances", ())), *_reasons(one)))
        if wanted == ENDED:
            return CommandError(
                f"nothing is answered any more, and not all queues are served again: {why}",
                f"put that right and {self.again}, or the same with --force: what the other node may have comes twice",
            )
        left = sum(int(one.get("left", 0)) for one in answers.values())
        return CommandError(
            f"nothing moves any more: {counted(left, 'message')} are left, and none of them is lost: {why}",
            f"put that right and {self.again}, or {self.back} to have it serve again",
        )

    def _late(self, wanted: str, answers: Mapping[str, Mapping[str, Any]], timeout_s: float) -> CommandError:
        left = sum(int(one.get("left", 0)) for one in answers.values())
        clients = sum(int(one.get("connections", 0)) for one in answers.values())
        what = f"{counted(left, 'message')} and {counted(clients, 'client')} are still there"
        if wanted == ENDED:
            what = "not all queues are served again"
        why = "; ".join(text for one in answers.values() for text in (*_reasons(one), *staying(one)))
        return CommandError(
            f"{what} after {timeout_s:g} s{': ' if why else ''}{why}; the brokers go on", self.again, Exit.RUNNING
        )


def _has_just_gone(answer: Mapping[str, Any]) -> bool:
    """Whether something has gone to a node a moment ago; earlier releases do not say it."""
    stands_s = answer.get("stands_s")
    return stands_s is not None and int(stands_s) <= STANDS_S_MAX


def _is_so(wanted: str, answer: Mapping[str, Any]) -> bool:
    return answer.get("state") == wanted and not (wanted == CORDONED and answer.get("connections"))


def _require_way(wanted: str, answers: Mapping[str, Mapping[str, Any]]) -> None:
    for name, one in answers.items():
        state = one.get("state")
        if why := NOT_ON[wanted].get(str(state)):
            raise CommandError(f"{name} is no longer draining: {why}", "mqctl scale-down HOST --show")


def _reasons(answer: Mapping[str, Any]) -> list[str]:
    return [f"queue {row['queue']}: {row['why']}" for row in answer.get("queues", ()) if row.get("why")]


def staying(answer: Mapping[str, Any]) -> list[str]:
    """Clients that a broker waits for before it sends them away, each with what it waits for."""
    return [f"{row['peer']} {row['why']}, for {row['for_s']} s" for row in answer.get("staying", ())]


def each(world: World, nodes: Sequence[Node], work: Callable[[AdminClient, Node], Any]) -> None:
    """Have every node do something. Raises CommandError with all refusals, when all have been asked."""

    def one(node: Node) -> None:
        with open_admin(world, node) as session:
            work(session, node)

    refused = [answer.what for _, answer in on_each(nodes, one) if isinstance(answer, CommandError)]
    if refused:
        raise CommandError("; ".join(refused), "mqctl scale-down HOST --show")


class DrainDisplay:
    """How far nodes are: bars on a terminal, elsewhere a line now and then, or a JSON object for each look."""

    def __init__(self, world: World, is_json: bool, said: str = "") -> None:
        self._world = world
        self._is_json = is_json
        self._is_live = world.err.is_terminal and not is_json
        self._tasks: dict[str, TaskID] = {}
        self._said = said
        self._said_s = -math.inf
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[more]}", markup=False),
            TimeElapsedColumn(),
            console=world.err,
            transient=True,
            disable=not self._is_live,
        )

    def __enter__(self) -> DrainDisplay:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, answers: Mapping[str, Mapping[str, Any]]) -> str:
        """One look; the line that was told last."""
        if self._is_live:
            for name, one in answers.items():
                self._draw(name, one)
            return self._said
        line = json.dumps(_event(answers)) if self._is_json else "; ".join(line_of(*each) for each in answers.items())
        now_s = self._world.monotonic_s()
        is_over = all(any(_is_so(end, one) for end in NOT_ON) for one in answers.values())
        if line != self._said and (is_over or now_s - self._said_s >= LINE_S):
            self._world.note(line)
            self._said, self._said_s = line, now_s
        return self._said

    def _draw(self, name: str, answer: Mapping[str, Any]) -> None:
        more = f"{answer['rate']:g}/s, {counted(answer['connections'], 'client')}"
        self._advance(name, (answer["moved"], answer["left"]), more)
        rows = sorted(answer["queues"], key=lambda row: row["moved"] + row["left"], reverse=True)
        for row in rows[:BARS_MAX]:
            self._advance(f"  {row['queue']}", (row["moved"], row["left"]), row.get("why") or "")

    def _advance(self, title: str, counts: tuple[int, int], more: str) -> None:
        if title not in self._tasks:
            self._tasks[title] = self._bar.add_task(title, more="")
        moved, left = counts
        self._bar.update(self._tasks[title], completed=moved, total=moved + left, more=more)


def _event(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    names = ("state", "node", "moved", "left", "rate", "connections")
    return {"schema": PROGRESS, "nodes": {name: {key: one.get(key) for key in names} for name, one in answers.items()}}


def seconds_left(answer: Mapping[str, Any]) -> int | None:
    """How long what is left takes at the rate that was measured so far; None where nothing is, none was, or it does not
    go on now."""
    left, rate = answer.get("left") or 0, answer.get("rate") or 0
    goes_on = answer.get("state") == MOVING and int(answer.get("stands_s") or 0) <= STANDS_S_MAX
    return math.ceil(left / rate) if left and rate and goes_on else None


def line_of(name: str, answer: Mapping[str, Any]) -> str:
    """How far a node is with its drain, on one line for people."""
    moved, left = answer.get("moved", 0), answer.get("left", 0)
    seconds = seconds_left(answer)
    soon = "" if seconds is None else f", {seconds} s to go at {answer['rate']:g}/s"
    clients = answer.get("connections", 0)
    who = "; ".join(staying(answer))
    here = f", {counted(clients, 'client')} still here{f' ({who})' if who else ''}" if clients else ""
    if answer.get("state") == CORDONED:
        return f"{name}: cordoned, {counted(left, 'message')} stay{here}"
    return f"{name} -> {answer.get('node') or '?'}: {answer.get('state')}, {moved} of {moved + left} moved{soon}{here}"
