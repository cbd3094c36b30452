"""Which broker is tried next: rounds, back-off, what brokers tell, redirects, policies."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp.redirect import RedirectPlace, failover_servers, place_of
from mqbroker.client.errors import UriFault
from mqbroker.client.options import Settings
from mqbroker.client.places import REDIRECTS_MAX, Places
from mqbroker.client.policies import first_element, policy_named
from mqbroker.client.uri import POLICIES, Endpoint


def servers(places: tuple[str, ...], *, has_tls: bool) -> Any:
    return failover_servers(map(place_of, places), has_tls=has_tls)


A, B, C = Endpoint("a", 1), Endpoint("b", 2), Endpoint("c", 3)


def places(*configured: Endpoint, **settings: Any) -> Places:
    return Places(configured or (A, B, C), first_element, Settings(**settings))


def round_of(found: Places) -> list[Endpoint]:
    found.begin_round()
    return list(iter(found.next, None))


def test_a_round_tries_each_once_from_where_the_policy_says() -> None:
    found = Places((A, B, C), lambda count: 1, Settings())
    assert round_of(found) == [B, C, A]


def test_the_one_that_failed_comes_last() -> None:
    found = places()
    found.lost(A)
    assert round_of(found) == [B, C, A]
    assert round_of(places(A)) == [A]


def test_what_brokers_tell_is_added_and_never_replaces_the_configuration() -> None:
    found = places(A)
    found.opened({"failover-server-list": servers(("b:2", "a:1"), has_tls=False)})
    assert round_of(found) == [A, B]
    found.opened({"failover-server-list": []})
    assert round_of(found) == [A]
    found.opened({"failover-server-list": ["x", {"network-host": 7}, {"network-host": "b", "port": 0}]})
    found.opened({"failover-server-list": "x"})
    found.opened(None)
    assert round_of(found) == [A]


def test_what_a_broker_tells_later_takes_the_place_of_what_it_told_before() -> None:
    found = places(A)
    found.opened({"failover-server-list": servers(("b:2",), has_tls=False)}, A)
    found.learn(servers(("c:3",), has_tls=False))
    assert round_of(found) == [A, C]
    found.learn(None)
    assert round_of(found) == [A, C]
    found.learn([])
    assert round_of(found) == [A]


def test_the_one_that_it_stands_at_is_kept_where_it_was_told_of() -> None:
    found = places(A)
    found.learn(servers(("b:2",), has_tls=False))
    found.opened({"failover-server-list": servers(("c:3",), has_tls=False)}, B)
    assert round_of(found) == [A, C, B]
    found.learn([])
    assert round_of(found) == [A, B]
    found.opened({"failover-server-list": []}, A)
    assert round_of(found) == [A]
    found.opened({"failover-server-list": []}, C)  # a redirect led there, and no list: redirects may lead elsewhere
    assert round_of(found) == [A]


def test_a_connection_with_tls_is_not_sent_to_one_without() -> None:
    found = places(Endpoint("a", 1, True))
    found.opened({"failover-server-list": servers(("b:2",), has_tls=False)})
    assert found.learned == ()
    found.opened({"failover-server-list": servers(("b:2",), has_tls=True)})
    assert found.learned == (Endpoint("b", 2, True),)


def told(found: Places, *others: str) -> None:
    found.opened({"failover-server-list": servers(others, has_tls=False)})


def test_what_brokers_tell_is_balanced_over_like_the_configuration() -> None:
    counts: list[int] = []

    def last(count: int) -> int:
        counts.append(count)
        return count - 1

    found = Places((A,), last, Settings())
    assert round_of(found) == [A]
    told(found, "b:2", "c:3")
    assert round_of(found) == [C, A, B]
    assert counts == [1, 3]


def test_without_topology_the_uri_alone_is_balanced_over_and_others_come_last() -> None:
    found = Places((A, B), lambda count: 1, Settings(use_topology_for_load_balancing=False))
    told(found, "c:3")
    assert round_of(found) == [B, A, C]


def test_brokers_that_announce_themselves_take_the_place_of_those_before_and_silence_of_none() -> None:
    found = Places((), first_element, Settings())
    found.discovered((A, B))
    assert round_of(found) == [A, B]
    found.discovered((C,))
    found.discovered(())
    assert round_of(found) == [C]


def test_redirects_are_next_and_end() -> None:
    found = places(A)
    found.begin_round()
    assert found.next() == A
    assert found.redirect(RedirectPlace("z", 9), False)
    assert found.next() == Endpoint("z", 9)
    assert [found.redirect(RedirectPlace("z", 9), False) for _ in range(REDIRECTS_MAX)][-1] is False


def test_delays_grow_to_their_bound() -> None:
    found = places(retry_interval_ms=100, retry_interval_multiplier=2.0, max_retry_interval_ms=700)
    delays = []
    for found.rounds in range(1, 6):
        delays.append(found.delay_ms())
    assert delays == [100, 200, 400, 700, 700]
    found.rounds = 1 << 40
    assert found.delay_ms() == 700


@pytest.mark.parametrize(
    ("settings", "was_connected", "allowed"),
    [
        ({}, False, 1),
        ({"initial_connect_attempts": 3}, False, 3),
        ({}, True, 0),
        ({"reconnect_attempts": 2}, True, 2),
    ],
)
def test_attempts_are_counted(settings: dict[str, int], was_connected: bool, allowed: int) -> None:
    found = places(**settings)
    for found.rounds in range(allowed):
        assert found.may_go_on(was_connected=was_connected)
    found.rounds = allowed
    assert not found.may_go_on(was_connected=was_connected)


def test_minus_one_is_for_ever() -> None:
    found = places(reconnect_attempts=-1, initial_connect_attempts=-1)
    found.rounds = 1 << 40
    assert found.may_go_on(was_connected=True)
    assert found.may_go_on(was_connected=False)


def test_policies() -> None:
    drawn = iter([2, 0, 1, 0])
    chosen = {name: policy_named(name, lambda count: next(drawn)) for name in POLICIES}
    assert [chosen["round-robin"](3) for _ in range(4)] == [2, 0, 1, 2]
    assert [chosen["random"](3) for _ in range(2)] == [0, 1]
    assert [chosen["random-sticky"](3) for _ in range(3)] == [0, 0, 0]
    assert [chosen["first-element"](3) for _ in range(2)] == [0, 0]
    with pytest.raises(UriFault):
        policy_named("best", lambda count: 0)
