"""The first selector of a process makes nobody wait: what reads it was prepared while the broker had nothing to do."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S
from tests.support.processor import loop_ns

MOST_NS = 60_000_000  # it took 150 ms, and takes 2


def used_ticks(broker: BrokerProcess) -> int:
    """Processor time of all threads."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wait_until_idle(broker: BrokerProcess) -> None:
    """Nothing is left to do of the start."""
    deadline_s = time.monotonic() + PATIENCE_S
    before = -1
    while (now := used_ticks(broker)) > before + 1 and time.monotonic() < deadline_s:
        before = now
        time.sleep(0.5)


def test_the_first_selector_takes_no_longer_than_others(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, is_executed=True) as broker:
        broker.admin("queue-create", name="orders")
        wait_until_idle(broker)
        before = loop_ns(broker.pid)
        assert broker.admin("browse", queue="orders", selector="colour = 'blue'")["messages"] == []
        assert loop_ns(broker.pid) - before < MOST_NS
