"""Outgoing connections: what effect `Connect` asks for.

Owns the attempts in flight. Invariant: each Connect comes back as Connected or as Closed with the reason, and a Close
during the attempt ends it. Source: docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import asyncio

from mqbroker.io.connections import Connection, Connections, without_delay
from mqbroker.io.loop import NodeLoop
from mqbroker.node.effects import Close, Connect
from mqbroker.node.inputs import Closed

CONNECT_TIMEOUT_S = 10.0


class Connectors:
    """Carries out Connect, and Close for connections that do not stand yet."""

    def __init__(self, node: NodeLoop, connections: Connections) -> None:
        self._node = node
        self._connections = connections
        self._attempts: dict[int, asyncio.Task[None]] = {}

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
            why = await _connect(effect, connection)
        except asyncio.CancelledError:
            why = "closed by us while connecting"
        self._attempts.pop(effect.conn, None)
        # Once announced, the end of the connection is told by its protocol, even when the attempt's last step failed.
        if why and not connection.is_announced:
            self._connections.forget(connection)
            self._node.post(Closed(effect.conn, why))


async def _connect(effect: Connect, connection: Connection) -> str:
    """Why it failed, or nothing when the connection stands (its protocol has announced it by then)."""
    loop = asyncio.get_running_loop()
    where = f"{effect.host} port {effect.port}"
    local = (effect.local_bind_address, 0) if effect.local_bind_address else None
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            transport, _ = await loop.create_connection(lambda: connection, effect.host, effect.port, local_addr=local)
        without_delay(transport.get_extra_info("socket"))
    except TimeoutError:
        return f"{where}: no answer in {CONNECT_TIMEOUT_S:.0f} s"
    except OSError as fault:
        return f"{where}: {fault.strerror or fault}"
    return ""
