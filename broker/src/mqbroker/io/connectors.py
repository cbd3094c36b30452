"""Outgoing connections: what effect `Connect` asks for.

Owns the attempts in flight. Invariant: each Connect comes back as Connected or as Closed with the reason, and a Close
during the attempt ends it. Certificates are read at each attempt, so a new one is used without a restart. Source:
docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import asyncio
import ssl

from mqbroker.base.errors import ConfigFault
from mqbroker.config.slices import ListenerOptions
from mqbroker.io import tls
from mqbroker.io.connections import Connection, Connections, without_delay
from mqbroker.io.loop import NodeLoop
from mqbroker.node.effects import Close, Connect
from mqbroker.node.inputs import Closed


class Connectors:
    """Carries out Connect, and Close for connections that do not stand yet."""

    def __init__(self, node: NodeLoop, connections: Connections, listeners: tuple[ListenerOptions, ...] = ()) -> None:
        self._node = node
        self._connections = connections
        self._attempts: dict[int, asyncio.Task[None]] = {}
        self._listeners = _by_name(listeners)

    def change(self, listeners: tuple[ListenerOptions, ...]) -> None:
        """Whose certificates may be shown from now on. A listener, and its TLS, comes and goes with a restart alone."""
        for name, (path, found) in _by_name(listeners).items():
            if name in self._listeners and self._listeners[name][1].has_tls == found.has_tls:
                self._listeners[name] = path, found

    def connect(self, effect: Connect) -> None:
        connection = self._connections.outgoing(effect.conn)
        self._attempts[effect.conn] = asyncio.get_running_loop().create_task(self._attempt(effect, connection))

    def close(self, effect: Close) -> None:
        attempt = self._attempts.get(effect.conn)
        if attempt is not None and not self._connections.is_announced(effect.conn):
            attempt.cancel()
        else:
            self._connections.close(effect)

    def abort_all(self) -> None:
        for attempt in list(self._attempts.values()):
            attempt.cancel()

    async def _attempt(self, effect: Connect, connection: Connection) -> None:
        try:
            why = await _connect(effect, connection, self._context(effect))
        except asyncio.CancelledError:
            why = "closed by us while connecting"
        except ConfigFault as fault:
            why = str(fault)
        self._attempts.pop(effect.conn, None)
        # Once announced, the end of the connection is told by its protocol, even when the attempt's last step failed.
        if why and not connection.is_announced:
            self._connections.forget(connection)
            self._node.post(Closed(effect.conn, why))

    def _context(self, effect: Connect) -> ssl.SSLContext | None:
        if not effect.is_tls:
            return None
        path, listener = self._listeners.get(effect.listener, ("", None))
        return tls.dialling_context(listener, path)


def _by_name(listeners: tuple[ListenerOptions, ...]) -> dict[str, tuple[str, ListenerOptions]]:
    return {one.name: (f"listeners.{number}", one) for number, one in enumerate(listeners)}


async def _connect(effect: Connect, connection: Connection, context: ssl.SSLContext | None) -> str:
    """Why it failed, or nothing when the connection stands (its protocol has announced it by then)."""
    loop = asyncio.get_running_loop()
    where = f"{effect.host} port {effect.port}"
    local = (effect.local_bind_address, 0) if effect.local_bind_address else None
    try:
        async with asyncio.timeout(effect.timeout_ms / 1000):
            transport, _ = await loop.create_connection(
                lambda: connection, effect.host, effect.port, local_addr=local, ssl=context
            )
        without_delay(transport.get_extra_info("socket"))
    except TimeoutError:
        return f"{where}: no answer in {effect.timeout_ms} ms"
    except ssl.SSLError as fault:
        return f"{where}: TLS: {tls.reason_of(fault)}"
    except OSError as fault:
        return f"{where}: {fault.strerror or fault}"
    return ""
