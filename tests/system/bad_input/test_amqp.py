"""Bad input against a running broker: the specified error, a closed connection, and nobody else disturbed.

Cases with the same number try one weakness in several places: before the login, before open, on an open connection.
They come from advisories of other brokers and from the MUSTs of the specification.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from mqbroker.wire.performatives import (
    Accepted,
    Attach,
    Begin,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Transfer,
    encode,
)  # fmt: skip
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.system.bad_input.peer import BUSY_S, CLOSE_S_MAX, Bystander, Peer

CANARY = "canary-7f3a9c"
MESSAGE_SIZE_MAX = 20_000


@pytest.fixture(scope="module", params=["plain", "tls"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all cases, without TLS and with it: what one peer did must not show to the next."""
    listener: dict[str, Any] = {"max-frame-size-bytes": 262_144, "idle-timeout-ms": 600_000}
    limits = {"max-message-size-bytes": MESSAGE_SIZE_MAX}
    directory = tmp_path_factory.mktemp("bad")
    tls = None
    if request.param == "tls":
        authority = Authority(directory / "ca")
        listener |= authority.listener()
        tls = authority.client()
    with BrokerProcess(directory, {"limits": limits}, listener, tls=tls) as made:
        yield made


@pytest.fixture(scope="module")
def _bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    with Bystander(broker) as made:
        yield made


@pytest.fixture
def bystander(broker: BrokerProcess, _bystander: Bystander) -> Iterator[Bystander]:
    """Works before and after every case, on the one connection that it has had all the time."""
    _bystander.work()
    yield _bystander
    _bystander.work()
    assert broker.admin("status")["state"] == "active"
    log = broker.log
    for secret in (CANARY, broker.password, "Traceback", "ERROR"):
        assert secret not in log
    assert 'event="bug"' not in log


def raw_frame(body: bytes, kind: int = 0, channel: int = 0) -> bytes:
    return (8 + len(body)).to_bytes(4, "big") + bytes([2, kind]) + channel.to_bytes(2, "big") + body


def sized(size: int, kind: int = 0) -> bytes:
    return size.to_bytes(4, "big") + bytes([2, kind, 0, 0])


def nested(depth: int) -> bytes:
    """Lists in lists."""
    value = b"\x45"
    for _ in range(depth):
        value = b"\xd0" + (len(value) + 4).to_bytes(4, "big") + b"\0\0\0\1" + value
    return value


def open_with(properties: bytes) -> bytes:
    """The body of an open whose properties are these bytes."""
    fields = b"\xa1\1x" + b"\x40" * 8 + properties
    return b"\0\x53\x10\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\0\0\0\x0a" + fields


def attach_with(properties: bytes) -> bytes:
    fields = b"\xa1\1x\x52\5\x42" + b"\x40" * 10 + properties
    return b"\0\x53\x12\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\0\0\0\x0e" + fields


def map_of(value: bytes) -> bytes:
    """A map of one symbol to this value."""
    content = b"\xa3\1k" + value
    return b"\xd1" + (len(content) + 4).to_bytes(4, "big") + b"\0\0\0\2" + content


ZERO_WIDTH = [b"\xf0\0\0\0\5\xff\xff\xff\xff" + code for code in (b"\x40", b"\x41", b"\x43", b"\x44", b"\x45")]
TOO_LONG = [code + b"\x7f\xff\xff\xff" for code in (b"\xb1", b"\xb0", b"\xb3", b"\xd1", b"\xd0", b"\xf0")]

# -- before login -----------------------------------------------------------------------------------------------------

