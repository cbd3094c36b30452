"""Rights by sudo: the password goes to sudo once, and nothing else ever does.

The stand-in for sudo asks as sudo does: `-n` never, `-S` on standard input and up to three times, `-A` by a program.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mqctl.errors import CommandError, NotBegun, Unreachable
from mqctl.fanout import on_each
from mqctl.ssh import shell
from mqctl.ssh.local import LocalShell
from mqctl.ssh.variables import Become

from tests.support.patience import PATIENCE_S

COMPLAINT = ["sh", "-c", "echo 'sudo: unable to resolve host mq1' >&2; exit 1"]
RIGHT = "canary right 'password'\\"
PAYLOAD = b"import os\nprint('payload')\nthird line\n"
SUDO = """#!/bin/sh
validate=
while [ $# -gt 0 ]; do
    case "$1" in
        -n|-S|-A) how=$1 ;;
        -v) validate=1 ;;
        -u) shift ;;
        -p) prompt=$2; shift ;;
        -k|-H) ;;
        --) shift; break ;;
        *) break ;;
    esac
    shift
done
for try in 1 2 3; do
    case $how in
        -n) echo "sudo: a password is required" >&2; exit 1 ;;
        -S) IFS= read -r word || { echo "sudo: no password was provided" >&2; exit 1; } ;;
        -A) word=$("$SUDO_ASKPASS" "$prompt") ;;
    esac
    printf '%s\\n' "$word" >> "$(dirname "$0")/tried"
    [ ! -e "$(dirname "$0")/silent" ] || exec sleep 20
    if [ "$word" = "$(cat "$(dirname "$0")/right")" ]; then
        [ -n "$validate" ] || exec "$@"
        exit 0
    fi
