"""A node leaves that foreign clients have filled, and foreign clients read at its heir what they sent, as it was.

Each test has the number of its scenario (tests/scenarios/__init__.py). One scale-down for all but the last one, as they
are a story: what went is looked at first, then the node that left comes back, and at last it is forgotten. So they run
together: a test that is chosen alone has not what those before it left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mqbroker.core.queue.large import DIRECTORY

from tests.foreign.builds import JMS
from tests.foreign.client import ProtonClient
from tests.foreign.conftest import _built, wait_for_depth
from tests.foreign.jms_client import JmsClient
from tests.foreign.scenario_nodes import names
from tests.support.broker_process import BrokerProcess, brokers_in
from tests.support.cluster_processes import Make, Nodes, linked, wait_for

pytestmark = pytest.mark.foreign

PAGED = 200
PROPERTIES = {"text": "grüße, 世界", "number": 5, "long": 2**40, "double": 0.25, "flag": True}
LARGE_BYTES = 1 << 20
COUNT = 120
SETTINGS = {
    "#": {"redistribution-delay": 0},
    "paged": {"max-size-messages": 5, "address-full-policy": "PAGE", "page-size-bytes": 4_096},
}


@dataclass(frozen=True)
class Left:
    """The node that has left, its heir, what was shown at the end, and Qpid JMS at the heir (session `heir`)."""

    source: BrokerProcess
    heir: BrokerProcess
    shown: dict[str, Any]
    jms: JmsClient
    proton: ProtonClient

    def count(self, queue: str) -> int:
        return int(self.heir.admin("queue-show", name=queue)["message_count"])

    def by_proton(self, queue: str, count: int) -> list[str]:
        self.proton.receiver("heir", queue, queue, credit=count + 1)
        found = [row["id"] for row in self.proton.receive(queue, count)]
        self.proton.ask("close_link", name=queue)
        return found


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    folder = tmp_path_factory.mktemp("left")
    jms, proton = JmsClient(_built(JMS), folder / "jms.log"), ProtonClient(folder / "proton.log")
    with brokers_in(folder) as make:
        source, heir = Nodes(make, 2, settings=SETTINGS).start()
        linked(source, "mq1")
        linked(heir, "mq0")
        _fill(source, jms, proton)
        source.admin("scale-down", node="mq1")
        shown = wait_for(source, "all has moved", lambda found: found["state"] == "moved", "scale-down-show")
        jms.ask("reset")
        jms.connect("heir", heir)
        jms.session("heir", "heir")
        proton.connect("heir", heir)
        yield Left(source, heir, shown, jms, proton)
    jms.close()
    proton.close()


def _fill(source: BrokerProcess, jms: JmsClient, proton: ProtonClient) -> None:
    """Two queues of one topic, of one of which a message is consumed; what JMS says of messages; a queue that pages;
    queues with selectors; a queue that nobody has sent to."""
    for name, kind in (
        ("first", {"address": "topic"}), ("second", {"address": "topic"}),
        ("red", {"address": "colours", "selector": "colour = 'red'"}),
        ("blue", {"address": "colours", "selector": "colour = 'blue'"}),
        ("silent", {"address": "silence"}),
    ):  # fmt: skip
        source.admin("queue-create", name=name, routing_type="multicast", **kind)
    source.admin("queue-create", name="empty", routing_type="anycast")
    proton.connect("source", source)
    for address, ids, fields in (
        ("topic", names(2), {}),
        ("paged", names(PAGED), {"size": 500}),
        ("colours", ["r1", "r2"], {"properties": {"colour": "red"}}),
        ("colours", ["b1"], {"properties": {"colour": "blue"}}),
    ):
        proton.sender("source", "out", address)
        assert [row["outcome"] for row in proton.send("out", ids, **fields)] == ["accepted"] * len(ids)
        proton.ask("close_link", name="out")
    proton.receiver("source", "in", "topic::first", credit=1)
    assert [row["id"] for row in proton.receive("in", 1)] == ["m1"]
    proton.ask("close_link", name="in")
    proton.ask("close", name="source")
    jms.connect("source", source)
    jms.session("source", "source")
    jms.put(
        "source", "queue:said", {"body": "grüße, 世界", "properties": PROPERTIES, "correlation_id": "c-1"}, priority=7
    )
    jms.put("source", "queue:large", {"kind": "bytes", "size": LARGE_BYTES})
    assert source.admin("queue-show", name="paged")["paged_count"] > 0
    assert len(files_of(source)) == 1


def files_of(broker: BrokerProcess) -> list[str]:
    """Those of large messages."""
    return [path.name for path in (broker.data_directory / DIRECTORY).iterdir()]


def _has_no_file(broker: BrokerProcess, _said: dict[str, Any]) -> bool:
    return files_of(broker) == []


def test_42_of_two_queues_of_an_address_each_has_what_it_had(left: Left) -> None:
    assert (left.count("first"), left.count("second")) == (1, 2)
    assert left.by_proton("topic::first", 1) == ["m2"]
    assert left.by_proton("topic::second", 2) == ["m1", "m2"]
    assert (left.count("first"), left.count("second")) == (0, 0), "nothing more"
    moved = {row["queue"]: (row["moved"], row["arrived"]) for row in left.shown["receipt"]["queues"]}
    assert left.shown["receipt"]["balances"]
    assert (moved["first"], moved["second"]) == ((1, 1), (2, 2))


def test_43_queues_that_were_not_there_are_made_as_they_were(left: Left) -> None:
    found = {name: left.heir.admin("queue-show", name=name) for name in ("silent", "empty", "red", "said")}
    assert {name: (row["address"], row["routing_type"], row["selector"]) for name, row in found.items()} == {
        "silent": ("silence", "multicast", ""), "empty": ("empty", "anycast", ""),
        "red": ("colours", "multicast", "colour = 'red'"), "said": ("said", "anycast", ""),
    }  # fmt: skip


def test_45_what_a_message_says_is_as_it_was(left: Left) -> None:
    left.jms.consumer("heir", "said", "queue:said")
    (found,) = left.jms.receive("said")
    assert (found["body"], found["priority"], found["correlation_id"]) == ("grüße, 世界", 7, "c-1")
    assert found["properties"] == {**PROPERTIES, "JMSXDeliveryCount": 1}


def test_45_a_large_body_is_whole_and_no_file_is_left(left: Left) -> None:
    left.jms.consumer("heir", "large", "queue:large")
    (found,) = left.jms.receive("large")
    body = (bytes(range(251)) * (1 << 13))[:LARGE_BYTES]
    assert found["sha256"] == hashlib.sha256(body).hexdigest()
    for broker in (left.source, left.heir):
        wait_for(broker, "no file is left", partial(_has_no_file, broker), "status")


def test_46_what_is_paged_comes_in_its_order(left: Left) -> None:
    assert left.by_proton("paged", PAGED) == names(PAGED)


def test_47_queues_with_selectors_have_theirs_alone(left: Left) -> None:
    assert left.by_proton("colours::red", 2) == ["r1", "r2"]
    assert left.by_proton("colours::blue", 1) == ["b1"]
    assert (left.count("red"), left.count("blue")) == (0, 0)


def test_48_the_link_to_a_node_that_comes_back_carries_messages_again(left: Left) -> None:
    left.source.stop()
    left.source.start()
    left.source.admin("scale-down-cancel")
    wait_for(left.source, "it serves", lambda found: found["state"] == "none", "scale-down-show")
    linked(left.heir, "mq0")
    left.proton.connect("back", left.source)
    left.proton.receiver("back", "again", "again", credit=10)
    wait_for(left.heir, "it knows the consumer", lambda found: sum(row["consumers"] for row in found["links"]) == 1)
    left.proton.sender("heir", "out", "again")
    assert [row["outcome"] for row in left.proton.send("out", names(5))] == ["accepted"] * 5
    assert [row["id"] for row in left.proton.receive("again", 5)] == names(5)


def test_50_forgotten_nothing_of_it_is_left_at_the_heir(left: Left) -> None:
    """Neither its store-and-forward queues nor their addresses, although one was there."""
    node_id = left.source.admin("status")["node_id"]
    (link,) = left.heir.admin("topology")["links"]
    assert link["queues"] > 0
    left.source.kill()
    wait_for(left.heir, "the link is gone", lambda found: [row["state"] for row in found["links"]] != ["up"])
    left.heir.admin("cluster-forget", node_id=node_id)
    found = left.heir.admin("topology")
    assert [row for row in found["links"] if row["node_id"] == node_id] == []
    assert [row["node"] for row in found["members"]] == ["mq1"]
    assert {row["name"] for row in left.heir.admin("queues")["queues"]} >= {"paged", "said", "again"}
    assert [row["name"] for row in left.heir.admin("queues")["queues"] if "$" in row["name"]] == []


class Windowed(Nodes):
    """Nodes that have so many bytes without an answer on a link to each other."""

    def __init__(self, make: Make, window_bytes: int) -> None:
        self.window_bytes = window_bytes
        super().__init__(make, 2)

    def connections(self, number: int) -> list[dict[str, Any]]:
        return [each | {"confirmation-window-size": self.window_bytes} for each in super().connections(number)]


@pytest.mark.parametrize("window_bytes", [1, 2_000, -1])  # one at a time, some, all at once
def test_51_as_many_go_as_there_were_however_little_may_be_unanswered(tmp_path: Path, window_bytes: int) -> None:
    with closing(ProtonClient(tmp_path / "proton.log")) as proton, brokers_in(tmp_path) as make:
        source, heir = Windowed(make, window_bytes).start()
        linked(source, "mq1")
        linked(heir, "mq0")
        proton.connect("source", source)
        proton.sender("source", "out", "orders")
        assert [row["outcome"] for row in proton.send("out", names(COUNT))] == ["accepted"] * COUNT
        source.admin("scale-down", node="mq1")
        found = wait_for(source, "all has moved", lambda said: said["state"] == "moved", "scale-down-show")
        (row,) = found["receipt"]["queues"]
        assert (row["moved"], row["arrived"], row["left"], found["receipt"]["balances"]) == (COUNT, COUNT, 0, True)
        proton.connect("heir", heir)
        proton.receiver("heir", "in", "orders", credit=COUNT + 1)
        assert [row["id"] for row in proton.receive("in", COUNT)] == names(COUNT)
        wait_for_depth(heir, "orders", 0)
