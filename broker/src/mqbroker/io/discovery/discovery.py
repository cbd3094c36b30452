"""Carries out what discovery asks for: JoinGroup and SendDatagram, each answered by Done or Failed, and RelayRecord.

Owns the endpoints of all groups, and what they are about. Without groups it holds nothing.
"""

from __future__ import annotations

import asyncio

from mqbroker.config.slices import BroadcastGroupOptions, BrokerOptions, DiscoveryGroupOptions
from mqbroker.io.discovery.announced_files import FileEar, FileMouth
from mqbroker.io.discovery.broadcast_endpoints import Ear, EndpointUnreachable, Mouth, Work
from mqbroker.io.discovery.gossip import GossipEar, GossipMouth, GossipPlace
from mqbroker.io.discovery.multicast import MulticastReceiver, MulticastSender
from mqbroker.io.discovery.name_service import NameEar
from mqbroker.io.loop.loop import NodeLoop
from mqbroker.node.values.effects import JoinGroup, RelayRecord, SendDatagram
from mqbroker.node.values.inputs import Datagram, Done, Failed, Looked, Resolved


class GroupListener:
    """Posts what an ear tells as inputs of its group."""

    def __init__(self, node: NodeLoop, group: str) -> None:
        self._node = node
        self._group = group

    def heard(self, source: str, data: bytes) -> None:
        """Post a datagram as an input of the group (io/discovery/broadcast_endpoints.py:Listener)."""
        self._node.post(Datagram(self._group, source, data))

    def resolved(self, places: tuple[tuple[str, str, int], ...]) -> None:
        """Post what names led to as an input of the group (io/discovery/broadcast_endpoints.py:Listener)."""
        self._node.post(Resolved(self._group, places))

    def looked(self, why: str) -> None:
        """Post that a look has ended, and what hindered it (io/discovery/broadcast_endpoints.py:Listener)."""
        self._node.post(Looked(self._group, why))


class DiscoveryEndpoints:
    """Made in the loop's thread."""

    def __init__(self, options: BrokerOptions, node: NodeLoop, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop
        self._places: dict[tuple[str, int], GossipPlace] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners = {each.name: GroupListener(node, each.name) for each in options.discovery_groups}
        self._mouths: dict[str, Mouth] = {each.name: self._mouth(each) for each in options.broadcast_groups}
        self._ears: dict[str, Ear] = {each.name: self._ear(each) for each in options.discovery_groups}

    def join(self, effect: JoinGroup) -> None:
        ear = self._ears[effect.group]
        self._start(effect.id, ear.join(self._listeners[effect.group]))

    def send(self, effect: SendDatagram) -> None:
        self._start(effect.id, self._mouths[effect.group].send(effect.data))

    def relay(self, effect: RelayRecord) -> None:
        ear = self._ears[effect.group]
        if isinstance(ear, GossipEar):
            ear.relay(effect.node_id, effect.data)

    def close(self) -> None:
        """Close all endpoints; it may be called twice."""
        for task in list(self._tasks):
            task.cancel()
        for mouth in self._mouths.values():
            mouth.close()
        for ear in self._ears.values():
            ear.close()
        for place in self._places.values():
            place.close()

    def _mouth(self, options: BroadcastGroupOptions) -> Mouth:
        if options.discovery == "file":
            return FileMouth(options)
        if options.discovery == "gossip":
            return GossipMouth(self._place(options))
        return MulticastSender(options)

    def _ear(self, options: DiscoveryGroupOptions) -> Ear:
        if options.discovery == "file":
            return FileEar(options)
        if options.discovery == "dns":
            return NameEar(options)
        if options.discovery == "gossip":
            return GossipEar(options, self._place(options))
        return MulticastReceiver(options, self._loop)

    def _place(self, options: BroadcastGroupOptions | DiscoveryGroupOptions) -> GossipPlace:
        key = (options.local_bind_address, options.local_bind_port)
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = GossipPlace(options)
        else:
            place.add(options)
        return place

    def _start(self, effect_id: int, work: Work) -> None:
        task = self._loop.create_task(self._answered(effect_id, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(self, effect_id: int, work: Work) -> None:
        try:
            await work
        except EndpointUnreachable as why:
            self._node.post(Failed(effect_id, str(why)))
        else:
            self._node.post(Done(effect_id))
