# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Which links of a host have not stood since its brokers were restarted, noted on the host itself.

    {"links": [{"instance": "default", "direction": "out", "connection": "all", "node_id": "4a73…", "node": "mq2"}]}

Who restarts a broker notes before that what has to stand again, and takes out of it what does. So what a run has left
behind that failed or was killed is still known to the next one, which restarts nothing else before it stands.
Source: docs/adr/0028-one-operation-at-a-time.md.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from typing import Any

from ansible_collections.mqops.cluster.plugins.module_utils.files import FileFault
from ansible_collections.mqops.cluster.plugins.module_utils.operation import put

PLACE = "/var/lib/mq-operation-links.json"
KEY = ("instance", "direction", "connection", "node_id")
Link = dict[str, Any]


def look(place: str = PLACE) -> list[Link]:
    """What is noted; nothing where there is no file. Raises FileFault where it cannot be read."""
    try:
        with open(place, encoding="utf-8") as file:
            found = json.load(file)["links"]
            return [{**{name: str(one[name]) for name in KEY}, "node": one.get("node")} for one in found]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as fault:
        raise FileFault(
            f"{place} cannot be read ({fault}), so nobody knows which links have not stood since this host was "
            "restarted; remove it when all do"
        ) from None


def add(links: Iterable[Link], place: str = PLACE) -> list[Link]:
    """Note these as well; all that is noted then, each once. Raises FileFault."""
    before = look(place)
    every: dict[tuple[str, ...], Link] = {}
    for one in [*before, *links]:
        known = every.get(_key(one), one)
        every[_key(one)] = {**one, "node": one["node"] or known["node"]}
    found = list(every.values())
    if found != before:
        _put(place, found)
    return found


def drop(links: Iterable[Link], place: str = PLACE) -> None:
    """These stand. Raises FileFault."""
    before, done = look(place), {_key(one) for one in links}
    left = [one for one in before if _key(one) not in done]
    if not left:
        forget(place)
    elif len(left) < len(before):
        _put(place, left)


def forget(place: str = PLACE) -> None:
    """Nothing is noted any more, whatever was. Raises FileFault where it stays."""
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
    except OSError as fault:
        raise FileFault(f"{place} cannot be removed: {fault.strerror}") from None


def name_of(one: Link) -> str:
    """A link for people."""
    node = f"{one['node']} ({one['node_id']})" if one["node"] else one["node_id"]
    return f"{one['instance']}: the link {'from' if one['direction'] == 'in' else 'to'} {node}"


def _key(one: Link) -> tuple[str, ...]:
    return tuple(str(one[name]) for name in KEY)


def _put(place: str, links: list[Link]) -> None:
    try:
        put(place, json.dumps({"links": links}, indent=1, sort_keys=True) + "\n")
    except OSError as fault:
        raise FileFault(f"{place}: {fault.strerror}") from None
