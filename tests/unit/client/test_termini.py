"""What senders and receivers ask of a broker, and terms that contradict each other."""

from __future__ import annotations

from typing import Any

import pytest
from mqbroker.client.errors import UriFault
from mqbroker.client.options import ReceiverTerms, SenderTerms
from mqbroker.client.termini import checked_receiver, receiver_attach, receiver_name, sender_attach
from mqbroker.wire.performatives import Source, Target


def source(**terms: Any) -> Source:
    found = receiver_attach("name", ReceiverTerms(**terms), 1000).source
    assert found is not None
    return found


def test_senders() -> None:
    attach = sender_attach("s", SenderTerms(address="a", topic=True, settled=True))
    assert isinstance(attach.target, Target)
    assert (attach.target.address, attach.target.capabilities, attach.snd_settle_mode) == ("a", ("topic",), 1)
    anonymous = sender_attach("s", SenderTerms()).target
    assert isinstance(anonymous, Target)
    assert (anonymous.address, anonymous.capabilities) == (None, None)


@pytest.mark.parametrize(
    ("terms", "durable", "expiry", "mode", "capabilities"),
    [
        ({"address": "a"}, 0, "session-end", None, None),
        ({"address": "a", "topic": False}, 0, "session-end", None, ("queue",)),
        ({"address": "a", "browse": True}, 0, "session-end", "copy", None),
        ({"address": "a", "subscription": "s"}, 2, "never", "copy", ("topic",)),
        ({"address": "a", "subscription": "s", "shared": True}, 2, "never", "copy", ("topic", "shared")),
        ({"address": "a", "subscription": "s", "shared": True, "durable": False}, 0, "session-end", None,
         ("topic", "shared")),
        ({"address": "a", "subscription": "s", "shared_globally": True}, 2, "never", "copy",
         ("topic", "shared", "global")),
        ({"temporary": True}, 0, "session-end", None, ("temporary-queue",)),
    ],
)  # fmt: skip
def test_sources(terms: dict[str, Any], durable: int, expiry: str, mode: str | None, capabilities: Any) -> None:
    found = source(**terms)
    assert (found.durable, found.expiry_policy, found.distribution_mode) == (durable, expiry, mode)
    assert found.capabilities == capabilities
    assert found.dynamic == ("temporary" in terms)


def test_filters_and_modes() -> None:
    attach = receiver_attach("r", ReceiverTerms("a", selector="x = 1", no_local=True, confirm=True, priority=3), 1000)
    assert attach.source is not None
    assert {str(key) for key in attach.source.filter or {}} == {
        "apache.org:selector-filter:string", "apache.org:no-local-filter:list"
    }  # fmt: skip
    assert (attach.rcv_settle_mode, attach.max_message_size, attach.properties) == (1, 1000, {"priority": 3})
    assert receiver_attach("r", ReceiverTerms("a", settled=True), 1000).snd_settle_mode == 1


def test_names() -> None:
    assert receiver_name(3, ReceiverTerms("a")) == "receiver-3"
    assert receiver_name(3, ReceiverTerms("a", subscription="s")) == "s"
    assert receiver_name(3, ReceiverTerms("a", subscription="s", shared=True)) == "s|3"


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"credit": 0}, "from 1 to"),
        ({"settled": True, "confirm": True}, "choose one"),
        ({"browse": True, "confirm": True}, "browse is for queues"),
        ({"shared": True}, "needs the name"),
        ({"subscription": "a|b"}, "has no |"),
        ({"subscription": "s"}, "connect with a container_id"),
    ],
)
def test_contradictions_are_told(terms: dict[str, Any], words: str) -> None:
    with pytest.raises(UriFault) as raised:
        checked_receiver(ReceiverTerms("a", **terms), has_container_id=False)
    assert words in str(raised.value)


def test_what_is_allowed() -> None:
    for terms in (ReceiverTerms("a", subscription="s"), ReceiverTerms("a", browse=True)):
        assert checked_receiver(terms, has_container_id=True) is terms
    shared = ReceiverTerms("a", subscription="s", shared_globally=True)
    assert checked_receiver(shared, has_container_id=False) is shared
