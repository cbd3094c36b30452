"""`mqctl tls init`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from mqctl import inventory
from mqctl.certificates.authority import Span, new_authority
from mqctl.certificates.folder import Folder
from mqctl.certificates.issuing import AUTHORITY_DAYS, DAYS_MAX, folder_of, row_of
from mqctl.declare import InventoryOptions, ReaderOptions
from mqctl.exits import Exit
from mqctl.output import Column, Rows, write
from mqctl.world import World

SCHEMA = "mqctl.tls/1"
COLUMNS = (
    Column("kind"),
    Column("host"),
    Column("instance"),
    Column("subject"),
    Column("serial"),
    Column("not_after"),
    Column("days_left", is_number=True),
    Column("state"),
    Column("names"),
)
Days = Annotated[int, typer.Option(help="Days that it is good for.", min=1, max=DAYS_MAX)]
Permit = Annotated[
    list[str] | None,
    typer.Option(help="Network or domain that the CA may sign for; may be repeated. [default: all]", metavar="NAME"),
]


@dataclass(frozen=True, kw_only=True)
class Options(ReaderOptions, InventoryOptions):
    """What the CA is like."""

    days: Days = AUTHORITY_DAYS
    permit: Permit = None


def run(world: World, options: Options) -> int:
    """Make a CA for the cluster, in tls/CLUSTER beside the inventory. One that is there stays as it is.

    Its key (ca.key, mode 0600) signs the certificates of the nodes and never leaves this machine.
    """
    cluster = inventory.load(world, options)
    folder = folder_of(world, cluster)
    create(world, folder, cluster.name, options.days, options.permit or [])
    row = row_of(folder.authority(), world.now())
    write(Rows(SCHEMA, COLUMNS, [authority_row("ca", row)]), options.shape, world.data)
    world.note("next: mqctl rollout, which makes the certificates of the nodes, or mqctl tls issue")
    return Exit.DONE


def create(world: World, folder: Folder, cluster: str, days: int, permitted: list[str]) -> None:
    """Make the CA, unless there is one."""
    if folder.has_authority:
        folder.write_trust()
        world.note(f"kept {folder.path / 'ca.pem'}; to change it: mqctl tls rotate --ca begin")
        return
    folder.write_authority(new_authority(cluster, Span(world.now(), days), permitted))
    world.note(f"wrote {folder.path / 'ca.pem'} and {folder.path / 'ca.key'}")
    world.note(f"clients trust {folder.trust_file}; keep the keys out of version control, and a backup of ca.key")


def authority_row(kind: str, row: dict[str, Any]) -> dict[str, Any]:
    """A CA among rows of nodes."""
    return {"kind": kind, "host": None, "instance": None, **row}
