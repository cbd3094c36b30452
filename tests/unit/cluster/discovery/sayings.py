"""Announcements for tests of discovery."""

from __future__ import annotations

from typing import Any

from mqbroker.base.notice import Level
from mqbroker.cluster.discovery.announcement import Announcement, Connector

MS = 1_000_000
NODES = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(5)]
BOOTS = [f"{number:032x}" for number in range(20)]
HERE = Connector("cluster", "amqp", "198.51.100.11", 5673)
THERE = Connector("cluster", "amqps", "mq2.example.org", 5674)
KEY = b"k" * 32


def said(node: int = 1, boot: int = 1, seq: int = 1, **changes: Any) -> Announcement:
    """What a node says."""
    fields: dict[str, Any] = {
        "node_id": NODES[node], "boot_id": BOOTS[boot], "seq": seq, "name": f"mq{node}", "period_ms": 2000,
        "connectors": (HERE,), **changes,
    }  # fmt: skip
    return Announcement(**fields)


class Spy:
    """A World that writes down what it is asked for."""

    def __init__(self) -> None:
        self.joins: list[str] = []
        self.sends: list[tuple[str, bytes]] = []
        self.relayed: list[tuple[str, str, bytes]] = []
        self.told: list[tuple[Level, str, dict[str, str | int]]] = []

    def join(self, group: str) -> None:
        self.joins.append(group)

    def send(self, group: str, data: bytes) -> None:
        self.sends.append((group, data))

    def relay(self, group: str, node_id: str, data: bytes) -> None:
        self.relayed.append((group, node_id, data))

    def tell(self, level: Level, event: str, **fields: str | int) -> None:
        self.told.append((level, event, fields))

    @property
    def events(self) -> list[str]:
        return [event for _, event, _ in self.told]
