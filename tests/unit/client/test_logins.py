"""A server that does not know the password costs an application no more than a login may, and holds no loop."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from typing import Any

import pytest
from mqbroker import client
from mqbroker.client import effects, errors, inputs
from mqbroker.wire import frames as wire
from mqbroker.wire.performatives import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.client_stage import A, App
from tests.support.patience import PATIENCE_S
from tests.support.stage import Stage

OFFER = wire.SASL_HEADER + frames.sasl(SaslMechanisms(sasl_server_mechanisms=(Symbol("SCRAM-SHA-256"),)))


def challenge(nonce: bytes, iterations: int) -> bytes:
    return frames.sasl(SaslChallenge(challenge=b"r=%sfar,s=c2FsdHNhbHQ=,i=%d" % (nonce, iterations)))


class Hearing(App):
    """An application whose broker is what the test says."""

    def __init__(self, attempts: int = -1, *, are_keys_held: bool = False) -> None:
        super().__init__({A: Stage()}, f"amqp://app:right@a?initial-connect-attempts={attempts}&retry-interval=10")
        self.is_mute = True
        self.are_keys_held = are_keys_held
        self.said = b""
        self.derives: list[effects.Derive] = []
        self.ask(inputs.Start("up"))

    def _carry_out(self, effect: effects.Effect) -> None:
        if isinstance(effect, effects.Write):
            self.said += b"".join(bytes(chunk) for chunk in effect.chunks)
        elif isinstance(effect, effects.Derive):
            self.derives.append(effect)
            if not self.are_keys_held:
                super()._carry_out(effect)
        else:
            super()._carry_out(effect)

    def hears(self, data: bytes) -> bytes:
        """What it says to these bytes."""
        self.said = b""
        self.ask(inputs.Received(self._attempt, data))
        return self.said

    def nonce(self) -> bytes:
        (init,) = frames.of_kind(self.hears(OFFER), SaslInit)
        return bytes(init.initial_response).rpartition(b"r=")[2]


@pytest.mark.parametrize("iterations", [1, 1_000_000])
def test_a_server_that_asks_for_too_much_is_tried_again_later(iterations: int) -> None:
    app = Hearing()
    assert frames.of_kind(app.hears(challenge(app.nonce(), iterations)), SaslResponse) == []
    assert app.derives == []
    assert app.errors == {}, "it may be another one the next time"
    app.wait(100)
    assert len(app.dialled) == 2


def test_the_refusal_says_what_and_why() -> None:
    app = Hearing(attempts=1)
    app.hears(challenge(app.nonce(), 1_000_000))
    assert isinstance(app.errors["up"], errors.ConnectionFailed)
    assert "the server asks for 1000000 SCRAM iterations; 4096 to 65536 are accepted" in str(app.errors["up"])


def test_one_key_for_a_login_however_often_it_is_asked_for() -> None:
    app = Hearing()
    app.hears(challenge(app.nonce(), 65_536) * 20)
    assert len(app.derives) == 1
    assert "right" not in repr(app.derives)


def test_an_outcome_at_once_is_no_login() -> None:
    app = Hearing()
    assert frames.AMQP_HEADER not in app.hears(wire.SASL_HEADER + frames.sasl(SaslOutcome(code=0)))
    assert app.answers == {}


def test_the_key_of_an_attempt_that_was_given_up_changes_nothing() -> None:
    app = Hearing(are_keys_held=True)
    app.hears(challenge(app.nonce(), 4096))
    app.ask(inputs.Lost(app._attempt, "reset"))
    app.wait(100)
    app.hears(challenge(app.nonce(), 4096))
    app.said = b""
    app.ask(inputs.Derived(app.derives[0].attempt, b"key"))
    assert app.said == b""
    app.ask(inputs.Derived(app.derives[1].attempt, b"key"))
    assert len(frames.of_kind(app.said, SaslResponse)) == 1


async def _derived_in() -> tuple[str, list[Any]]:
    """Log in to a server that asks for a key; in which thread that was derived, and what the server got."""
    got: list[Any] = []
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OFFER)
        data = await reader.readexactly(8)
        data += await reader.read(1000)
        (init,) = frames.of_kind(data, SaslInit)
        writer.write(challenge(bytes(init.initial_response).rpartition(b"r=")[2], 65_536))
        got.extend(frames.of_kind(await reader.read(1000), SaslResponse))
        writer.close()
        done.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(client.ConnectionFailed):
        await client.connect(f"amqp://app:right@127.0.0.1:{port}?initial-connect-attempts=0")
    await asyncio.wait_for(done.wait(), PATIENCE_S)
    server.close()
    return threading.current_thread().name, got


def test_the_loop_goes_on_while_a_key_is_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    derive = hashlib.pbkdf2_hmac

    def noted(*work: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return derive(*work)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", noted)
    of_loop, got = asyncio.run(_derived_in())
    assert len(got) == 1
    assert len(threads) == 1
    assert threads != [of_loop]


def test_a_key_that_cannot_be_derived_is_an_attempt_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*work: Any) -> bytes:
        raise ValueError("salt too short for this library")

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", refusing)

    async def attempt() -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(OFFER)
            data = await reader.readexactly(8)
            (init,) = frames.of_kind(data + await reader.read(1000), SaslInit)
            writer.write(challenge(bytes(init.initial_response).rpartition(b"r=")[2], 4096))
            await reader.read(1000)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(client.ConnectionFailed) as failed:
            await client.connect(f"amqp://app:right@127.0.0.1:{port}?initial-connect-attempts=0")
        server.close()
        return str(failed.value)

    assert "salt too short for this library" in asyncio.run(attempt())
