"""How long a subscription lasts that is not durable: its expiry policy and its timeout (AMQP 1.0 §3.5.3)."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.wire.performatives import Attach, Detach, Source, Target, Transfer
from mqbroker.wire.types import Described, Symbol

from tests.support import frames
from tests.support.stage import Stage, options_with

TOPIC = (Symbol("topic"),)
GO = frames.anonymous() + frames.opened()
POLICIES = ("link-detach", "session-end", "connection-close")
SELECTOR = Symbol("apache.org:selector-filter:string")


def stage_for_long() -> Stage:
    """Nobody is found silent in the time that these tests let pass."""
    return Stage(options_with({"idle_timeout_ms": 3_600_000}))


def subscribing(channel: int = 1, address: str = "news", **terms: Any) -> bytes:
    source = Source(address=address, capabilities=TOPIC, **terms)
    attach = Attach(name="sub", handle=0, role=True, source=source, target=Target())
    return frames.frame(attach, channel=channel) + frames.flow(0, 10, channel=channel)


def leaving(channel: int = 1, *, closed: bool = False) -> bytes:
    return frames.frame(Detach(handle=0, closed=closed), channel=channel)


def connected(stage: Stage) -> int:
    """A connection with two sessions, on channels 1 and 2."""
    conn = stage.accept()
    stage.talk(conn, GO + frames.begun(1) + frames.begun(2))
    return conn


def subscribed(policy: str, timeout: int = 0) -> tuple[Stage, int]:
    stage = stage_for_long()
    conn = connected(stage)
    stage.talk(conn, subscribing(expiry_policy=Symbol(policy), timeout=timeout))
    assert left(stage) == 1
    return stage, conn


def left(stage: Stage) -> int:
    return len(stage.admin("queues")["queues"])


def publish(stage: Stage, body: str = "one") -> None:
    stage.admin("send", address="news", messages=[{"body": body}])


def came(said: bytes) -> int:
    return sum(isinstance(each, tuple) and isinstance(each[0], Transfer) for each in frames.heard(said))


@pytest.mark.parametrize(
    ("policy", "kept"),
    [("link-detach", [0, 0, 0]), ("session-end", [1, 0, 0]), ("connection-close", [1, 1, 0])],
)
def test_it_lasts_as_long_as_its_policy_says(policy: str, kept: list[int]) -> None:
    stage, conn = subscribed(policy)
    found = []
    for said in (leaving(), frames.end(1), frames.close()):
        stage.talk(conn, said)
        found.append(left(stage))
    assert found == kept


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("is_detached", [True, False])
def test_a_connection_that_is_lost_ends_all_of_them(policy: str, is_detached: bool) -> None:
    stage, conn = subscribed(policy)
    if is_detached:
        stage.talk(conn, leaving())
    stage.drop_bare(conn)
    assert left(stage) == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_link_that_is_closed_takes_its_subscription_with_it(policy: str) -> None:
    stage, conn = subscribed(policy, timeout=100)
    stage.talk(conn, leaving(closed=True))
    assert left(stage) == 0


def test_a_link_that_the_broker_closes_does_too() -> None:
    stage = stage_for_long()
    conn = connected(stage)
    small = Attach(name="sub", handle=0, role=True, source=Source(address="news", capabilities=TOPIC), target=Target(),
                   max_message_size=10)  # fmt: skip
    stage.talk(conn, frames.frame(small, channel=1) + frames.flow(0, 10, channel=1))
    stage.admin("send", address="news", messages=[{"body": "x" * 100}])
    assert frames.errors(bytes(stage.sent[conn])) == [("Detach", "amqp:link:message-size-exceeded")]
    assert left(stage) == 0


@pytest.mark.parametrize("channel", [1, 2])
def test_who_comes_back_by_the_name_of_the_link_gets_what_came_meanwhile(channel: int) -> None:
    stage, conn = subscribed("session-end")
    stage.talk(conn, leaving())
    publish(stage)
    said = stage.talk(conn, subscribing(channel))
    assert (came(said), left(stage)) == (1, 1)
    stage.talk(conn, frames.end(channel))
    assert left(stage) == 0


def test_another_name_or_other_terms_begin_anew() -> None:
    stage, conn = subscribed("connection-close")
    stage.talk(conn, leaving())
    publish(stage)
    other = Attach(name="other", handle=0, role=True, source=Source(address="news", capabilities=TOPIC))
    assert came(stage.talk(conn, frames.frame(other, channel=2) + frames.flow(0, 10, channel=2))) == 0
    assert left(stage) == 2
    selector = {Symbol("s"): Described(SELECTOR, "a = 1")}
    for terms in ({"filter": selector}, {"address": "elsewhere"}):
        policy = Symbol("connection-close")
        assert came(stage.talk(conn, subscribing(expiry_policy=policy, **terms) + leaving())) == 0
        assert left(stage) == 2, "what was kept before is gone"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_timeout_begins_when_the_policy_says(policy: str) -> None:
    stage, conn = subscribed(policy, timeout=10)
    said = {"link-detach": leaving(), "session-end": frames.end(1), "connection-close": frames.close()}
    if policy != "link-detach":
        stage.talk(conn, leaving())
        stage.wait(20_000)
        assert left(stage) == 1
    stage.talk(conn, said[policy])
    publish(stage)
    stage.wait(9_000)
    assert left(stage) == 1
    late = connected(stage)
    assert came(stage.talk(late, subscribing(expiry_policy=Symbol(policy), timeout=10))) == 1
    stage.wait(20_000)
    assert left(stage) == 1, "nothing expires while it is in use"
    stage.drop_bare(late)
    stage.wait(9_900)
    assert left(stage) == 1
    stage.wait(200)
    assert left(stage) == 0


def test_nobody_gets_what_was_kept_for_another_container() -> None:
    stage, conn = subscribed("link-detach", timeout=100)
    stage.talk(conn, leaving())
    publish(stage)
    other = stage.accept()
    hello = frames.opened().replace(b"\xa1\x03raw", b"\xa1\x03war")
    assert hello != frames.opened()
    stage.talk(other, frames.anonymous() + hello + frames.begun(1))
    assert came(stage.talk(other, subscribing())) == 0


def test_a_kept_subscription_that_was_deleted_begins_anew() -> None:
    stage, conn = subscribed("connection-close")
    stage.talk(conn, leaving())
    (row,) = stage.admin("queues")["queues"]
    stage.admin("queue-delete", name=row["name"])
    stage.talk(conn, subscribing())
    publish(stage)
    assert left(stage) == 1
    stage.talk(conn, leaving() + frames.close())
    assert left(stage) == 0


@pytest.mark.option("listeners.link-stealing")
@pytest.mark.parametrize("timeout", [0, 100])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_link_that_is_stolen_leaves_its_subscription_to_the_one_that_has_its_name(policy: str, timeout: int) -> None:
    """§2.6.1: the terminus goes on, whatever its policy, which is about those whose links are gone."""
    stage = Stage(options_with({"idle_timeout_ms": 3_600_000, "link_stealing": "all"}))
    terms: dict[str, Any] = {"expiry_policy": Symbol(policy), "timeout": timeout}
    old = connected(stage)
    stage.talk(old, subscribing(**terms))
    publish(stage)
    new = connected(stage)
    assert came(stage.talk(new, subscribing(**terms))) == 1
    assert left(stage) == 1
    stage.drop_bare(old)
    assert left(stage) == 1, "it is not the old connection's any more"
    stage.drop_bare(new)
    assert left(stage) == int(timeout > 0)


@pytest.mark.parametrize("terms", [{"address": "elsewhere"}, {"filter": {Symbol("s"): Described(SELECTOR, "a ==")}}])
def test_a_stolen_link_whose_subscription_nobody_takes_over_ends_it(terms: dict[str, Any]) -> None:
    stage = Stage(options_with({"idle_timeout_ms": 3_600_000, "link_stealing": "all"}))
    stage.talk(connected(stage), subscribing())
    publish(stage)
    said = stage.talk(connected(stage), subscribing(**terms))
    assert (came(said), left(stage)) == (0, int("address" in terms))
