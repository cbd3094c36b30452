"""What a host has kept of before a release, beside what it has now: sent to it by mqctl, and run as root.

Says unit and options as one JSON document, each as [now, then]; `then` is null for what is not kept. Only what
`plugins/module_utils/release_before.py` of the collection has written is read. Standard library of Python 3.9 only.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

KEPT = "/opt/mq/before"
UNIT = "/etc/systemd/system/mqbroker@.service"
ETC = "/etc/mq"


def text_of(path: str) -> str | None:
    """None where there is nothing to read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return None


def note_of(release: str) -> dict[str, Any]:
    """What was noted; empty where nothing was, or something else."""
    try:
        found = json.loads(text_of(os.path.join(KEPT, release + ".json")) or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("options"), dict) else {}


def kept(release: str, instances: list[str]) -> dict[str, Any]:
    """Of these instances."""
    note = note_of(release)
    options = note.get("options", {})
    return {
        "unit": [text_of(UNIT), note.get("unit")],
        "options": {name: [text_of(os.path.join(ETC, name, "broker.toml")), options.get(name)] for name in instances},
    }


if __name__ == "__main__":
    print(json.dumps(kept(sys.argv[1], sys.argv[2:])))
