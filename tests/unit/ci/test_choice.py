"""Which tests a change calls for, and that a run with the option takes those and no others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.choice import ALWAYS, PLAYERS, ROOMS, SINCE, changed, chosen
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
FILES = {
    "tests/contract/test_tidy.py": "",
    "tests/unit/core/queue/test_dispatch.py": "from mqbroker.core.queue.dispatch import Dispatch\n",
    "tests/unit/core/queue/test_ring.py": "import os\n",
    "tests/unit/core/address/test_creation.py": "from mqbroker.core.address.creation import Creation\n",
    "tests/unit/amqp/test_unsettled.py": "",
    "tests/unit/journal/test_groups.py": "",
    "tests/unit/cluster/test_topology.py": "",
    "tests/unit/io/disk/test_disk.py": "def test_it():\n    from mqbroker.core.queue import dispatch\n",
    "tests/unit/node/test_turns.py": "from tests.support import (\n    nodes,\n    patience,\n)\n",
    "tests/unit/node/test_posts.py": "import tests.support.posts as posts\n",
    "tests/unit/admin/test_moves.py": "from mqbroker.admin.moves import move\n",
    "tests/support/nodes.py": "from mqbroker.core.queue.dispatch import (\n    Dispatch,\n)\n",
    "tests/support/posts.py": "from tests.support.nodes import Node\n",
    "tests/unit/mqctl/test_plan.py": "from mqctl.plan.plan import Plan\n",
    "tests/unit/plugins/test_operation.py": "",
    "tests/unit/plugins/conftest.py": "from tests.support.posts import Post\n",
}
DISPATCH = "broker/src/mqbroker/core/queue/dispatch.py"
OF_DISPATCH = {
    "test_dispatch.py", "test_ring.py", "test_disk.py", "test_turns.py", "test_posts.py", "test_operation.py",
}  # fmt: skip
OF_QUEUES = {"test_dispatch.py", "test_ring.py", "test_disk.py"}
OF_NODES = {"test_turns.py", "test_posts.py", "test_moves.py"}
# `tests` is another package there, so that the module is read as a file.
CONFTEST = """\
import importlib.util
from pathlib import Path
spec = importlib.util.spec_from_file_location("choice", {file!r})
choice = importlib.util.module_from_spec(spec)
spec.loader.exec_module(choice)
choice.ROOT = Path(__file__).parent
pytest_addoption = choice.pytest_addoption
def pytest_configure(config): choice.choose(config)
"""


def names(paths: list[str], *, is_landing: bool = False) -> set[str] | None:
    """Without folders, and without those that are always taken."""
    found = chosen(paths, FILES, is_landing=is_landing)
    return None if found is None else {path.rpartition("/")[2] for path in found if not path.startswith(ALWAYS)}


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        (DISPATCH, {*OF_DISPATCH, "nodes.py", "posts.py", "conftest.py"}),
        ("broker/src/mqbroker/core/address/creation.py", {"test_creation.py"}),
        ("broker/src/mqbroker/core/queue/__init__.py", {"test_dispatch.py", "test_ring.py", "test_disk.py"}),
        ("broker/src/mqbroker/core/paging/pages.py", {"test_dispatch.py", "test_ring.py", "test_creation.py"}),
        ("broker/src/mqbroker/node/broker/broker.py", {"test_turns.py", "test_posts.py"}),
        ("broker/src/mqbroker/base/look.py", {path.rpartition("/")[2] for path in FILES} - {"test_tidy.py"}),
        ("cli/src/mqctl/plan/plan.py", {"test_plan.py"}),
        ("roles/broker/tasks/main.yml", {"test_plan.py", "test_operation.py", "conftest.py"}),
        ("tests/support/posts.py", {"test_posts.py", "posts.py", "test_operation.py", "conftest.py"}),
        ("tests/support/nodes.py", {*OF_DISPATCH - OF_QUEUES, "nodes.py", "posts.py", "conftest.py"}),
        ("tests/unit/io/disk/test_disk.py", {"test_disk.py"}),
        ("tests/unit/plugins/conftest.py", {"test_operation.py", "conftest.py"}),
        ("broker/src/mqbroker/client/sender.py", {"test_plan.py"}),
        (
            "broker/src/mqbroker/config/inventory/tables.py",
            {path.rpartition("/")[2] for path in FILES} - {"test_tidy.py"},
        ),
        ("docs/CLIENTS.md", set()),
        ("pyproject.toml", None),
        ("broker/pyproject.toml", None),
    ],
)  # fmt: skip
def test_a_change_calls_for_its_room_and_for_what_needs_it(path: str, taken: set[str] | None) -> None:
    assert names([path]) == taken
    assert names(["docs/CLIENTS.md", path]) == taken
    assert "tests/contract/test_tidy.py" in (chosen([path], FILES) or FILES)


@pytest.mark.parametrize(
    ("path", "besides"),
    [
        (DISPATCH, OF_NODES),
        ("broker/src/mqbroker/amqp/unsettled.py", OF_NODES),
        ("broker/src/mqbroker/journal/plan.py", OF_NODES),
        ("broker/src/mqbroker/cluster/topology.py", OF_NODES),
        ("broker/src/mqbroker/node/broker/broker.py", OF_NODES),
        ("broker/src/mqbroker/io/disk/disk.py", set()),
        ("broker/src/mqbroker/admin/health.py", set()),
        ("cli/src/mqctl/plan/plan.py", set()),
        ("docs/CLIENTS.md", set()),
    ],
)
def test_before_a_landing_whole_nodes_are_played_with_what_they_consist_of(path: str, besides: set[str]) -> None:
    assert names([path], is_landing=True) == (names([path]) or set()) | besides


def test_of_the_tests_that_there_are_each_room_has_its_own() -> None:
    files = {str(file.relative_to(ROOT)): file.read_text() for file in (ROOT / "tests").rglob("*.py")}
    for row in (*PLAYERS, *(row for rows in ROOMS.values() for row in rows if "{" not in row)):
        assert any(path.startswith(row) for path in files), row
    dispatch = chosen([DISPATCH], files)
    assert dispatch is not None
    assert {path for path in files if path.startswith("tests/unit/core/queue/")} < dispatch
    assert not any(path.startswith(("tests/unit/mqctl/", "tests/unit/wire/")) for path in dispatch)
    assert len(chosen(["docs/CLIENTS.md"], files) or files) < len(files) / 4
    assert chosen(["broker/src/mqbroker/base/errors.py"], files) == set(files), "all need it"


def git(place: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.invalid", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=place, check=True, capture_output=True, timeout=PATIENCE_S)


@pytest.mark.slow
def test_what_changed_is_what_differs_from_the_branch_that_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And from the commit before, where there is nothing besides; new files, and those that are gone, are changes."""
    monkeypatch.delenv(SINCE, raising=False)
    assert changed(tmp_path) is None, "no history"
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "one").write_text("1")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    assert changed(tmp_path) is None, "no commit before it"
    (tmp_path / "two").write_text("2")
    (tmp_path / "one").unlink()
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "two")
    assert changed(tmp_path) == ["one", "two"]
    (tmp_path / "new").write_text("")
    assert changed(tmp_path) == ["one", "two", "new"]
    git(tmp_path, "checkout", "-qb", "work", "--track", "main")
    assert changed(tmp_path) == ["one", "two", "new"], "where that branch is, the commit before counts"
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "three")
    (tmp_path / "two").write_text("3")
    assert changed(tmp_path) == ["new", "two"]
    git(tmp_path, "branch", "--unset-upstream")
    git(tmp_path, "commit", "-qam", "four")
    assert changed(tmp_path) == ["new", "two"], "all since it left main, where it follows nothing"
    git(tmp_path, "branch", "-m", "main", "other")
    assert changed(tmp_path) == ["two"]
    monkeypatch.setenv(SINCE, "other^")
    assert changed(tmp_path) == ["new", "one", "two"]
    monkeypatch.setenv(SINCE, "nobody")
    assert changed(tmp_path) is None, "what cannot be told takes all"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "option", "besides"),
    [("0", "--of-changes", set()), ("2", "--of-changes", set()), ("2", "--of-landing", {"test_moves.py"})],
)
def test_a_run_takes_what_changes_call_for(tmp_path: Path, processes: str, option: str, besides: set[str]) -> None:
    for path, text in FILES.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        tested = "def test_it(): pass\n" if "/test_" in path else ""
        file.write_text(re.sub(r"^(from|import) (?!os)", r"if False:\n    \g<0>", text, flags=re.MULTILINE) + tested)
    (tmp_path / "conftest.py").write_text(CONFTEST.format(file=str(ROOT / "tests/support/choice.py")))
    (tmp_path / ".gitignore").write_text("__pycache__/\n")  # as here; not everybody has Python keep it elsewhere
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    (tmp_path / DISPATCH).parent.mkdir(parents=True)
    (tmp_path / DISPATCH).write_text("")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "two")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-n", processes, "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path,
         "-p", "no:cacheprovider", f"--override-ini=pythonpath={ROOT}", option, "tests"],
        env={**os.environ, "PYTEST_ADDOPTS": "", SINCE: ""}, cwd=tmp_path, capture_output=True, text=True,
        timeout=5 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(OF_DISPATCH | besides) + 1} passed" in done.stdout
    assert set(re.findall(r"(\w+\.py)::test_it", done.stdout)) == {*OF_DISPATCH, *besides, "test_tidy.py"}
    assert f"of changes: {10 + len(besides)} files of tests; all: make test" in done.stdout
