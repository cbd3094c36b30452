"""Looks at hosts without changing them: sends `remote/observe.py` to each and reads what it says."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources
from typing import Any

from mqctl.errors import CommandError, Unreachable
from mqctl.inventory import Host
from mqctl.nodes import shell
from mqctl.plan.places import HostPlace
from mqctl.plan.plan import Account, Loaded, PacketFilter, Seen, SeenInstance
from mqctl.ssh import shell as remote
from mqctl.world import World

OBSERVE_TIME_S = 60.0
CURRENT = "/opt/mq/current"


def observe(world: World, host: Host) -> Seen:
    """What is on a host now, as `remote/observe.py` sees it there."""
    program = resources.files("mqctl.remote").joinpath("observe.py").read_bytes()
    access = host.access
    command = [access.python, "-", *host.instances]
    result = remote.run(shell(world, access), command, program, OBSERVE_TIME_S)
    if result.code != 0:
        raise Unreachable(host.name, f"{access.python} failed: {result.complaint}", "mqctl preflight")
    try:
        seen = seen_of(json.loads(result.out))
        if not (seen.release and seen.releases.get(seen.release)):
            return seen
        return replace(seen, release_faults=faults_of(world, host))
    except (ValueError, LookupError, TypeError) as fault:
        raise CommandError(f"{host.name}: what it says of itself cannot be read: {fault}", "mqctl preflight") from None


def faults_of(world: World, host: Host) -> tuple[str, ...]:
    """What of the current release is not as it was installed."""
    program = resources.files("mqctl.remote").joinpath("release_files.py").read_bytes()
    access = host.access
    result = remote.run(shell(world, access), [access.python, "-", CURRENT], program, OBSERVE_TIME_S)
    if result.code != 0:
        raise Unreachable(host.name, f"{access.python} failed: {result.complaint}", "mqctl preflight")
    return tuple(map(str, json.loads(result.out)[CURRENT]))


def seen_of(document: Mapping[str, Any]) -> Seen:
    """The document of `remote/observe.py` as values."""
    return Seen(
        release=document["release"],
        account=None if document["user"] is None else Account(**document["user"], gid=document["gid"]),
        releases={name: bool(is_complete) for name, is_complete in document["releases"]},
        before={str(release): str(one) for release, one in document["before"].items()},
        filter=PacketFilter(**{**document["filter"], "origin": tuple(document["filter"]["origin"])}),
        places={path: HostPlace(*one) for path, one in document["places"].items()},
        unit_file=text(document["unit_file"]),
        addresses={card: tuple(some) for card, some in document["addresses"].items()},
        traces={name: tuple(places) for name, places in document["traces"].items()},
        running=tuple(document["running"]),
        instances={name: _instance(one) for name, one in document["instances"].items()},
    )


def _instance(row: Mapping[str, Any]) -> SeenInstance:
    unit, loaded = row.get("unit") or {}, row["loaded"]
    return SeenInstance(
        options=text(row["options"]),
        users=text(row["users"]),
        node_id=row["node_id"],
        trouble=row["trouble"],
        active=unit.get("ActiveState", "inactive"),
        enabled=unit.get("UnitFileState", ""),
        is_unread=unit.get("NeedDaemonReload") == "yes",
        fragment=unit.get("FragmentPath", ""),
        certificates=row["certificates"],
        loaded=Loaded(
            loaded["release"],
            text(loaded["options"]),
            text(loaded["unit_file"]),
            text(loaded["started"]),
            loaded["files"],
        ),
        files=row["files"],
    )


def text(encoded: str | None) -> str | None:
    """A file that came in base64."""
    return None if encoded is None else base64.b64decode(encoded).decode(errors="replace")
