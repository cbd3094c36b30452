"""Documents point at what exists: relative links with their anchors, and the files and functions that they name."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Where a path in a document may begin, in this order.
BASES = (ROOT, ROOT / "broker/src/mqbroker", ROOT / "cli/src/mqctl")
FENCED = re.compile(r"^ {0,3}(```|~~~).*?^ {0,3}\1[^\n]*$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)(?: {4,}.*(?:\n|\Z))+")
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:")
# `core/store/store.py`, `core/store/store.py:Store.publish`, `tests/sim/`: a relative path with a folder, or a file of
# ours.
NAMED = re.compile(r"((?:[\w.@-]+/)+(?:[\w.@-]+)?|[\w-]+\.(?:py|toml|yml|md))(?::([A-Za-z_][\w.]*))?")
# In docstrings and comments: `node.values.jobs.Job`, core/cluster/arrivals.py, docs/adr/0023-term.md, turns.py.
DOTTED = re.compile(r"`((?:base|config|wire|amqp|journal|core|cluster|node|admin|io|app|client)(?:\.\w+)+)`")
PATH = re.compile(r"(?<![\w/.<>*-])((?:[\w-]+/)*[\w-]+\.(?:py|md))\b")
SOURCES = ("broker/src", "cli/src", "plugins")
# What has the form of a path and is made elsewhere: by a rollout on hosts, or by the user.
NOT_OURS = {"broker.toml", "inventory.yml", "NNNN-name.yml"}
# What mqctl says of a task that changed something: `mq1: changed: broker: Write the unit and the options`.
CHANGED = re.compile(r"^ +\S+: changed: (\w+): (.+?) *$", re.MULTILINE)
TASK = re.compile(r"^ *- name: (.+)$", re.MULTILINE)
NAMING = (
    "docs/ARCHITECTURE.md",
    "CONTRIBUTING.md",
    *(f"docs/adr/{one.name}" for one in sorted(ROOT.glob("docs/adr/*"))),
)


@cache
def documents() -> tuple[str, ...]:
    """Those that are tracked, and those that will be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    return tuple(name for name in listed.splitlines() if (ROOT / name).exists())


def prose(text: str) -> str:
    """The text without blocks of code, which are fenced, or indented after an empty line."""
    return INDENTED.sub("", FENCED.sub("", text))


def anchors(text: str) -> set[str]:
    """The anchors that headings get where Markdown is shown."""
    plain = (re.sub(r"[`*]|\]\([^)]*\)|\[", "", found) for found in HEADING.findall(prose(text)))
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in plain}


