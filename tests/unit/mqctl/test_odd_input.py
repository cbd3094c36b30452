"""What a command line may hold and hardly ever does: times without an end, words that are not UTF-8."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from mqctl.exits import Exit
from mqctl.main import execute

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