done
echo "sudo: 3 incorrect password attempts" >&2
exit 1
"""


def shell_with(folder: Path, password: str) -> LocalShell:
    program = folder / "sudo"
    program.write_text(SUDO)
    program.chmod(0o755)
    (folder / "right").write_text(RIGHT)
    return LocalShell("mq1", Become(user="somebody-else", program=str(program), password=password))


def tried(folder: Path) -> list[str]:
    return (folder / "tried").read_text().splitlines() if (folder / "tried").exists() else []


def test_the_right_password_leaves_all_of_the_payload_to_the_command(tmp_path: Path) -> None:
    way = shell_with(tmp_path, RIGHT)
    assert shell.run(way, ["cat"], PAYLOAD) == shell.CommandResult(0, PAYLOAD, b"")
    stream = shell.open_stream(way, ["cat"])
    stream.sendall(PAYLOAD)
    stream.end_input()
    assert stream.recv(65536) == PAYLOAD
    stream.close()
    assert set(tried(tmp_path)) == {RIGHT}


def test_a_wrong_password_is_tried_once_and_nothing_else_is_tried_as_one(tmp_path: Path) -> None:
    way = shell_with(tmp_path, "canary wrong")
    for _ in range(3):
        with pytest.raises(CommandError, match="may not act as somebody-else") as caught:
            shell.run(way, ["cat"], PAYLOAD)
        assert "canary" not in str(caught.value)
        with pytest.raises(CommandError):
            shell.open_stream(way, ["cat"])
    assert tried(tmp_path) == ["canary wrong"]


def test_a_wrong_password_is_tried_once_by_all_who_want_it_at_once(tmp_path: Path) -> None:
    """A host with several instances is asked for each of them at a time."""
    way = shell_with(tmp_path, "canary wrong")
    all_are_there = threading.Barrier(8, timeout=PATIENCE_S)

    def ask(_: int) -> None:
        all_are_there.wait()
        shell.run(way, ["true"])

    faults = [fault for _, fault in on_each(range(8), ask)]
    assert all(isinstance(fault, CommandError) and "may not act as" in fault.what for fault in faults)
    assert tried(tmp_path) == ["canary wrong"]


def test_a_password_that_was_right_is_tried_once_more_where_sudo_complains(tmp_path: Path) -> None:
    """Whoever follows a host would have sudo try it three times at each look, and so lock the account."""
    way = shell_with(tmp_path, RIGHT)
    shell.run(way, ["true"])
    (tmp_path / "right").write_text("another")
    (tmp_path / "tried").unlink()
    for _ in range(4):
        with pytest.raises(CommandError, match="may not act as"):
            shell.run(way, ["true"])
    assert tried(tmp_path) == [RIGHT] * (3 + 1)


def test_a_password_that_was_right_is_tried_once_more_where_sudo_ends_streams(tmp_path: Path) -> None:
    way = shell_with(tmp_path, RIGHT)
    shell.run(way, ["true"])
    (tmp_path / "right").write_text("another")
    (tmp_path / "tried").unlink()
    stream = shell.open_stream(way, ["cat"])
    stream.settimeout(PATIENCE_S)
    assert stream.recv(65536) == b""
    assert stream.complaint() == "sudo: 3 incorrect password attempts"
    stream.close()
    for _ in range(4):
        with pytest.raises(CommandError, match="may not act as"):
            shell.open_stream(way, ["cat"])
    assert tried(tmp_path) == [RIGHT] * (3 + 1)


def test_a_password_that_had_worked_is_tried_once_more_a_minute_after_it_was_refused(tmp_path: Path) -> None:
    """A host that starts lets people in before it knows who may do what."""
    way = shell_with(tmp_path, RIGHT)
    shell.run(way, ["true"])
    (tmp_path / "right").write_text("not known yet")
    later = next_way(way)
    refuse(later, at_least_s=shell.AGAIN_S / 2)
    for _ in range(3):
        refuse(later, at_least_s=0)
    (tmp_path / "right").write_text(RIGHT)
    refuse(next_way(later), at_least_s=0)
    later.trial.again_at_s = time.monotonic()
    assert shell.run(later, ["echo", "x"]).out == b"x\n"
    assert shell.run(next_way(later), ["echo", "x"]).out == b"x\n"


def test_a_password_that_is_refused_a_minute_later_too_is_tried_no_more(tmp_path: Path) -> None:
    way = shell_with(tmp_path, RIGHT)
    shell.run(way, ["true"])
    (tmp_path / "right").write_text("another")
    (tmp_path / "tried").unlink()
    later = next_way(way)
    refuse(later, at_least_s=0)
    later.trial.again_at_s = time.monotonic()
    for _ in range(3):
        refuse(later)
        refuse(next_way(later))
    assert tried(tmp_path) == [RIGHT] * 2


@pytest.mark.slow
def test_of_a_try_that_nobody_answers_after_a_refusal_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that is slow to come back: each try counts there as one of those that are wrong."""
    way = shell_with(tmp_path, RIGHT)
    shell.run(way, ["true"])
    (tmp_path / "right").write_text("another")
    later = next_way(way)
    refuse(later, at_least_s=0)
    (tmp_path / "tried").unlink()
    (tmp_path / "silent").touch()
    monkeypatch.setattr(shell, "TRIAL_S_MAX", 0.5)
    later.trial.again_at_s = time.monotonic()
    with pytest.raises(CommandError, match="no answer within"):
        shell.run(later, ["true"])
    (tmp_path / "silent").unlink()
    for _ in range(3):
        with pytest.raises(Unreachable, match=r"nothing was heard of .*: it was tried once, and is tried again in "):
            shell.run(later, ["true"])
    assert tried(tmp_path) == [RIGHT], "once, and not again before a minute is over"
    monkeypatch.undo()
    (tmp_path / "right").write_text(RIGHT)
    later.trial.again_at_s = time.monotonic()
    assert shell.run(later, ["echo", "x"]).out == b"x\n"
    assert later.trial.refused is None


@pytest.mark.parametrize("was_refused", [False, True])
def test_a_password_that_nobody_answers_for_is_tried_ever_more_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_refused: bool
) -> None:
    """Who follows a host looks every few seconds, and each try may count as one with a wrong password."""
    way = shell_with(tmp_path, RIGHT)
    if was_refused:
        shell.run(way, ["true"])
        (tmp_path / "right").write_text("another")
        way = next_way(way)
        refuse(way, at_least_s=0)
    lost = hinder(monkeypatch, Unreachable("mq1", "no answer within 30 s"))
    for count, rest_s in enumerate((60, 60, 600, 1200, 2400), 1):
        way.trial.again_at_s = time.monotonic()
        before_s = time.monotonic()
        with pytest.raises(Unreachable, match="no answer within"):
            shell.run(way, ["true"])
        times = "once" if count == 1 else f"{count} times"
        for each in (way, next_way(way)):
            with pytest.raises(Unreachable, match=f"nothing was heard .*: it was tried {times}, and is tried again"):
                shell.run(each, ["true"])
        assert len(lost) == count
        assert 0 <= way.trial.again_at_s - before_s - rest_s < PATIENCE_S
    monkeypatch.undo()
    (tmp_path / "right").write_text(RIGHT)
    way.trial.again_at_s = time.monotonic()
    assert shell.run(way, ["echo", "x"]).out == b"x\n"


