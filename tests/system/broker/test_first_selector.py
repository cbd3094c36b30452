"""The first selector of a process makes nobody wait: what reads it was prepared while the broker had nothing to do."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S
from tests.support.processor import DELAYED, loop_ns, schedstat

MOST_NS = 60_000_000  # it took 150 ms, and takes 2
STARVED_NS = 50_000_000  # of half a second


def used_ticks(broker: BrokerProcess) -> int:
    """Processor time of all threads."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def delayed_ns(broker: BrokerProcess) -> int:
    """How long its threads could have gone on and had no processor."""
    tasks = Path(f"/proc/{broker.pid}/task").iterdir()
    return sum(schedstat(task, DELAYED) for task in tasks)


def wait_until_idle(broker: BrokerProcess) -> None:
    """Nothing is left to do of the start: for a while it took no processor, and did not wait for one either."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        used, delayed = used_ticks(broker), delayed_ns(broker)
        time.sleep(0.5)
        if used_ticks(broker) <= used + 1 and delayed_ns(broker) - delayed < STARVED_NS:
            return
        assert time.monotonic() < deadline_s, f"it is not idle after {PATIENCE_S:g} s"


def test_the_first_selector_takes_no_longer_than_others(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, is_executed=True) as broker:
        broker.admin("queue-create", name="orders")
        wait_until_idle(broker)
        before = loop_ns(broker.pid)
        assert broker.admin("browse", queue="orders", selector="colour = 'blue'")["messages"] == []
        assert loop_ns(broker.pid) - before < MOST_NS
