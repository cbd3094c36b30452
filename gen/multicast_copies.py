"""mqctl has copies of what the collection probes multicast with: either works where the other is not installed."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = "plugins/module_utils"
COPIES = {
    "multicast_probe.py": "cli/src/mqctl/remote/multicast_probe.py",
    "multicast_matrix.py": "cli/src/mqctl/multicast_matrix.py",
}


def files() -> dict[str, str]:
    """Path from the root -> text."""
    return {
        path: f"# Made by `make gen` from {SOURCE}/{name}; changes belong there.\n"
        + (ROOT / SOURCE / name).read_text(encoding="utf-8")
        for name, path in COPIES.items()
    }