@pytest.mark.parametrize("was_refused", [False, True])
def test_a_try_that_was_not_begun_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, was_refused: bool) -> None:
    """The connection is gone, or has no room for one more command: sudo has not been asked, and is once there is."""
    way = shell_with(tmp_path, RIGHT)
    if was_refused:
        shell.run(way, ["true"])
        (tmp_path / "right").write_text("another")
        way = next_way(way)
        refuse(way, at_least_s=0)
        way.trial.again_at_s = time.monotonic()
    before = way.tried, way.trial.refused, way.trial.again_at_s, way.trial.unheard
    lost = hinder(monkeypatch, NotBegun("mq1", "the connection is gone"))
    for _ in range(shell.UNHEARD_MAX + 1):
        with pytest.raises(Unreachable, match="the connection is gone"):
            shell.run(way, ["true"])
        assert (way.tried, way.trial.refused, way.trial.again_at_s, way.trial.unheard) == before
    assert len(lost) == shell.UNHEARD_MAX + 1
    monkeypatch.undo()
    (tmp_path / "right").write_text(RIGHT)
    assert shell.run(way, ["echo", "x"]).out == b"x\n"


def test_a_command_that_this_machine_cannot_begin_is_not_begun(tmp_path: Path) -> None:
    with pytest.raises(NotBegun, match="Argument list too long"):
        shell_with(tmp_path, RIGHT).run_plain("x" * 2**22, b"", PATIENCE_S)


@pytest.mark.slow
def test_tries_that_nobody_answers_count_from_the_last_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    way = shell_with(tmp_path, RIGHT)
    for _ in range(shell.UNHEARD_MAX):
        (tmp_path / "silent").touch()
        monkeypatch.setattr(shell, "TRIAL_S_MAX", 0.5)
        with pytest.raises(CommandError, match="no answer within"):
            shell.run(next_way(way), ["true"])
        (tmp_path / "silent").unlink()
        monkeypatch.undo()
        way.trial.again_at_s = time.monotonic()
        assert shell.run(next_way(way), ["echo", "x"]).out == b"x\n"


@pytest.mark.slow
def test_a_way_that_has_worked_goes_on_while_another_try_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = shell_with(tmp_path, RIGHT)
    shell.run(way, ["true"])
    (tmp_path / "silent").touch()
    monkeypatch.setattr(shell, "TRIAL_S_MAX", 0.5)
    with pytest.raises(CommandError, match="no answer within"):
        shell.run(next_way(way), ["true"])
    (tmp_path / "silent").unlink()
    assert shell.run(way, ["echo", "x"]).out == b"x\n"


