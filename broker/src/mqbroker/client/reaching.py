"""How a connection of an application comes to stand, stays, and ends: brokers, login, heartbeats, time.

Base of the machine. Owns the stage and the transport's attempts; what is done on a connection is the machine's.
Invariant: bytes of a transport that was given up change nothing.
"""

from __future__ import annotations

from typing import Any, Final

from mqbroker.amqp import sasl
from mqbroker.amqp.connection import Connection
from mqbroker.amqp.events import Began, Dead, LoggedIn, Opened, SaslDerive
from mqbroker.amqp.limits import ConnectionLimits
from mqbroker.amqp.redirect import RedirectPlace, redirect_of
from mqbroker.amqp.session import Session
from mqbroker.base.time import NS_PER_MS
from mqbroker.client import inputs as given
from mqbroker.client.effects import Answer, Derive, Dial, Failure, HangUp, Told
from mqbroker.client.ends import End
from mqbroker.client.errors import ClientError, Closed, ConnectionFailed, LoginRefused
from mqbroker.client.intake import Intake
from mqbroker.client.options import Settings
from mqbroker.client.places import Places
from mqbroker.client.stages import STAGES, Stage, StageEvent
from mqbroker.client.uri import Endpoint
from mqbroker.wire.performatives import Open
from mqbroker.wire.types import Symbol

FRAME_BEFORE_OPEN: Final = 16 << 10
LINKS_MAX: Final = 4096
CLOSE_MS: Final = 5000
UNAUTHORIZED: Final = "amqp:unauthorized-access"
PRODUCT: Final = {Symbol("product"): "mqbroker client"}


