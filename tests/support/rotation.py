"""What a run of all takes on one day of three: long stories, slow tests, and files of tests that run real processes.

    @pytest.mark.one_day_in_three(1)  # on days whose number has the rest 1

needs a mark where a story is longer than others of its file. Without one, a third is taken each day of the slow tests
that need no process of their own (by their names), and of the files of tests/system (by theirs: tests of one file share
brokers or hosts), but of EACH_DAY. Quick tests, foreign clients, histories and rollouts on hosts are run each day.
`.ci/checks.py test` says the day, that of the newest commit; without one, and in a part that is called by its name, all
is taken. What is left out on a day is no skip: it is not there. Tables have a third of their rows each day by the same
day (tests/sim/days.py), and whole parts of a run have one of three (.ci/checks.py).
"""

from __future__ import annotations

import os
import re
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pytest

DAY: Final = "CHECKS_DAY"
MARK: Final = "one_day_in_three"
SHARES: Final = 3
DAY_S: Final = 86_400
GIT_S_MAX: Final = 60
# Where slow tests have a day by their names, and where files have one by theirs.
SHARED_BY_NAME: Final = ("tests/unit/", "tests/contract/", "tests/fuzz/", "tests/golden/", "tests/scenarios/")
SHARED_BY_FILE: Final = "tests/system/"
# Parts of a run on their own, with days of their own where they have any (.ci/checks.py), and files of which tables
# have a third of their rows each day: by both, most rows would never be taken.
EACH_DAY: Final = re.compile(
    r"tests/system/(?:rack/.*|\w+/test_\w*rack(?:_\w+)?\.py|broker/test_(?:native|floods)\.py"
    r"|mqctl/test_(?:completion|hosts_that_fall_out|plain_playbooks|playbook)\.py)"
)


def day_of_newest_commit(folder: Path) -> int | None:
    """Days since 1970, of the history that the folder is in; nothing without one."""
    command = ("git", "log", "-1", "--format=%ct")
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=GIT_S_MAX)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return int(done.stdout) // DAY_S if done.returncode == 0 and done.stdout.strip() else None


def day_of_run() -> int | None:
    """What a run of all says; nothing where everything is taken."""
    said = os.environ.get(DAY, "")
    return int(said) if said else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A hook, for conftest.py."""
    today = day_of_run()
    others = {item for item in items if today is not None and is_of_another_day(item, today)}
    if others:
        config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = [item for item in items if item not in others]


def is_of_another_day(item: pytest.Item, today: int) -> bool:
    """Whether its mark, its name or its file says that it is taken on other days."""
    file = item.nodeid.partition("::")[0]
    if mark := item.get_closest_marker(MARK):
        share = mark.args[0]
    elif file.startswith(SHARED_BY_NAME) and item.get_closest_marker("slow"):
        share = _share_of(item.nodeid)
    elif file.startswith(SHARED_BY_FILE) and not EACH_DAY.fullmatch(file):
        share = _share_of(file)
    else:
        return False
    return bool(share != today % SHARES)


def _share_of(name: str) -> int:
    return zlib.crc32(name.encode()) % SHARES
