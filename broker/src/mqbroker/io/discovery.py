"""Carries out what discovery asks for: JoinGroup and SendDatagram, each answered by Done or Failed.

Owns the endpoints of all groups. Without groups it holds nothing.
"""

from __future__ import annotations

import asyncio
from functools import partial

from mqbroker.config.slices import BrokerOptions
from mqbroker.io.broadcast_endpoints import Ear, Mouth, Unreachable
from mqbroker.io.loop import NodeLoop
from mqbroker.io.multicast import MulticastReceiver, MulticastSender
from mqbroker.node.effects import JoinGroup, SendDatagram
from mqbroker.node.inputs import Datagram, Done, Failed


class DiscoveryEndpoints:
    """Made in the loop's thread."""

    def __init__(self, options: BrokerOptions, node: NodeLoop, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._mouths: dict[str, Mouth] = {each.name: MulticastSender(each) for each in options.broadcast_groups}
        self._ears: dict[str, Ear] = {each.name: MulticastReceiver(each, loop) for each in options.discovery_groups}

    def join(self, effect: JoinGroup) -> None:
        try:
            self._ears[effect.group].join(partial(self._heard, effect.group))
        except Unreachable as why:
            self._node.post(Failed(effect.id, str(why)))
        else:
            self._node.post(Done(effect.id))

    def send(self, effect: SendDatagram) -> None:
        try:
            self._mouths[effect.group].send(effect.data)
        except Unreachable as why:
            self._node.post(Failed(effect.id, str(why)))
        else:
            self._node.post(Done(effect.id))

    def close(self) -> None:
        """Safe to call twice."""
        for mouth in self._mouths.values():
            mouth.close()
        for ear in self._ears.values():
            ear.close()

    def _heard(self, group: str, source: str, data: bytes) -> None:
        self._node.post(Datagram(group, source, data))
