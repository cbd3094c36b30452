"""The last notices and the options that hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.base.notice import Level
from mqbroker.node.values import event_ring
from mqbroker.node.values import inputs as given

from tests.unit.admin.site import Site


def noticed(site: Site, *events: str, level: Level = Level.INFO) -> None:
    for event in events:
        site.stage.broker.notice(level, event, number=1)


def names(answer: dict[str, Any]) -> list[str]:
    return [row["event"] for row in answer["events"]]


def test_events_by_level_and_name() -> None:
    site = Site()
    noticed(site, "login-failed", "login-slow", level=Level.WARNING)
    noticed(site, "ready")
    assert names(site.do("events")) == ["login-failed", "login-slow", "ready"]
    assert names(site.do("events", level="warning")) == ["login-failed", "login-slow"]
    assert names(site.do("events", level="error")) == []
    assert names(site.do("events", name="login-*", limit=1)) == ["login-slow"]
    assert names(site.do("events", name="login")) == []
    (row,) = site.do("events", name="ready")["events"]
    assert row == {
        "position": 3, "time_ms": site.stage.at.wall_ms, "level": "info", "event": "ready", "fields": {"number": 1},
    }  # fmt: skip


def test_whoever_follows_sees_each_once() -> None:
    site = Site()
    noticed(site, "a", "b", "c")
    seen, position = [], 0
    for _ in range(3):
        answer = site.do("events", after=position, limit=2)
        seen += names(answer)
        position = answer["position"]
    assert (seen, position) == (["a", "b", "c"], 3)
    noticed(site, "d")
    assert names(site.do("events", after=position)) == ["d"]


def test_who_is_too_slow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    noticed(site, *(str(number) for number in range(event_ring.KEPT_MAX + 5)))
    assert site.do("events", after=4)["missed"] is True
    assert site.do("events", after=5)["missed"] is False
    assert site.do("events")["missed"] is False


def test_long_texts_of_peers_are_cut() -> None:
    site = Site()
    site.stage.broker.notice(Level.INFO, "said", why="x" * 10_000)
    assert len(site.do("events")["events"][0]["fields"]["why"]) == event_ring.TEXT_SIZE_MAX


def test_the_user_of_an_admin_session_is_in_the_audit() -> None:
    site = Site()
    site.stage.give(given.AdminRequest(900, 7, "queue-create", {"name": "q"}, uid=1000))
    site.stage.run()
    (row,) = site.do("events", name="admin")["events"]
    assert row["fields"] == {
        "session": 7, "operation": "queue-create", "uid": 1000, "name": "q", "outcome": "done",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"level": "loud"}, "'level' is one of error, warning, info, debug"),
        ({"after": -1}, "from 0 to"),
        ({"limit": 0}, "from 1 to"),
        ({"names": "x"}, "unknown argument 'names'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], said: str) -> None:
    assert said in Site().refused("events", **arguments)[1]


# -- options ----------------------------------------------------------------------------------------------------------


def options(site: Site) -> dict[str, tuple[Any, Any]]:
    return {row["option"]: (row["value"], row["pending"]) for row in site.do("config-show")["options"]}


def test_options_as_they_hold_and_as_the_file_says() -> None:
    site = Site({"orders.#": {"redelivery_delay": 7}}, limits={"link_credit": 33})
    shown = options(site)
    assert shown["limits.link-credit"] == (33, None)
    assert shown["address-settings.orders.#.redelivery-delay"] == (7, None)
    name = site.stage.options.listeners[0].name
    assert shown[f"listeners.{name}.sasl-mechanisms"] == (("ANONYMOUS",), None)
    before = site.stage.options
    changed = replace(
        before,
        limits=replace(before.limits, link_credit=44),
        node=replace(before.node, log_format="json"),
    )
    site.stage.give(given.OptionsChanged(changed))
    site.stage.run()
    shown = options(site)
    assert shown["limits.link-credit"] == (33, 44)
    assert shown["node.log-format"] == ("json", None)


def test_config_show_takes_nothing() -> None:
    assert "unknown argument 'path'" in Site().refused("config-show", path="x")[1]
