"""Steps, commands and what becomes of those that fail."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from demo.narrator import LINES_MAX, Call, DoesNotHold, Narrator


def python(source: str, **how: object) -> Call:
    return Call([sys.executable, "-c", source], **how)  # type: ignore[arg-type]


def test_a_command_is_shown_with_what_it_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    narrator = Narrator(tmp_path)
    narrator.step("First")
    said = narrator.run(python("print('done')", shown="mqctl status"))
    assert (said.out, said.code) == ("done\n", 0)
    printed = capsys.readouterr().out
    assert "1. First\n" in printed
    assert printed.endswith("    $ mqctl status\n    done\n")


def test_standard_input_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Narrator(tmp_path).run(python("print(len(input()))", stdin="canary-secret\n", shown="login"))
    assert said.out == "13\n"
    assert "canary-secret" not in capsys.readouterr().out


def test_an_exit_code_that_is_not_expected_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DoesNotHold, match=r"`mqctl plan` ended with exit code 3\.") as failed:
        Narrator(tmp_path).run(python("print('why'); raise SystemExit(3)", shown="mqctl plan", quiet=True))
    assert "canary" not in str(failed.value)
    assert "why" in capsys.readouterr().out, "a quiet command that fails shows what it said"


def test_an_expected_exit_code_is_none(tmp_path: Path) -> None:
    assert Narrator(tmp_path).run(python("raise SystemExit(3)", codes=(0, 3), quiet=True)).code == 3


def test_a_command_that_hangs_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DoesNotHold, match=r"`sleep` was not done after 0\.2 s\."):
        Narrator(tmp_path).run(python("import time; time.sleep(60)", shown="sleep", time_s_max=0.2))


def test_a_program_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DoesNotHold, match=r"/no/such/program cannot be run: No such file or directory\."):
        Narrator(tmp_path).run(Call(["/no/such/program"]))


def test_long_output_is_cut_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Narrator(tmp_path).run(python(f"print('line\\n' * {LINES_MAX + 5})"))
    assert "… 5 more lines" in capsys.readouterr().out