GREETINGS = {
    "AMQP 0-9-1": b"AMQP\0\0\x09\1", "MQTT": b"\x10\x10\0\4MQTT\4\2\0\x3c\0\4abcd", "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "STOMP": b"CONNECT\naccept-version:1.2\n\n\0", "TLS": b"\x16\3\1\2\0\1\0\1\xfc\3\3", "zeros": bytes(4096),
    "SSH": b"SSH-2.0-x\r\n", "AMQP without login": frames.opened(),
}  # fmt: skip
BEFORE: dict[str, bytes] = {
    "(1) frame size 2^32-1": sized(0xFFFFFFFF, 1),
    **{f"(2) frame size {size}": sized(size, 1) for size in (0, 1, 7)},
    "(2) doff 0": b"\0\0\0\x08\0\1\0\0",
    "(2) doff 1": b"\0\0\0\x08\1\1\0\0",
    "(2) doff past the end": b"\0\0\0\x08\x09\1\0\0",
    "(2) AMQP frame during SASL": frames.frame(Open(container_id=CANARY)),
    "(3) frame above the maximum before open": sized(4097, 1),
    **{f"(5) array of 2^32-1 nothings {n}": raw_frame(b"\0\x53\x41" + value, 1) for n, value in enumerate(ZERO_WIDTH)},
    "(7) 33 lists deep": raw_frame(b"\0\x53\x41" + nested(33), 1),
    "(7) as deep as a frame": raw_frame(bytes(4000), 1),
    **{
        f"(8) longer than its frame {n}": raw_frame(b"\0\x53\x41\xc0\x0b\1" + value, 1)
        for n, value in enumerate(TOO_LONG)
    },
    "(13) outcome from a client": frames.sasl(SaslOutcome(code=0)),
    "(13) response without an init": frames.sasl(SaslMechanisms(sasl_server_mechanisms=(Symbol("PLAIN"),))),
    "malformed PLAIN": frames.sasl(SaslInit(mechanism=Symbol("PLAIN"), initial_response=CANARY.encode())),
    "malformed SCRAM": frames.sasl(SaslInit(mechanism=Symbol("SCRAM-SHA-256"), initial_response=CANARY.encode())),
    "noise": CANARY.encode() * 100,
}


def check_ended(peer: Peer, bystander: Bystander) -> None:
    """Closed within its second, plus what a busy machine may need."""
    took_s = peer.wait_for_end()
    bystander.work()
    assert took_s < CLOSE_S_MAX + BUSY_S


@pytest.mark.parametrize("greeting", GREETINGS.values(), ids=GREETINGS)
def test_greetings_of_other_protocols(broker: BrokerProcess, bystander: Bystander, greeting: bytes) -> None:
    with Peer(broker) as peer:
        peer.send(greeting)
        check_ended(peer, bystander)
        assert bytes(peer.said) in (frames.SASL_HEADER, b""), "our header tells what is spoken here (§2.2)"


@pytest.mark.parametrize("case", BEFORE)
def test_before_login(broker: BrokerProcess, bystander: Bystander, case: str) -> None:
    with Peer(broker) as peer:
        peer.send(frames.SASL_HEADER)
        peer.wait_for(SaslMechanisms)
        peer.send(BEFORE[case])
        check_ended(peer, bystander)
        assert len(peer.heard()) == 2, "a login has no way to tell an error but its end"


@pytest.mark.parametrize(("user", "password"), [("app", f"{CANARY}-wrong"), ("nobody", CANARY), ("app", "")])
def test_a_failed_login_is_told_and_closed(
    broker: BrokerProcess, bystander: Bystander, user: str, password: str
) -> None:
    with Peer(broker) as peer:
        peer.send(frames.plain(user, password))
        check_ended(peer, bystander)
        assert [each.code for each in peer.heard() if isinstance(each, SaslOutcome)] == [1]
        broker.wait_for_log("login-failed")


# -- after login, before open -----------------------------------------------------------------------------------------

FRAMING, DECODE, FIELD, ORDER = (
    "amqp:connection:framing-error", "amqp:decode-error", "amqp:invalid-field", "amqp:not-allowed",
)  # fmt: skip


def open_of_size(size: int) -> bytes:
    body = bytearray(encode(Open(container_id="x", max_frame_size=70_000)))
    at = body.index((70_000).to_bytes(4, "big"))
    body[at : at + 4] = size.to_bytes(4, "big")
    return raw_frame(bytes(body))


