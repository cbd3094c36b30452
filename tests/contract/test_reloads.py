"""Each option that a running broker takes is passed on by the side that has it: `io` its own, the node all others.

What a reload brings comes to both. One that is declared reloadable and passed on by neither would silently wait for a
restart, although a plan says that it holds.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from mqbroker.config.names import REPEATED_TABLES
from mqbroker.config.slices import RELOADABLE
from mqbroker.core.address.diverts import Diverts
from mqbroker.core.address.quotas import Quotas
from mqbroker.io.server import Server
from mqbroker.io.sockets import tls
from mqbroker.io.sockets.listeners import Acceptor
from mqbroker.node.broker.broker import Broker
from mqbroker.node.broker.deployment import deploy


class Reader(NamedTuple):
    """Who reads single options of `root`; `keeper`: who sets that, where it is what an object keeps."""

    function: Callable[..., Any]
    root: str
    keeper: Callable[..., Any] | None = None


TAKE = {"io": (Server._take_options,), "node": (Broker.take_options, inspect.getmodule(deploy))}
# Tables, who is to be called with what a reload brings of them, and on which side.
TOLD: dict[str, tuple[str, set[str]]] = {
    "listeners": ("io", {"self._connectors.change", "acceptor.change"}),
    "metrics": ("io", {"self._http.change"}),
    "node": ("io", {"self._log.change"}),
    "address_settings": ("node", {"self.store.settings.change"}),
    "security_settings": ("node", {"self.permissions.change"}),
    "limits": ("node", {"self.store.quotas.change"}),
    "addresses": ("node", {"broker.store.deployed_addresses.gone", "broker.store.deployed_addresses.apply"}),
    "diverts": ("node", {"Diverts"}),
}
# Rows of other tables replace those that there were, and whoever asks for an option finds it in the new row.
READERS = {
    "limits": [Reader(Quotas.change, "limits")],
    "node": [Reader(Server._take_options, "options.node"),
             Reader(Server._end, "self._options.node", Server._take_options)],
    "metrics": [Reader(Server._take_options, "options.metrics")],
    "diverts": [Reader(Diverts.__init__, "one")],
    "listeners": [Reader(tls.context_of, "listener"), Reader(tls.files_of, "listener"),
                  Reader(Acceptor._admit, "self._settings", Acceptor.change),
                  Reader(Acceptor._secured, "self._settings", Acceptor.change)],
}  # fmt: skip


def why_not_taken(path: str) -> str:
    """Empty where the option is passed on."""
    table, _, name = path.replace("-", "_").partition(".")
    side, told = TOLD.get(table, ("node", {"nobody"}))
    missing = told - set().union(*(called_with(table, tree_of(each)) for each in TAKE[side]))
    if missing:
        who = "Server._take_options" if side == "io" else "Broker.take_options"
        return f"{path}: {who} does not pass it on to {', '.join(sorted(missing))}"
    readers = READERS.get(table, [])
    if (readers or table not in REPEATED_TABLES) and not any(name in read_by(each) for each in readers):
        return f"{path}: whoever is told of a reload does not read it"
    return ""


def tree_of(thing: Any) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(thing)))


def called_with(table: str, tree: ast.AST) -> set[str]:
    """What is called with `options.table`, or with what is made of it."""
    names: set[str] = set()
    while True:
        made = {name for target, value in bindings(tree) if has(value, table, names) for name in names_of(target)}
        if made <= names:
            break
        names |= made
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    given = ((call, [*call.args, *(each.value for each in call.keywords)]) for call in calls)
    return {ast.unparse(call.func) for call, args in given if any(has(each, table, names) for each in args)}


def bindings(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is bound, and to what."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.For | ast.comprehension):
            yield node.target, node.iter


def names_of(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def has(expression: ast.expr, table: str, names: set[str]) -> bool:
    """Not `self.options`: that is what the broker started with."""
    wanted = f"options.{table}"
    nodes = list(ast.walk(expression))
    return any(isinstance(each, ast.Attribute) and ast.unparse(each) == wanted for each in nodes) or any(
        isinstance(each, ast.Name) and each.id in names for each in nodes
    )


def read_by(reader: Reader) -> set[str]:
    if reader.keeper is not None and not keeps(tree_of(reader.keeper), reader.root):
        return set()
    nodes = (node for node in ast.walk(tree_of(reader.function)) if isinstance(node, ast.Attribute))
    return {node.attr for node in nodes if isinstance(node.ctx, ast.Load) and ast.unparse(node.value) == reader.root}


def keeps(tree: ast.AST, root: str) -> bool:
    """Whether it sets what `root` begins with, `self.something`, to something that it was given."""
    kept = ".".join(root.split(".")[:2])
    return any(ast.unparse(target) == kept and isinstance(value, ast.Name) for target, value in bindings(tree))


def test_each_option_that_reloads_is_passed_on_by_its_side() -> None:
    assert [why for path in sorted(RELOADABLE) if (why := why_not_taken(path))] == []


def test_one_that_nobody_passes_on_is_found() -> None:
    assert "Broker.take_options" in why_not_taken("journal.sync-period")
    assert "does not read it" in why_not_taken("limits.link-credit")
    assert "does not read it" in why_not_taken("listeners.backlog")
    assert why_not_taken("broadcast-groups.name")


ROWS = "rows = {row.name: row for row in options.limits}\nfor each in self.all:\n    row = rows.get(each.name)\n    "


@pytest.mark.parametrize("line", ["self.take(options.limits)", "self.take(put(options.limits + kept))",
                                  "self.take(limits=options.limits.one)", ROWS + "self.take(row)"])  # fmt: skip
def test_a_call_with_what_a_reload_brings_is_found(line: str) -> None:
    assert "self.take" in called_with("limits", ast.parse(line))


@pytest.mark.parametrize("line", ["self.take(self.options.limits)", "self.take()  # options.limits", "options.limits",
                                  "self.take('options.limits')", "self.take(options.limits_of)",
                                  ROWS + "pass", ROWS + "self.take(each)"])  # fmt: skip
def test_what_only_looks_like_one_is_not(line: str) -> None:
    assert "self.take" not in called_with("limits", ast.parse(line))


def test_what_is_kept_is_what_came() -> None:
    assert keeps(ast.parse("self._options = options"), "self._options.node")
    assert not keeps(ast.parse("self._options = self._options  # = options"), "self._options.node")
