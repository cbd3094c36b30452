"""What nodes say of themselves in their Opens, and what an answer means."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.cluster.discovery.announcement import Connector
from mqbroker.node.values.handshake import (
    TTL_MS_MAX,
    TTL_MS_MIN,
    HandshakeVerdict,
    Hello,
    connector_of,
    hello_of,
    verdict,
)
from mqbroker.wire.performatives import Open
from mqbroker.wire.types import Symbol

OURS, THEIRS, OTHER = "node-1", "node-2", "node-3"


def opened(**properties: Any) -> Open:
    return Open("x", properties={Symbol(f"mq:{name.replace('_', '-')}"): value for name, value in properties.items()})


def test_what_is_said_comes_over_whole() -> None:
    said = Hello("node-1", "b00t", "cluster", Connector("", "amqps", "mq1.example", 5673), 60_000)
    assert hello_of(Open("x", properties=said.properties)) == said
    yielded = said._replace(started_ms=1_700_000_000_000, has_yielded=True, term=2**63 - 1)
    assert hello_of(Open("x", properties=yielded.properties)) == yielded
    bare = Hello("node-1", "b00t", "cluster", None)
    assert hello_of(Open("x", properties=bare.properties)) == bare


@pytest.mark.parametrize("missing", ["node_id", "boot_id", "cluster_connection"])
@pytest.mark.parametrize("wrong", [None, 7, b"x"])
def test_who_does_not_say_who_it_is_is_no_node(missing: str, wrong: Any) -> None:
    said: dict[str, Any] = {"node_id": "n", "boot_id": "b", "cluster_connection": "c"}
    assert hello_of(opened(**said)) is not None
    assert hello_of(opened(**(said | {missing: wrong}))) is None
    assert hello_of(Open("x")) is None


@pytest.mark.parametrize("said", [False, 1, "true", None])
def test_only_who_says_so_has_yielded(said: Any) -> None:
    found = hello_of(opened(node_id="n", boot_id="b", cluster_connection="c", yielded=said))
    assert found is not None
    assert found.has_yielded is False


@pytest.mark.parametrize("said", [0, -1, 2**63, True, "7", b"7", None, 1.0])
@pytest.mark.parametrize("name", ["term", "started_ms"])
def test_what_is_no_number_within_bounds_says_nothing(name: str, said: Any) -> None:
    found = hello_of(opened(node_id="n", boot_id="b", cluster_connection="c", **{name: said}))
    assert found is not None
    assert getattr(found, name) == 0


def test_without_a_term_nothing_is_said_of_it() -> None:
    """So the words of a node are those of earlier releases until there are pairs."""
    assert Symbol("mq:term") not in hello("node-1").properties
    assert (hello("node-1").start.term, hello("node-1")._replace(term=3).start.term) == (0, 3)


@pytest.mark.parametrize("bad", ["", "n" * 65, "a b", "\u0000"])
def test_ids_are_well_formed(bad: str) -> None:
    assert hello_of(opened(node_id=bad, boot_id="b", cluster_connection="c")) is None


@pytest.mark.parametrize(
    ("said", "kept"), [(1, TTL_MS_MIN), (60_000, 60_000), (2**32 - 1, TTL_MS_MAX), (0, 0), (-5, 0), ("x", 0), (True, 0)]
)
def test_the_time_to_live_is_bounded(said: Any, kept: int) -> None:
    found = hello_of(opened(node_id="n", boot_id="b", cluster_connection="c", connection_ttl=said))
    assert found is not None
    assert found.ttl_ms == kept


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("amqp://mq1:5673", ("amqp", "mq1", 5673)),
        ("amqps://192.0.2.7:1", ("amqps", "192.0.2.7", 1)),
        ("amqp://[2001:db8::7]:65535", ("amqp", "2001:db8::7", 65535)),
    ],
)
def test_places(uri: str, place: tuple[str, str, int]) -> None:
    found = connector_of(uri)
    assert found is not None
    assert (found.scheme, found.host, found.port) == place
    assert found.uri == uri


@pytest.mark.parametrize(
    "uri",
    ["", "mq1:5673", "http://mq1:80", "amqp://mq1", "amqp://mq1:0", "amqp://mq1:65536", "amqp://a b:1", "amqp://:1"],
)
def test_what_is_no_place(uri: str) -> None:
    assert connector_of(uri) is None


def hello(node_id: str, boot_id: str = "b") -> Hello:
    return Hello(node_id, boot_id, "cluster", None)


@pytest.mark.parametrize(
    ("dialled", "answer", "meaning"),
    [
        ("", None, HandshakeVerdict.NO_NODE),
        (THEIRS, None, HandshakeVerdict.NO_NODE),
        ("", hello(OURS, "ours"), HandshakeVerdict.OURSELVES),
        (THEIRS, hello(OURS, "ours"), HandshakeVerdict.OURSELVES),
        ("", hello(OURS), HandshakeVerdict.CONFLICT),
        (THEIRS, hello(OURS), HandshakeVerdict.CONFLICT),
        ("", hello(THEIRS), HandshakeVerdict.GOOD),
        (THEIRS, hello(THEIRS), HandshakeVerdict.GOOD),
        (THEIRS, hello(OTHER), HandshakeVerdict.ANOTHER),
    ],
)
def test_verdicts(dialled: str, answer: Hello | None, meaning: HandshakeVerdict) -> None:
    assert verdict(dialled, answer, OURS, "ours") is meaning
