"""Each option that a running broker takes is passed on by the side that has it: `io` its own, the node all others.

What a reload brings comes to both. One that is declared reloadable and passed on by neither would silently wait for a
restart, although a plan says that it holds.
"""

from __future__ import annotations

import inspect

from mqbroker.config.names import REPEATED_TABLES
from mqbroker.config.slices import RELOADABLE
from mqbroker.core.address.quotas import Quotas
from mqbroker.io.server import Server
from mqbroker.node.broker.broker import Broker
from mqbroker.node.broker.deployment import deploy

OF_IO = ("listeners", "metrics", "node")
TAKEN_BY_IO = inspect.getsource(Server._take_options)
TAKEN_BY_NODE = "".join(inspect.getsource(each) for each in (Broker.take_options, inspect.getmodule(deploy)) if each)
READ = {"limits": inspect.getsource(Quotas.change), "node": inspect.getsource(Server), "metrics": TAKEN_BY_IO}
"""Who reads single options of a table that is passed on as a whole; rows of others replace those that there were."""


def why_not_taken(path: str) -> str:
    """Empty where the option is passed on."""
    table, _, name = path.replace("-", "_").partition(".")
    taken = TAKEN_BY_IO if table in OF_IO else TAKEN_BY_NODE
    if f"options.{table}" not in taken:
        return f"{path}: {'Server._take_options' if table in OF_IO else 'Broker.take_options'} does not pass it on"
    if table not in REPEATED_TABLES and f"{table}.{name}" not in READ.get(table, ""):
        return f"{path}: whoever is told of a reload does not read it"
    return ""


def test_each_option_that_reloads_is_passed_on_by_its_side() -> None:
    assert [why for path in sorted(RELOADABLE) if (why := why_not_taken(path))] == []


def test_one_that_nobody_passes_on_is_found() -> None:
    assert "Broker.take_options" in why_not_taken("journal.sync-period")
    assert "does not read it" in why_not_taken("limits.link-credit")
    assert why_not_taken("broadcast-groups.name")
