"""Batches of a rollout, hosts that it leaves out, and which ones a scale-up takes for added."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import ModuleType

import pytest
from mqctl.commands.rollout import rollout, upgrade
from mqctl.commands.rollout.scale_up import is_added
from mqctl.errors import CommandError, UsageError
from mqctl.exits import Exit
from mqctl.inventory import Host
from mqctl.plan.plan import Change
from mqctl.playbook import outcome
from mqctl.playbook.events import HostProgress, PlayProgress
from mqctl.playbook.rollout import batch_of, require_no_hand
from mqctl.playbook.run import Interrupted, Play
from mqctl.rollout.cluster_plan import Plan
from mqctl.ssh.shell import CommandResult
from mqctl.world import World

from tests.unit.mqctl.test_gate_asked import ServingHost, bundle, plain_world, world
from tests.unit.mqctl.test_operation import NAMES, noted, told

__all__ = ["bundle", "plain_world", "world"]


@pytest.mark.parametrize("text", ["", "1", "20", "300", "1%", "25%", "100%"])
def test_a_batch_is_a_number_of_hosts_or_a_percentage(text: str) -> None:
    assert batch_of(text) == text


@pytest.mark.parametrize("text", ["0", "-1", "0%", "101%", "%", "half", "2.5", "10 %", "²"])
def test_anything_else_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="neither a number of hosts nor a percentage"):
        batch_of(text)


START = ("service", "start")
BOOT = ("service at boot", "enable")


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([], False),
        ([("a", "option limits.link-credit", "change")], False),
        ([("", "release", "change")], False),
        ([("", "release", "create")], True),
        # Everything was installed, and the rollout was killed before a broker had been started.
        ([("a", *BOOT), ("a", *START), ("b", *BOOT), ("b", *START)], True),
        # Somebody stopped one of them, or added an instance: this host is not new.
        ([("a", *START), ("b", *START)], False),
        ([("b", *BOOT), ("b", *START)], False),
    ],
)
def test_hosts_on_which_no_rollout_ended_well_are_added(own: list[tuple[str, str, str]], expected: bool) -> None:
    host = Host("mq1", "main", {"mq_instances": [{"name": "a"}, {"name": "b"}]}, {})
    other = Change("mq2", "", "release", "create")
    changes = [other, *(Change("mq1", instance, what, action) for instance, what, action in own)]
    assert is_added(Plan("main", changes, {}, {}), host) is expected


def test_what_only_a_person_can_mend_is_told_before_anything_is_begun() -> None:
    usual = Change("mq1", "a", "service", "start")
    require_no_hand([usual])
    odd = [
        Change("mq1", "", "folder /etc/mq", "move away", "link", "folder"),
        Change("mq2", "a", "identity", "by hand", "it was made on another machine"),
    ]
    with pytest.raises(CommandError, match="nothing was changed on any host") as raised:
        require_no_hand([usual, *odd])
    assert raised.value.what.startswith(
        "mq1: folder /etc/mq: link, move away; mq2: identity: it was made on another machine, by hand"
    )


def are_missed_once(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """The lines to these hosts are broken while the plan is made, and stand again right after it."""
    run, left = ServingHost.run_plain, set(names)

    def run_plain(self: ServingHost, command: str, stdin: bytes, timeout_s: float) -> CommandResult:
        if b"def identity_of(" in stdin and self.name in left:
            left.discard(self.name)
            raise CommandError(f"{self.name}: no answer in time")
        return run(self, command, stdin, timeout_s)

    monkeypatch.setattr(ServingHost, "run_plain", run_plain)


def are_played(monkeypatch: pytest.MonkeyPatch, ends: Callable[[PlayProgress], object] = str) -> list[str]:
    """For which hosts the playbook is run, all of which go well."""
    played: list[str] = []

    def run_play(_world: World, _cluster: object, play: Play) -> PlayProgress:
        played.append(play.limit)
        state = PlayProgress()
        state.hosts = {name: HostProgress(name, ok=1) for name in play.limit.split(",")}
        ends(state)
        return state

    monkeypatch.setattr(outcome, "run_play", run_play)
    monkeypatch.setattr(outcome, "verify", lambda *_: Exit.DONE)
    return played


def said(world: World) -> str:
    assert isinstance(world.out, io.StringIO)
    return world.out.getvalue()


LEFT_OUT = "mq2   unreachable   0        0  left out, as it could not be looked at: no answer in time"


@pytest.mark.slow
@pytest.mark.parametrize("command", [rollout, upgrade])
@pytest.mark.parametrize("more", [{}, {"force": True}, {"check": True}])
def test_a_host_that_nobody_looked_at_is_left_out_though_the_playbook_would_reach_it(
    world: World, bundle: str, monkeypatch: pytest.MonkeyPatch, command: ModuleType, more: dict[str, bool]
) -> None:
    """mq2 alone is consumed from, so its restart would be refused."""
    are_missed_once(monkeypatch, "mq2")
    played = are_played(monkeypatch)
    assert command.run(world, command.Options(bundle=bundle, yes=True, **more)) == Exit.DEGRADED
    assert played == ["mq1,mq3"]
    assert LEFT_OUT in said(world)
    assert "left out: mq2; the same command again, when that is put right, goes there as well" in told(world)


@pytest.mark.slow
def test_who_was_left_out_is_told_after_ctrl_c_as_well(
    world: World, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupts(state: PlayProgress) -> None:
        raise Interrupted(state)

    are_missed_once(monkeypatch, "mq2")
    are_played(monkeypatch, interrupts)
    assert rollout.run(world, rollout.Options(bundle=bundle, yes=True)) == Exit.INTERRUPTED
    assert LEFT_OUT in said(world)
    assert "interrupted: 2 of 3 hosts done" in told(world)


@pytest.mark.slow
def test_where_no_host_was_looked_at_nothing_is_begun(
    world: World, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    are_missed_once(monkeypatch, *NAMES)
    played = are_played(monkeypatch)
    with pytest.raises(CommandError, match="mq1: no answer in time; mq2: no answer in time; mq3: ") as raised:
        rollout.run(world, rollout.Options(bundle=bundle, yes=True))
    assert raised.value.code is Exit.DEGRADED
    assert (played, noted(world)) == ([], {})


@pytest.mark.slow
def test_a_host_that_cannot_have_what_is_wanted_ends_it_before_anything_is_changed(
    world: World, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = world.cwd / "inventory.yml"
    inventory.write_text(inventory.read_text().replace("mq2: {", "mq2: {mq_cluster_interface: eth9, "))
    played = are_played(monkeypatch)
    with pytest.raises(CommandError, match=r"^mq2: mq_cluster_interface eth9 is no network card ") as raised:
        rollout.run(world, rollout.Options(bundle=bundle, yes=True))
    assert raised.value.code is Exit.FAILED
    assert "--limit" in raised.value.attempt
    assert (played, noted(world)) == ([], {})


@pytest.mark.slow
def test_a_host_that_cannot_have_what_is_wanted_is_no_fault_of_another_one(
    world: World, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose packet filter lets it in, and keeps what is loaded where its address is not known."""
    inventory = world.cwd / "inventory.yml"
    text = inventory.read_text().replace("mq2: {", "mq2: {mq_cluster_interface: eth9, ")
    inventory.write_text(text.replace("    mq_tls: 'off'", "    mq_firewall: true\n    mq_tls: 'off'"))
    played = are_played(monkeypatch)
    rollout.run(world, rollout.Options(bundle=bundle, yes=True, limit="mq1"))
    assert played == ["mq1"]
