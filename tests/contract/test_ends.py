"""Nobody asks for the class of a link's end or of a peer, or does by hand what `Peer` does: read from the syntax tree.

A new kind of end, or a consumer of another protocol, is then dealt with wherever ends and consumers are, without a
branch there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "broker" / "src" / "mqbroker"
ROOMS = ("core", "node", "admin", "io", "app")
PROTOCOLS = ("ReceivingEnd", "SendingEnd", "Consumer", "Client")
PEER = "Peer"
STRUCTURAL = ("AddressEnd", "LinkConsumer")  # compiled, so they have the protocols and do not derive from them


def trees() -> list[tuple[str, ast.Module]]:
    files = [file for room in ROOMS for file in sorted((SOURCE / room).rglob("*.py"))]
    return [(str(file.relative_to(SOURCE)), ast.parse(file.read_text(encoding="utf-8"))) for file in files]


def ends(found: list[tuple[str, ast.Module]]) -> set[str]:
    """Names of all classes of ends, consumers and peers."""
    names = {*PROTOCOLS, *STRUCTURAL, PEER}
    classes = [node for _, tree in found for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while True:
        more = {each.name for each in classes if names & {ast.unparse(base) for base in each.bases}} - names
        more |= {each.name for each in classes if _consumes(each)} - names
        if not more:
            return names
        names |= more


def _consumes(made: ast.ClassDef) -> bool:
    return {"capacity", "deliver"} <= {each.name for each in made.body if isinstance(each, ast.FunctionDef)}


def asked(tree: ast.Module, names: set[str]) -> Iterator[tuple[int, str]]:
    """`isinstance(…, one of them)`, `type(…) is one of them`, and `case OneOfThem(…)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            classes: list[ast.AST] = [node.args[1]]
        elif isinstance(node, ast.Compare) and "type(" in ast.unparse(node):
            classes = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchClass):
            classes = [node.cls]
        else:
            continue
        mentioned = {each.id for made in classes for each in ast.walk(made) if isinstance(each, ast.Name)}
        if mentioned & names:
            yield getattr(node, "lineno", 0), ast.unparse(node)


@pytest.mark.slow
def test_nobody_asks_for_the_class_of_an_end_of_a_consumer_or_of_a_peer() -> None:
    found = trees()
    names = ends(found)
    assert names >= {
        "Relay",
        "ArrivalEnd",
        "CoordinatorEnd",
        "ClusterNoticeEnd",
        "TopologyEnd",
        "ForwardConsumer",
        "Receive",
    }
    assert names >= {"AcceptedPeer", "RatedPeer", "BridgePeer"}
    assert not [f"{name}:{line}: {what}" for name, tree in found for line, what in asked(tree, names)]


@pytest.mark.parametrize(
    "source",
    ["isinstance(link.end, AddressEnd)", "isinstance(end, Relay | AddressEnd)", "type(link.end) is CoordinatorEnd",
     "match end:\n    case Relay():\n        pass"],
)  # fmt: skip
def test_whoever_does_is_found(source: str) -> None:
    assert list(asked(ast.parse(source), {"AddressEnd", "Relay", "CoordinatorEnd"}))


@pytest.mark.slow
def test_credit_is_given_again_in_one_place() -> None:
    """`Peer.replenish` asks whether half of the credit is used, and nothing else of the broker does."""
    places = {
        f"{name}:{function.name}"
        for name, tree in trees()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and "credit * 2 <= " in ast.unparse(function)
    }
    assert places == {"node/amqp/peers/peer.py:replenish"}


@pytest.mark.slow
def test_links_are_ended_outside_of_their_events_in_one_place() -> None:
    """`Peer.detach` ends a link and acts on what that makes, and nothing else does both."""
    places = {
        f"{name}:{function.name}"
        for name, tree in trees()
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        and "link.detach(" in ast.unparse(function)
        and ".handle_events()" in ast.unparse(function)
    }
    assert places == {"node/amqp/peers/peer.py:detach"}
