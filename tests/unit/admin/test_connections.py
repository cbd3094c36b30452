"""Sessions, consumers and producers as administrators see them, and how a connection is closed."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.admin import connections
from mqbroker.amqp import events as told
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.run import single
from mqbroker.wire.sections import build_message

from tests.support.stage import Talker
from tests.unit.admin.site import Site


def receiver(site: Site, name: str, queue: str, credit: int) -> Talker:
    talker = site.stage.connect(name)
    assert talker.session is not None
    link = talker.session.attach_receiver(
        Attach(name=f"r-{name}", handle=0, role=True, source=Source(address=queue), target=Target())
    )
    site.stage.run()
    link.grant(credit)
    site.stage.run()
    return talker


def sender(site: Site, name: str, address: str, count: int) -> Talker:
    talker = site.stage.connect(name)
    assert talker.session is not None
    link = talker.session.attach_sender(
        Attach(name=f"s-{name}", handle=0, role=False, source=Source(), target=Target(address=address))
    )
    site.stage.run()
    for _ in range(count):
        talker.session.send_run(link, single(build_message("x")), 0, 1, None)
    site.stage.run()
    return talker


def test_what_consumers_have_and_what_waits_for_them() -> None:
    site = Site()
    receiver(site, "alice", "orders", 2)
    site.send("orders", *"abcde")
    site.stage.wait(500)
    (row,) = site.do("consumers")["consumers"]
    assert row == {
        "connection": 1, "peer": "peer-1", "user": row["user"], "container_id": "alice", "channel": 0,
        "link": "r-alice", "queue": "orders", "address": "orders", "credit": 0, "unsettled": 2, "delivered": 2,
        "lag": 3, "idle_ms": 500, "browser": False, "selector": "",
    }  # fmt: skip
    assert site.do("consumers", queue="other") == {"consumers": [], "is_whole": True}
    site.do("queue-create", name="quiet")
    site.stage.ask("receive", 5, address="quiet", wait_ms=1000)
    (waiting,) = site.do("consumers", queue="quiet")["consumers"]
    assert (waiting["link"], waiting["peer"], waiting["lag"]) == ("admin-5", "admin", 0)
    assert site.do("consumers", container_id="alice")["consumers"] == [row]


def test_what_producers_sent() -> None:
    site = Site()
    sender(site, "bob", "orders", 3)
    sender(site, "carol", "other", 0)
    bob, carol = site.do("producers")["producers"]
    assert (bob["address"], bob["sent"], bob["idle_ms"], bob["starved"]) == ("orders", 3, 0, False)
    assert bob["credit"] > 0
    assert (carol["link"], carol["sent"], carol["idle_ms"]) == ("s-carol", 0, None)
    assert site.do("producers", address="other")["producers"] == [carol]


def test_sessions_and_their_links() -> None:
    site = Site()
    talker = receiver(site, "alice", "orders", 2)
    sender(site, "bob", "orders", 1)
    rows = site.do("sessions")["sessions"]
    assert [(row["container_id"], row["consumers"], row["producers"], row["unsettled"]) for row in rows] == [
        ("alice", 1, 0, 1), ("bob", 0, 1, 0),
    ]  # fmt: skip
    site.stage.drop(talker)
    assert [row["container_id"] for row in site.do("sessions")["sessions"]] == ["bob"]
    assert site.do("consumers")["consumers"] == []
    assert len(site.stage.broker.activity._by_link) == 1


def test_long_lists_say_that_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ROWS_MAX", 2)
    site = Site()
    for name in "abc":
        sender(site, name, "orders", 0)
    cut = site.do("producers")
    assert (len(cut["producers"]), cut["is_whole"]) == (2, False)
    assert site.do("producers", connection=2)["is_whole"] is True


@pytest.mark.parametrize("by", [{"connection": 1}, {"container_id": "alice"}])
def test_a_closed_connection_gives_its_messages_back(by: dict[str, Any]) -> None:
    site = Site()
    alice, bob = receiver(site, "alice", "orders", 1), receiver(site, "bob", "orders", 0)
    site.send("orders", "one")
    assert site.do("connection-close", **by) == {"closed": 1}
    (dead,) = [event for event in alice.events if isinstance(event, told.Dead)]
    assert dead.condition == "amqp:connection:forced"
    assert (alice.is_closed, bob.is_closed) == (True, False)
    assert site.do("queue-show", name="orders")["ready_count"] == 1
    fields = [notice.fields for notice in site.stage.notices if notice.event == "admin"][-1]
    assert (fields["operation"], fields["outcome"]) == ("connection-close", "done")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "give exactly one of connection, user, container_id"),
        ({"connection": 1, "user": "a"}, "give exactly one of"),
        ({"connection": "1"}, "'connection' must be int"),
        ({"connection": 77}, "there is no connection of connection 77"),
        ({"user": "nobody"}, "there is no connection of user 'nobody'"),
        ({"peer": "x"}, "unknown argument 'peer'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], said: str) -> None:
    site = Site()
    sender(site, "alice", "orders", 0)
    assert said in site.refused("connection-close", **arguments)[1]
    assert len(site.do("connections")["connections"]) == 1
