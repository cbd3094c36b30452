"""What several commands of certificates are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from mqctl.certificates.issuing import (
    DAYS_MAX,
    NODE_DAYS,
)
from mqctl.declare import InventoryOptions, ReaderOptions

Days = Annotated[int, typer.Option(help="Days that it is good for.", min=1, max=DAYS_MAX)]
Permit = Annotated[
    list[str] | None,
    typer.Option(help="Network or domain that the CA may sign for; may be repeated. [default: all]", metavar="NAME"),
]


@dataclass(frozen=True, kw_only=True)
class HostsOptions(ReaderOptions, InventoryOptions):
    """Whose certificates are made, and for how long they are good."""

    limit: Annotated[str, typer.Option(help="Only these hosts; names or wildcards, separated by commas.")] = ""
    days: Days = NODE_DAYS