BEFORE_OPEN: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "(3) frame above the maximum before open": (sized(4097), (FRAMING,)),
    "(4) max-frame-size 0": (open_of_size(0), (FIELD,)),
    "(4) max-frame-size 511": (open_of_size(511), (FIELD,)),
    **{
        f"(5) array of nothings {n}": (raw_frame(open_with(map_of(value))), (DECODE,))
        for n, value in enumerate(ZERO_WIDTH)
    },
    "(7) 33 lists deep": (raw_frame(open_with(map_of(nested(33)))), (DECODE,)),
    **{
        f"(8) longer than its frame {n}": (raw_frame(open_with(map_of(value))), (DECODE,))
        for n, value in enumerate(TOO_LONG)
    },
    "(13) begin before open": (frames.begun(), (ORDER,)),
    "(13) transfer before open": (frames.transfer(0), (ORDER,)),
    "(13) close before open": (frames.close(), (ORDER,)),
    "open without a container id": (raw_frame(b"\0\x53\x10\x45"), (FIELD, DECODE)),
}


@pytest.mark.parametrize("case", BEFORE_OPEN)
def test_before_open(broker: BrokerProcess, bystander: Bystander, case: str) -> None:
    data, conditions = BEFORE_OPEN[case]
    with Peer(broker) as peer:
        peer.send(frames.plain(broker.user, broker.password))
        peer.wait_for(SaslOutcome)
        peer.send(frames.AMQP_HEADER + data)
        check_ended(peer, bystander)
        ((kind, condition),) = frames.errors(bytes(peer.said))
        assert kind == "Close"
        assert condition in conditions


# -- on an open connection --------------------------------------------------------------------------------------------

AFTER: dict[str, tuple[bytes, str]] = {
    "(1) frame size 2^32-1": (sized(0xFFFFFFFF), FRAMING),
    **{f"(2) frame size {size}": (sized(size), FRAMING) for size in (0, 7)},
    "(2) doff 1": (b"\0\0\0\x08\1\0\0\0", FRAMING),
    "(2) doff past the end": (b"\0\0\0\x08\x09\0\0\0", FRAMING),
    "(2) SASL frame": (frames.sasl(SaslOutcome(code=0)), FRAMING),
    "(2) unknown frame type": (b"\0\0\0\x08\2\7\0\0", FRAMING),
    "(3) frame above the negotiated maximum": (sized(262_145), FRAMING),
    **{
        f"(5) array of nothings {n}": (raw_frame(attach_with(map_of(value))), DECODE)
        for n, value in enumerate(ZERO_WIDTH)
    },
    "(7) 33 lists deep": (raw_frame(attach_with(map_of(nested(33)))), DECODE),
    "(7) 10,000 lists deep": (raw_frame(attach_with(map_of(nested(10_000)))), DECODE),
    "(7) 10,000 descriptors deep": (raw_frame(attach_with(map_of(bytes(10_000)))), DECODE),
    **{
        f"(8) longer than its frame {n}": (raw_frame(attach_with(map_of(value))), DECODE)
        for n, value in enumerate(TOO_LONG)
    },
    "(8) a list that ends in the middle": (raw_frame(b"\0\x53\x12\xc0\x05\3\xa1\1x"), DECODE),
    "(13) second open": (frames.frame(Open(container_id=CANARY)), ORDER),
    "(13) begin on a channel in use": (frames.begun(), ORDER),
    "(13) transfer on an unknown channel": (frames.transfer(0, channel=9), ORDER),
    "(13) flow on an unknown channel": (frames.flow(None, 0, channel=9), ORDER),
    "(13) end on an unknown channel": (frames.end(9), ORDER),
    "(13) channel above channel-max": (frames.begun(channel=60_000), FRAMING),
    "(13) answer to nothing": (
        frames.frame(Begin(remote_channel=77, next_outgoing_id=0, incoming_window=1, outgoing_window=1), channel=5),
        ORDER,
    ),
    "(13) SASL performative in an AMQP frame": (frames.frame(SaslOutcome(code=0)), ORDER),
    "unknown performative": (raw_frame(b"\0\x53\x77\x45"), DECODE),
    "no performative": (raw_frame(b"\x45"), DECODE),
}


