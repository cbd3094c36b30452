"""Announcements by TCP to peers: each exchange gives all records that this node knows for all that the peer knows.

Owns the listening socket and the exchanges under way. A place (address and port of this host) belongs to at most one
broadcast and one discovery group, which share it. Bounds: so many guests, so many records, so many bytes of each, and
time; who is silent, does not read or talks nonsense costs no more than that. Nothing that comes is believed here: each
record goes to the group as a datagram, which checks its MAC. Source: ADR 0010.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

from mqbroker.cluster.discovery.gossip import HEAD_BYTES, LENGTH_BYTES, count_of, length_of, pieces
from mqbroker.config.slices import BroadcastGroupOptions, DiscoveryGroupOptions
from mqbroker.io.discovery.broadcast_endpoints import EndpointUnreachable, Listener, PollingEar

GUESTS_MAX = 32  # peers that are answered at once; further ones are closed
EXCHANGE_S = 5.0
BUFFER_BYTES = 16 * 1024
GossipGroupOptions = BroadcastGroupOptions | DiscoveryGroupOptions


class GossipPlace:
    """What a broadcast and a discovery group at one place share."""

    def __init__(self, options: GossipGroupOptions) -> None:
        self._host = options.local_bind_address
        self._port = options.local_bind_port
        self._peers: dict[str, None] = {}
        self._server: asyncio.Server | None = None
        self._listening = asyncio.Lock()
        self._guests: set[asyncio.StreamWriter] = set()
        self._exchanges: dict[str, asyncio.Task[str]] = {}
        self._began_s: float | None = None
        self.listener: Listener | None = None
        self.said = b""  # the datagram that announces this node
        self.records: dict[str, bytes] = {}  # those of others, by node id
        self.add(options)

    def add(self, options: GossipGroupOptions) -> None:
        """One more group: its peers count for both."""
        own = f"{self._host}:{self._port}"
        self._peers.update(dict.fromkeys(peer for peer in options.peers if peer != own))

    async def listen(self) -> None:
        """Answer peers from now on, if not yet. Raises Unreachable."""
        async with self._listening:  # both groups of a place come here at the start
            if self._server is not None:
                return
            try:
                self._server = await asyncio.start_server(
                    self._serve, self._host, self._port, limit=BUFFER_BYTES, reuse_address=True
                )
            except OSError as error:
                why = f"{self._host}:{self._port} cannot be listened at: {error.strerror or error}"
                raise EndpointUnreachable(
                    f"{why}; see local-bind-address and local-bind-port; it is tried again"
                ) from None

    async def exchange(self) -> None:
        """Exchange with all peers; enough when one has answered. Raises Unreachable where none did."""
        self._began_s = time.monotonic()
        for peer in self._peers:
            if peer not in self._exchanges:
                self._exchanges[peer] = asyncio.get_running_loop().create_task(self._with(peer))
        whys: list[str] = []
        waiting = set(self._exchanges.values())
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            results = ["closed" if each.cancelled() else each.result() for each in done]
            if "" in results:
                return
            whys += results
        if whys:
            raise EndpointUnreachable(f"no peer can be reached ({whys[0]}); see peers; it is tried again")

    def is_idle_since(self, period_s: float) -> bool:
        """Whether the last exchange began longer ago than this."""
        return self._began_s is None or time.monotonic() - self._began_s >= period_s

    def close(self) -> None:
        """Give back all. Safe to call twice."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._exchanges.values()):
            task.cancel()
        for guest in list(self._guests):
            guest.transport.abort()

    async def _with(self, peer: str) -> str:
        """One exchange that we began: empty, or why it failed."""
        host, _, port = peer.rpartition(":")
        try:
            async with asyncio.timeout(EXCHANGE_S):
                is_ours = await self._dial(host, int(port), peer)
        except TimeoutError:
            return f"{peer}: not done in {EXCHANGE_S:.0f} s"
        except asyncio.IncompleteReadError:
            return f"{peer}: closed before its answer was whole"
        except OSError as error:
            return f"{peer}: {error.strerror or error}"
        finally:
            del self._exchanges[peer]
        return "" if is_ours else f"{peer}: something else answers there"

    async def _dial(self, host: str, port: int, peer: str) -> bool:
        reader, writer = await asyncio.open_connection(
            host.strip("[]"), port, limit=BUFFER_BYTES, local_addr=self._local(host)
        )
        try:
            await self._write(writer)
            return await self._read(reader, peer)
        finally:
            writer.transport.abort()

    def _local(self, host: str) -> tuple[str, int] | None:
        """Over the card that the place belongs to, unless the peer is reached by IPv6."""
        return None if host.startswith("[") else (self._host, 0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        if peer is None or len(self._guests) >= GUESTS_MAX:
            writer.transport.abort()  # without a name it is gone already: reset before it was looked at
            return
        self._guests.add(writer)
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(EXCHANGE_S):
                if await self._read(reader, f"{peer[0]}:{peer[1]}"):
                    await self._write(writer)
                    writer.close()
                    await writer.wait_closed()
        self._guests.discard(writer)
        writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, source: str) -> bool:
        """Take in what a peer says; whether it was gossip at all. What is not is told of as a datagram that is none."""
        known = {self.said, *self.records.values()}
        head = await reader.readexactly(HEAD_BYTES)
        count = count_of(head)
        if count is None:
            self._tell(source, head)
            return False
        for _ in range(count):
            length = length_of(await reader.readexactly(LENGTH_BYTES))
            if length is None:
                self._tell(source, b"")
                return False
            data = await reader.readexactly(length)
            if data not in known:
                self._tell(source, data)
        return True

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        """All that we know, never more of it in memory than the transport's buffer."""
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)
        records = [self.said] if self.said else []
        for piece in pieces([*records, *self.records.values()]):
            writer.write(piece)
            await writer.drain()

    def _tell(self, source: str, data: bytes) -> None:
        if self.listener is not None:
            self.listener.heard(source, data)


class GossipMouth:
    """The endpoint of a broadcast group."""

    def __init__(self, place: GossipPlace) -> None:
        self._place = place

    async def send(self, data: bytes) -> None:
        """Tell the datagram, and whoever asks from now on, too (io/discovery/broadcast_endpoints.py:Mouth)."""
        self._place.said = data
        await self._place.listen()
        await self._place.exchange()

    def close(self) -> None:
        """Let go of the place, which goes with the last who uses it."""


class GossipEar(PollingEar):
    """The endpoint of a discovery group."""

    def __init__(self, options: DiscoveryGroupOptions, place: GossipPlace) -> None:
        super().__init__(options.poll_period)
        self._place = place
        self._poll_s = options.poll_period / 1000

    async def begin(self, listener: Listener) -> None:
        """Peers that do not answer yet are no reason to fail: they may come, and will find us then."""
        self._place.listener = listener
        await self._place.listen()

    async def look(self, listener: Listener) -> None:
        """Exchange with the others, unless the broadcast group has meanwhile
        (io/discovery/broadcast_endpoints.py:PollingEar)."""
        if self._place.is_idle_since(self._poll_s):
            await self._place.exchange()

    def relay(self, node_id: str, data: bytes) -> None:
        """Pass on this record, or none of this node."""
        if data:
            self._place.records[node_id] = data
        else:
            self._place.records.pop(node_id, None)
