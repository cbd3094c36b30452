"""Which modules are broken in small ways, and which tests are to notice each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ROOT / "broker" / "src" / "mqbroker"
KNOWN: Final = Path(__file__).with_name("equivalent.toml")
Tests = tuple[str, ...]
# Quick tests, and slow ones for what those let pass.
JOURNAL: Final = (
    ("tests/unit/journal", "tests/unit/core/store/test_store.py", "tests/unit/core/address/test_duplicates.py"),
    ("tests/unit/core/paging/test_paging.py", "tests/unit/core/queue/test_pages.py"),
    ("tests/crash/test_settling.py", "tests/crash/test_crash_points.py"),
)
CLUSTER: Final = (
    (
        "tests/unit/core/cluster/test_arrivals.py",
        "tests/unit/core/cluster/test_forwarding.py",
        "tests/unit/core/queue/test_unanswered_forwards.py",
        "tests/unit/core/queue/test_id_ranges.py",
        "tests/unit/core/cluster/test_marks.py",
        "tests/unit/node/cluster/membership/test_forwards.py",
        "tests/unit/node/test_forwards_beyond.py", "tests/unit/node/test_unanswered.py",
        "tests/unit/node/test_old_journals.py", "tests/unit/node/test_marks_on_links.py",
        "tests/unit/node/test_expiry_between_nodes.py",
    ),
    ("tests/golden", "tests/sim/test_clusters.py", "tests/sim/test_old_copies.py"),
)  # fmt: skip
DISK: Final = (
    ("tests/unit/io/disk/test_disk.py",),
    ("tests/crash/test_settling.py", "tests/crash/test_large_points.py", "tests/crash/test_crash_points.py"),
)
BY_TURNS: Final = (
    ("tests/unit/core/address/test_overdue.py", "tests/unit/core/address/test_purged_messages.py"),
    ("tests/unit/node/test_expiry_between_nodes.py", "tests/unit/node/test_time.py"),
    (
        "tests/unit/node/test_bystander_work.py",
        "tests/unit/core/queue/test_queue.py",
        "tests/unit/node/test_flood_work.py",
    ),
)
POSTS: Final = (
    ("tests/unit/node/test_gathered_posts.py", "tests/unit/core/store/test_transaction.py"),
    ("tests/unit/node/test_transactions_by_turns.py", "tests/unit/node/amqp/peers/test_coordinator.py"),
    ("tests/unit/node/test_transaction_crash.py",),
)
# By module: the tests that are to notice.
MODULES: Final = {
    **{f"journal/{name}": JOURNAL for name in (
        "damage", "duplicates", "entry", "format", "ledger", "message_records", "places", "plan", "ranges", "rebuild",
        "records", "recover", "recovered",
    )},
    **{f"core/cluster/{name}": CLUSTER for name in ("arrivals", "forwarding", "marks")},
    **{f"core/queue/{name}": CLUSTER for name in ("id_ranges", "unanswered_forwards")},
    **dict.fromkeys(("node/cluster/forwarding/abandoned_messages", "node/cluster/membership/forwards"), CLUSTER),
    "core/address/gathering": POSTS,
    **dict.fromkeys(("core/address/overdue", "core/address/purged_messages", "node/broker/chores"), BY_TURNS),
    "io/disk/disk": DISK,
}  # fmt: skip


def tests_of(module: str) -> tuple[Tests, ...]:
    """Those that are to notice, the quickest first: its own."""
    room, _, name = module.rpartition("/")
    own = f"tests/unit/{room}/test_{name}.py"
    return ((own,), *MODULES[module]) if (ROOT / own).exists() else MODULES[module]
