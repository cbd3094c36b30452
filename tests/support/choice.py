"""Which tests a change calls for: `make check` takes those (`--of-changes`), a run of all takes everything.

What changed is what differs from the commit that `SINCE` names; without it, from where this branch left the one that it
follows, or else `main`; and where it has left neither, from the commit before. Files that git does not know yet are
changes too. A file of tests is taken where

- it, something in tests/ that it imports, or a conftest.py around it was changed, or imports a module that was;
- it stands in the folder of a room of which a module was changed (`tests/unit/core/queue/` of `core/queue/ring.py`);
- it looks at all files, or plays whole conversations (ALWAYS);
- it plays whole nodes (PLAYERS), and a module of a room that these consist of was changed (PLAYED): before a landing
  only (`--of-landing`), because all of those take longer than anybody waits after each change.

A change of anything that no row of ROOMS names, as of a lock file, takes everything; and so does no history.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
OPTION: Final = "--of-changes"
OPTION_AT_LANDING: Final = "--of-landing"
SINCE: Final = "SINCE"  # in the environment: what is compared with
ALWAYS: Final = ("tests/contract/", "tests/golden/", "tests/scenarios/")
# Where a change begins with this -> folders of tests that are taken for it; `{room}` is where the file stands in there.
ROOMS: Final[Mapping[str, tuple[str, ...]]] = {
    **{f"broker/src/mqbroker/{low}/": ("tests/",) for low in ("base", "config", "wire")},  # all rooms stand on these
    "broker/src/mqbroker/client/": ("tests/unit/client/", "tests/unit/mqctl/"),
    "broker/src/mqbroker/": ("tests/unit/{room}",),
    "cli/src/mqctl/": ("tests/unit/mqctl/",),
    "plugins/": ("tests/unit/plugins/", "tests/unit/mqctl/"),
    "roles/": ("tests/unit/plugins/", "tests/unit/mqctl/"),
    "playbooks/": ("tests/unit/plugins/", "tests/unit/mqctl/"),
    "molecule/rack/": ("tests/unit/rack/",),
    "molecule/": (),
    "bench/": ("tests/unit/bench/",),
    "demo/": ("tests/unit/demo/",),
    ".ci/": ("tests/unit/ci/",),
    "gen/": (),
    "docs/": (),
    "changelogs/": (),
    "CONTRIBUTING.md": (),
    "README.md": (),
    "tests/": (),
}
# Few of these import what was changed: they meet it in a node that they run.
PLAYED: Final = tuple(f"broker/src/mqbroker/{room}/" for room in ("amqp", "journal", "core", "cluster", "node"))
PLAYERS: Final = ("tests/unit/node/", "tests/unit/admin/")
IMPORT: Final = re.compile(r"^[ \t]*(?:from ([\w.]+) import ([^\n#(]+|\([^)]*\))|import ([\w., ]+))", re.MULTILINE)
PACKAGES: Final = {"broker/src/": "mqbroker", "cli/src/": "mqctl", "": "tests"}
LIMIT_S: Final = 60.0


def changed(root: Path) -> list[str] | None:
    """Paths below `root` that were changed, moved or deleted; nothing where git cannot say."""
    differing = _git(root, "diff", "--name-only", "--no-renames", os.environ.get(SINCE) or _base(root))
    unknown = _git(root, "ls-files", "--others", "--exclude-standard")
    return None if differing is None or unknown is None else [*differing.splitlines(), *unknown.splitlines()]


def _base(root: Path) -> str:
    head = _git(root, "rev-parse", "HEAD")
    left = (_git(root, "merge-base", "HEAD", followed) for followed in ("@{upstream}", "main"))
    return next((base.strip() for base in left if base is not None and base != head), "HEAD^")


def chosen(paths: Iterable[str], files: Mapping[str, str], *, is_landing: bool = False) -> set[str] | None:
    """Those of `files` (path -> text; all of tests/) that a change of `paths` calls for; nothing: all of them."""
    folders, touched = set(ALWAYS), set[str]()
    for path in paths:
        if (prefix := next((one for one in ROOMS if path.startswith(one)), None)) is None:
            return None
        folders.update(_folder(row, path.removeprefix(prefix), files) for row in ROOMS[prefix])
        touched.update(_modules(path))
        if is_landing and path.startswith(PLAYED):
            folders.update(PLAYERS)
    needed = {path: _imported(text) for path, text in files.items()}
    own = {path: _modules(path) for path in files}
    while more := {name for path, names in needed.items() if names & touched for name in own[path] - touched}:
        touched |= more
    taken = {path for path in files if path.startswith(tuple(folders)) or touched & (needed[path] | own[path])}
    around = tuple(path.removesuffix("conftest.py") for path in taken if path.endswith("/conftest.py"))
    return taken | {path for path in files if path.startswith(around)}


def _folder(row: str, rest: str, files: Mapping[str, str]) -> str:
    """The folder of tests of a room, or of the nearest one around it that has any."""
    room = rest
    while "/" in room:
        room = room.rpartition("/")[0]
        if any(path.startswith(folder := row.format(room=f"{room}/")) for path in files):
            return folder
    return row.format(room="")


def _modules(path: str) -> set[str]:
    """The name by which a file is imported, if it is one; of a package, that of its folder."""
    prefix = next((one for one, name in PACKAGES.items() if path.startswith(f"{one}{name}/")), None)
    if prefix is None or not path.endswith(".py"):
        return set()
    return {path.removeprefix(prefix).removesuffix(".py").removesuffix("/__init__").replace("/", ".")}


def _imported(text: str) -> set[str]:
    """What it imports, and what that may be a module of: `from a.b import c` needs a.b, and a.b.c where that is one."""
    found = set[str]()
    for module, names, plain in IMPORT.findall(text):
        found.update(one.split(" as ")[0].strip() for one in plain.split(",") if one.strip())
        if module:
            found.add(module)
            found.update(f"{module}.{name}" for name in re.findall(r"\w+", names))
    return found


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


# -- hooks of pytest, for tests/conftest.py ----------------------------------------------------------------------------


class OfChanges:
    """Leaves out files that no change calls for. Processes of one run have the choice of the one that began it."""

    def __init__(self, root: Path, taken: set[str] | None) -> None:
        self.root = root
        self.taken = taken

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Nothing is said of folders, of files that are taken, and of what is no file of this project."""
        is_own = collection_path.suffix == ".py" and collection_path.is_relative_to(self.root)
        if self.taken is None or not is_own:
            return None
        return str(collection_path.relative_to(self.root)) not in self.taken or None

    def pytest_configure_node(self, node: object) -> None:
        """A hook of pytest-xdist: `node` is what a process gets along."""
        vars(node)["workerinput"]["taken"] = None if self.taken is None else sorted(self.taken)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Said at the end, so that nobody takes a part for all."""
        taken = "all" if self.taken is None else len(self.taken)
        terminalreporter.write_line(f"of changes: {taken} files of tests; all: make test")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    parser.addoption(OPTION, action="store_true", help="only tests that what was changed calls for")
    parser.addoption(OPTION_AT_LANDING, action="store_true", help="as that, and those that play whole nodes with it")


def choose(config: pytest.Config) -> None:
    """Make the choice where it is wanted."""
    is_landing = bool(config.getoption(OPTION_AT_LANDING))
    if not is_landing and not config.getoption(OPTION):
        return
    told = vars(config).get("workerinput")
    if told is not None:
        taken = None if told["taken"] is None else set(told["taken"])
    else:
        paths = changed(ROOT)
        files = {str(file.relative_to(ROOT)): file.read_text() for file in sorted((ROOT / "tests").rglob("*.py"))}
        taken = None if paths is None else chosen(paths, files, is_landing=is_landing)
    config.pluginmanager.register(OfChanges(ROOT, taken), "of-changes")