def link_faults(document: Path, text: str) -> list[str]:
    """Links that lead nowhere."""
    found = []
    for target in LINK.findall(INLINE.sub("", prose(text))):
        if ELSEWHERE.match(target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists() or not file.is_relative_to(ROOT):
            found.append(f"{target}: there is no such file")
        elif anchor and anchor not in anchors(text if file == document else file.read_text(encoding="utf-8")):
            found.append(f"{target}: {file.name} has no such heading")
    return found


def named_faults(text: str) -> list[str]:
    """Files and functions that are named and do not exist."""
    found = []
    for code in INLINE.findall(prose(text)):
        match = NAMED.fullmatch(code)
        if match is None or code in NOT_OURS:
            continue
        path, name = match[1], match[2]
        files = [base / path for base in BASES if (base / path).exists()]
        if not files:
            found.append(f"{code}: there is no such file")
        elif name and not any(name in names_in(file) for file in files):
            found.append(f"{code}: the file has no such name")
    return found


def source_faults(text: str, beside: Path, names: frozenset[str]) -> list[str]:
    """Modules and files that a source in this folder names and that do not exist; `names` are those of all files."""
    places = (*BASES, beside)
    found = [
        f"{path}: there is no such file"
        for path in PATH.findall(text)
        if not any((base / path).exists() for base in places) and ("/" in path or path not in names)
    ]
    for dotted in DOTTED.findall(text):
        words = dotted.split(".")
        paths = ["/".join(words[:end]) for end in range(1, len(words) + 1)]
        if not any((base / f"{path}.py").exists() for path in paths for base in BASES[1:]):
            found.append(f"{dotted}: there is no such module")
    return found


@cache
def sources() -> tuple[str, ...]:
    """Python of the three products."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *SOURCES]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    return tuple(name for name in listed.splitlines() if name.endswith(".py") and (ROOT / name).exists())


@cache
def task_faults(text: str) -> list[str]:
    """Tasks in output that is shown which their role does not have."""
    shown = dict.fromkeys(CHANGED.findall(text))
    return [f"role {role} has no task {task!r}" for role, task in shown if task not in tasks_of(role)]


@cache
def tasks_of(role: str) -> frozenset[str]:
    """Names of all tasks of a role."""
    files = sorted((ROOT / "roles" / role).glob("tasks/**/*.yml")) + sorted(
        (ROOT / "roles" / role).glob("handlers/*.yml")
    )
    return frozenset(name.strip("'\"") for file in files for name in TASK.findall(file.read_text(encoding="utf-8")))


def names_in(file: Path) -> set[str]:
    """Functions, classes, methods and constants of a module."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return set(_names(tree.body, ""))


def _names(body: list[ast.stmt], prefix: str) -> list[str]:
    found = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(prefix + node.name)
        elif isinstance(node, ast.ClassDef):
            found += [prefix + node.name, *_names(node.body, f"{prefix}{node.name}.")]
        elif isinstance(node, ast.Assign):
            found += [prefix + target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append(prefix + node.target.id)
    return found


@pytest.mark.parametrize("name", documents())
def test_links_lead_somewhere(name: str) -> None:
    assert link_faults(ROOT / name, (ROOT / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", NAMING)
def test_named_files_exist(name: str) -> None:
    assert named_faults((ROOT / name).read_text(encoding="utf-8")) == []


def test_sources_name_files_that_exist() -> None:
    names = frozenset(Path(name).name for name in (*sources(), *documents()))
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in sources()}
    faults = {name: source_faults(text, (ROOT / name).parent, names) for name, text in texts.items()}
    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("see core/store/store.py, store.py and `core.store.store.Store`", ""),
        ("see cluster/arrivals.py", "cluster/arrivals.py: there is no such file"),
        ("see shop.py", "shop.py: there is no such file"),
        ("see adr/0001-runs.md", "adr/0001-runs.md: there is no such file"),
        ("see `node.jobs.Job`", "node.jobs.Job: there is no such module"),
    ],
)
def test_what_a_source_names_and_is_not_there_is_found(text: str, fault: str) -> None:
    assert source_faults(text, ROOT / "broker", frozenset({"store.py"})) == ([fault] if fault else [])


@pytest.mark.parametrize("name", documents())
def test_tasks_in_shown_output_are_those_of_their_roles(name: str) -> None:
    assert task_faults((ROOT / name).read_text(encoding="utf-8")) == []


def test_a_task_that_no_role_has_is_found() -> None:
    shown = ("broker: Let systemd do it", "broker: Let it do systemd", "no: Go")
    text = "".join(f"    mq1: changed: {each}\n" for each in shown)
    faults = ["role broker has no task 'Let it do systemd'", "role no has no task 'Go'"]
    assert task_faults(text) == faults


def test_architecture_names_every_room() -> None:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = sorted(one.parent.name for one in (ROOT / "broker/src/mqbroker").glob("*/__init__.py"))
    assert [room for room in rooms if f"`{room}/`" not in text] == []


def test_decisions_are_numbered_and_have_their_three_parts() -> None:
    pages = sorted((ROOT / "docs/adr").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:04}" for number in range(1, len(pages) + 1)]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text.startswith(f"# {int(page.name[:4])}. "), page.name
        assert HEADING.findall(text)[1:] == ["Context", "Decision", "Consequences"], page.name


def test_pictures_are_well_formed() -> None:
    pictures = sorted(ROOT.glob("docs/**/*.svg"))
    assert pictures
    for picture in pictures:
        root = ElementTree.parse(picture).getroot()
        # Without a title a picture says nothing to who cannot see it.
        assert root.find("{http://www.w3.org/2000/svg}title") is not None, picture.name


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[a](README.md)", ""),
        ("[a](README.md#two-commands)", ""),
        ("[a](https://example.org/x)", ""),
        ("`[a](nowhere.md)`", ""),
        ("[a](nowhere.md)", "nowhere.md: there is no such file"),
        ("[a](../../../etc/passwd)", "../../../etc/passwd: there is no such file"),
        ("[a](README.md#nowhere)", "README.md#nowhere: README.md has no such heading"),
        ("# What's *here*?\n[a](#whats-here)", ""),
    ],
)
def test_faulty_links_are_found(text: str, fault: str) -> None:
    assert link_faults(ROOT / "CONTRIBUTING.md", text) == ([fault] if fault else [])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("`core/store/store.py`", ""),
        ("`core/store/store.py:Store.publish`", ""),
        ("`main.py:COMMANDS`", ""),
        ("`tests/sim/`", ""),
        ("`/opt/mq/current`", ""),
        ("`broker.toml`", ""),
        ("`core/shop.py`", "core/shop.py: there is no such file"),
        ("`tests/dim/`", "tests/dim/: there is no such file"),
        ("`core/store/store.py:Store.perish`", "core/store/store.py:Store.perish: the file has no such name"),
    ],
)
def test_faulty_names_are_found(text: str, fault: str) -> None:
    assert named_faults(text) == ([fault] if fault else [])
