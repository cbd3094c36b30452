"""Outgoing connections: what effect `Connect` asks for.

Owns the attempts in flight. Invariant: each Connect comes back as Connected or as Closed with the reason, and a Close
during the attempt ends it. Certificates are read at each attempt, so a new one is used without a restart. Source:
docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from dataclasses import dataclass
from typing import Final

from mqbroker.base.errors import ConfigFault
from mqbroker.config.slices import ListenerOptions
from mqbroker.io.loop.judging_timer import JudgingTimer
from mqbroker.io.loop.loop import NodeLoop
from mqbroker.io.sockets import tls
from mqbroker.io.sockets.connections import Connections, TcpConnection, without_delay
from mqbroker.node.values.effects import CloseConnection, Connect
from mqbroker.node.values.inputs import Closed

CLOSED_EARLY: Final = "closed by us while connecting"


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One that is neither given up nor over."""

    connection: TcpConnection
    task: asyncio.Task[None]
    timer: JudgingTimer


class Connectors:
    """Carries out Connect, and Close for connections that do not stand yet."""

    def __init__(self, node: NodeLoop, connections: Connections, listeners: tuple[ListenerOptions, ...] = ()) -> None:
        self._node = node
        self._connections = connections
        self._attempts: dict[int, _Attempt] = {}
        self._listeners = _by_name(listeners)

    def change(self, listeners: tuple[ListenerOptions, ...]) -> None:
        """Whose certificates may be shown from now on. A listener, and its TLS, comes and goes with a restart alone."""
        for name, (path, listener) in _by_name(listeners).items():
            if name in self._listeners and self._listeners[name][1].has_tls == listener.has_tls:
                self._listeners[name] = path, listener

    def connect(self, effect: Connect) -> None:
        connection = self._connections.outgoing(effect.conn)
        loop = asyncio.get_running_loop()
        why = f"{_where(effect)}: no answer in {effect.timeout_ms} ms"
        task = loop.create_task(self._attempt(effect, connection))
        timer = JudgingTimer(effect.timeout_ms / 1000, functools.partial(self.give_up, effect.conn, why))
        self._attempts[effect.conn] = _Attempt(connection, task, timer)

    def close(self, effect: CloseConnection) -> None:
        if not self.give_up(effect.conn, CLOSED_EARLY):
            self._connections.close(effect)

    def abort_all(self) -> None:
        for conn in list(self._attempts):
            self.give_up(conn, CLOSED_EARLY)

    def give_up(self, conn: int, why: str) -> bool:
        """End the attempt, unless its connection stands already or there is none; whether it did.

        uvloop lets go of the socket of a cancelled attempt without a word to its protocol, even when the protocol has
        announced the connection in the same turn of the loop: so a connection that stands is never cancelled, and one
        that is given up is not announced any more.
        """
        attempt = self._attempts.get(conn)
        if attempt is None or attempt.connection.is_announced:
            return False
        attempt.connection.abort(why)
        attempt.task.cancel()
        self._end(conn, attempt, why)
        return True

    async def _attempt(self, effect: Connect, connection: TcpConnection) -> None:
        try:
            why = await _connect(effect, connection, self._context(effect))
        except ConfigFault as fault:
            why = str(fault)
        self._end(effect.conn, self._attempts[effect.conn], why)

    def _end(self, conn: int, attempt: _Attempt, why: str) -> None:
        del self._attempts[conn]
        attempt.timer.cancel()
        # Once announced, the end of the connection is told by its protocol, even when the attempt's last step failed.
        if not attempt.connection.is_announced:
            self._connections.forget(attempt.connection)
            self._node.post(Closed(conn, why))

    def _context(self, effect: Connect) -> ssl.SSLContext | None:
        if not effect.is_tls:
            return None
        path, listener = self._listeners.get(effect.listener, ("", None))
        return tls.dialling_context(listener, path)


def _by_name(listeners: tuple[ListenerOptions, ...]) -> dict[str, tuple[str, ListenerOptions]]:
    return {one.name: (f"listeners.{number}", one) for number, one in enumerate(listeners)}


def _where(effect: Connect) -> str:
    return f"{effect.host} port {effect.port}"


async def _connect(effect: Connect, connection: TcpConnection, context: ssl.SSLContext | None) -> str:
    """Why it failed, or nothing when the connection stands (its protocol has announced it by then)."""
    local = (effect.local_bind_address, 0) if effect.local_bind_address else None
    try:
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: connection, effect.host, effect.port, local_addr=local, ssl=context
        )
        without_delay(transport.get_extra_info("socket"))
    except ssl.SSLError as fault:
        return f"{_where(effect)}: TLS: {tls.reason_of(fault)}"
    except OSError as fault:
        return f"{_where(effect)}: {fault.strerror or fault}"
    except UnicodeError as fault:  # a name that cannot be asked for, as a peer may have told one
        return f"{_where(effect)}: {fault}"
    return ""
