"""What a host has kept of before a release, beside what it has now: sent to it by mqctl, and run as root.

Says unit and options as one JSON document, each as [now, then]; `then` is null for what is not kept. Files and notes
are read as `plugins/module_utils/release_before.py` of the collection reads them, so what that does not take is not
whole here either. Standard library of Python 3.9 only.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

SCHEMA = 1
KEPT = "/opt/mq/before"
UNIT = "/etc/systemd/system/mqbroker@.service"
ETC = "/etc/mq"


def text_of(path: str) -> str | None:
    """None where there is nothing to read."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()
    except OSError:
        return None


def note_of(release: str) -> dict[str, Any] | None:
    """What was noted; None where nothing was, or something else."""
    try:
        kept = json.loads(text_of(os.path.join(KEPT, release + ".json")) or "")
    except ValueError:
        return None
    if not isinstance(kept, dict) or kept.get("schema") != SCHEMA:
        return None
    before, unit, options = kept.get("release"), kept.get("unit"), kept.get("options")
    if not isinstance(before, str) or not isinstance(unit, str) or not isinstance(options, dict):
        return None
    is_whole = before and "/" not in before and all(isinstance(one, str) for one in options.values())
    return kept if is_whole else None


def kept(release: str, instances: list[str]) -> dict[str, Any]:
    """Of these instances."""
    noted = note_of(release)
    note = noted or {}
    options = note.get("options", {})
    return {
        "is_whole": noted is not None,
        "unit": [text_of(UNIT), note.get("unit")],
        "options": {name: [text_of(os.path.join(ETC, name, "broker.toml")), options.get(name)] for name in instances},
    }


if __name__ == "__main__":
    print(json.dumps(kept(sys.argv[1], sys.argv[2:])))
