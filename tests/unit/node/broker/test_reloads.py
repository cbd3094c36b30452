"""Reloads that administrators ask for: all that the files say, or nothing and why."""

from __future__ import annotations

from dataclasses import replace

from mqbroker.config.users import make_verifier
from mqbroker.node.values import inputs as given

from tests.support.stage import Stage, options_with
from tests.unit.admin.site import Site

SALT = b"0123456789abcdef"


def audited(stage: Stage) -> list[tuple[object, object]]:
    said = [one.fields for one in stage.notices if one.event == "admin"]
    return [(fields["operation"], fields["outcome"]) for fields in said]


def test_what_changed_and_what_waits_for_a_restart() -> None:
    site = Site({"orders": {"redelivery_delay": 7}})
    stage = site.stage
    stage.options = options_with(
        address_settings={"orders": {"redelivery_delay": 8}, "#": {"dead_letter_address": "DLQ"}},
        limits={"link_credit": 33},
    )
    stage.users = {"app": make_verifier("one", SALT, ("client",)), "old": make_verifier("one", SALT, ("client",))}
    assert site.do("config-reload") == {
        "changed": [
            {"option": "address-settings.orders.redelivery-delay", "old": 7, "new": 8},
            {"option": "address-settings.#", "old": None, "new": "#"},
        ],
        "users": {"added": ["app", "old"], "changed": [], "removed": []},
        "restart": [{"option": "limits.link-credit", "running": 2000, "file": 33}],
        "remarks": [],
    }
    assert stage.broker.store.settings.of("anything").dead_letter_address == "DLQ"
    assert stage.broker.accounts.users == stage.users
    stage.users = {"app": make_verifier("two", SALT, ("client",))}
    assert site.do("config-reload") == {
        "changed": [],
        "users": {"added": [], "changed": ["app"], "removed": ["old"]},
        # It goes on waiting, and everybody who asks is told.
        "restart": [{"option": "limits.link-credit", "running": 2000, "file": 33}],
        "remarks": [],
    }
    assert audited(stage) == [("config-reload", "done")] * 2


def test_a_fault_changes_nothing_and_all_are_named() -> None:
    site = Site()
    stage = site.stage
    stage.options = options_with(address_settings={"#": {"dead_letter_address": "DLQ"}})
    stage.users = {"app": make_verifier("one", SALT, ("client",))}
    stage.file_faults = ["broker.toml: node.nme: there is no such option", "users.json: is not JSON"]
    condition, said = site.refused("config-reload")
    assert condition == "amqp:precondition-failed"
    assert said.splitlines() == ["nothing was changed, the files have 2 faults:", *stage.file_faults]
    assert stage.broker.store.settings.of("anything").dead_letter_address == ""
    assert stage.broker.accounts.users == {}
    assert audited(stage) == [("config-reload", "amqp:precondition-failed")]


def test_a_reload_by_a_signal_is_the_state_that_the_next_one_is_compared_with() -> None:
    site = Site()
    changed = replace(site.stage.options, node=replace(site.stage.options.node, stop_timeout_ms=700))
    site.stage.give(given.OptionsChanged(changed))
    site.stage.run()
    site.stage.options = changed
    assert site.do("config-reload")["changed"] == []
    site.stage.options = replace(changed, node=replace(changed.node, stop_timeout_ms=800))
    (row,) = site.do("config-reload")["changed"]
    assert row == {"option": "node.stop-timeout-ms", "old": 700, "new": 800}


def test_it_takes_nothing_and_comes_to_nothing_while_the_node_stops() -> None:
    site = Site()
    assert "unknown argument 'file'" in site.refused("config-reload", file="x")[1]
    site.stage.is_disk_held = True
    site.stage.stop()
    assert "the broker stops" in site.refused("config-reload")[1]


def test_settings_that_wait_for_a_restart_hold_at_no_address_before() -> None:
    site = Site({"old": {"max_size_messages": 1, "address_full_policy": "FAIL"}})
    stage = site.stage
    bounds = {"max_size_messages": 2, "address_full_policy": "FAIL"}
    stage.options = options_with(address_settings={"#": {"redelivery_delay": 7} | bounds})
    answer = site.do("config-reload")
    assert {one["option"] for one in answer["restart"]} == {
        "address-settings.old.max-size-messages", "address-settings.old.address-full-policy",
        "address-settings.#.max-size-messages", "address-settings.#.address-full-policy",
    }  # fmt: skip
    assert stage.broker.store.settings.of("old").redelivery_delay == 7
    site.send("new", "a", "b", "c")
    site.send("old", "a")
    assert "is full" in site.refused("send", address="old", messages=[{"body": "b"}])[1]
    site.restart()
    assert "is full" in site.refused("send", address="new", messages=[{"body": "d"}])[1]
    site.send("old", "b")
