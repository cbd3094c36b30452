"""Commands that meet faults, each with what is so before and behind it, and their steps (tests/support/chaos.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.chaos_hosts import DATA, HOSTS, UNIT, Stage
from tests.support.last_release import bundle
from tests.support.rack_traffic import inside, uris

LEAVER, HEIR = "mq3", "mq1"
BACKLOG = 3_000
# So much that a fault comes while it is copied, in messages that are files.
BALLAST = 24
BALLAST_BYTES = 4 << 20
NODE = f"{DATA}/default"
ALL_OF_IT = "identity.json journal large-messages"


def _nothing_more(_: Stage) -> None:
    """What all commands have done is looked at anyway."""


@dataclass(frozen=True)
class Command:
    """A command of mqctl, and what has to be so around it.

    `words`: may name what is known of the stage by then. `before`, and `has_done`: what it has to have done beside what
    all have; `after`: how all becomes as before. `is_followed_by`: what a person does when it is done. `leaver`: the
    host whose clients go elsewhere for good. It is not named in the inventory any more once that is over, so the
    command cannot be said again. `is_away`: no broker runs at the leaver, which comes back. `begins_at_last`,
    `ends_at_last`: all hosts have the last release, and not this one. `over`: where it says this it fails, as it had
    done all before.
    """

    words: tuple[str, ...]
    before: Callable[[Stage], None]
    has_done: Callable[[Stage], None]
    after: Callable[[Stage], None]
    is_followed_by: Callable[[Stage], None] = _nothing_more
    leaver: str = ""
    is_away: bool = False
    begins_at_last: bool = False
    ends_at_last: bool = False
    over: str = ""

    def words_at(self, stage: Stage) -> list[str]:
        """As they are said there."""
        return [word.format(stage=stage) for word in self.words]


@dataclass(frozen=True)
class Step:
    """One step of a command, the line that it is known by, and the host on which it works then. `is_of_day`: it is met
    by such a fault in each run of all checks, one of them a day. `has_broker`: that of the host is not gone yet."""

    command: str
    name: str
    line: str
    host: str
    is_of_day: bool = False
    has_broker: bool = True


def _receipt_balances(stage: Stage) -> None:
    newest = max((stage.site.folder / "receipts").glob("*.json"), key=lambda path: path.stat().st_mtime)
    document = json.loads(newest.read_text())
    assert document["differences"] == []
    assert all(row["balances"] for row in document["rows"]), document["rows"]
    moved = {row["queue"]: row["moved"] for row in document["rows"]}
    assert moved[f"old-{stage.cells}"] == BACKLOG, moved
    assert LEAVER not in (stage.site.folder / "inventory.yml").read_text()
    assert stage.in_host(LEAVER, f"ls {DATA}").split() == ["lost+found"]


def _add_again(stage: Stage) -> None:
    (stage.site.folder / "inventory.yml").write_text(stage.inventory)
    stage.site.run("rollout", "--yes")
    stage.well()


def _upgrade_some(stage: Stage) -> None:
    """And not the last host: what is taken back is an upgrade that ended in its middle."""
    stage.site.run("upgrade", "--yes", "--limit", ",".join(HOSTS[:2]))


def _all_run_this(stage: Stage) -> None:
    (folder,) = (stage.site.folder / "dist").glob("bundle-*")
    _all_run(stage, folder)


def _all_run_the_last(stage: Stage) -> None:
    _all_run(stage, bundle())


def _all_run(stage: Stage, folder: Path) -> None:
    """The release of this bundle runs everywhere, and would run after a boot."""
    release = json.loads((folder / "manifest.json").read_text())["release"]
    rows = stage.site.rows("upgrade", "status")
    assert [(row["release"], row["running"]) for row in rows] == [(release, release)] * len(HOSTS), rows


def _lose_data(stage: Stage) -> None:
    """A node whose queue is in a backup loses all that it has."""
    uri = uris(stage.site)(LEAVER)
    inside(stage.site, "fill", uri, _kept(stage), BACKLOG)
    inside(stage.site, "fill", uri, "ballast", BALLAST, BALLAST_BYTES)
    (made,) = stage.site.rows("backup", "create", "backups", "--host", LEAVER)
    stage.backup = str(made["id"])
    stage.in_host(LEAVER, f"systemctl kill --signal=KILL {UNIT}; systemctl stop {UNIT}; cd {NODE}; rm -r {ALL_OF_IT}")


def _start(stage: Stage) -> None:
    stage.in_host(LEAVER, f"systemctl reset-failed {UNIT}; systemctl start {UNIT}")


def _has_its_messages(stage: Stage) -> None:
    """Each once and in order."""
    assert inside(stage.site, "read", uris(stage.site)(LEAVER), _kept(stage), BACKLOG) == []
    held = {row["queue"]: row["messages"] for row in stage.site.rows("queue", "list", "--host", LEAVER)}
    assert held["ballast"] == BALLAST


def _drop_ballast(stage: Stage) -> None:
    stage.site.run("queue", "purge", "ballast", "--host", LEAVER, "--yes")


def _kept(stage: Stage) -> str:
    """The queue of its backup."""
    return f"kept-{stage.cells}"


COMMANDS: Mapping[str, Command] = {
    "rollout": Command(("rollout", "--yes", "-v"), Stage.change, _nothing_more, _nothing_more),
    "scale-down": Command(
        ("scale-down", LEAVER, "--to", HEIR, "--yes", "--write"), _nothing_more, _receipt_balances, _add_again,
        leaver=LEAVER,
    ),
    "upgrade": Command(("upgrade", "--yes"), _nothing_more, _all_run_this, _nothing_more, begins_at_last=True),
    "rollback": Command(
        ("rollback", "--yes"), _upgrade_some, _all_run_the_last, _nothing_more, begins_at_last=True, ends_at_last=True,
        over="so there is nothing to take back",
    ),
    "restore": Command(
        ("backup", "restore", "backups", "{stage.backup}", "--host", LEAVER, "--yes", "--keep-node-id"),
        _lose_data, _has_its_messages, _drop_ballast, _start, leaver=LEAVER, is_away=True,
    ),
}  # fmt: skip
STEPS = (
    Step("rollout", "begins", "Take the host for this operation]", "mq1"),
    Step(
        "rollout", "restarts the second", "mq2: changed: broker: Write the unit and the options", "mq2", is_of_day=True
    ),
    Step("rollout", "ends", "Note that it has all of it]", "mq3"),
    Step("scale-down", "plan", "follow by: mqctl rollout", LEAVER),
    Step("scale-down", "moving", f"{LEAVER} -> {HEIR}: moving", LEAVER, is_of_day=True),
    Step("scale-down", "moving at the heir", f"{LEAVER} -> {HEIR}: moving", HEIR),
    Step("scale-down", "moved", "wrote receipts/", LEAVER),
    Step("scale-down", "removing", f"{LEAVER}: changed: uninstall: ", LEAVER, has_broker=False),
    Step("upgrade", "links the canary", "mq1: changed: release: Link the current release", "mq1"),
    Step("upgrade", "restarts the second", "mq2: changed: broker: Let systemd do it", "mq2"),
    Step("rollback", "links the canary", "mq1: changed: release: Link the current release", "mq1"),
    Step("rollback", "restarts the second", "mq2: changed: broker: Let systemd do it", "mq2"),
    Step("restore", "copies", f"given to {LEAVER}: ", LEAVER, has_broker=False),
    Step("restore", "counts", f"{LEAVER}: all of it is there", LEAVER, has_broker=False),
)
