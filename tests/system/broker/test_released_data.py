"""Data directories that released brokers left: every later release starts with them and has all that was in them.

No sample is ever written again. `python -m tests.system.broker.test_released_data` adds that of the last release
(tests/support/last_release.py).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from mqbroker.io.files import identity

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import Make
from tests.support.last_release import broker_environment, commit

pytestmark = pytest.mark.system

SAMPLES = Path(__file__).parent / "released_data"
JOURNAL = {"journal": {"journal-file-size-bytes": 65_536, "journal-pool-files": 0}}
QUEUES = ("orders", "news-one", "news-two", "late")


def contents(broker: BrokerProcess) -> dict[str, Any]:
    """What each queue holds, in its order, and what was said of addresses."""
    rows = {name: broker.admin("browse", queue=name, limit=1000)["messages"] for name in QUEUES}
    addresses = {row["name"]: row for row in broker.admin("addresses")["addresses"]}
    return {
        "messages": {name: [[row["body"], row["delivery_count"]] for row in found] for name, found in rows.items()},
        "paused": sorted(name for name, row in addresses.items() if row["paused"]),
        "node_id": broker.admin("status")["node_id"],
    }


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*")), ids=lambda one: one.name)
def test_what_a_released_broker_left_is_all_there(make_broker: Make, sample: Path) -> None:
    broker = make_broker(options=JOURNAL)
    shutil.copytree(sample, broker.data_directory, ignore=shutil.ignore_patterns("expected.json"))
    identity.adopt(broker.data_directory, identity.machine_id())
    broker.start()
    wanted = json.loads((sample / "expected.json").read_text())
    assert min(map(len, wanted["messages"].values())) > 0
    assert contents(broker) == wanted
    broker.kill()
    broker.start()
    assert contents(broker) == wanted


def write_sample(folder: Path) -> None:
    """Queues of both kinds, messages that were consumed between others, a pause, compaction; and no end in order."""
    with (
        TemporaryDirectory() as scratch,
        BrokerProcess(Path(scratch), JOURNAL, environment=broker_environment()) as broker,
    ):
        for name in ("news-one", "news-two"):
            broker.admin("queue-create", name=name, address="news", routing_type="multicast")
        for address in ("orders", "news", "late"):
            for number in range(60):
                body = f"{address} {number} " + "ü" * number
                broker.admin("send", address=address, messages=[{"body": body, "durable": True}])
        broker.admin("queue-purge", name="late")
        broker.admin("send", address="late", messages=[{"body": "after the purge", "durable": True}])
        broker.admin("address-pause", name="late")
        found = contents(broker)
        broker.kill()
        shutil.copytree(broker.data_directory, folder, ignore=shutil.ignore_patterns("users.json", "*.sock", "*lock*"))
    (folder / "expected.json").write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_sample(SAMPLES / f"0.1.0-{commit()[:8]}")
