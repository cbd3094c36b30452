"""Halves of a backup that fall silent or break off: how long they may be silent, and what is known of them then."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
from mqctl.brokers import backups
from mqctl.brokers.backups import BackupStream, carried, said
from mqctl.commands.repair import backup_create, backup_prune
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.nodes import Node
from mqctl.ssh.local import LocalStream
from mqctl.world import World

from tests.unit.mqctl.test_scale_down_on_hosts import world

__all__ = ["world"]


def half(program: str, silence_s: float = 60.0) -> BackupStream:
    return BackupStream("mq1", LocalStream(shlex.join([sys.executable, "-c", program]), b""), silence_s)


def untold(wanted: int, of: int, size_bytes: int) -> AbstractContextManager[Callable[[int], object]]:
    return nullcontext(lambda size: None)


def test_one_that_reads_slowly_is_not_given_up_while_it_goes_on(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """In silence it is read once as files are held, at most for so long, and twice more at the same speed."""
    silences: list[float] = []

    def at(world: World, node: Node, words: list[str], silence_s: float) -> BackupStream:
        silences.append(silence_s)
        raise CommandError("mq1: this is all that is looked at")

    monkeypatch.setattr(backups, "at", at)
    monkeypatch.setattr(
        backup_create, "nodes_meant", lambda world, options: [Node("mq1", "default", socket="/run/mq/admin")]
    )
    for on_hosts in (False, True):
        with pytest.raises(CommandError, match="all that is looked at"):
            backup_create.run(world, backup_create.Options(folder="kept", hold_minutes=600, on_hosts=on_hosts))
    assert silences == [3 * 600 * 60 + backups.SILENCE_S] * 2


def test_nobody_knows_what_became_of_one_that_is_silent() -> None:
    stream = half("import time; time.sleep(60)", 0.2)
    with pytest.raises(CommandError, match=r"mq1: nothing came for 0\.2 s"):
        said(stream)
    assert stream.is_lost


@pytest.mark.parametrize("end", [said, lambda stream: carried(half(""), stream, untold)])
def test_nor_of_one_that_was_killed(end: Callable[[BackupStream], object]) -> None:
    stream = half("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(CommandError):
        end(stream)
    assert stream.is_lost


def test_one_that_takes_nothing_more_is_given_up_after_one_silence() -> None:
    """Each piece would else be waited for."""
    stream = half("import time; time.sleep(60)", 0.2)
    with pytest.raises(CommandError, match=r"mq1: it took nothing for 0\.2 s"):
        stream.write(b" " * (16 << 20))
    assert stream.is_lost


def test_ctrl_c_at_the_terminal_is_for_mqctl_alone() -> None:
    assert half("import os; print(os.getpgrp(), flush=True)").line() != b"%d\n" % os.getpgrp()


def test_how_the_source_ends_changes_nothing_of_what_the_target_has_said() -> None:
    manifest = "import sys; print('{\"files\": []}', flush=True); input(); print('{\"end\": true}', flush=True); "
    source = half(manifest + "sys.exit('mqbroker: the broker went away')")
    target = half('input(); print(\'{"wanted": []}\', flush=True); input(); print(\'{"result": {"a": 1}}\')')
    noted: list[str] = []
    assert carried(source, target, untold, note=noted.append) == {"a": 1}
    assert noted == ["mq1: the broker went away"]


def test_one_that_says_why_it_failed_is_known() -> None:
    stream = half("import sys; sys.exit('mqbroker: there is no such backup')")
    with pytest.raises(CommandError, match="mq1: there is no such backup"):
        said(stream)
    assert not stream.is_lost


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lacking", "silent"), [(["mq3"], []), (["mq1", "mq3"], []), (["mq1", "mq3"], ["mq2"]), ([], ["mq2"])]
)
def test_what_was_pruned_is_told_beside_what_was_refused(
    monkeypatch: pytest.MonkeyPatch, world: World, lacking: list[str], silent: list[str]
) -> None:
    """The exit code is that of a refusal, of some hosts or of all; of who is silent nobody knows."""

    def at(world: World, node: Node, words: list[str]) -> BackupStream:
        if node.host in silent:
            raise CommandError(f"{node.host}: no route to host")
        bad = [f"/srv/{node.host}: is gone"] if node.host in lacking else []
        document = json.dumps({"schema": 1, "pruned": [f"{node.host}-1"], "freed_bytes": 4096, "bad": bad})
        return half(f"import sys; print({document!r}, flush=True); sys.exit({'mqbroker: is gone' if bad else 0!r})")

    monkeypatch.setattr(backups, "at", at)
    nodes = [Node(name, "default", socket="/run/mq/admin") for name in ("mq1", *silent, "mq3")]
    monkeypatch.setattr(backups, "nodes_meant", lambda world, options: nodes)
    options = backup_prune.Options(folder="kept", keep=1, on_hosts=True, json=True)
    if len(lacking) == len(nodes):
        with pytest.raises(CommandError, match="mq1: /srv/mq1: is gone; mq3: /srv/mq3: is gone"):
            backup_prune.run(world, options)
    else:
        assert backup_prune.run(world, options) is Exit.DEGRADED
        assert isinstance(world.err.file, io.StringIO)
        for said in (*(f"{name}: /srv/{name}: is gone" for name in lacking), *(f"{name}: no route" for name in silent)):
            assert f"mqctl: {said}" in world.err.file.getvalue()
    assert isinstance(world.out, io.StringIO)
    assert [row["pruned"] for row in json.loads(world.out.getvalue())["rows"]] == [["mq1-1"], ["mq3-1"]]