@pytest.mark.parametrize("case", AFTER)
def test_on_an_open_connection(broker: BrokerProcess, bystander: Bystander, case: str) -> None:
    data, condition = AFTER[case]
    with Peer(broker) as peer:
        peer.login()
        peer.send(data)
        check_ended(peer, bystander)
        assert frames.errors(bytes(peer.said)) == [("Close", condition)]


def pieces(count: int, size: int, settled: bool) -> bytes:
    first = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", settled=settled, more=True)
    more = Transfer(handle=0, more=True)
    filler = (CANARY.encode() * size)[:size]
    return frames.frame(first, filler) + frames.frame(more, filler) * (count - 1)


SMALLER: dict[str, tuple[bytes, tuple[str, str]]] = {
    "(10) small frames adding up past the maximum": (
        pieces(MESSAGE_SIZE_MAX // 500 + 1, 500, False), ("Detach", "amqp:link:message-size-exceeded"),
    ),
    "(10) the same, settled": (
        pieces(MESSAGE_SIZE_MAX // 500 + 1, 500, True), ("Detach", "amqp:link:message-size-exceeded"),
    ),
    "(10) one large frame": (
        frames.transfer(0, b"x" * MESSAGE_SIZE_MAX), ("Detach", "amqp:link:message-size-exceeded"),
    ),
    "(8) header section longer than its frame": (
        frames.frame(Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), b"\0\x53\x70\xd0\x7f\xff\xff\xff\0\0\0\1"),
        ("Detach", DECODE),
    ),
    "(13) transfer on an unknown handle": (frames.transfer(0, handle=99), ("End", "amqp:session:unattached-handle")),
    "(13) detach of an unknown handle": (frames.detach(99), ("End", "amqp:session:unattached-handle")),
    "(13) handle in use": (frames.sender(name="other"), ("End", "amqp:session:handle-in-use")),
    "(13) outcome of nothing": (frames.disposition(0, 5, Accepted()), ("End", FIELD)),
    "attach without an address": (
        frames.frame(Attach(name="x", handle=7, role=True, source=Source())), ("Detach", FIELD),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SMALLER)
def test_what_ends_no_more_than_a_link_or_a_session(broker: BrokerProcess, bystander: Bystander, case: str) -> None:
    data, told = SMALLER[case]
    with Peer(broker) as peer:
        peer.login()
        peer.send(data + frames.begun(3))
        peer.wait_for(Begin, 2)
        assert frames.errors(bytes(peer.said)) == [told]
        peer.send(frames.close())
        check_ended(peer, bystander)


def test_a_silent_connection_costs_its_time_and_no_more(tmp_path_factory: pytest.TempPathFactory) -> None:
    """At each stage before its open a peer has the login's time; afterwards the idle timeout's."""
    listener = {"login-timeout-ms": 600, "idle-timeout-ms": 1200}
    with BrokerProcess(tmp_path_factory.mktemp("silent"), listener=listener) as broker:
        starts = [b"", b"A", frames.SASL_HEADER, frames.SASL_HEADER + b"\0\0"]
        peers = [Peer(broker) for _ in starts]
        started_s = time.monotonic()
        for peer, start in zip(peers, starts, strict=True):
            peer.send(start)
        with Peer(broker) as opened:
            opened.login()
            for peer in peers:
                with peer:
                    peer.wait_for_end()
                    assert time.monotonic() - started_s > 0.5
            opened.wait_for_end()
            assert frames.errors(bytes(opened.said)) == [("Close", "amqp:resource-limit-exceeded")]
            assert time.monotonic() - started_s > 1.1
        broker.wait_for_connections(0)
