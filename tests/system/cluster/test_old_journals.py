"""Journals of a real node that are replaced by old copies, cut short and wiped: what is accepted then arrives."""

from __future__ import annotations

import pytest

from tests.support.broker_process import BrokerProcess
from tests.support.cluster_processes import Make, Nodes, bodies, knows, linked
from tests.support.old_journals import Files, damaged, files_in, put_back

pytestmark = pytest.mark.system


class Talk:
    """Two nodes, of which the first one publishes what the second one has a queue for."""

    def __init__(self, make_broker: Make) -> None:
        self.one, self.two = Nodes(make_broker, 2).start()
        self.journal = self.one.data_directory / "journal"
        self.count = 0
        linked(self.one, "mq1")
        self.two.admin("queue-create", name="news-of-two", address="news", routing_type="multicast")

    def publish(self) -> None:
        knows(self.one, 1, 0)
        messages = [{"body": str(self.count + number), "durable": True} for number in range(10)]
        assert self.one.admin("send", address="news", messages=messages) == {"accepted": 10}
        self.count += 10
        assert sorted(map(int, bodies(self.two, self.count, "news-of-two"))) == list(range(self.count))

    def start_with(self, files: Files) -> None:
        self.one.kill()
        put_back(self.journal, files)
        self.one.start()
        both_linked(self.one, self.two)


def both_linked(one: BrokerProcess, two: BrokerProcess) -> None:
    linked(one, "mq1")
    linked(two, "mq0")


def test_what_is_accepted_after_the_journal_was_replaced_cut_or_wiped_arrives(make_broker: Make) -> None:
    talk = Talk(make_broker)
    one, two = talk.one, talk.two
    talk.publish()
    assert one.stop() == 0
    cold = files_in(talk.journal)
    one.start()
    talk.publish()
    talk.start_with(cold)
    talk.publish()
    one.options["journal"] = {"journal-on-damage": "truncate"}
    one.write_config()
    talk.start_with(damaged(files_in(talk.journal), cold))
    assert "journal-damage-given-up" in one.log
    talk.publish()
    talk.start_with({})
    one.kill()
    one.start()
    talk.publish()
    for broker in (one, two):
        found = broker.admin("topology")["members"]
        assert sorted(row["node"] for row in found) == ["mq0", "mq1"]
        assert "cluster-split-brain" not in broker.log
