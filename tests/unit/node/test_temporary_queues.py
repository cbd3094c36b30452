"""Temporary queues and topics beside everything else: they are their maker's, and end for good."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.conversation import Conversation

OTHERS = "belongs to another connection"


def made(*kind: str) -> tuple[Conversation, str]:
    """Two clients, and the name of what the first one has."""
    talk = Conversation()
    talk.run("connect c")
    talk.run("connect d")
    talk.run(" ".join(("attach c from temporary credit=10", *kind)))
    return talk, next(iter(talk.stage.broker.store.addresses))


def names(talk: Conversation) -> list[Any]:
    return [row["name"] for row in talk.stage.admin("queues")["queues"]]


def gone(*kind: str) -> tuple[Conversation, str]:
    """The same when the first one has left."""
    talk, name = made(*kind)
    talk.run("detach c temporary")
    assert names(talk) == []
    return talk, name


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize(
    "attach", ["to {0}", "from {0}", "from {0} topic", "to {0}::x", "from {0}::x", "from x::{0}", "to {0} topic"]
)
def test_nobody_makes_one_that_is_gone(kind: str, attach: str) -> None:
    talk, name = gone(kind)
    said = talk.run(f"attach d {attach.format(name)}")
    assert any("is gone: amqp:not-found" in line for line in said)
    assert (names(talk), list(talk.stage.broker.store.addresses)) == ([], [])


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_who_sends_to_one_that_is_gone_is_told(kind: str) -> None:
    talk, name = made(kind)
    talk.run(f"attach d to {name}")
    talk.run("attach d to nobody")
    talk.run("detach c temporary")
    assert talk.run(f"publish d nobody to={name}") == ["d learns rejected (amqp:not-found): m1"]
    said = talk.run(f"publish d {name}")
    # A topic that nobody subscribes to takes messages and keeps none.
    assert said == ["d learns accepted: m2"] if kind == "topic" else any("amqp:not-found" in line for line in said)
    assert names(talk) == []


def test_a_commit_with_a_message_for_one_that_is_gone_is_rolled_back() -> None:
    talk, name = made()
    talk.run(f"attach d to {name}")
    talk.run("declare d t1")
    assert talk.run(f"publish d {name} txn=t1") == ["d learns provisionally accepted: m1"]
    talk.run("detach c temporary")
    assert talk.run("commit d t1") == ["d learns rejected (amqp:not-found): t1"]
    assert names(talk) == []


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_nobody_else_has_a_queue_at_its_address(kind: str) -> None:
    """A second queue would share the answers out, or copy them."""
    talk, name = made(kind)
    before = names(talk)
    assert any(OTHERS in line for line in talk.run(f"attach d from {name}::x credit=10"))
    assert any("amqp:not-found" in line for line in talk.run(f"attach d to {name}::y"))
    assert names(talk) == before
    talk.run(f"attach d to {name}")
    assert "c gets: m1" in talk.run(f"publish d {name}")


@pytest.mark.parametrize("name", ["mq:topology", "mq:notices"])
def test_what_only_tells_takes_no_message_by_any_way(name: str) -> None:
    talk, _ = gone()
    talk.run("attach d to nobody")
    assert talk.run(f"publish d nobody to={name}") == ["d learns rejected (amqp:not-allowed): m1"]
    talk.run("declare d t1")
    assert "provisionally rejected" in talk.run(f"publish d nobody to={name} txn=t1")[0]
    for attach in (f"to {name}", f"to {name}::x", f"from {name}::x"):
        assert any("amqp:not-allowed" in line for line in talk.run(f"attach d {attach}"))
    assert names(talk) == []
