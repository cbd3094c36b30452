"""One run at a time changes a host: who is noted, who stands in the way, and who is gone."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils import change_lock

NAMELESS = 4_100_000_007


def holder(pid: int = 7, **changes: Any) -> dict[str, Any]:
    return {
        "user": "ann", "machine": "control", "space": "boot pid:[1]", "pid": pid, "began": "100", "what": "a rollout",
        "since": "2026-01-05 10:12:00 UTC", **changes,
    }  # fmt: skip


def test_the_second_is_told_of_the_first_until_that_gives_it_back(tmp_path: Path) -> None:
    place = str(tmp_path / "lock")
    first, second = holder(), holder(8, user="bob", machine="laptop")
    assert change_lock.take(first, place=place) is None
    assert change_lock.take(second, place=place) == first
    # A run meets its own note in each of its plays.
    assert change_lock.take({**first, "what": "packet filters", "since": "later"}, place=place) is None
    assert change_lock.give_back(second, place) is False
    assert change_lock.take(second, place=place)["what"] == "packet filters"  # type: ignore[index]
    assert change_lock.give_back(first, place) is True
    assert change_lock.take(second, place=place) is None
    assert change_lock.give_back(holder(), str(tmp_path / "nothing")) is False


def test_a_run_knows_whether_another_has_taken_its_place(tmp_path: Path) -> None:
    place, other = str(tmp_path / "lock"), holder(8, user="bob")
    nobody = "it is held for nobody any more"
    assert change_lock.lost_to(holder(), place).startswith(nobody)
    change_lock.take(holder(), place=place)
    assert change_lock.lost_to(holder(what="packet filters"), place) == ""
    assert change_lock.take(other, instead_of=holder(), place=place) is None
    assert change_lock.lost_to(holder(), place) == change_lock.sentence(other)
    change_lock.give_back(other, place)
    assert change_lock.lost_to(holder(), place).startswith(nobody)


def test_a_process_with_the_number_of_another_is_another(tmp_path: Path) -> None:
    place = str(tmp_path / "lock")
    change_lock.take(holder(), place=place)
    for other in (holder(began="101"), holder(machine="laptop"), holder(space="boot pid:[2]"), holder(8)):
        assert change_lock.take(other, place=place) == holder()
        assert change_lock.give_back(other, place) is False


def test_a_place_is_taken_from_whom_one_has_seen_there_alone(tmp_path: Path) -> None:
    place = str(tmp_path / "lock")
    change_lock.take(holder(), place=place)
    assert change_lock.take(holder(8), instead_of=holder(9), place=place) == holder()
    assert change_lock.take(holder(8), instead_of=holder(), place=place) is None
    assert change_lock.take(holder(9), instead_of=holder(), place=place) == holder(8)


def test_of_many_at_once_one_has_it(tmp_path: Path) -> None:
    place, won = str(tmp_path / "lock"), list[int]()

    def attempt(pid: int) -> None:
        if change_lock.take(holder(pid), place=place) is None:
            won.append(pid)

    threads = [threading.Thread(target=attempt, args=(pid,)) for pid in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


@pytest.mark.slow
def test_nobody_looks_while_another_one_writes(tmp_path: Path) -> None:
    place, seen = tmp_path / "lock", list[Any]()
    change_lock.take(holder(), place=str(place))
    with place.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        waiting = threading.Thread(target=lambda: seen.append(change_lock.take(holder(8), place=str(place))))
        waiting.start()
        waiting.join(0.3)
        assert seen == []
    waiting.join()
    assert seen == [holder()]


def test_what_is_not_whole_notes_nobody(tmp_path: Path) -> None:
    place = tmp_path / "lock"
    wrong: list[dict[str, Any]] = [{"pid": "seven"}, {"pid": None}, {"began": 100}, {"user": ["ann"]}, {"since": None}]
    texts = ("", "{", "[]", '{"pid": 7}', *(json.dumps(holder(2) | one) for one in wrong))
    for written in (b"\xff\xfe{", json.dumps(holder(2)).encode() + b"\x80", *(text.encode() for text in texts)):
        place.write_bytes(written)
        assert change_lock.take(holder(), place=str(place)) is None
        assert change_lock.take(holder(8), place=str(place)) == holder()


def test_a_process_is_gone_where_that_can_be_known() -> None:
    space = change_lock.space()
    assert space
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        note = holder(child.pid, space=space, began=change_lock.began(child.pid))
        assert note["began"]
        assert not change_lock.is_gone(note, space)
        # The number is that of another process by now.
        assert change_lock.is_gone({**note, "began": "1"}, space)
        assert child.stdin is not None
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # It has ended, and nobody has asked how.
        assert Path(f"/proc/{child.pid}/stat").exists()
        assert change_lock.is_gone(note, space)
    assert change_lock.is_gone(note, space)
    assert not change_lock.is_gone({**note, "space": "another boot"}, space)
    assert not change_lock.is_gone({**note, "space": ""}, "")
    assert change_lock.began(os.getpid()) != ""
    assert change_lock.space("/nowhere") == ""


def test_who_has_no_name_is_told_of_by_number() -> None:
    """As in a container that runs with a number of its own choice: nothing in the environment, nothing in passwd."""
    assert change_lock.user(NAMELESS, {}) == f"uid {NAMELESS}"
    assert change_lock.user(NAMELESS, {"LOGNAME": "", "USER": "ann"}) == "ann"
    assert change_lock.user(0, {}) == "root"


def test_who_is_told_to_wait_is_told_for_whom() -> None:
    said = change_lock.sentence(holder())
    for part in ("ann from control (a rollout, process 7)", "since 2026-01-05 10:12:00 UTC", "--take-over"):
        assert part in said
