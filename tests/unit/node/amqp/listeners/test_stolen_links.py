"""A link that its container attaches again from elsewhere (§2.6.1)."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.amqp import sasl
from mqbroker.amqp.events import Detached
from mqbroker.config.users import make_verifier
from mqbroker.wire.performatives import Attach, Open, Source, Transfer
from mqbroker.wire.types import Symbol

from tests.support import frames, transactions
from tests.support.stage import Stage, options_with

STOLEN = [("Detach", "amqp:link:stolen")]
NEWS: dict[str, Any] = {"durable": 2, "expiry_policy": Symbol("never"), "capabilities": (Symbol("topic"),)}


def go(container: str = "app") -> bytes:
    return frames.anonymous() + frames.AMQP_HEADER + frames.frame(Open(container_id=container)) + frames.begun()


def subscriber(name: str = "news", channel: int = 0, credit: int = 10, **source: Any) -> bytes:
    attach = Attach(name=name, handle=0, role=True, source=Source(address="topic", **{**NEWS, **source}))
    return frames.frame(attach, channel=channel) + frames.flow(0, credit, channel=channel)


def consumer(name: str = "in") -> bytes:
    return frames.frame(Attach(name=name, handle=0, role=True, source=Source(address="orders"))) + frames.flow(0, 10)


def bodies(said: bytes) -> list[bytes]:
    return [each[1][-1:] for each in frames.heard(said) if isinstance(each, tuple) and isinstance(each[0], Transfer)]


def connected(stage: Stage, said: bytes) -> tuple[int, bytes]:
    conn = stage.accept()
    return conn, stage.talk(conn, said)


def test_a_durable_subscription_goes_to_the_newer_connection_with_what_it_had() -> None:
    stage = Stage(options_with(address_settings={"topic": {"default_address_routing_type": "MULTICAST"}}))
    old, _ = connected(stage, go() + subscriber())
    stage.admin("send", address="topic", messages=[{"body": "a"}])
    before = len(stage.sent[old])
    new, said = connected(stage, go() + subscriber())
    assert frames.errors(bytes(stage.sent[old][before:])) == STOLEN
    assert (frames.errors(said), bodies(said)) == ([], [b"a"])
    assert [each.fields for each in stage.notices if each.event == "link-stolen"] == [
        {"conn": old, "by": new, "link": "news"}
    ]
    # The old one answers; its connection goes on, and has no part in the subscription any more.
    assert frames.errors(stage.talk(old, frames.detach(0))) == []
    assert stage.admin("queues")["queues"][0]["consumer_count"] == 1
    assert frames.errors(stage.talk(old, subscriber("other"))) == []


def test_another_session_of_the_connection_may_have_it_too() -> None:
    stage = Stage()
    conn, said = connected(stage, go() + subscriber() + frames.begun(1))
    assert frames.errors(said) == []
    said = stage.talk(conn, subscriber(channel=1))
    assert frames.errors(said) == STOLEN
    assert sum(each.source is not None for each in frames.of_kind(said, Attach)) == 1
    # In one session a name is in use until its link has ended.
    assert frames.errors(stage.talk(conn, subscriber(channel=1, name="x") + subscriber(channel=1))) == [
        ("End", "amqp:session:handle-in-use")
    ]


@pytest.mark.parametrize(
    ("container", "said"),
    [
        ("web", subscriber()),
        ("app", subscriber("other")),
        ("app", subscriber(capabilities=(Symbol("topic"), Symbol("shared")))),
        ("app", subscriber(durable=0, expiry_policy=None)),
    ],
    ids=["container", "name", "shared", "not-durable"],
)
def test_others_leave_it_alone(container: str, said: bytes) -> None:
    stage = Stage()
    old, _ = connected(stage, go() + subscriber())
    before = len(stage.sent[old])
    _, answer = connected(stage, go(container) + said)
    assert bytes(stage.sent[old][before:]) == b""
    assert frames.errors(answer) == []


def test_only_its_own_user_steals_a_link() -> None:
    users = {name: make_verifier("pw", bytes(16), ("shop",), 4096) for name in ("ann", "bob")}
    stage = Stage(options_with({"sasl_mechanisms": ("SCRAM-SHA-256",)}), users)

    def subscribed(user: str) -> list[str | None]:
        """Ends of the links of a new connection of the user, each in one session."""
        talker = stage.connect(user, sasl.SaslClient(user, "pw", b"n" * 32), Open(container_id="app"))
        assert talker.session is not None
        source = Source(address="topic", **NEWS)
        talker.session.attach_receiver(Attach(name="news", handle=0, role=True, source=source))
        stage.run()
        ended = [event.error for event in talker.events if isinstance(event, Detached)]
        return [str(error.condition) for error in ended if error is not None]

    assert subscribed("ann") == []
    assert subscribed("bob") == ["amqp:resource-locked"]
    assert subscribed("ann") == []


@pytest.mark.option("listeners.link-stealing")
@pytest.mark.parametrize(
    ("mode", "durable", "plain"), [("none", [], []), ("durable", STOLEN, []), ("all", STOLEN, STOLEN)]
)
def test_a_listener_says_which_links_may_be_stolen(mode: str, durable: list[Any], plain: list[Any]) -> None:
    stage = Stage(options_with({"link_stealing": mode}))
    for said, wanted in ((subscriber(), durable), (consumer(), plain)):
        old, _ = connected(stage, go() + said)
        before = len(stage.sent[old])
        _, answer = connected(stage, go() + said)
        assert frames.errors(bytes(stage.sent[old][before:])) == wanted
        is_locked = mode == "none" and said == subscriber()
        assert frames.errors(answer) == ([("Detach", "amqp:resource-locked")] if is_locked else [])


def test_a_coordinator_is_never_stolen() -> None:
    stage = Stage(options_with({"link_stealing": "all"}))
    attach = frames.frame(transactions.coordinator_attach())
    old, _ = connected(stage, go() + attach)
    before = len(stage.sent[old])
    connected(stage, go() + attach)
    assert bytes(stage.sent[old][before:]) == b""


def test_a_name_is_free_when_its_link_or_connection_is_gone() -> None:
    stage = Stage()
    old, _ = connected(stage, go() + subscriber())
    stage.drop_bare(old)
    second, said = connected(stage, go() + subscriber())
    assert frames.errors(said) == []
    stage.talk(second, frames.end())
    assert stage.broker.termini._stealing._owners == {}
