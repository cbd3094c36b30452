"""Whole nodes that discover each other over air that the test moves; it may lose, repeat and reorder."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.cluster.discovery.announcement import Announcement
from mqbroker.cluster.discovery.datagram import derive_key, unseal
from mqbroker.config.declarations.options import BrokerFile, to_slices
from mqbroker.config.slices import BrokerOptions
from mqbroker.node.values import inputs as given
from mqbroker.node.values.effects import JoinGroup, RelayRecord, SendDatagram

from tests.support.stage import Stage, options_with

SECRET = "0123456789abcdef"
KEY, OTHER_KEY = derive_key(SECRET), derive_key("another secret of another cluster")
STEP_MS = 50
PLACE = {"name": "lan", "group-address": "231.7.7.7", "group-port": 9876}
GROUP: dict[str, Any] = {**PLACE, "connector-ref": "cluster"}
CONNECTOR: dict[str, Any] = {"name": "cluster", "host": "198.51.100.11", "port": 5673}


def options(name: str = "mq1", **tables: Any) -> BrokerOptions:
    """A node that announces itself and listens; tables as in broker.toml."""
    file: dict[str, Any] = {
        "node": {"name": name},
        "connectors": [CONNECTOR],
        "broadcast-groups": [GROUP],
        "discovery-groups": [PLACE],
        **{key.replace("_", "-"): value for key, value in tables.items()},
    }
    return replace(to_slices(BrokerFile.model_validate(file)), listeners=options_with().listeners)


class Air:
    """Nodes on one network. `passes` decides how often a datagram arrives: (sender, hearer) -> count."""

    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}
        self.passes: Callable[[str, str], int] = lambda sender, hearer: 1
        self.boots = 0

    def add(self, name: str, of: BrokerOptions | None = None, key: bytes = KEY, node: int | None = None) -> Stage:
        """A new process; `node` is its node id, in case it is not the next free one."""
        self.boots += 1
        number = len(self.stages) + 1 if node is None else node
        identity = {
            "node_id": f"{number:08x}-0000-4000-8000-000000000000", "boot_id": f"{self.boots:032x}",
            "cluster_key": key,
        }  # fmt: skip
        now_ns = max((stage.now_ns for stage in self.stages.values()), default=0)
        stage = self.stages[name] = Stage(of or options(name), identity=identity)
        stage.wait(max(0, (now_ns - stage.now_ns) // 1_000_000))
        return stage

    def wait(self, duration_ms: int) -> None:
        for _ in range(duration_ms // STEP_MS):
            for stage in self.stages.values():
                stage.wait(STEP_MS)
            self.carry()

    def carry(self) -> None:
        """Everything that was sent arrives where somebody listens to its place."""
        for name, stage in self.stages.items():
            effects, stage.network_effects = stage.network_effects, []
            for effect in effects:
                if isinstance(effect, SendDatagram):
                    group = next(one for one in stage.options.broadcast_groups if one.name == effect.group)
                    self._arrive(name, (group.group_address, group.group_port), effect.data)

    def _arrive(self, sender: str, place: tuple[str, int], data: bytes) -> None:
        for name, stage in self.stages.items():
            for group in stage.options.discovery_groups:
                if (group.group_address, group.group_port) == place:
                    for _ in range(self.passes(sender, name)):
                        stage.give(given.Datagram(group.name, f"{sender}:4000", data))
                    stage.run()


def heard(stage: Stage) -> list[str]:
    return [row["node"] for row in stage.admin("discovery")["nodes"]]


def events(stage: Stage) -> list[str]:
    return [notice.event for notice in stage.notices if "discovery" in notice.event or "conflict" in notice.event]


def announced(stage: Stage) -> list[Announcement]:
    """What a node has sent."""
    found = [unseal(each.data, KEY) for each in stage.network_effects if isinstance(each, SendDatagram)]
    return [one for one in found if isinstance(one, Announcement)]


@pytest.mark.option("discovery-groups.name", "broadcast-groups.name")
def test_nodes_find_each_other_and_not_themselves() -> None:
    air = Air()
    for name in ("mq1", "mq2", "mq3"):
        air.add(name)
    air.wait(100)
    assert [heard(stage) for stage in air.stages.values()] == [["mq2", "mq3"], ["mq1", "mq3"], ["mq1", "mq2"]]
    assert events(air.stages["mq1"]) == ["discovery-listening", "discovery-node-found", "discovery-node-found"]
    shown = air.stages["mq1"].admin("discovery")
    assert [(row["group"], row["kind"], row["state"]) for row in shown["groups"]] == [
        ("lan", "broadcast", "sending"), ("lan", "discovery", "listening"),
    ]  # fmt: skip
    assert (shown["groups"][1]["dropped_by_reason"]["own"], shown["groups"][1]["dropped"]) == (1, 0)
    assert shown["nodes"][0] | {"age_ms": 0, "known_for_ms": 0} == {
        "group": "lan", "discovery": "udp", "node": "mq2", "node_id": "00000002-0000-4000-8000-000000000000",
        "boot_id": f"{2:032x}",
        "connector": "amqp://198.51.100.11:5673", "connectors": ["amqp://198.51.100.11:5673"], "source": "mq2:4000",
        "age_ms": 0, "known_for_ms": 0, "period_ms": 2000, "conflict": False,
    }  # fmt: skip


@pytest.mark.option("discovery-groups.refresh-timeout")
@pytest.mark.parametrize("timeout_ms", [1000, 4000])
def test_a_node_that_dies_is_gone_after_the_timeout(timeout_ms: int) -> None:
    air = Air()
    first = air.add("mq1", options(discovery_groups=[{**PLACE, "refresh-timeout": timeout_ms}]))
    air.add("mq2", options("mq2", broadcast_groups=[{**GROUP, "broadcast-period": 200}]))
    air.wait(1000)
    del air.stages["mq2"]
    air.wait(timeout_ms - 300)
    assert heard(first) == ["mq2"]
    air.wait(300)
    assert (heard(first), events(first)[-1]) == ([], "discovery-node-lost")
    assert not [effect for batch in first.batches for effect in batch.effects if type(effect).__name__ == "Close"]


def test_a_restart_is_seen_at_once() -> None:
    air = Air()
    first = air.add("mq1")
    air.add("mq2")
    air.wait(3000)
    del air.stages["mq2"]
    air.add("mq2", node=2)
    air.wait(100)
    assert events(first)[-1] == "discovery-node-restarted"
    assert [row["boot_id"] for row in first.admin("discovery")["nodes"]] == [f"{3:032x}"]


@pytest.mark.option("broadcast-groups.broadcast-period")
@pytest.mark.parametrize("period_ms", [500, 2000])
def test_the_first_announcement_comes_at_once_and_others_each_period(period_ms: int) -> None:
    stage = Air().add("mq1", options(broadcast_groups=[{**GROUP, "broadcast-period": period_ms}]))
    assert [one.seq for one in announced(stage)] == [1]
    stage.wait(period_ms - 1)
    assert len(announced(stage)) == 1
    stage.wait(3 * period_ms)
    assert [(one.seq, one.period_ms) for one in announced(stage)] == [(seq, period_ms) for seq in (1, 2, 3, 4)]


@pytest.mark.option(
    "connectors.name", "connectors.host", "connectors.port", "connectors.tls-enabled", "broadcast-groups.connector-ref"
)
def test_the_connector_that_is_announced() -> None:
    second = {"name": "far", "host": "mq1.example.org", "port": 5671, "tls-enabled": True}
    for ref, wanted in (("cluster", "amqp://198.51.100.11:5673"), ("far", "amqps://mq1.example.org:5671")):
        stage = Air().add(
            "mq1", options(connectors=[CONNECTOR, second], broadcast_groups=[{**GROUP, "connector-ref": ref}])
        )
        (said,) = announced(stage)
        assert [(one.name, one.uri) for one in said.connectors] == [(ref, wanted)]


@pytest.mark.option("discovery-groups.initial-wait-timeout")
@pytest.mark.parametrize("timeout_ms", [500, 3000])
def test_who_hears_nobody_says_so_when_its_wait_is_over(timeout_ms: int) -> None:
    stage = Air().add("mq1", options(discovery_groups=[{**PLACE, "initial-wait-timeout": timeout_ms}]))
    stage.wait(timeout_ms - 1)
    assert "discovery-nobody-heard" not in events(stage)
    stage.wait(1)
    assert events(stage).count("discovery-nobody-heard") == 1


def test_another_cluster_is_counted_and_not_heard() -> None:
    air = Air()
    ours, other = air.add("mq1"), air.add("mq2", key=OTHER_KEY)
    air.wait(5000)
    for stage in (ours, other):
        group = stage.admin("discovery")["groups"][1]
        assert (heard(stage), group["heard"], group["dropped_by_reason"]["mac"]) == ([], 0, 3)
        assert events(stage) == ["discovery-listening", "discovery-datagram-dropped"]


def test_two_nodes_with_one_id_are_told_of_by_all() -> None:
    air = Air()
    original, copy, other = air.add("mq1"), air.add("mq2", node=1), air.add("mq3")
    air.wait(8000)
    for stage in (original, copy, other):
        assert events(stage).count("node-id-conflict") == 1
        assert stage.admin("discovery")["conflicts"] == ["00000001-0000-4000-8000-000000000000"]
    assert [stage.admin("health")["has_rival"] for stage in (original, copy, other)] == [True, True, False]
    remedies = [notice.fields["remedy"] for notice in other.notices if notice.event == "node-id-conflict"]
    assert "mqbroker identity new --even-if-original" in str(remedies[0])
    del air.stages["mq2"]
    air.wait(24_000)
    assert [events(stage)[-1] for stage in (original, other)] == ["node-id-conflict-over", "node-id-conflict-over"]
    assert (heard(other), other.admin("discovery")["conflicts"]) == (["mq1"], [])


def test_the_process_that_was_started_later_yields_and_its_place_goes_back_to_the_earlier_one() -> None:
    air = Air()
    original, other = air.add("mq1"), air.add("mq3")
    air.wait(5000)
    copy = air.add("mq2", node=1)
    air.wait(100)
    assert [row["boot_id"] for row in other.admin("discovery")["nodes"]] == [f"{3:032x}"]
    air.wait(12_000)
    yielded = [stage.admin("health")["has_yielded"] for stage in (original, copy, other)]
    assert yielded == [False, True, False]
    assert [row["boot_id"] for row in other.admin("discovery")["nodes"]] == [f"{1:032x}"]
    assert other.admin("discovery")["groups"][1]["dropped_by_reason"]["yielded"] > 0
    (told,) = [notice for notice in copy.notices if notice.event == "cluster-links-stopped"]
    assert "mqbroker identity new --even-if-original" in str(told.fields["remedy"])
    # The earlier one may be restarted: who has yielded does not come back for that.
    del air.stages["mq1"]
    again = air.add("mq1", node=1)
    air.wait(12_000)
    assert [stage.admin("health")["has_yielded"] for stage in (again, copy)] == [False, True]


def test_of_three_processes_with_one_id_the_earliest_goes_on() -> None:
    air = Air()
    for name in ("one", "two", "three"):
        air.add(name, node=1)
        air.wait(500)
    air.wait(20_000)
    assert [stage.admin("health")["has_yielded"] for stage in air.stages.values()] == [False, True, True]


def test_of_two_processes_with_one_id_the_one_of_a_higher_term_goes_on() -> None:
    """Though it is the later one, and both know each other by announcements alone."""
    air, of = Air(), options("two")
    later = air.add("two", replace(of, journal=replace(of.journal, journal_file_size_bytes=16_384)))
    assert [said.term for said in announced(later)] == [0]
    later.disk.term = 3
    while later.broker.journal.segments_count == 1:
        later.admin("send", address="orders", messages=[{"body": "x" * 3000, "durable": True}])
    later.crash()
    del air.stages["two"]
    earlier = air.add("one", node=1)
    air.wait(500)
    air.stages["two"], later.now_ns = later, earlier.now_ns
    later.network_effects.clear()
    later.start()
    assert {said.term for said in announced(later)} == {3}
    air.wait(20_000)
    assert [stage.admin("health")["has_yielded"] for stage in (earlier, later)] == [True, False]


def test_recordings_of_an_earlier_process_never_make_a_node_yield() -> None:
    """All that it has ever said, in order and for as long as it took: there is nobody behind it who hears us."""
    air = Air()
    recorded: list[bytes] = []
    first, other = air.add("mq1"), air.add("mq2")
    for _ in range(30):
        for stage in (first, other):
            stage.wait(1000)
        recorded += [each.data for each in first.network_effects if isinstance(each, SendDatagram)]
        air.carry()
    assert len(recorded) == 15 + 1
    del air.stages["mq1"]
    again = air.add("mq1", node=1)
    for data in recorded:
        air.wait(2000)
        again.give(given.Datagram("lan", "198.51.100.66:4000", data))
        again.run()
    health = again.admin("health")
    assert (health["has_yielded"], health["has_rival"], again.admin("discovery")["conflicts"]) == (False, False, [])
    assert "node-id-conflict" not in events(again)
    (told,) = [notice for notice in again.notices if notice.event == "discovery-own-id-heard"]
    assert (told.fields["boot_id"], told.fields["source"]) == (f"{1:032x}", "198.51.100.66:4000")
    # One that lives is still told from what is repeated.
    air.passes = lambda sender, hearer: int(sender != hearer)
    air.add("mq3", node=1)
    air.wait(10_000)
    assert [each.admin("health")["has_yielded"] for each in (again, air.stages["mq3"])] == [False, True]


def test_who_is_not_heard_by_the_other_process_does_not_yield_to_its_announcements() -> None:
    air = Air()
    original = air.add("mq1")
    air.passes = lambda sender, hearer: int(hearer != "mq1")
    air.wait(1000)
    copy = air.add("mq2", node=1)
    air.wait(20_000)
    assert [stage.admin("health")["has_yielded"] for stage in (original, copy)] == [False, False]
    assert (events(original).count("discovery-own-id-heard"), events(copy).count("discovery-own-id-heard")) == (0, 1)
    air.passes = lambda sender, hearer: 1
    air.wait(10_000)
    assert [stage.admin("health")["has_yielded"] for stage in (original, copy)] == [False, True]


def test_what_cannot_be_sent_or_joined_is_told_once_and_tried_again() -> None:
    air = Air()
    stage = air.add("mq1", replace(options(), broadcast_groups=(), discovery_groups=()))
    stage.options = options()
    stage.network_trouble = "no such card"
    stage.crash()
    stage.notices.clear()
    stage.start()
    stage.wait(8000)
    told = [notice.event for notice in stage.notices if notice.event in ("broadcast-failed", "discovery-join-failed")]
    assert sorted(told) == ["broadcast-failed", "discovery-join-failed"]
    groups = stage.admin("discovery")["groups"]
    assert [(row["state"], row["trouble"]) for row in groups] == [
        ("failing", "no such card"), ("failed", "no such card"),
    ]  # fmt: skip
    assert groups[0]["failed"] == 5
    stage.network_trouble = ""
    stage.wait(5000)
    assert [notice.event for notice in stage.notices if "works-again" in notice.event] == ["broadcast-works-again"]
    assert [row["state"] for row in stage.admin("discovery")["groups"]] == ["sending", "listening"]


def test_a_network_that_loses_repeats_and_reorders_makes_no_news() -> None:
    rng = random.Random(11)
    air = Air()
    stages = [air.add(name) for name in ("mq1", "mq2", "mq3")]
    air.wait(100)
    air.passes = lambda sender, hearer: rng.choice((0, 1, 1, 1, 2))
    air.wait(60_000)
    air.passes = lambda sender, hearer: 1
    air.wait(2500)
    for stage in stages:
        assert len(heard(stage)) == 2
        assert not {"discovery-node-restarted", "node-id-conflict"} & set(events(stage))


def test_a_node_that_stops_says_nothing_more() -> None:
    stage = Air().add("mq1")
    stage.is_disk_held = True
    stage.give(given.Stop())
    stage.step()
    before = len(stage.network_effects)
    stage.give(given.Datagram("lan", "198.51.100.12:4000", b"x"))
    stage.wait(30_000)
    assert len(stage.network_effects) == before


def test_without_groups_nothing_is_asked_of_the_network() -> None:
    stage = Stage()
    stage.wait(60_000)
    assert (stage.network_effects, stage.broker.timers.wake_at_ns) == ([], None)
    assert stage.admin("discovery") == {"groups": [], "nodes": [], "conflicts": []}


def test_metrics_count_what_discovery_does() -> None:
    air = Air()
    first = air.add("mq1")
    air.add("mq2")
    air.add("mq3", key=OTHER_KEY)
    air.wait(100)
    values = first.admin("metrics")
    found = {name: samples[0][1] for name, samples in values.items() if "discovery" in name}
    assert found == {
        "mqbroker_discovery_nodes": 1,
        "mqbroker_discovery_broadcasts_total": 1,
        "mqbroker_discovery_broadcasts_failed_total": 0,
        "mqbroker_discovery_datagrams_heard_total": 1,
        "mqbroker_discovery_datagrams_dropped_total": 0,
    }
    dropped = {labels[1]: count for labels, count in values["mqbroker_discovery_datagrams_dropped_total"]}
    assert {reason: count for reason, count in dropped.items() if count} == {"mac": 1, "own": 1}


def test_each_group_is_joined_once() -> None:
    stage = Air().add("mq1", options(discovery_groups=[PLACE, {**PLACE, "name": "other", "group-port": 9877}]))
    joins = [effect.group for effect in stage.network_effects if isinstance(effect, JoinGroup)]
    assert joins == ["lan", "other"]


def test_a_new_secret_is_taken_while_the_node_runs() -> None:
    air = Air()
    first, second = air.add("mq1", key=OTHER_KEY), air.add("mq2")
    air.wait(2000)
    assert (heard(first), heard(second)) == ([], [])
    first.give(given.ClusterKeyChanged(KEY))
    first.run()
    air.wait(2500)
    assert (heard(first), heard(second)) == (["mq2"], ["mq1"])


# -- other kinds than udp ----------------------------------------------------------------------------------------------


@pytest.mark.option("discovery-groups.tls-enabled")
@pytest.mark.parametrize(("has_tls", "scheme"), [(False, "amqp"), (True, "amqps")])
def test_names_lead_to_places_without_a_node(has_tls: bool, scheme: str) -> None:
    names = {"name": "lan", "discovery": "dns", "names": ["mq.example:5673"], "tls-enabled": has_tls}
    stage = Air().add("mq1", options(discovery_groups=[names]))
    stage.wait(50)
    places = [("mq.example:5673", host, 5673) for host in ("192.0.2.9", "198.51.100.11")]
    stage.give(given.Resolved("lan", tuple(places)))
    stage.run()
    shown = stage.admin("discovery")
    assert shown["nodes"] == [
        {
            "group": "lan", "discovery": "dns", "node": None, "node_id": None, "boot_id": None,
            "connector": f"{scheme}://192.0.2.9:5673", "connectors": [f"{scheme}://192.0.2.9:5673"],
            "source": "mq.example:5673", "age_ms": 0, "known_for_ms": 0, "period_ms": None, "conflict": False,
        }
    ]  # fmt: skip
    (row,) = [row for row in shown["groups"] if row["kind"] == "discovery"]
    assert (row["discovery"], row["place"], row["dropped"]) == ("dns", "mq.example:5673", 0)
    stage.give(given.Resolved("lan", ()))
    stage.run()
    assert stage.admin("discovery")["nodes"] == []
    assert events(stage) == ["discovery-listening", "discovery-node-found", "discovery-node-lost"]


def test_a_place_that_cannot_be_looked_at_is_shown_until_it_can() -> None:
    files = {"name": "lan", "discovery": "file", "directory": "/srv/mq"}
    stage = Air().add("mq1", options(discovery_groups=[files]))
    stage.wait(50)
    for why, shown in (("it is gone", "it is gone"), ("", None)):
        stage.give(given.Looked("lan", why))
        stage.run()
        assert stage.admin("discovery")["groups"][1]["trouble"] == shown
    assert events(stage)[1:] == ["discovery-look-failed", "discovery-look-works-again"]


def test_records_that_come_by_gossip_are_passed_on_and_their_repetition_is_nothing_wrong() -> None:
    talk = {"name": "lan", "discovery": "gossip", "local-bind-address": "127.0.0.1", "local-bind-port": 7000}
    first = Air().add("mq1", options(discovery_groups=[talk]))
    other = Air()
    other.add("mq1")
    second = other.add("mq2")
    (sent,) = [each for each in second.network_effects if isinstance(each, SendDatagram)]
    for _ in range(2):
        first.give(given.Datagram("lan", "127.0.0.1:7001", sent.data))
        first.run()
    relayed = [each for each in first.network_effects if isinstance(each, RelayRecord)]
    assert relayed == [RelayRecord("lan", "00000002-0000-4000-8000-000000000000", sent.data)]
    row = first.admin("discovery")["groups"][1]
    assert (row["heard"], row["dropped"], row["dropped_by_reason"]["replayed"]) == (1, 0, 1)
