"""What a shell offers for an option: names out of the inventory that the command line is about.

A completion that cannot be made offers nothing: whoever presses a key must not get an error for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from mqctl.inventory import InventoryCluster


def clusters(context: typer.Context, incomplete: str) -> list[str]:
    """Names of clusters of the inventory that begin as the word does."""
    return _offered(context, incomplete, lambda known: [one.name for one in known])


def hosts(context: typer.Context, incomplete: str) -> list[str]:
    """Names of hosts, those of --cluster where it is given."""
    named = context.params.get("cluster")
    return _offered(
        context,
        incomplete,
        lambda known: [h.name for one in known if named in (None, "", one.name) for h in one.hosts],
    )


def nodes(context: typer.Context, incomplete: str) -> list[str]:
    """Names of nodes as --host takes them."""
    named = context.params.get("cluster")
    return _offered(
        context,
        incomplete,
        lambda known: [
            name for one in known if named in (None, "", one.name) for host in one.hosts for name in host.node_names
        ],
    )


def _offered(
    context: typer.Context, incomplete: str, names: Callable[[list[InventoryCluster]], list[str]]
) -> list[str]:
    # Imported only when a key is pressed: the declarations of all commands import this module.
    from mqctl.declare import InventoryOptions
    from mqctl.inventory import load_all
    from mqctl.world import real_world

    given = context.params
    try:
        options = InventoryOptions(
            inventory=list(given.get("inventory") or []) or None, vault_password_file=given.get("vault_password_file")
        )
        known = load_all(real_world(no_color=True), options)
        return [name for name in names(known) if name.startswith(incomplete)]
    except Exception:  # the edge of a shell's completion
        return []
