"""URIs: forms, options, faults."""

from __future__ import annotations

from dataclasses import replace

import pytest
from mqbroker.client.errors import UriFault
from mqbroker.client.io.connection import connect
from mqbroker.client.options import Settings
from mqbroker.client.uri import OPTIONS, Endpoint, Group, checked, parse_uri

A, B = Endpoint("a", 5672), Endpoint("b", 5673)


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("amqp://a", (A,)),
        ("tcp://a:5672/", (A,)),
        ("amqps://a", (Endpoint("a", 5671, True),)),
        ("amqp://a,b:5673", (A, B)),
        ("amqp://a,a:5672", (A,)),
        ("(amqp://a,amqps://b:1)?reconnect-attempts=1", (A, Endpoint("b", 1, True))),
        ("failover:(tcp://a,tcp://b:5673)", (A, B)),
        ("failover:amqp://a", (A,)),
        ("amqp://[::1]:5673", (Endpoint("::1", 5673),)),
    ],
)
def test_forms(text: str, endpoints: tuple[Endpoint, ...]) -> None:
    assert parse_uri(text).endpoints == endpoints


def test_login() -> None:
    settings = parse_uri("amqp://us%40er:p%3A%C3%A4:w@a,b:5673").settings
    assert (settings.user, settings.password) == ("us@er", "p:ä:w")
    assert parse_uri("amqp://a").settings.user is None
    assert parse_uri("(amqp://u:p@a,amqp://b)").settings.user == "u"


def test_options_in_both_spellings() -> None:
    query = "reconnect-attempts=-1&retryInterval=100&retry-interval-multiplier=1.5&maxRetryInterval=900"
    more = "&initialConnectAttempts=3&connectionLoadBalancingPolicy=random&callTimeout=7&client-id=x%20y"
    assert parse_uri(f"amqp://a?{query}{more}").settings == Settings(
        reconnect_attempts=-1, retry_interval_ms=100, retry_interval_multiplier=1.5, max_retry_interval_ms=900,
        initial_connect_attempts=3, connection_load_balancing_policy="random", call_timeout_ms=7, container_id="x y",
    )  # fmt: skip


def test_defaults_are_artemis_s() -> None:
    settings = parse_uri("amqp://a").settings
    assert (settings.reconnect_attempts, settings.initial_connect_attempts) == (0, 0)
    assert (settings.retry_interval_ms, settings.max_retry_interval_ms) == (2000, 2000)
    assert settings.retry_interval_multiplier == 1.0


def test_failover_has_activemq_s_names_and_defaults() -> None:
    settings = parse_uri("failover:(amqp://a)").settings
    assert (settings.reconnect_attempts, settings.retry_interval_ms, settings.max_retry_interval_ms) == (-1, 10, 30_000)
    told = parse_uri("failover:(amqp://a)?randomize=false&maxReconnectAttempts=2&initialReconnectDelay=5").settings
    assert told.connection_load_balancing_policy == "first-element"
    assert (told.reconnect_attempts, told.retry_interval_ms) == (2, 5)
    with pytest.raises(UriFault, match="unknown option"):
        parse_uri("amqp://a?maxReconnectAttempts=2")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a:5672", "has no scheme"),
        ("mqtt://a", "the scheme is one of"),
        ("amqp://", "is no host:port"),
        ("amqp://a:0", "port from 1 to 65535"),
        ("amqp://a:99999", "port from 1 to 65535"),
        ("amqp://::1", "IPv6 stands in brackets"),
        ("(amqp://a", "nothing closes"),
        ("failover:()", "names 0 brokers"),
        ("amqp://u:%zz@a", "two hexadecimal digits"),
        ("amqp://u%ff@a", "not UTF-8"),
        ("amqp://a?reconnect-atempts=1", "did you mean reconnect-attempts"),
        ("amqp://a?reconnect-attempts", "it has no value"),
        ("amqp://a?reconnect-attempts=-2", "a whole number from -1"),
        ("amqp://a?retry-interval=x", "a whole number from 0"),
        ("amqp://a?retry-interval-multiplier=0.5", "from 1.0 on"),
        ("amqp://a?connection-load-balancing-policy=best", "one of round-robin"),
        ("amqp://a?allow-plain=yes", "true or false"),
    ],
)
def test_faults_say_what_and_where(text: str, words: str) -> None:
    with pytest.raises(UriFault, match=words):
        parse_uri(text)


def test_faults_show_no_password() -> None:
    for text in ("amqp://u:secret@a:0", "mqtt://u:secret@a", "amqp:u:secret@a", "amqp://u:secret?@a", "u:secret"):
        with pytest.raises(UriFault) as raised:
            parse_uri(text)
        assert "secret" not in str(raised.value)


def test_settings_show_no_password() -> None:
    assert "sesame" not in repr(parse_uri("amqp://u:sesame@a"))
    assert "sesame" not in repr(Settings(cluster_secret="sesame"))


def test_values_of_a_call_have_the_same_bounds() -> None:
    assert checked(Settings()) == Settings()
    for wrong in ({"reconnect_attempts": -2}, {"retry_interval_multiplier": 0.5}, {"pending_max": 0},
                  {"connection_load_balancing_policy": "x"}):  # fmt: skip
        with pytest.raises(UriFault):
            checked(replace(Settings(), **wrong))
    assert set(Settings.__slots__) >= {field for field, _ in OPTIONS.values()}


def test_brokers_that_announce_themselves() -> None:
    query = "localBindAddress=192.0.2.1&refreshTimeout=500&initialWaitTimeout=700&cluster-secret-file=/etc/x"
    found = parse_uri(f"udp://231.7.7.7:9876?{query}&reconnect-attempts=-1")
    assert (found.endpoints, found.group) == ((), Group("231.7.7.7", 9876))
    assert found.settings == Settings(
        local_bind_address="192.0.2.1", refresh_timeout_ms=500, initial_wait_timeout_ms=700,
        cluster_secret_file="/etc/x", reconnect_attempts=-1,
    )  # fmt: skip
    login = parse_uri("udp://us%40er:p@231.7.7.7:9876").settings
    assert (login.user, login.password) == ("us@er", "p")
    defaults = parse_uri("udp://231.7.7.7:9876").settings
    assert (defaults.refresh_timeout_ms, defaults.initial_wait_timeout_ms) == (10_000, 10_000)


@pytest.mark.parametrize("place", ["192.0.2.1:9876", "231.7.7.7", "231.7.7.7:0", "231.7.7.7:99999", "[ff02::1]:9"])
def test_what_is_no_group(place: str) -> None:
    with pytest.raises(UriFault, match="no udp://group:port with a multicast address"):
        parse_uri(f"udp://{place}")


def test_options_of_groups_go_with_groups_alone() -> None:
    with pytest.raises(UriFault, match=r"option 'refreshTimeout' of the URI: unknown"):
        parse_uri("amqp://a?refreshTimeout=500")


def test_without_the_secret_nobody_is_believed() -> None:
    with pytest.raises(UriFault, match="udp:// needs the cluster's secret, cluster-secret-file"):
        connect("udp://231.7.7.7:9876")


def test_topology_and_time_of_calls() -> None:
    settings = parse_uri("amqp://a?useTopologyForLoadBalancing=false&callFailoverTimeout=900").settings
    assert (settings.use_topology_for_load_balancing, settings.call_failover_timeout_ms) == (False, 900)
    assert parse_uri("amqp://a").settings.use_topology_for_load_balancing
    assert parse_uri("amqp://a").settings.call_failover_timeout_ms == -1
