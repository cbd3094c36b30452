"""Other places to connect to: how they are written, encoded and read."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp.redirect import RedirectPlace, failover_servers, place_of, redirect_info, redirect_of
from mqbroker.wire.performatives import Close, Detach, Error
from mqbroker.wire.types import Symbol, UShort

from tests.support import frames

PLACES = {
    "b2.example:5672": RedirectPlace("b2.example", 5672), "192.0.2.7:1": RedirectPlace("192.0.2.7", 1),
    "[::1]:65535": RedirectPlace("::1", 65535),
}  # fmt: skip


@pytest.mark.parametrize("text", PLACES)
def test_places_are_hosts_with_ports(text: str) -> None:
    assert place_of(text) == PLACES[text]


@pytest.mark.parametrize(
    ("place", "condition", "kind"),
    [
        (RedirectPlace("b2", 5672), "amqp:connection:redirect", Close),
        (RedirectPlace("b2", 1, "orders"), "amqp:link:redirect", Detach),
    ],
)
def test_a_redirect_is_read_as_it_was_written(place: RedirectPlace, condition: str, kind: Any) -> None:
    error = Error(Symbol(condition), "go on", redirect_info(place))
    sent = Close(error=error) if kind is Close else Detach(handle=0, closed=True, error=error)
    (got,) = frames.heard(frames.frame(sent))
    assert got.error.info[Symbol("port")] == UShort(place.port)
    assert redirect_of(got.error) == place


@pytest.mark.parametrize(
    "info",
    [None, {}, {"network-host": "b2"}, {"network-host": "b2", "port": 0}, {"network-host": "b2", "port": 65536},
     {"network-host": "", "port": 1}, {"network-host": 7, "port": 1}, {"network-host": "b2", "port": "5672"}],
)  # fmt: skip
def test_a_redirect_to_nowhere_is_none(info: dict[str, Any] | None) -> None:
    said = None if info is None else {Symbol(name): value for name, value in info.items()}
    assert redirect_of(Error(Symbol("amqp:connection:redirect"), None, said)) is None


def test_other_errors_are_no_redirects() -> None:
    info = redirect_info(RedirectPlace("b2", 5672))
    assert redirect_of(None) is None
    assert redirect_of(Error(Symbol("amqp:connection:forced"), None, info)) is None


@pytest.mark.parametrize(("has_tls", "scheme"), [(False, "amqp"), (True, "amqps")])
def test_the_list_for_a_failover(has_tls: bool, scheme: str) -> None:
    (entry,) = failover_servers((RedirectPlace("::1", 5671),), has_tls=has_tls)
    assert {str(name): value for name, value in entry.items()} == {
        "hostname": "::1", "network-host": "::1", "port": UShort(5671), "scheme": scheme,
    }  # fmt: skip
