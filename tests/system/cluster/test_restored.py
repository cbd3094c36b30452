"""A node of a cluster that is given a backup of itself, or by hand an older copy of its data directory.

Meanwhile messages go both ways over its link. Its neighbour takes nothing twice that it had, and nothing that is new is
taken for old; what the node itself had accepted since the backup is what the backup has not.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import Make, Nodes, bodies, knows, linked, wait_for

pytestmark = pytest.mark.system


class Neighbours:
    """Two nodes that publish to each other: what is for two comes from one, and the other way round."""

    def __init__(self, make_broker: Make) -> None:
        self.one, self.two = Nodes(make_broker, 2).start()
        self.sent: dict[str, list[str]] = {"for-one": [], "for-two": []}
        self.lost: set[str] = set()  # what one had accepted since its backup
        self.both_linked()
        self.one.admin("queue-create", name="at-one", address="for-one", routing_type="multicast")
        self.two.admin("queue-create", name="at-two", address="for-two", routing_type="multicast")

    def both_linked(self) -> None:
        linked(self.one, "mq1")
        linked(self.two, "mq0")

    def send(self, sender: BrokerProcess, address: str, count: int = 10) -> list[str]:
        texts = [f"{address} {len(self.sent[address]) + number}" for number in range(count)]
        messages = [{"body": text, "durable": True} for text in texts]
        assert sender.admin("send", address=address, messages=messages) == {"accepted": count}
        self.sent[address] += texts
        return texts

    def traffic(self) -> list[str]:
        """Both ways, and everything arrives; what was for one."""
        knows(self.one, 1, 0)
        knows(self.two, 1, 0)
        self.send(self.one, "for-two")
        for_one = self.send(self.two, "for-one")
        self.check()
        return for_one

    def check(self) -> None:
        """Each has everything once, and nothing is on its way."""
        for broker in (self.one, self.two):
            wait_for(broker, "nothing waits", lambda found: not any(row["depth"] for row in found["links"]))
        assert sorted(bodies(self.two, len(self.sent["for-two"]), "at-two")) == sorted(self.sent["for-two"])
        wanted = sorted(set(self.sent["for-one"]) - self.lost)
        assert sorted(bodies(self.one, len(wanted), "at-one")) == wanted

    def waits_for_two(self) -> None:
        """The other one is away: what is for it waits at one, and is in the backup as what waits."""
        self.two.kill()
        self.send(self.one, "for-two")

    def starts_with_traffic(self) -> set[str]:
        """Messages both ways, and more starts of one than a backup has; what one has accepted meanwhile."""
        accepted: set[str] = set()
        for _ in range(2):
            accepted |= set(self.traffic())
            self.one.restart()
            self.both_linked()
        return accepted

    def no_split_brain(self) -> None:
        for broker in (self.one, self.two):
            found = broker.admin("topology")["members"]
            assert sorted(row["node"] for row in found) == ["mq0", "mq1"]
            assert "cluster-split-brain" not in broker.log


def backup(node: BrokerProcess, folder: Path) -> dict[str, Any]:
    words = ("backup", "create", str(folder), "--config", str(node.config_file), "--json")
    found: dict[str, Any] = json.loads(node.command(*words))
    return found


def restore(node: BrokerProcess, folder: Path, made: dict[str, Any], *how: str) -> dict[str, Any]:
    words = ("backup", "restore", str(folder), made["id"], "--config", str(node.config_file), "--json", *how)
    found: dict[str, Any] = json.loads(node.command(*words))
    return found


def test_a_node_that_is_restored_goes_on_with_its_neighbour(make_broker: Make, tmp_path: Path) -> None:
    pair = Neighbours(make_broker)
    pair.traffic()
    pair.waits_for_two()
    made = backup(pair.one, tmp_path / "kept")
    pair.two.start()
    pair.both_linked()
    pair.check()  # what waited has arrived, and waits in the backup
    after = pair.starts_with_traffic()
    assert pair.one.stop() == 0
    pair.lost = after
    receipt = restore(pair.one, tmp_path / "kept", made)
    assert receipt["balances"]
    assert {row["queue"]: row["restored"] for row in receipt["queues"]}["at-one"] == 10
    assert receipt["node_id"] == receipt["from_node_id"]
    pair.one.start()
    pair.both_linked()
    pair.check()
    pair.traffic()
    pair.one.kill()
    pair.one.start()
    pair.both_linked()
    pair.traffic()
    pair.no_split_brain()
    assert "cluster-journal-is-behind" not in pair.one.log, "its start is beyond all that there were"


def test_an_older_copy_that_is_put_back_by_hand_is_noticed(make_broker: Make, tmp_path: Path) -> None:
    pair = Neighbours(make_broker)
    pair.traffic()
    pair.waits_for_two()
    pair.one.kill()
    copy = tmp_path / "copy"
    shutil.copytree(pair.one.data_directory, copy)
    pair.one.start()
    pair.two.start()
    pair.both_linked()
    pair.check()
    after = pair.starts_with_traffic()
    pair.one.kill()
    pair.lost = after
    for name in ("journal", "large-messages"):
        shutil.rmtree(pair.one.data_directory / name, ignore_errors=True)
        if (copy / name).exists():
            shutil.copytree(copy / name, pair.one.data_directory / name)
    pair.one.start()
    pair.both_linked()
    pair.one.wait_for_log("cluster-journal-is-behind")
    pair.check()
    pair.traffic()
    pair.no_split_brain()


def test_what_waited_for_a_third_node_comes_once_from_another_one_that_got_it(
    make_broker: Make, tmp_path: Path
) -> None:
    """The node of the backup is gone for good; who gets it goes on under its own id, in a cluster that knows it."""
    gone, heir, third = Nodes(make_broker, 3).start()
    for broker, others in ((gone, ("mq1", "mq2")), (heir, ("mq0", "mq2")), (third, ("mq0", "mq1"))):
        linked(broker, *others)
    third.admin("queue-create", name="at-three", address="for-three", routing_type="multicast")
    knows(gone, 1, 0)
    third.kill()
    texts = [f"waits {number}" for number in range(10)]
    messages = [{"body": text, "durable": True} for text in texts]
    assert gone.admin("send", address="for-three", messages=messages) == {"accepted": len(texts)}
    made = backup(gone, tmp_path / "kept")
    gone.kill()
    third.start()
    assert heir.stop() == 0
    receipt = restore(heir, tmp_path / "kept", made, "--as-another-node")
    assert receipt["balances"]
    assert sum(row["restored"] for row in receipt["queues"]) == len(texts)
    assert receipt["node_id"] != receipt["from_node_id"]

    def has_all() -> None:
        wait_for(heir, "nothing waits", lambda found: goes_on_with(found, "mq2"))
        assert sorted(bodies(third, len(texts), "at-three")) == sorted(texts)

    heir.start()
    has_all()
    for broker in (heir, third):
        broker.kill()
        broker.start()
        has_all()


def goes_on_with(found: dict[str, Any], node: str) -> bool:
    """Linked with this one, and nothing is on its way to anybody."""
    rows = found["links"]
    return any(row["node"] == node and row["state"] == "up" for row in rows) and not any(row["depth"] for row in rows)
