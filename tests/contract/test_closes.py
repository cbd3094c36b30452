"""Wherever this node closes a connection, it does so in good order (node/amqp/peers/farewell.py), so that what came of
it is answered or was not taken in. Who closes one at once stands here, with the reason why nothing is in doubt by that.
The fault of a peer ends it at once as well (amqp/connection.py)."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

BROKER = Path(__file__).resolve().parents[2] / "broker/src/mqbroker"
ROOMS = ("admin", "node")

NOT_OPEN = "it is not open, so nothing of it was taken in"
KNOWN_AGAIN = "a link of nodes: what comes again by it is known by its mark"
AT_ONCE = {
    "node/amqp/peers/farewell.py:Farewell.close": NOT_OPEN,
    "node/amqp/peers/farewell.py:Farewell._close": "as what it waits for says",
    "node/amqp/peers/peer.py:Peer.close_at_once": "it is what closes",
    "node/amqp/peers/peer.py:Peer.on_time": NOT_OPEN,
    "node/amqp/listeners/logins.py:Logins._derive.came": NOT_OPEN,
    "node/amqp/listeners/open_answer.py:answer": NOT_OPEN,
    "node/amqp/peers/containment.py:Containment._end": "a bug, and none of what it sent may be half done",
    "node/amqp/peers/peer.py:Peer.stop": "all was answered before (Stopping._answer)",
    "node/cluster/cordon/departing_clients.py:DepartingClients.close": "they were held, and all was answered before",
    "node/cluster/membership/bridge_peer.py:BridgePeer.hang_up": KNOWN_AGAIN,
    "node/cluster/membership/bridge_peer.py:BridgePeer._detached": KNOWN_AGAIN,
    "node/cluster/membership/bridge_peer.py:BridgePeer._ended": KNOWN_AGAIN,
    "node/cluster/membership/cluster.py:Cluster.hear_term": KNOWN_AGAIN,
    "node/cluster/discovery/node_id_conflict.py:NodeIdConflict.compare": KNOWN_AGAIN,
    "node/cluster/membership/notice_links.py:ClusterNoticeFeed.incoming": KNOWN_AGAIN,
}


OFTEN = {
    "node/cluster/cordon/departing_clients.py:DepartingClients.close": 2,
    "node/amqp/listeners/open_answer.py:answer": 5,
}  # others do it once
CUTS = {
    "node/amqp/peers/peer.py:Peer._dead": "it is closed, or lost",
    "node/amqp/listeners/accepting_broker.py:AcceptingBroker._admit": NOT_OPEN,
    "node/amqp/peers/containment.py:Containment.admit": NOT_OPEN,
    "node/cluster/membership/bridge.py:Bridge._hang_up": KNOWN_AGAIN,
}


def doers(node: ast.AST, name: str, is_one: Callable[[ast.AST], bool]) -> Iterator[str]:
    """Names of functions that do something, as often as they do."""
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}" if name else child.name
        elif is_one(child):
            yield name
        yield from doers(child, inner, is_one)


def is_close(node: ast.AST) -> bool:
    """Whether it names what closes at once: the machine's own close, or the peer's without a farewell."""
    if not isinstance(node, ast.Attribute):
        return False
    owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
    return node.attr == "close_at_once" or (node.attr == "close" and owner == "connection")


def is_cut(node: ast.AST) -> bool:
    """Whether it makes the effect by which a transport ends, whatever is said on it."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "CloseConnection"


def places(is_one: Callable[[ast.AST], bool]) -> Counter[str]:
    """How often each function does something."""
    return Counter(
        f"{path.relative_to(BROKER)}:{name}"
        for room in ROOMS
        for path in (BROKER / room).rglob("*.py")
        for name in doers(ast.parse(path.read_text()), "", is_one)
    )


def test_nobody_else_closes_a_connection_at_once() -> None:
    assert places(is_close) == {name: OFTEN.get(name, 1) for name in AT_ONCE}


def test_nobody_else_cuts_one_off() -> None:
    assert places(is_cut) == dict.fromkeys(CUTS, 1)
