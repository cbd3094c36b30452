"""Nobody asks for the class of a link's end or of a peer, or does by hand what `Peer` does: read from the syntax tree.

A new kind of end, or a consumer of another protocol, is then dealt with wherever ends and consumers are, without a
branch there. Nobody takes an end from its link but by the functions that say under which protocol it is there, and each
end has all that these declare.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mqbroker.node.amqp.links.address_end import AddressEnd
from mqbroker.node.amqp.links.consumer import LinkConsumer
from mqbroker.node.amqp.links.ends import ReceivingEnd, SendingEnd
from mqbroker.node.broker import broker  # noqa: F401  it imports whatever makes ends

SOURCE = Path(__file__).resolve().parents[2] / "broker" / "src" / "mqbroker"
ROOMS = ("core", "node", "admin", "io", "app")
PROTOCOLS = ("ReceivingEnd", "SendingEnd", "Consumer", "Client")
PEER = "Peer"
HOLDERS = ("node/amqp/links/ends.py", "node/values/link_ends.py")  # where a link gets its end, and where it is found
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
def test_an_end_is_taken_from_its_link_in_one_place() -> None:
    """Elsewhere mypy would not know what it is."""
    found = trees()
    assert {name for name, tree in found if list(taken(tree))} == set(HOLDERS)


@pytest.mark.parametrize(
    "source",
    ["link.end.incoming(peer, event)", "end = event.link.end", "link.end = end", "owner[1].end = end",
     "first = link.end = AddressEnd(peer, address)", "setattr(link, 'end', end)", "getattr(taken.link, 'end').client"],
)  # fmt: skip
def test_whoever_takes_one_is_found(source: str) -> None:
    assert list(taken(ast.parse(source)))


def taken(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """`….link.end`, and whatever gives anything an end."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr"):
            is_found = isinstance(node.args[1], ast.Constant) and node.args[1].value == "end"
        elif isinstance(node, ast.Attribute) and node.attr == "end":
            is_found = isinstance(node.ctx, ast.Store) or ast.unparse(node.value).endswith("link")
        else:
            continue
        if is_found:
            yield getattr(node, "lineno", 0), ast.unparse(node)


def kinds_of(protocol: type, structural: type) -> Iterator[type]:
    """All classes of ends that are made."""
    waiting = [structural, protocol]
    while waiting:
        kind = waiting.pop()
        waiting += type.__subclasses__(kind)
        if kind is not protocol and not inspect.isabstract(kind):
            yield kind


def members(protocol: type) -> dict[str, Any]:
    return {name: value for each in reversed(protocol.__mro__[:-1]) if each.__module__.startswith("mqbroker.")
            for name, value in vars(each).items() if not name.startswith("_")}  # fmt: skip


def test_all_kinds_of_ends_are_known() -> None:
    receiving = {each.__name__ for each in kinds_of(ReceivingEnd, AddressEnd)}
    sending = {each.__name__ for each in kinds_of(SendingEnd, LinkConsumer)}
    assert receiving == {"AddressEnd", "ArrivalEnd", "CanaryEnd", "ClusterNoticeFeed", "CoordinatorEnd",
                         "DuplicateIdsEnd", "Relay"}  # fmt: skip
    assert sending == {"ClusterNoticeEnd", "ForwardConsumer", "LinkConsumer", "TopologyEnd"}


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [pytest.param(kind, protocol, id=kind.__name__)
     for protocol, structural in ((ReceivingEnd, AddressEnd), (SendingEnd, LinkConsumer))
     for kind in kinds_of(protocol, structural)],
)  # fmt: skip
def test_each_end_has_all_that_is_asked_of_ends(kind: type, protocol: type) -> None:
    asked_of = members(protocol)
    assert len(asked_of) >= 10
    assert not sorted(name for name in asked_of if not hasattr(kind, name))
    for name, value in asked_of.items():
        if inspect.isfunction(value):
            own = getattr(kind, name)
            assert list(inspect.signature(own).parameters) == list(inspect.signature(value).parameters), name


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
