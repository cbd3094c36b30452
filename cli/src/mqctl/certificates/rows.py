"""Certificates as commands show them: a row for each CA and each node."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from cryptography import x509
from mqbroker.config.lifetimes import WARNING_DAYS

from mqctl.certificates.authority import names_of
from mqctl.certificates.folder import Folder
from mqctl.certificates.issuing import (
    Missing,
    days_left,
    state_of,
)
from mqctl.output import Column
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


def row_of(certificate: x509.Certificate, now: datetime.datetime, soon_days: int = WARNING_DAYS) -> dict[str, Any]:
    """What commands show of a certificate."""
    return {
        "subject": certificate.subject.rfc4514_string(),
        "names": list(names_of(certificate)),
        "serial": f"{certificate.serial_number:x}",
        "not_after": f"{certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}",
        "days_left": days_left(certificate, now),
        "state": state_of(certificate, now, soon_days),
    }


def authority_row(kind: str, row: dict[str, Any]) -> dict[str, Any]:
    """The row of a CA, in the columns of nodes."""
    return {"kind": kind, "host": None, "instance": None, **row}


def node_row(host: str, instance: str, row: dict[str, Any]) -> dict[str, Any]:
    """The row of the certificate of a node."""
    return {"kind": "node", "host": host, "instance": instance, **row}


def rows_of(world: World, folder: Folder, missing: Sequence[Missing]) -> list[dict[str, Any]]:
    """A row for each certificate that was made."""
    certificates = ((one.node, folder.node(one.node.host, one.node.instance)) for one in missing)
    return [node_row(node.host, node.instance, row_of(made, world.now())) for node, made in certificates if made]
