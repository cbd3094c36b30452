"""Checks of health over plain values, each both ways."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.admin import health
from mqbroker.admin.health import CHECKS, DiskSpace, Surroundings, readiness, space_free_bytes_min
from mqbroker.cluster.node_id_conflict import DEPOSED, REMEDY
from mqbroker.config.declarations.options import defaults
from mqbroker.node.values import inputs as given

from tests.support.stage import Stage, options_with

NODE = health.of_node(Stage().broker)
YIELDED = {"has_rival": True, "has_yielded": True, "yielded_why": DEPOSED}
AROUND = Surroundings(True, 0, DiskSpace(1 << 40, 1 << 39), 1 << 30, {"clients": "", "cluster": ""})


@pytest.mark.parametrize("name", CHECKS)
def test_all_is_well(name: str) -> None:
    verdict = CHECKS[name](NODE, AROUND)
    assert verdict.is_good
    assert verdict.why
    assert verdict.facts


@pytest.mark.parametrize(
    ("name", "node", "around", "word"),
    [
        ("disk-space", {}, {"space": DiskSpace(1 << 40, (1 << 30) - 1)}, "make room"),
        ("journal", {}, {"is_disk_alive": False}, "see the log"),
        ("listeners", {}, {"listeners": {"clients": "", "cluster": "closed"}}, "cluster (closed)"),
        ("memory", {"has_room": False, "holds_back": True}, {}, "limits.global-max-size-bytes"),
        ("node-id", YIELDED, {}, f"{DEPOSED}; {REMEDY}"),
    ],
)
def test_each_check_turns(name: str, node: dict[str, Any], around: dict[str, Any], word: str) -> None:
    found = {each: check(NODE | node, replace(AROUND, **around)) for each, check in CHECKS.items()}
    assert [each for each, verdict in found.items() if not verdict.is_good] == [name]
    assert word in found[name].why


def test_a_rival_that_was_started_later_is_a_warning() -> None:
    verdict = CHECKS["node-id"](NODE | {"has_rival": True}, AROUND)
    assert (verdict.is_good, verdict.facts["warning"]) == (True, True)
    assert "mqbroker identity new --even-if-original" in verdict.why
    verdict = readiness(NODE | YIELDED, True)
    assert (verdict.is_good, verdict.why) == (False, DEPOSED)
    assert readiness(NODE | {"has_rival": True}, True).is_good


def test_room_on_the_disk_follows_the_options() -> None:
    journal = replace(defaults().journal, journal_file_size_bytes=1000, disk_pending_bytes_max=7)
    assert space_free_bytes_min(replace(journal, min_disk_free_bytes=5)) == 2007
    assert space_free_bytes_min(replace(journal, min_disk_free_bytes=5000)) == 5000


def test_a_file_system_that_says_nothing_counts_as_full() -> None:
    assert DiskSpace(0, 0).used_share == 1
    assert DiskSpace(100, 25).used_share == 0.75


@pytest.mark.parametrize("policy", ["BLOCK", "PAGE"])
def test_memory_turns_with_what_the_node_holds_where_it_holds_publishers_back(policy: str) -> None:
    limits = {"global_max_size_bytes": 1 << 20, "max_message_size_bytes": 1 << 19}
    stage = Stage(options_with(limits=limits, address_settings={"#": {"address_full_policy": policy}}))
    assert CHECKS["memory"](health.of_node(stage.broker), AROUND).is_good
    for _ in range(10):
        stage.admin("send", address="orders", messages=[{"body": "x" * 100_000}])
    verdict = CHECKS["memory"](health.of_node(stage.broker), AROUND)
    assert verdict.is_good == (policy == "PAGE")
    assert verdict.facts["held_bytes"] > 900_000


def test_a_disk_without_room_is_said_apart_from_one_that_is_behind() -> None:
    stage = Stage()
    stage.give(given.UnsyncedBytes(1 << 40))
    stage.step()
    said = health.of_node(stage.broker)
    assert (said["is_disk_low"], said["grants_credit"]) == (False, False)
    stage.give(given.UnsyncedBytes(0))
    for is_low in (True, False):
        stage.give(given.JournalSpace(is_low=is_low, free_bytes=0, is_scarce=False))
        stage.step()
        said = health.of_node(stage.broker)
        assert (said["is_disk_low"], said["grants_credit"], said["holds_back"]) == (is_low, not is_low, False)


def test_readiness_ends_with_the_stop_and_with_the_disk() -> None:
    stage = Stage()
    assert readiness(health.of_node(stage.broker), True).is_good
    assert not readiness(health.of_node(stage.broker), False).is_good
    stage.is_disk_held = True
    stage.give(given.Stop())
    stage.step()
    assert not stage.broker.is_running
    assert readiness(health.of_node(stage.broker), True).why == "the broker stops"
    assert not readiness(None, True).is_good
