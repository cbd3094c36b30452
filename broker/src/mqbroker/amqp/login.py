"""The login of a connection: the SASL layer, which comes before AMQP on the same transport (AMQP 1.0 §5.3).

Base of the connection. Owns what both ends say until the outcome. While a key is derived nothing is taken in; what
SASL means is `sasl.py`'s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from mqbroker.amqp import sasl
from mqbroker.amqp.events import ConnectionEvent, LoggedIn, LoginDecided, SaslDerive
from mqbroker.amqp.receive_buffer import Unread
from mqbroker.amqp.states import CONNECTION_STATES, ConnectionState, ConnectionStateEvent
from mqbroker.base.errors import PeerFault
from mqbroker.wire import frames
from mqbroker.wire.performatives import (
    Error,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    encode,
)  # fmt: skip
from mqbroker.wire.types import Symbol

WAITING_BYTES_MAX: Final = 64 * 1024  # of what comes while a key is derived, or an outcome waits
SASL_OK: Final = 0
SASL_AUTH: Final = 1
SASL_TEMPORARY: Final = 4
PASSING: Final = ("amqp:internal-error", "amqp:connection:forced", "amqp:resource-limit-exceeded")


class Login(ABC):
    """See the module's docstring."""

    def __init__(self, server: sasl.SaslServer | None, client: sasl.SaslClient | None) -> None:
        self.out: list[bytes | bytearray | memoryview] = []
        self.events: list[ConnectionEvent] = []
        self.state = ConnectionState.START
        self.is_dead = False
        self.is_gradual = False  # its owner: what opens it is taken in one thing at a time
        self.is_behind = False  # there is more to be taken in, by the next `receive`
        self._server = server
        self._client = client
        self._is_sasl = server is not None or client is not None
        self._is_logged_in = False
        self._is_deriving = False  # a login waits for its key or outcome: nothing is taken in, and little is kept
        self._is_outcome_told = False
        self._verdict: sasl.LoginVerdict | None = None
        self._unread = Unread()
        if client is not None:
            self.out.append(frames.SASL_HEADER)

    @abstractmethod
    def receive(self, data: bytes, handle: Callable[[], None] | None = None) -> None:
        """Take bytes of the peer in; what they mean goes to `handle` (AMQP 1.0 §5.3)."""

    @abstractmethod
    def _die(
        self, condition: str | None, description: str, *, is_orderly: bool = False, error: Error | None = None
    ) -> None:
        """The connection is over."""

    def _refuse_login(self, condition: str) -> None:
        """Tell whoever waits for the outcome of its login that it comes to nothing, and whether later it may."""
        is_due = self._server is not None and self.state is ConnectionState.HDR_EXCH and not self._is_logged_in
        if is_due and not self._is_outcome_told:
            self._outcome(SASL_TEMPORARY if condition in PASSING else SASL_AUTH)

    def _outcome(self, code: int, data: bytes | None = None) -> None:
        self._is_outcome_told = True
        self._sasl_send(SaslOutcome(code=code, additional_data=data))

    def _sasl_send(self, performative: Any) -> None:
        self.out.append(frames.encode_frame(0, encode(performative), b"", frames.SASL_FRAME))

    def _sasl_frame(self, body: Any) -> None:
        server, client = self._server, self._client
        if server is not None and isinstance(body, SaslInit):
            self._sasl_step(server.init(str(body.mechanism), body.initial_response))
        elif server is not None and server.mechanism and isinstance(body, SaslResponse):
            self._sasl_step(server.respond(body.response))
        elif client is not None and isinstance(body, SaslMechanisms):
            mechanism, response = client.choose(tuple(str(name) for name in body.sasl_server_mechanisms or ()))
            self._sasl_send(SaslInit(mechanism=Symbol(mechanism), initial_response=response))
        elif client is not None and isinstance(body, SaslChallenge):
            self._derive("", client.respond(body.challenge))
        elif client is not None and isinstance(body, SaslOutcome):
            self._sasl_outcome(client, body)
        else:
            raise PeerFault("amqp:not-allowed", f"{type(body).__name__} during the login")

    def _sasl_step(self, step: sasl.Challenge | sasl.KeyDerivation | sasl.LoginVerdict) -> None:
        server = self._server
        assert server is not None
        if isinstance(step, sasl.Challenge):
            self._sasl_send(SaslChallenge(challenge=step.data))
        elif isinstance(step, sasl.KeyDerivation):
            self._derive(server.user, step)
        else:
            self._verdict, self._is_deriving = step, True
            self.events.append(LoginDecided(server.user, server.mechanism, step.is_good, step.why))

    def _derive(self, user: str, step: sasl.KeyDerivation) -> None:
        self._is_deriving = True
        self.events.append(SaslDerive(user, step.tag, step.password, step.salt, step.iterations, step.hash_name))

    def conclude(self, handle: Callable[[], None] | None = None, *, is_busy: bool = False) -> None:
        """Tell the outcome of the login. `is_busy`: refuse it whatever it is, for now (SASL code 4, §5.3.3.6)."""
        verdict, server = self._verdict, self._server
        if self.is_dead or verdict is None or server is None:
            return
        self._verdict, self._is_deriving = None, False
        if is_busy:
            self._outcome(SASL_TEMPORARY)
            self._die("amqp:resource-limit-exceeded", "too many logins of this user wait for their outcome")
        elif verdict.is_good:
            self._outcome(SASL_OK, verdict.data)
            self._logged_in(verdict.user, server.mechanism)
            self.is_behind = self.is_gradual and self._unread.size_bytes > 0
            if not self.is_behind:
                self.receive(b"", handle)
        else:
            self._outcome(SASL_AUTH)
            self._die("amqp:unauthorized-access", "login failed")

    def derived(self, salted: bytes, handle: Callable[[], None] | None = None) -> None:
        """The key that SaslDerive asked for. What the peer sent ahead meanwhile is taken in now, as by `receive`."""
        if self.is_dead or not self._is_deriving or self._verdict is not None:
            return
        self._is_deriving = False
        if self._server is not None:
            self._sasl_step(self._server.derived(salted))
        elif self._client is not None:
            self._sasl_send(SaslResponse(response=self._client.derived(salted)))
        self.receive(b"", handle)

    def recall(self) -> bool:
        """Whether the login does without that key (sasl.py:Server.recalled)."""
        verdict = self._server.recalled() if self._server is not None and self._is_deriving else None
        if verdict is not None:
            self._sasl_step(verdict)
        return verdict is not None

    def _sasl_outcome(self, client: sasl.SaslClient, outcome: SaslOutcome) -> None:
        if outcome.code != SASL_OK:
            # 2 to 4 are faults of the server's own, which may pass (§5.3.3.6).
            condition = "amqp:unauthorized-access" if outcome.code == SASL_AUTH else "amqp:internal-error"
            self._die(condition, f"the server refused the login (SASL code {outcome.code})")
        elif not client.is_server_genuine(outcome.additional_data):
            self._die("amqp:unauthorized-access", "the server could not prove that it knows the password's verifier")
        else:
            self._logged_in(None, client.mechanism)
            self.out.append(frames.AMQP_HEADER)
            self.state = CONNECTION_STATES.after(self.state, ConnectionStateEvent.SENT_HEADER)

    def _logged_in(self, user: str | None, mechanism: str) -> None:
        self._is_logged_in = True
        self.state = ConnectionState.START
        self.events.append(LoggedIn(user, mechanism))
