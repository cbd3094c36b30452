"""Whether somebody answers at a place: what effect `Probe` asks for. A connection is made and closed at once.

Owns the attempts in flight. Each comes back as Done, or as Failed with the reason.
"""

from __future__ import annotations

import asyncio

from mqbroker.io.loop.loop import NodeLoop
from mqbroker.node.values.effects import Probe
from mqbroker.node.values.inputs import Done, Failed

TIMEOUT_S = 5.0


class Probes:
    """Carries out the effect Probe: dials a place over TCP, and posts whether somebody answered."""

    def __init__(self, node: NodeLoop) -> None:
        self._node = node
        self._attempts: set[asyncio.Task[None]] = set()

    def probe(self, effect: Probe) -> None:
        task = asyncio.get_running_loop().create_task(self._attempt(effect))
        self._attempts.add(task)
        task.add_done_callback(self._attempts.discard)

    def close(self) -> None:
        for task in list(self._attempts):
            task.cancel()

    async def _attempt(self, effect: Probe) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                _, writer = await asyncio.open_connection(effect.host, effect.port)
            writer.close()
        except TimeoutError:
            self._node.post(Failed(effect.id, f"no answer in {TIMEOUT_S:.0f} s"))
        except OSError as error:
            self._node.post(Failed(effect.id, error.strerror or str(error)))
        else:
            self._node.post(Done(effect.id))
