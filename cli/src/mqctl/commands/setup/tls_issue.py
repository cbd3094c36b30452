"""`mqctl tls issue`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.certificates.managed import issue_for
from mqctl.certificates.options import HostsOptions
from mqctl.inventory_faults import checked
from mqctl.world import World


@dataclass(frozen=True, kw_only=True)
class Options(HostsOptions):
    """Which certificates are made."""

    renew: Annotated[bool, typer.Option("--renew", help="Those too that are good for long enough.")] = False


def run(world: World, options: Options) -> int:
    """Make a certificate for each node that has none, or one that ends soon or lacks a name, and keep all others.

    A host whose network card is named in the inventory is asked for the address of that card. Exit code 3 if one was
    not reached.
    """
    cluster = checked(world, options)
    return issue_for(world, cluster, options, is_all=options.renew)
