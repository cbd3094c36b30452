"""A node that dials somebody who is no node of ours, but whatever a test says: bytes in, bytes out.

far = FalseNode()
far.says(SASL_HEADER)
assert far.bridge.why == ...
"""

from __future__ import annotations

from typing import Any

from mqbroker.node import inputs as given
from mqbroker.node.effects import Connect
from mqbroker.wire import frames as wire
from mqbroker.wire.performatives import SaslInit, SaslMechanisms
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.cluster_stage import ClusterNode, ClusterStage


class FalseNode(ClusterStage):
    """See the module's docstring."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.conn = 0
        self.dialler: ClusterNode = self.node("a", ["b"], **changes)
        self.run()

    def dial(self, node: ClusterNode, effect: Connect) -> None:
        """It takes every connection."""
        self.conn = effect.conn
        node.sent[effect.conn] = bytearray()
        node.give(given.Connected(effect.conn, b"d" * 32))

    @property
    def bridge(self) -> Any:
        """What the node makes of it: a probe as long as it has not answered, then a bridge."""
        cluster = self.dialler.broker.cluster.connections["cluster"]
        return next(iter([*cluster.probes, *cluster.bridges.values()]))

    def says(self, data: bytes) -> bytes:
        """Bytes for the node on its latest connection; what it says to them."""
        conn = self.conn
        before = len(self.dialler.sent[conn])
        self.dialler.give(given.Received(conn, data))
        self.run()
        return bytes(self.dialler.sent[conn][before:])

    def offers(self, mechanism: str = "SCRAM-SHA-256") -> bytes:
        """Header and mechanisms; the nonce of the node's answer."""
        offer = frames.sasl(SaslMechanisms(sasl_server_mechanisms=(Symbol(mechanism),)))
        (init,) = frames.of_kind(self.says(wire.SASL_HEADER + offer), SaslInit)
        return bytes(init.initial_response).rpartition(b"r=")[2]
