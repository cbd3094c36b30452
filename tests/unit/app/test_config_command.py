"""`mqbroker config`, `version` and the entry itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mqbroker import __version__
from mqbroker.app import exits
from mqbroker.app.main import COMMANDS, main
from mqbroker.base.native import NATIVE
from mqbroker.config.declarations import reference

from tests.support.patience import PATIENCE_S


def toml(directory: Path, name: str, text: str) -> str:
    file = directory / name
    file.write_text(text)
    return str(file)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == exits.DONE
    assert capsys.readouterr().out == f"{__version__}\nnative: {NATIVE}\n"


def test_version_says_which_formats_of_journals_it_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--json"]) == exits.DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["journal_formats_read"]) == (__version__, [1, 2])
    assert found["journal_format_written"] == 1
    words = ("knows_moved_rings", "knows_drains", "knows_unfinished_restores")
    assert [found[word] for word in words] == [True] * 3


def test_help_names_commands_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(name in shown for name in COMMANDS)
    assert "identity adopt" in shown


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"mqbroker {command}" in capsys.readouterr().out


@pytest.mark.slow
def test_nothing_to_do_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == exits.USAGE
    assert "usage: mqbroker" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["nonsense"], ["config"], ["config", "nonsense"], ["users", "set", "x"]])
def test_wrong_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == exits.USAGE


def test_light_commands_do_not_load_the_broker() -> None:
    code = "import sys; from mqbroker.app.main import main; main(['version']); print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.splitlines() == [__version__, f"native: {NATIVE}", "False"]


def test_check_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ('[node]\nname = "a"\n', "# end of broker.toml", "# all defaults\n\n# end of broker.toml\n\n"):
        assert main(["config", "check", toml(tmp_path, "broker.toml", text)]) == exits.DONE
        assert "good" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "\n \n", "# options of mine\n", "# end of broker.toml\n# or not\n"])
def test_a_file_that_sets_nothing_may_have_been_emptied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    """Whoever starts with it would be another node, with other listeners and no permissions."""
    file = toml(tmp_path, "broker.toml", text)
    for words in (["config", "check", file], ["run", "--config", file]):
        assert main(words) == exits.FAILED
        assert "sets no option, so it may have been emptied" in capsys.readouterr().err


def test_check_reads_no_more_than_options_may_have(capsys: pytest.CaptureFixture[str]) -> None:
    # It has no end, as a log in the place of the options may have none that memory can hold.
    assert main(["config", "check", "/dev/zero"]) == exits.FAILED
    assert "is longer than 1048576 characters" in capsys.readouterr().err


def test_check_of_what_comes_through_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    reader, writer = os.pipe()
    os.write(writer, b'[node]\nname = "piped"\n')
    os.close(writer)
    try:
        assert main(["config", "check", f"/dev/fd/{reader}"]) == exits.DONE
    finally:
        os.close(reader)
    assert "good, node piped" in capsys.readouterr().out


def test_check_reports_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = toml(tmp_path, "broker.toml", "[limits]\nlink-credit = 0\nqueues-max = 0\n")
    assert main(["config", "check", "--config", file]) == exits.FAILED
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        f"mqbroker: {file}: limits.link-credit: must be at least 1, is 0",
        f"mqbroker: {file}: limits.queues-max: must be at least 1, is 0",
    ]


def test_check_of_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", str(tmp_path / "none.toml")]) == exits.FAILED
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("new", "code", "first"),
    [
        ("", exits.DONE, "none"),
        ('[node]\nlog-format = "json"\n', exits.DIFFERENT, "reload"),
        ("[limits]\nlink-credit = 1\n", exits.DIFFERENT, "restart"),
    ],
)
def test_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str], new: str, code: int, first: str) -> None:
    files = [toml(tmp_path, "old.toml", ""), toml(tmp_path, "new.toml", new)]
    assert main(["config", "diff", *files]) == code
    assert capsys.readouterr().out.splitlines()[0] == first
    assert main(["config", "diff", "--json", *files]) == code
    assert json.loads(capsys.readouterr().out)["verdict"] == first


def test_diff_against_an_old_file_that_cannot_be_used_is_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = toml(tmp_path, "new.toml", "")
    for old in (str(tmp_path / "none.toml"), toml(tmp_path, "old.toml", "[gone]\n")):
        assert main(["config", "diff", old, new]) == exits.DIFFERENT
        assert capsys.readouterr().out.startswith("restart\n")


def test_diff_to_a_bad_file_fails(tmp_path: Path) -> None:
    files = [toml(tmp_path, "old.toml", ""), toml(tmp_path, "new.toml", "[gone]\n")]
    assert main(["config", "diff", *files]) == exits.FAILED


def test_reference_and_schema_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "reference"]) == exits.DONE
    assert capsys.readouterr().out == reference.markdown()
    assert main(["config", "schema"]) == exits.DONE
    assert json.loads(capsys.readouterr().out) == reference.schema()


@pytest.mark.slow
def test_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m mqbroker.app.main config reference | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "Traceback" not in done.stderr


def test_check_finds_a_filter_of_a_divert_that_is_no_selector(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = '[[diverts]]\nname = "d"\naddress = "orders"\nforwarding-address = "audit"\n'
    assert main(["config", "check", "--config", toml(tmp_path, "good.toml", head + 'filter = "x = 1"')]) == exits.DONE
    capsys.readouterr()
    assert main(["config", "check", "--config", toml(tmp_path, "bad.toml", head + 'filter = "x = = 1"')]) != exits.DONE
    assert "diverts.0.filter" in capsys.readouterr().err
