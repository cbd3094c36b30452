"""Who gets the id of a node that is gone: none while one that runs is seen under it.

Hosts are folders here with the real `mqbroker`, but for one that runs.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mqbroker.io.files import identity
from mqctl.errors import CommandError
from mqctl.exits import Exit
from mqctl.world import World

from tests.unit.mqctl.test_restore_held import data, files, kept, noted, program, restore
from tests.unit.mqctl.test_scale_down_on_hosts import said, world

__all__ = ["kept", "world"]

# A broker that runs, and says this of itself.
RUNS = f"""#!{sys.executable}
import json, sys
for line in sys.stdin:
    print(json.dumps({{"id": json.loads(line)["id"], "result": %r}}), flush=True)
"""
# One that starts when it was asked for once.
STARTS = RUNS.replace(
    "import json, sys",
    """import json, sys
from pathlib import Path
asked = Path(__file__).with_name("asked")
if not asked.exists():
    asked.touch()
    sys.exit("mqbroker: no broker runs here")""",
)


def node_id(name: str) -> str:
    found = identity.load(data(name))
    assert found is not None
    return found.node_id


@pytest.mark.slow
@pytest.mark.parametrize("on_hosts", [False, True])
@pytest.mark.parametrize("is_linked", [False, True])
def test_no_second_node_gets_the_id_of_one_that_runs(
    world: World, kept: Path, *, is_linked: bool, on_hosts: bool
) -> None:
    """Also of one that only another one still sees: the backup's messages would come out of both."""
    runs, before, link = node_id("mq1"), files("mq2"), {"node_id": node_id("mq1"), "state": "up"}
    program("mq1", RUNS % ({"node_id": "another", "links": [link]} if is_linked else {"node_id": runs, "links": []}))
    why = f"mq1 is {'linked with ' if is_linked else ''}node {runs}, that of the backup, which runs and is not gone"
    with pytest.raises(CommandError, match=why):
        restore(world, folder=str(kept), host="mq2", keep_node_id=True, on_hosts=on_hosts)
    assert (files("mq2"), noted()) == (before, {(0, False)})


@pytest.mark.slow
@pytest.mark.parametrize("on_hosts", [False, True])
def test_nor_that_of_one_that_starts_while_the_backup_is_copied(world: World, kept: Path, *, on_hosts: bool) -> None:
    runs, before = node_id("mq1"), files("mq2")
    program("mq1", STARTS % {"node_id": runs, "links": []})
    with pytest.raises(CommandError, match=f"mq1 is node {runs}, .* runs and is not gone; nothing was changed"):
        restore(world, folder=str(kept), host="mq2", keep_node_id=True, on_hosts=on_hosts)
    assert {name: held for name, held in files("mq2").items() if not name.startswith("restoring/")} == before
    assert noted() == {(1, False)}


@pytest.mark.slow
@pytest.mark.parametrize("is_it", [False, True])
def test_where_the_node_of_the_backup_is_still_linked_it_is_said_how_that_ends(world: World, *, is_it: bool) -> None:
    """Also where it is the one that is to be restored, with which another one is linked."""
    runs, link = node_id("mq1"), {"node_id": node_id("mq1"), "state": "up"}
    program("mq2", RUNS % {"node_id": runs if is_it else "another", "links": []})
    program("mq1", RUNS % {"node_id": "a third", "links": [link]})
    linked = "mq1 is linked with node .* and is not gone, or its link has not ended yet; nothing"
    why = f"mq2 is node {runs}, that of the backup, which runs: stop its broker first; nothing" if is_it else linked
    with pytest.raises(CommandError, match=why):
        restore(world, host="mq2", keep_node_id=True)


@pytest.mark.slow
def test_a_node_becomes_another_one_where_all_say_that_they_are_not_that(world: World) -> None:
    wanted = node_id("mq1")
    program("mq1", RUNS % {"node_id": "another", "links": [{"node_id": wanted, "state": "connecting"}]})
    assert restore(world, host="mq2", keep_node_id=True) == Exit.DONE
    assert "did not answer" not in said(world)
    assert node_id("mq2") == wanted


@pytest.mark.slow
@pytest.mark.parametrize("is_sure", [False, True])
def test_nodes_that_may_be_the_one_of_the_backup_are_named_before_it_is_given_away(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_sure: bool
) -> None:
    doubt = "mq1 did not answer: whichever was the node of the backup must never start as that again."
    asked: list[str] = []

    def answer(question: str, **_: Any) -> str:
        asked.append(question)
        return "y"

    monkeypatch.setattr(world.err, "input", answer)
    found = replace(world, is_interactive=True)
    assert restore(found, host="mq2", keep_node_id=True, yes=is_sure) == Exit.DONE
    assert (f"mqctl: {doubt}" in said(world)) is is_sure
    assert asked == ([] if is_sure else [f"{doubt} Restore mq1-1 to mq2, and put aside what it has? [y/N] "])


@pytest.mark.slow
def test_no_id_is_known_of_a_backup_that_is_not_there(world: World) -> None:
    with pytest.raises(CommandError, match="mq1-2: there is no such backup; nothing was changed on any host"):
        restore(world, host="mq2", keep_node_id=True, backup="mq1-2")
    assert noted() == {(0, False)}
