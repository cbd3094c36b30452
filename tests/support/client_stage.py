"""The client's machine and real nodes, joined in memory: nothing moves unless the test moves it.

    app = App({BROKER: Stage()}, "amqp://a:1?reconnect-attempts=-1")
    app.ask("up", Start("up"))
    assert app.answers["up"] is None

Dialling a broker that is down, or not there, fails. Time is that of the first node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqbroker.base.time import NS_PER_MS
from mqbroker.client import effects, inputs
from mqbroker.client.machine import Machine
from mqbroker.client.message import Message, decode_message, encode_message
from mqbroker.client.places import Places
from mqbroker.client.policies import first_element
from mqbroker.client.uri import Endpoint, parse_uri

from tests.support.derived import key_of
from tests.support.stage import Stage

A, B = Endpoint("a", 5672), Endpoint("b", 5672)
ROUNDS_MAX = 1000


class App:
    """One application with one connection. What the machine told is kept by kind."""

    def __init__(self, brokers: Mapping[Endpoint, Stage], uri: str = "amqp://a", **settings: Any) -> None:
        from dataclasses import replace

        self.brokers = dict(brokers)
        self.stage = next(iter(self.brokers.values()))
        target = parse_uri(uri)
        made = replace(target.settings, container_id="app", **settings)
        self.machine = Machine(made, Places(target.endpoints, first_element, made))
        self.dialled: list[Endpoint] = []
        self.answers: dict[Any, Any] = {}
        self.errors: dict[Any, BaseException] = {}
        self.outcomes: dict[Any, Any] = {}  # of messages by their token: None where they were accepted
        self.arrived: list[tuple[int, effects.Arrived, int, Message]] = []
        self.interrupted: list[int] = []
        self.at_end: list[int] = []
        self.restored: dict[int, str] = {}
        self.gone: dict[int, BaseException] = {}
        self.told: list[str] = []
        self.wake_at_ns: int | None = None
        self.is_mute = False  # what the broker says does not come here
        self._inputs: list[inputs.Input] = []
        self._attempt = 0
        self._broker: Stage | None = None
        self._conn = 0
        self._heard = 0

    # -- what a test does ----------------------------------------------------------------------------------------------

    def ask(self, *requests: inputs.Input) -> None:
        """Requests of one turn, and all that follows from them."""
        self._inputs += requests
        self.run()

    def connect(self) -> None:
        """Connect; it must work."""
        self.ask(inputs.Start("up"))
        assert self.answers.pop("up", "missing") is None, self.errors

    def send(self, handle: int, *bodies: Any, txn: inputs.Txn | None = None, **fields: Any) -> None:
        """Messages in one turn; their bodies are their tokens."""
        for body in bodies:
            self._inputs.append(inputs.Post(handle, self.sending(body, txn, **fields)))
        self.run()

    @staticmethod
    def sending(body: Any, txn: inputs.Txn | None = None, **fields: Any) -> inputs.Sending:
        return inputs.Sending(encode_message(Message(body, **fields)), body, txn)

    def bodies(self, handle: int) -> list[Any]:
        """What arrived for a receiver, and is forgotten here."""
        found = [message.body for owner, _, _, message in self.arrived if owner == handle]
        self.arrived = [each for each in self.arrived if each[0] != handle]
        return found

    def settlement(self, index: int, state: Any, token: Any = None, txn: inputs.Txn | None = None) -> inputs.Settle:
        """The request that settles the message that arrived as number `index`."""
        handle, block, at, _ = self.arrived[index]
        return inputs.Settle(handle, block.epoch, (block.delivery_id + at) & 0xFFFFFFFF, state, txn, token)

    def cut(self) -> None:
        """The connection breaks, for both."""
        assert self._broker is not None
        if self._broker.is_up:
            self._broker.drop_bare(self._conn)
        self.ask(inputs.Lost(self._attempt, "reset"))

    def wait(self, duration_ms: int) -> None:
        """Time passes, for everybody; the machine is woken where it asked to be."""
        end_ns = self.stage.now_ns + duration_ms * NS_PER_MS
        for _ in range(ROUNDS_MAX):
            if self.wake_at_ns is None or self.wake_at_ns > end_ns:
                break
            self._pass(max(self.wake_at_ns - self.stage.now_ns, 0))
            self.step()
            self.run()
        self._pass(end_ns - self.stage.now_ns)
        self.step()
        self.run()

    def _pass(self, duration_ns: int) -> None:
        end_ns = self.stage.now_ns + duration_ns
        for stage in self.brokers.values():
            if stage.is_up:
                stage.wait((end_ns - stage.now_ns) // NS_PER_MS)
            stage.now_ns = end_ns

    # -- steps ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Until nobody has anything to say."""
        for _ in range(ROUNDS_MAX):
            self._hear()
            if not self._inputs:
                return
            self.step()
        raise AssertionError("the conversation does not end")

    def step(self) -> effects.Batch:
        """One step of the machine and all that it asks for."""
        given, self._inputs = self._inputs, []
        batch = self.machine.step(given, self.stage.at)
        for effect in batch.effects:
            self._carry_out(effect)
        self.wake_at_ns = batch.wake_at_ns
        return self.step() if batch.more else batch

    def _hear(self) -> None:
        stage = self._broker
        if stage is None or self.is_mute:
            return
        stage.run()
        said = bytes(stage.sent[self._conn][self._heard :])
        self._heard += len(said)
        if said:
            self._inputs.append(inputs.Received(self._attempt, said))
        if self._conn in stage.closed or not stage.is_up:
            self._inputs.append(inputs.Lost(self._attempt, "the broker closed the transport"))
            self._broker = None

    def _carry_out(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Dial(attempt, endpoint):
                self._dial(attempt, endpoint)
            case effects.Write(attempt, chunks):
                if self._broker is not None and attempt == self._attempt and self._broker.is_up:
                    self._broker.talk(self._conn, b"".join(bytes(chunk) for chunk in chunks))
            case effects.Derive(attempt):
                self._inputs.append(inputs.Derived(attempt, key_of(effect)))
            case effects.HangUp(attempt):
                if self._broker is not None and attempt == self._attempt:
                    if self._broker.is_up and self._conn not in self._broker.closed:
                        self._broker.drop_bare(self._conn)
                    self._broker = None
            case effects.Answer(token, value):
                assert token not in self.answers, "answered twice"
                self.answers[token] = value
            case effects.Failure(token, error):
                assert token not in self.errors, "answered twice"
                self.errors[token] = error
            case effects.Outcomes(sendings, failure):
                for sending in sendings:
                    assert sending.token not in self.outcomes, "two outcomes"
                    self.outcomes[sending.token] = None if failure is None else failure()
            case effects.Arrived(handle, _, run, _, _):
                for index in range(run.count):
                    self.arrived.append((handle, effect, index, decode_message(bytes(run.payload(index)))))
            case effects.Interrupted(handle):
                self.interrupted.append(handle)
            case effects.Restored(handle, address):
                self.restored[handle] = address
            case effects.AtEnd(handle):
                self.at_end.append(handle)
            case effects.Gone(handle, error):
                self.gone[handle] = error
            case effects.Told(text, _):
                self.told.append(text)

    def _dial(self, attempt: int, endpoint: Endpoint) -> None:
        self.dialled.append(endpoint)
        self._attempt = attempt
        stage = self.brokers.get(endpoint)
        if stage is None or not stage.is_up:
            self._inputs.append(inputs.DialFailed(attempt, "nobody listens"))
            return
        self._broker, self._conn, self._heard = stage, stage.accept(), 0
        self._inputs.append(inputs.Dialled(attempt, b"e" * 32, True, False))
