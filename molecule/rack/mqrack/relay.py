"""Owns delay: a process that holds every frame between two devices back for a fixed time.

Invariant: frames of one direction leave in the order in which they came, and at most QUEUE_BYTES_MAX of them wait;
what comes when the queue is full is dropped, as a switch would. Source: packet(7). Headers of the virtual device
(PACKET_VNET_HDR) travel along, because frames between virtual cards carry unfinished checksums and are larger than
a wire allows.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections import deque

_SOL_PACKET = 263
_PACKET_VNET_HDR = 15
_PACKET_IGNORE_OUTGOING = 23
_ETH_P_ALL = 3
_FRAME_BYTES_MAX = 1 << 17
QUEUE_BYTES_MAX = 16 << 20
# So many frames are taken from one side before the clock and the other side get a look in.
_BURST = 64


class Direction:
    """Frames on their way from one device to another."""

    def __init__(self, source: socket.socket, target: socket.socket, delay_s: float) -> None:
        self.source = source
        self.target = target
        self._delay_s = delay_s
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._waiting_bytes = 0

    def take(self) -> None:
        for _ in range(_BURST):
            try:
                frame = self.source.recv(_FRAME_BYTES_MAX)
            except OSError:
                # Nothing more to read, or the cable is cut: both pass.
                return
            if self._waiting_bytes + len(frame) <= QUEUE_BYTES_MAX:
                self._waiting.append((time.monotonic() + self._delay_s, frame))
                self._waiting_bytes += len(frame)

    def give(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            frame = self._waiting.popleft()[1]
            self._waiting_bytes -= len(frame)
            try:
                self.target.send(frame)
            except OSError:
                # A cut cable loses frames, and so does a full device.
                continue

    def due(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None


def relay(port: str, stub: str, delay_ms: float) -> None:
    """Runs until it is killed."""
    sockets = [_open(device) for device in (port, stub)]
    ways = [
        Direction(sockets[0], sockets[1], delay_ms / 1000),
        Direction(sockets[1], sockets[0], delay_ms / 1000),
    ]
    sys.stdout.write("relaying\n")
    sys.stdout.close()
    while True:
        dues = [due for way in ways if (due := way.due()) is not None]
        timeout_s = max(0.0, min(dues) - time.monotonic()) if dues else None
        readable, _, _ = select.select(sockets, [], [], timeout_s)
        for way in ways:
            if way.source in readable:
                way.take()
            way.give(time.monotonic())


def _open(device: str) -> socket.socket:
    # Protocol 0 until it is bound: otherwise it would collect frames of every device first.
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    opened.bind((device, _ETH_P_ALL))
    opened.setblocking(False)
    return opened