@pytest.mark.slow
def test_a_way_that_has_worked_goes_on_where_sudo_complains_while_another_try_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command may say `sudo:` of something else. The password is tried once more, and that is all."""
    way = shell_with(tmp_path, RIGHT)
    shell.run(way, ["true"])
    for unheard in range(1, shell.UNHEARD_MAX + 1):
        with monkeypatch.context() as patch:
            hinder(patch, Unreachable("mq1", "no answer within 30 s"))
            for _ in range(unheard):
                with pytest.raises(Unreachable, match="no answer within"):
                    shell.run(next_way(way), ["true"])
                way.trial.again_at_s = time.monotonic()
            way.trial.again_at_s = time.monotonic() + shell.AGAIN_S
        with pytest.raises(CommandError, match="unable to resolve"):
            shell.run(way, COMPLAINT)
        assert shell.run(way, ["echo", "x"]).out == b"x\n"
        stream = shell.open_stream(way, COMPLAINT)
        assert stream.recv(65536) == b""
        assert stream.complaint() == "sudo: unable to resolve host mq1"
        stream.close()
        assert shell.run(way, ["echo", "x"]).out == b"x\n"


def test_what_sudo_complains_of_on_one_way_hurries_no_other_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = shell_with(tmp_path, RIGHT)
    shell.run(way, ["true"])
    with monkeypatch.context() as patch:
        hinder(patch, Unreachable("mq1", "no answer within 30 s"))
        with pytest.raises(Unreachable, match="no answer within"):
            shell.run(next_way(way), ["true"])
    with pytest.raises(CommandError, match="unable to resolve"):
        shell.run(way, COMPLAINT)
    (tmp_path / "tried").unlink()
    with pytest.raises(Unreachable, match="it was tried once, and is tried again in"):
        shell.run(next_way(way), ["true"])
    assert tried(tmp_path) == []
    assert shell.run(way, ["echo", "x"]).out == b"x\n"


def test_what_sudo_complains_of_is_tried_once_where_nobody_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = shell_with(tmp_path, RIGHT)
    shell.run(way, ["true"])
    (tmp_path / "right").write_text("another")
    with pytest.raises(CommandError, match="may not act as"):
        shell.run(way, ["true"])
    lost = hinder(monkeypatch, Unreachable("mq1", "no answer within 30 s"))
    for _ in range(3):
        with pytest.raises(Unreachable):
            shell.run(way, ["true"])
    assert len(lost) == 1


def test_a_complaint_waits_for_the_end_of_a_try(tmp_path: Path) -> None:
    """Else whoever looks between the two sees neither an answer nor that one is due, and says that none was heard."""
    way = shell_with(tmp_path, RIGHT)
    shell.run(way, ["true"])
    stream = shell.open_stream(way, ["sh", "-c", "echo 'sudo: x' >&2; exit 1"])
    assert stream.recv(65536) == b""
    with ThreadPoolExecutor(1) as pool:
        with way.trial.lock:
            asked = pool.submit(stream.complaint)
            with pytest.raises(TimeoutError):
                asked.result(0.1)
            assert way.tried is not None
        assert asked.result(PATIENCE_S) == "sudo: x"
    assert way.tried is None
    stream.close()


def test_a_try_that_breaks_off_a_minute_after_a_refusal_is_not_told_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = shell_with(tmp_path, RIGHT)
    shell.run(way, ["true"])
    (tmp_path / "right").write_text("another")
    later = next_way(way)
    refuse(later, at_least_s=0)
    later.trial.again_at_s = time.monotonic()
    hinder(monkeypatch, shell.CommandResult(shell.BROKE_OFF, b"", b""))
    with pytest.raises(Unreachable, match="broke off"):
        shell.run(later, ["true"])
    with pytest.raises(Unreachable, match="tried once, and is tried again in"):
        shell.run(next_way(later), ["true"])


def test_a_refusal_is_told_by_a_way_whose_own_try_broke_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another way has tried it since, and to this one nothing more happens that would be told instead."""
    way = shell_with(tmp_path, "canary wrong")
    with monkeypatch.context() as patch:
        hinder(patch, shell.CommandResult(shell.BROKE_OFF, b"", b""))
        with pytest.raises(Unreachable, match="broke off"):
            shell.run(way, ["true"])
    way.trial.again_at_s = time.monotonic()
    for each in (next_way(way), way, next_way(way)):
        refuse(each)
    assert tried(tmp_path) == ["canary wrong"]


def hinder(monkeypatch: pytest.MonkeyPatch, end: shell.CommandResult | Unreachable) -> list[str]:
    """So ends each try of the password; the commands of those that were made."""
    whole = LocalShell.run_plain
    made: list[str] = []

    def run_plain(one: LocalShell, command: str, stdin: bytes, timeout_s: float) -> shell.CommandResult:
        if not command.endswith("-v"):
            return whole(one, command, stdin, timeout_s)
        made.append(command)
        if isinstance(end, Unreachable):
            raise end
        return end

    monkeypatch.setattr(LocalShell, "run_plain", run_plain)
    return made


def next_way(way: LocalShell) -> LocalShell:
    """Another connection to the same host (pool.py:SshConnector)."""
    one = LocalShell("mq1", way.become)
    one.trial = way.trial
    return one


def refuse(way: LocalShell, at_least_s: float | None = None) -> None:
    """It is refused, and tried again after `at_least_s` at the soonest; None: never."""
    before_s = time.monotonic()
    with pytest.raises(CommandError, match="may not act as"):
        shell.run(way, ["true"])
    at_s = way.trial.again_at_s
    assert at_s is None if at_least_s is None else at_s is not None and at_s - before_s > at_least_s


def test_a_password_that_is_right_no_longer_meets_no_payload(tmp_path: Path) -> None:
    """Between the try and the command somebody may change it."""
    way = shell_with(tmp_path, RIGHT)
    line, prefix = shell.elevated(way, ["cat"])
    (tmp_path / "right").write_text("another")
    assert way.run_plain(line, prefix + PAYLOAD, 30).code == 1
    assert set(tried(tmp_path)) == {RIGHT}


def test_without_a_password_sudo_asks_for_none(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="a password is required"):
        shell.run(shell_with(tmp_path, ""), ["cat"], PAYLOAD)
    assert tried(tmp_path) == []
