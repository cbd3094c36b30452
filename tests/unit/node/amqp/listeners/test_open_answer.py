"""What a node's open says of other brokers, and listeners that send their clients on."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp.events import Dead, Opened
from mqbroker.amqp.redirect import RedirectPlace, redirect_of
from mqbroker.config.file.load import parse
from mqbroker.wire.performatives import Open

from tests.support import frames
from tests.support.stage import Stage, options_with

LISTENER = '[[listeners]]\nname = "a"\nport = 5672\n'


@pytest.mark.option("listeners.failover-server-list")
@pytest.mark.parametrize(("places", "hosts"), [((), None), (("b2:5672", "[::1]:1"), [("b2", 5672), ("::1", 1)])])
def test_clients_are_told_of_other_brokers(places: tuple[str, ...], hosts: Any) -> None:
    stage = Stage(options_with({"failover_server_list": places}))
    said = stage.talk(stage.accept(), frames.anonymous() + frames.opened())
    (opened,) = frames.of_kind(said, Open)
    found = opened.properties.get("failover-server-list")
    assert (found and [(each["network-host"], each["port"]) for each in found]) == hosts


@pytest.mark.option("listeners.redirect-to")
def test_a_listener_may_send_its_clients_on() -> None:
    stage = Stage(options_with({"redirect_to": "b2.example:5671"}))
    talker = stage.connect("app")
    (opened,) = [event for event in talker.events if isinstance(event, Opened)]
    (dead,) = [event for event in talker.events if isinstance(event, Dead)]
    assert opened.open.properties["amqp:connection-establishment-failed"] is True
    assert dead.condition == "amqp:connection:redirect"
    assert redirect_of(dead.error) == RedirectPlace("b2.example", 5671)
    assert stage.admin("status")["connections"] == 0


@pytest.mark.parametrize("place", ["b2", "b2:0", "b2:65536", "b2:", ":5672", "b 2:1", "::1:5672", "b2:05672"])
def test_a_place_that_is_none_is_refused(place: str) -> None:
    for option in (f'redirect-to = "{place}"', f'failover-server-list = ["{place}"]'):
        found = parse(LISTENER + option)
        assert isinstance(found, list)
        assert ["host and its port" in each.why for each in found] == [True]
