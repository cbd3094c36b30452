"""Commands that the documents show exist: targets of make, commands of mqctl, mqbroker and rack, files that are run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer
from mqctl.main import make_app

ROOT = Path(__file__).resolve().parents[2]
RACK = ROOT / "molecule" / "rack" / "rack"
FENCE = re.compile(r"^ {0,3}(```|~~~)[^\n]*\n(.*?)^ {0,3}\1", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^ {4}\$ (.*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")
OPTION_OR_VALUE = re.compile(r"-|.*[^a-z-]")


def documents() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split() if (ROOT / name).exists()]


def commands(text: str) -> Iterator[list[str]]:
    """Everything that looks like one of our command lines: from blocks, from lines with a prompt, and in the text."""
    blocks = [line for found in FENCE.finditer(text) for line in found[2].splitlines()]
    lines = [*blocks, *INDENTED.findall(text), *INLINE.findall(FENCE.sub("", text))]
    for line in lines:
        for part in re.split(r"&&|;|\||\brack enter(?: --name \S+)? -- ", line.removeprefix("$ ").strip()):
            try:
                words = shlex.split(part, comments=True)
            except ValueError:
                continue
            while words and (ASSIGNMENT.fullmatch(words[0]) or words[0] in {"sudo", "$"}):
                words = words[1:]
            if words:
                yield words


def wrong(words: list[str]) -> str:
    """Why the command cannot be as it is shown; nothing if it can, or if it is none of ours."""
    program, rest = Path(words[0]).name, words[1:]
    if program == "make":
        targets = [word for word in rest if not word.startswith("-") and "=" not in word]
        return next((f"make has no target {one}" for one in targets if one not in make_targets()), "")
    if program == "mqctl":
        return path_fault(rest, mqctl_commands())
    if program == "mqbroker":
        return path_fault(rest, broker_commands())
    if program == "rack":
        return path_fault(rest, rack_commands())
    # A name with a slash at its end is a folder, which may be one that a run makes.
    if words[0].startswith((".ci/", "./.ci/", "molecule/", "./molecule/", "demo/", "bench/")) and words[0][-1] != "/":
        return "" if (ROOT / words[0]).exists() else f"there is no {words[0]}"
    return ""


def path_fault(rest: list[str], known: set[tuple[str, ...]]) -> str:
    """Compare the words before the first option or value with the commands; `dev up|down` names two."""
    if not rest or OPTION_OR_VALUE.match(rest[0].split("|")[0]):
        return ""
    first = [one for one in rest[0].split("|") if one]
    seconds = rest[1].split("|") if len(rest) > 1 else []
    for one in first:
        group = {path for path in known if path[0] == one}
        if not group:
            return f"there is no command {one}"
        if (one,) in group:
            continue
        for second in seconds:
            if not OPTION_OR_VALUE.match(second) and (one, second) not in group:
                return f"there is no command {one} {second}"
    return ""


@cache
def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text()
    named = re.findall(r"^([a-z][a-z -]*):(?!=)", text, re.MULTILINE)
    return {target for names in named for target in names.split()}


@cache
def mqctl_commands() -> set[tuple[str, ...]]:
    app = make_app()
    found: set[tuple[str, ...]] = {(str(one.name),) for one in app.registered_commands}
    for group in app.registered_groups:
        assert isinstance(group.typer_instance, typer.Typer)
        found |= {(str(group.name), str(one.name)) for one in group.typer_instance.registered_commands}
    return found


@cache
def broker_commands() -> set[tuple[str, ...]]:
    return helped([sys.executable, "-m", "mqbroker.app.main"])


@cache
def rack_commands() -> set[tuple[str, ...]]:
    return helped([str(RACK)])


def helped(program: list[str]) -> set[tuple[str, ...]]:
    """Commands that --help lists, two words deep."""
    found: set[tuple[str, ...]] = set()
    for one in choices(program):
        below = choices([*program, one]) if program != [str(RACK)] else set()
        found |= {(one, second) for second in below} or {(one,)}
    return found


def choices(program: list[str]) -> set[str]:
    said = subprocess.run([*program, "--help"], capture_output=True, text=True, timeout=290, check=True).stdout
    listed = re.search(r"\{([a-z0-9,-]+)\}", said)
    lines = re.findall(r"^ {2,4}([a-z][a-z-]+)(?: {2,}|$)", said, re.MULTILINE)
    if listed:
        return set(listed[1].split(","))
    # Without a word for a command in its usage, what looks like a list of commands are arguments.
    usage = said.partition("\n\n")[0]
    return set(lines) if "COMMAND" in usage or "ACTION" in usage else set()


@pytest.mark.slow
@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_exist(document: Path) -> None:
    faults = [f"{' '.join(words)}: {why}" for words in commands(document.read_text()) if (why := wrong(words))]
    assert faults == []


@pytest.mark.slow
def test_what_is_known_is_really_read() -> None:
    """An empty list of commands would let every document pass, or none."""
    assert {"demo", "test", "check", "soak", "bench", "gen"} <= make_targets()
    assert {("rollout",), ("dev", "up"), ("bundle", "build")} <= mqctl_commands()
    assert {("run",), ("config", "check"), ("users", "set"), ("identity", "init")} <= broker_commands()
    assert {("up",), ("kill",), ("destroy",)} <= rack_commands()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("make tea", "make has no target tea"),
        ("KEEP=1 make demo", ""),
        ("sudo make soak MINUTES=5", ""),
        ("mqctl roll out", "there is no command roll"),
        ("mqctl dev sideways", "there is no command dev sideways"),
        ("mqctl dev up|down|status", ""),
        ("mqctl rollout -i inventory.yml", ""),
        ("mqctl …", ""),
        ("mqbroker users forget", "there is no command users forget"),
        ("mqbroker run --config broker.toml", ""),
        ("./rack explode mq1", "there is no command explode"),
        ("rack enter -- mqctl stats", "there is no command stats"),
        (".ci/walk", "there is no .ci/walk"),
        (".ci/run", ""),
    ],
)
def test_faults_are_found(line: str, fault: str) -> None:
    found = [why for words in commands(f"```\n$ {line}\n```\n") if (why := wrong(words))]
    assert found == ([fault] if fault else [])
