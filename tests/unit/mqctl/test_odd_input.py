"""What a command line may hold and hardly ever does: times without an end, words that are not UTF-8."""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest
from mqctl.declare import NARROWING
from mqctl.exits import NAGIOS_UNKNOWN, Exit
from mqctl.main import COMMANDS, execute

from tests.support.admin_stage import AdminStage

NOT_UTF8 = os.fsdecode(b"q\xff")


def run(folder: Path, *words: str) -> int:
    with AdminStage(folder):
        return execute([*words, "--dev", "--directory", str(folder)])


@pytest.mark.parametrize("time", ["inf", "1e300"])
@pytest.mark.parametrize("words", [("send", "q", "body", "--ttl"), ("queue", "stat", "--interval")])
def test_a_time_that_no_clock_holds_is_wrong_usage(
    tmp_path: Path, words: tuple[str, ...], time: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *words, time) == Exit.USAGE
    assert f"'{words[-1]}'" in capfd.readouterr().err


def test_who_waits_without_an_end_gets_what_is_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with AdminStage(tmp_path) as node:
        node.stage.admin("send", address="q", messages=[{"body": "one"}])
        words = ["receive", "q", "--count", "1", "--timeout", "inf", "--dev", "--directory", str(tmp_path)]
        assert execute(words) == Exit.DONE
    assert capfd.readouterr().out == "one\n"


@pytest.mark.parametrize("names", ["", ",", " , ", ":"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("plan", "--limit"), Exit.USAGE),
        (("uninstall", "--yes", "--limit"), Exit.USAGE),
        (("tls", "issue", "--limit"), Exit.USAGE),
        (("queue", "list", "--host"), Exit.USAGE),
        (("check", "-H"), NAGIOS_UNKNOWN),
    ],
)
def test_what_is_to_narrow_a_command_down_and_names_nobody_is_refused(
    words: tuple[str, ...], code: int, names: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """As where the variable of a shell is not set: it would be of all hosts."""
    assert execute([*words, names]) == code
    assert f"{names!r} names no host; nothing was done" in capfd.readouterr().err


def test_each_option_that_narrows_a_command_down_is_looked_at() -> None:
    narrowing = re.compile("Only (this|these) (node|hosts)|The node:")
    for module in COMMANDS.values():
        hints = get_type_hints(import_module(f"mqctl.commands.{module}").Options, include_extras=True)
        for name, hint in hints.items():
            said = [str(getattr(one, "help", "")) for one in getattr(hint, "__metadata__", ())]
            assert name in NARROWING or not any(map(narrowing.match, said)), (module, name)


@pytest.mark.parametrize(
    ("words", "argument"),
    [
        (("send", NOT_UTF8, "body"), "address"),
        (("queue", "create", NOT_UTF8), "name"),
        (("receive", "q", "--selector", f"a = '{NOT_UTF8}'"), "selector"),
    ],
)
def test_a_name_that_is_not_utf8_is_refused_by_name(
    tmp_path: Path, words: tuple[str, ...], argument: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *words) == Exit.FAILED
    assert f"argument '{argument}' has half of a surrogate pair" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "bodies"),
    [
        ((NOT_UTF8, "text"), b"q\xff\ntext\n"),
        ((f"{NOT_UTF8}{{n}}", "--count", "2"), b"q\xff1\nq\xff2\n"),
    ],
)
def test_a_body_that_is_not_utf8_comes_back_as_it_was(
    tmp_path: Path, words: tuple[str, ...], bodies: bytes, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with AdminStage(tmp_path):
        place = ["--dev", "--directory", str(tmp_path)]
        assert execute(["send", "q", *words, *place]) == Exit.DONE
        capfdbinary.readouterr()
        assert execute(["receive", "q", "--timeout", "0", *place]) == Exit.DONE
    assert capfdbinary.readouterr().out == bodies
