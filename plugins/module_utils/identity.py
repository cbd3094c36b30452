# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Identities of the data directories of a host, read and made by `mqbroker identity`.

Invariant: a node id is made on the host and never templated; two directories with one id are a copy, and no node of
a cluster may run from it. Source: docs/ARCHITECTURE.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.mqops.cluster.plugins.module_utils import command

DATA_ROOT = "/var/lib/mq"
Identity = dict[str, Any]
FIELDS = ("node_id", "created", "machine_id", "data_directory", "matches", "mismatches")


def directory_of(instance: str, root: str = DATA_ROOT) -> str:
    """The data directory of an instance."""
    return os.path.join(root, instance)


def is_there(instance: str, root: str = DATA_ROOT) -> bool:
    """Whether an identity was made, whatever it says."""
    return os.path.exists(os.path.join(directory_of(instance, root), "identity.json"))


def read(instance: str, root: str = DATA_ROOT, executable: str = command.EXECUTABLE) -> Identity | None:
    """The identity of an instance, or None where none was made. Raises CommandFault."""
    if not is_there(instance, root):
        return None
    arguments = ["identity", "show", "--json", "--data-directory", directory_of(instance, root)]
    answer = command.run(arguments, executable)
    if answer.code not in (command.DONE, command.IDENTITY):
        raise command.CommandFault(answer.complaint)
    found = answer.json()
    return {"instance": instance, **{name: found[name] for name in FIELDS}}


def make(instance: str, root: str = DATA_ROOT, executable: str = command.EXECUTABLE) -> bool:
    """Make an identity unless a fitting one is there; whether that changed anything. Raises CommandFault."""
    answer = command.run(["identity", "init", "--json", "--data-directory", directory_of(instance, root)], executable)
    if answer.code != command.DONE:
        raise command.CommandFault(answer.complaint)
    return bool(answer.json()["changed"])


def duplicates(own: Sequence[Identity], peers: Sequence[Identity]) -> dict[str, list[str]]:
    """node id -> places, for each id of `own` that is at several places. Both: identities with node_id and place."""
    by_id: dict[str, set[str]] = {}
    for one in [*own, *peers]:
        by_id.setdefault(one["node_id"], set()).add(one["place"])
    ours = {one["node_id"] for one in own}
    return {node_id: sorted(found) for node_id, found in by_id.items() if len(found) > 1 and node_id in ours}


def sentence(found: Mapping[str, Sequence[str]]) -> str:
    """Duplicates for people, with the remedy."""
    parts = [f"{', '.join(places)} share the node id {node_id}" for node_id, places in sorted(found.items())]
    return (
        f"{'; '.join(parts)}. Where these are two names of one host, remove one of them from the inventory and leave "
        "the rest; otherwise a data directory was copied. Keep the original; on the copy stop the broker and run "
        f"`{command.EXECUTABLE} identity new --instance NAME --even-if-original`, which sets its copied messages aside"
    )