class Reaching(Intake):
    """See the module's docstring."""

    def __init__(self, settings: Settings, places: Places) -> None:
        super().__init__()
        self.settings = settings
        self.places = places
        self.stage = Stage.NEW
        self.ends: dict[int, End] = {}
        self.epoch = 0  # counts connections that stood: what belongs to an earlier one is void
        self.is_interrupted = False  # links that end now end with their connection
        self.endpoint: Endpoint | None = None
        self._session: Session | None = None
        self._was_up = False
        self._due_ns = 0  # of the stage: by when it is over
        self._up_ns = 0
        self._start_token: Any = None
        self._shut_tokens: list[Any] = []
        self._reason = ClientError("nothing was tried")

    @property
    def session(self) -> Session:
        """The one session of the present connection."""
        assert self._session is not None
        return self._session

    def _move(self, event: StageEvent) -> None:
        self.stage = STAGES.after(self.stage, event)

    def _after_ms(self, duration_ms: int) -> int:
        return self.at.monotonic_ns + duration_ms * NS_PER_MS

    # -- getting there -------------------------------------------------------------------------------------------------

    def _start(self, request: given.Start) -> None:
        self._start_token = request.token
        self._begin_round()

    def _discovered(self, event: given.Discovered) -> None:
        self.places.discovered(event.endpoints)

    def _begin_round(self) -> None:
        self.places.begin_round()
        self._dial_next()

    def _dial_next(self) -> None:
        """The next broker of the round, or a rest, or the end."""
        endpoint = self.places.next()
        if endpoint is None:
            self.places.rounds += 1
            if not self.places.may_go_on(was_connected=self._was_up):
                self._give_up(self._why_none())
                return
            self._rest()
            return
        self._move(StageEvent.DIAL)
        self._attempt += 1
        self.endpoint = endpoint
        self._due_ns = self._after_ms(self.settings.call_timeout_ms)
        self.effects.append(Dial(self._attempt, endpoint))

    def _rest(self) -> None:
        delay_ms = self.places.delay_ms()
        self._move(StageEvent.REST)
        self._due_ns = self._after_ms(delay_ms)
        self._tell(f"no connection ({self._reason.why}); the next round begins in {delay_ms} ms")

    def _why_none(self) -> ClientError:
        brokers = ", ".join(map(str, self.places.known[:5]))
        rounds = f" in {self.places.rounds} rounds" if self.places.rounds > 1 else ""
        lost = "the connection was lost and " if self._was_up else ""
        if self._was_up and not self.settings.reconnect_attempts:
            why = f"the connection to {self.endpoint} was lost ({self._reason.why})"
            return ConnectionFailed(f"{why}; reconnect-attempts=-1 in the URI brings it back", self._reason.condition)
        why = f"{lost}no broker could be reached at {brokers}{rounds}: {self._reason.why}"
        return ConnectionFailed(why, self._reason.condition)

    def _dialled(self, event: given.Dialled) -> None:
        if event.attempt != self._attempt or self.stage is not Stage.DIALLING:
            return
        settings = self.settings
        self._move(StageEvent.DIALLED)
        limits = ConnectionLimits(settings.max_frame_size, FRAME_BEFORE_OPEN, settings.idle_timeout_ms, 1, LINKS_MAX,
                                  settings.max_message_size + settings.max_frame_size)  # fmt: skip
        login = sasl.SaslClient(settings.user, settings.password, event.entropy, has_certificate=event.has_certificate,
                            allow_plain=settings.allow_plain or event.is_private)  # fmt: skip
        self._plug(Connection(limits, client=login))

    def _dial_failed(self, event: given.DialFailed) -> None:
        if event.attempt == self._attempt and self.stage is Stage.DIALLING:
            self._reason = ConnectionFailed(f"{self.endpoint}: {event.why}")
            self._dial_next()

    def _derive(self, event: SaslDerive) -> None:
        self.effects.append(
            Derive(self._attempt, event.hash_name, event.password, event.salt, event.iterations)
        )  # fmt: skip

    def _derived(self, event: given.Derived) -> None:
        if event.attempt == self._attempt and self._connection is not None:
            self._connection.derived(event.key, self.handle_events)
            self._handle()

    def _logged_in(self, event: LoggedIn) -> None:
        assert self._connection is not None
        assert self.endpoint is not None
        self._connection.open(
            Open(
                container_id=self.settings.container_id, hostname=self.endpoint.host,
                max_frame_size=self.settings.max_frame_size, channel_max=0,
                idle_time_out=self.settings.idle_timeout_ms // 2 or None, properties=dict(PRODUCT),
            )
        )  # fmt: skip

    def _opened(self, event: Opened) -> None:
        # A broker that says so closes next, and only then says why.
        if "amqp:connection-establishment-failed" not in (event.open.properties or {}):
            assert self._connection is not None
            self.places.opened(event.open.properties, self.endpoint)
            self._session = self._connection.begin()

    def _began(self, event: Began) -> None:
        if self.stage is not Stage.OPENING:
            return  # a session that replaces one that the broker ended
        self._move(StageEvent.OPENED)
        self._due_ns = 0
        self._was_up = True
        self._up_ns = self.at.monotonic_ns
        self._tell(f"connected to {self.endpoint}", is_up=True)
        if self._start_token is not None:
            self.effects.append(Answer(self._start_token, None))
            self._start_token = None
        for end in list(self.ends.values()):
            end.attach()

    # -- the end of a connection ---------------------------------------------------------------------------------------

    def _disconnected(self, event: given.Lost) -> None:
        assert self._connection is not None
        self._reason = ConnectionFailed(f"{self.endpoint}: {event.why}")
        self._connection.lost()
        self._handle()

    def _dead(self, event: Dead) -> None:
        """Where to go from here."""
        stage, endpoint = self.stage, self.endpoint
        assert endpoint is not None
        is_open = stage in (Stage.UP, Stage.CLOSING)
        if event.error is not None:
            what = "closed the connection" if is_open else "did not let us in"
            self._reason = ConnectionFailed(f"{endpoint} {what}: {event.description or 'no reason given'}",
                                            event.condition or "")  # fmt: skip
        elif event.condition is not None:
            what = f"we closed the connection to {endpoint}" if is_open else f"no connection with {endpoint}"
            self._reason = ConnectionFailed(f"{what}: {event.description}", event.condition)
        elif event.description != "connection lost":
            self._reason = ConnectionFailed(f"{endpoint} closed the connection without a reason")
        self._drop_connection()
        place = redirect_of(event.error)
        if stage is Stage.CLOSING:
            self._give_up(Closed("the connection was closed by the application"))
        elif place is not None:
            self._redirected(stage, place.host, place.port)
        elif event.condition == UNAUTHORIZED:
            self._give_up(LoginRefused(f"{self._reason.why}; check user, password and the mechanisms of the listener",
                                       UNAUTHORIZED))  # fmt: skip
        elif stage is Stage.UP:
            self._go_elsewhere(endpoint)
        else:
            self._dial_next()

    def _redirected(self, stage: Stage, host: str, port: int) -> None:
        endpoint = self.endpoint
        assert endpoint is not None
        self._tell(f"{endpoint} sends us to {host}:{port}")
        if stage is Stage.UP:
            self.places.begin_round()
        if self.places.redirect(RedirectPlace(host, port), endpoint.has_tls):
            self._dial_next()
        else:
            self._give_up(ConnectionFailed(f"{endpoint}: brokers redirect us in a circle; check redirect-to"))

    def _go_elsewhere(self, endpoint: Endpoint) -> None:
        self._tell(f"the connection was lost: {self._reason.why}")
        self.places.lost(endpoint)
        if not self.places.may_go_on(was_connected=True):
            self._give_up(self._why_none())
        elif self.at.monotonic_ns < self._up_ns + self.settings.retry_interval_ms * NS_PER_MS:
            self._rest()  # a broker that lets us in and throws us out again must not be asked in a loop
        else:
            self._begin_round()

    def _drop_connection(self) -> None:
        """The transport goes; what was said last goes out before."""
        self._write()
        if self.stage in (Stage.UP, Stage.CLOSING):
            self.epoch += 1
        self._unplug()
        self._session = None
        self._due_ns = 0
        self.effects.append(HangUp(self._attempt))

    def _give_up(self, error: ClientError) -> None:
        """For good."""
        self._move(StageEvent.END)
        self._due_ns = 0
        self._reason = error
        if self._start_token is not None:
            self.effects.append(Failure(self._start_token, error))
            self._start_token = None
        for end in list(self.ends.values()):
            end.fail(again(error))
        for token in self._shut_tokens:
            self.effects.append(Answer(token, None))
        self._shut_tokens = []
        self._tell(f"the connection is over: {error.why}")

    def _shut(self, request: given.Shut) -> None:
        if self.stage is Stage.ENDED:
            self.effects.append(Answer(request.token, None))
            return
        self._shut_tokens.append(request.token)
        if self.stage is Stage.UP:
            assert self._connection is not None
            self._move(StageEvent.CLOSE)
            self._due_ns = self._after_ms(CLOSE_MS)
            self._connection.close()
            self._handle()
        if self._shut_tokens and not (self.stage is Stage.CLOSING and request.waits):
            self._leave()

    def _leave(self) -> None:
        """The application wants no more of it. What was sent and has no outcome is told so before it is dropped."""
        has_transport = self._connection is not None or self.stage is Stage.DIALLING
        self._give_up(Closed("the connection was closed by the application"))
        if has_transport:
            self._drop_connection()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _on_time(self) -> None:
        now_ns = self.at.monotonic_ns
        if self._due_ns and now_ns >= self._due_ns:
            self._due_ns = 0
            self._stage_is_over()
        connection = self._connection
        if connection is None or self.stage is not Stage.UP:
            return
        idle_ms, beat_ms = self.settings.idle_timeout_ms, connection.peer_idle_timeout_ms // 2
        if idle_ms and now_ns >= self._heard_ns + idle_ms * NS_PER_MS:
            why = "it has not read what it is answered" if self._is_unheard else "nothing was heard"
            connection.close("amqp:resource-limit-exceeded", f"{why} for {idle_ms} ms")
            self._handle()
            return
        if beat_ms and now_ns >= self._spoke_ns + beat_ms * NS_PER_MS:
            connection.heartbeat()
            self._spoke_ns = now_ns
        for end in [each for each in self.ends.values() if each.due_ns and now_ns >= each.due_ns]:
            end.late()

    def _stage_is_over(self) -> None:
        if self.stage is Stage.WAITING:
            self._begin_round()
            return
        if self.stage is Stage.CLOSING:
            self._leave()
            return
        self._reason = ConnectionFailed(
            f"{self.endpoint}: not connected and logged in within call-timeout ({self.settings.call_timeout_ms} ms)"
        )
        self._drop_connection()
        self._dial_next()

    def _wake_at_ns(self) -> int | None:
        dues = [self._due_ns]
        connection = self._connection
        if connection is not None and self.stage is Stage.UP:
            idle_ms, beat_ms = self.settings.idle_timeout_ms, connection.peer_idle_timeout_ms // 2
            dues.append(idle_ms and self._heard_ns + idle_ms * NS_PER_MS)
            dues.append(beat_ms and self._spoke_ns + beat_ms * NS_PER_MS)
            dues += [end.due_ns for end in self.ends.values()]
        return min((due for due in dues if due), default=None)

    def _tell(self, text: str, *, is_up: bool = False) -> None:
        self.effects.append(Told(text, is_up))


def again(error: ClientError) -> ClientError:
    """The same error for another request: an exception that several raise gathers the traces of all."""
    return type(error)(error.why, error.condition)
