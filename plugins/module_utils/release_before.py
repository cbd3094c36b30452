# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""What ran on a host before a release was put there: that release, and the unit and options that it ran with.

    /opt/mq/before/0.2.0-5c1d9a07.json
    {"schema": 1, "release": "0.1.0-8b95a2d1", "unit": "[Unit]…", "options": {"default": "[node]…"}}

Written before the link to the current release moves, and not again while it leads there: a run that was cut off and
goes on finds what was so before its first half. Whoever goes back needs nothing but this and the release itself.
Source: docs/adr/0029-upgrade.md.
"""

from __future__ import annotations

import glob
import json
import os
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.mqops.cluster.plugins.module_utils.loaded import PLACES, UNIT_FILE, Places, link_name, text_of
from ansible_collections.mqops.cluster.plugins.module_utils.operation import put

SCHEMA = 1
FOLDER = "before"


@dataclass(frozen=True)
class Before:
    """`options`: instance -> text of its broker.toml; `unit`: text of the unit."""

    release: str
    unit: str
    options: dict[str, str] = field(default_factory=dict)


def is_due(release: str, places: Places = PLACES) -> bool:
    """Whether another release is the current one, so that what is here now is what was before `release`.

    A link that somebody has led elsewhere, or to nothing, is no release that anybody could go back to.
    """
    current = link_name(places.current)
    is_release = (
        bool(current) and "/" not in current and os.path.isdir(os.path.join(_root(places), "releases", current))
    )
    return is_release and current != release and text_of(os.path.join(places.units, UNIT_FILE)) is not None


def note(release: str, places: Places = PLACES) -> None:
    """Write down what is here now as what was before `release`. Those of releases that are gone go."""
    found = {
        "schema": SCHEMA,
        "release": link_name(places.current),
        "unit": text_of(os.path.join(places.units, UNIT_FILE)),
        "options": options(places),
    }
    folder = folder_of(places)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    for path in glob.glob(os.path.join(glob.escape(folder), "*.json")):
        if not os.path.isdir(os.path.join(_root(places), "releases", os.path.basename(path)[: -len(".json")])):
            os.unlink(path)
    put(place_of(release, places), json.dumps(found, indent=1, sort_keys=True) + "\n")


def read(release: str, places: Places = PLACES) -> Before | None:
    """What was there before `release`; None where nothing says so, or not all of it."""
    text = text_of(place_of(release, places))
    try:
        found: Any = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return None
    before, unit, options = found.get("release"), found.get("unit"), found.get("options")
    if not isinstance(before, str) or not isinstance(unit, str) or not isinstance(options, dict):
        return None
    if not before or "/" in before or not all(isinstance(one, str) for one in options.values()):
        return None
    return Before(before, unit, {str(name): text for name, text in options.items()})


def instances(places: Places = PLACES) -> list[str]:
    """Names of those that have options."""
    found = glob.glob(os.path.join(glob.escape(places.etc), "*", "broker.toml"))
    return sorted(os.path.basename(os.path.dirname(path)) for path in found)


def options(places: Places = PLACES) -> dict[str, str]:
    """Instance -> its options as they are now."""
    return {name: text_of(places.options(name)) or "" for name in instances(places)}


def folder_of(places: Places = PLACES) -> str:
    """Where the notes are."""
    return os.path.join(_root(places), FOLDER)


def place_of(release: str, places: Places = PLACES) -> str:
    """The note of what was before a release."""
    return os.path.join(folder_of(places), f"{release}.json")


def _root(places: Places) -> str:
    return os.path.dirname(places.current)
