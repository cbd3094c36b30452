"""A node that dials somebody who is no node of ours, but whatever a test says: bytes in, bytes out.

far = FalseNode()
far.says(SASL_HEADER)
assert far.bridge.why == ...
"""

from __future__ import annotations

from typing import Any

from mqbroker.amqp import sasl
from mqbroker.node.values import inputs as given
from mqbroker.node.values.credentials import CLUSTER_USER, verifier_of
from mqbroker.node.values.effects import Connect
from mqbroker.wire import frames as wire
from mqbroker.wire.performatives import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.cluster_stage import KEY, ClusterNode, ClusterStage

VERIFIER = verifier_of(KEY, b"secret of the other process")


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
        self.dialler.give(given.BytesReceived(conn, data))
        self.run()
        return bytes(self.dialler.sent[conn][before:])

    def offers(self, mechanism: str = "SCRAM-SHA-256") -> bytes:
        """Header and mechanisms; the nonce of the node's answer."""
        offer = frames.sasl(SaslMechanisms(sasl_server_mechanisms=(Symbol(mechanism),)))
        (init,) = frames.of_kind(self.says(wire.SASL_HEADER + offer), SaslInit)
        return bytes(init.initial_response).rpartition(b"r=")[2]

    def answers_login(self) -> None:
        """It is a node after all: it knows the secret of the cluster."""
        server = sasl.SaslServer(("SCRAM-SHA-256",), {CLUSTER_USER: VERIFIER}, b"e" * 32)
        offer = frames.sasl(SaslMechanisms(sasl_server_mechanisms=(Symbol("SCRAM-SHA-256"),)))
        (init,) = frames.of_kind(self.says(wire.SASL_HEADER + offer), SaslInit)
        step = server.init(str(init.mechanism), init.initial_response)
        assert isinstance(step, sasl.Challenge)
        (answer,) = frames.of_kind(self.says(frames.sasl(SaslChallenge(challenge=step.data))), SaslResponse)
        verdict = server.respond(answer.response)
        assert isinstance(verdict, sasl.LoginVerdict)
        assert verdict.is_good
        self.says(frames.sasl(SaslOutcome(code=0, additional_data=verdict.data)))

    def dialled_again(self) -> None:
        """The connection breaks, if it stands, and the node dials anew."""
        before, node = self.conn, self.dialler
        node.sent.pop(before, None)
        node.give(given.Closed(before, "reset"))
        for _ in range(100):
            self.wait(1)
            if self.conn != before:
                return
        raise AssertionError("it does not dial any more")
