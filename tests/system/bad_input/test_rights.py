"""What a peer that is logged in may not have or do: refused on its link, by a running broker, without TLS and with it.

The numbers are those of the cases in test_amqp.py; these need rights, or selectors, or another connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from mqbroker.config.users import DEFAULT_ROLES
from mqbroker.wire.performatives import Attach, Begin, Detach, Disposition, Flow, Rejected, Source, Target, Transfer
from mqbroker.wire.sections import Properties, build_message
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.bad_input import SELECTORS, selecting
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.system.bad_input.peer import Bystander, Peer

EVERYTHING = ("send", "consume", "browse", "create-address", "create-durable-queue", "create-non-durable-queue",
              "delete-durable-queue", "delete-non-durable-queue")  # fmt: skip
RIGHTS = {
    match: {permission: list(DEFAULT_ROLES) for permission in permissions}
    for match, permissions in (("bad-input", EVERYTHING), ("temporary.#", EVERYTHING), ("full", EVERYTHING[:3]))
}
UNAUTHORIZED, NOT_ALLOWED = "amqp:unauthorized-access", "amqp:not-allowed"


@pytest.fixture(scope="module", params=["plain", "tls"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    listener: dict[str, Any] = {}
    directory = tmp_path_factory.mktemp("rights")
    tls = None
    if request.param == "tls":
        authority = Authority(directory / "ca")
        listener |= authority.listener()
        tls = authority.client()
    with BrokerProcess(directory, {"security-settings": RIGHTS}, listener, tls=tls) as made:
        made.admin("queue-create", name="raw.news", address="secret", routing_type="multicast")
        made.admin("send", address="secret", messages=[{"body": "x"}])
        yield made


@pytest.fixture
def peers(broker: BrokerProcess) -> Iterator[tuple[Peer, Bystander]]:
    """One that does what it should not, and one that works on; nothing is made that nobody may have."""
    before = names(broker)
    with Bystander(broker) as bystander, Peer(broker) as peer:
        bystander.work()
        peer.login()
        yield peer, bystander
        bystander.work()
    broker.wait_for_connections(0)
    assert names(broker) - before <= {"bad-input"}
    assert broker.admin("status")["state"] == "active"
    assert "Traceback" not in broker.log
    assert 'event="bug"' not in broker.log


def names(broker: BrokerProcess) -> set[str]:
    return {row["name"] for row in broker.admin("queues")["queues"]}


def receiving(source: Source | None, name: str = "r") -> bytes:
    return frames.frame(Attach(name=name, handle=7, role=True, source=source, target=Target()))


def sending(target: Target) -> bytes:
    attach = Attach(name="s", handle=7, role=False, source=Source(), target=target, initial_delivery_count=0)
    return frames.frame(attach)


TOPIC, BROWSE = (Symbol("topic"),), Symbol("copy")
REFUSED: dict[str, tuple[bytes, str]] = {
    **SELECTORS,
    "(15) looking up a subscription of an address that is not his": (receiving(None, "news"), UNAUTHORIZED),
    "(15) browsing it": (receiving(Source(address="secret::raw.news", distribution_mode=BROWSE)), UNAUTHORIZED),
    "(15) browsing it by its own name": (receiving(Source(address="raw.news", distribution_mode=BROWSE)), UNAUTHORIZED),
    "(15) consuming from it": (receiving(Source(address="raw.news")), UNAUTHORIZED),
    "(19) sending where nothing is": (sending(Target(address="elsewhere")), UNAUTHORIZED),
    "(19) sending to a queue of its own": (sending(Target(address="elsewhere::q")), UNAUTHORIZED),
    "(19) consuming where nothing is": (receiving(Source(address="elsewhere")), UNAUTHORIZED),
    "(19) subscribing where nothing is": (receiving(Source(address="elsewhere", capabilities=TOPIC)), UNAUTHORIZED),
    "(19) an address that he may only send to": (sending(Target(address="full")), UNAUTHORIZED),
    "(19) a queue that he may only consume from": (receiving(Source(address="full::q")), UNAUTHORIZED),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_link_is_refused_and_nothing_else(peers: tuple[Peer, Bystander], case: str) -> None:
    peer, bystander = peers
    data, condition = REFUSED[case]
    peer.send(data + frames.begun(3))
    peer.wait_for(Begin, 2)
    bystander.work()
    assert frames.errors(bytes(peer.said)) == [("Detach", condition)]


def test_messages_that_name_their_address_are_refused_one_by_one(peers: tuple[Peer, Bystander]) -> None:
    """(19), by a link without an address."""
    peer, _ = peers
    peer.send(sending(Target()))
    peer.wait_for(Flow, 2)
    for number, to in enumerate(("elsewhere", "secret", "elsewhere::q", "full")):
        head = Transfer(handle=7, delivery_id=number, delivery_tag=b"%d" % number, settled=False, message_format=0)
        peer.send(frames.frame(head, build_message("x", properties=Properties(to=to))))
        (*_, told) = peer.wait_for(Disposition, number + 1)
        assert isinstance(told.state, Rejected)
        assert told.state.error is not None
        assert told.state.error.condition == UNAUTHORIZED


@pytest.mark.parametrize("mode", [None, BROWSE])
def test_a_temporary_queue_is_nobody_elses(peers: tuple[Peer, Bystander], mode: Symbol | None) -> None:
    """(16)."""
    peer, bystander = peers
    bystander.send(receiving(Source(dynamic=True)))
    (*_, answer) = bystander.wait_for(Attach, 2)
    name = str(answer.source.address)
    peer.send(receiving(Source(address=name, distribution_mode=mode)) + frames.begun(3))
    peer.wait_for(Begin, 2)
    assert frames.errors(bytes(peer.said)) == [("Detach", NOT_ALLOWED)]
    peer.send(frames.detach(7) + receiving(Source(address=f"{name}::{name}", distribution_mode=mode), "again"))
    peer.wait_for(Detach, 2)
    assert frames.errors(bytes(peer.said)) == [("Detach", NOT_ALLOWED)] * 2


def test_a_pattern_of_many_parts_holds_nobody_up(peers: tuple[Peer, Bystander]) -> None:
    """(14): a selector that naive matching would look at for years."""
    peer, bystander = peers
    peer.send(selecting(f"a LIKE '{'%a' * 2000}b'") + frames.flow(7, 10))
    peer.wait_for(Attach, 2)
    message = build_message("x", application_properties={"a": "a" * 20_000})
    peer.send(frames.frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=False), message))
    peer.wait_for(Disposition)
    bystander.work()
    assert frames.errors(bytes(peer.said)) == []
    assert not any(isinstance(each, Transfer) for each in peer.heard())
