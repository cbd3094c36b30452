"""Copies of modules that mqctl, the broker and the collection have in common: each works where the others are not.

A copy is the same text below a line that says where changes belong.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = "plugins/module_utils"
LICENSE = """\
# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""
# Copy -> source, both from the root.
COPIES = {
    "cli/src/mqctl/remote/multicast_probe.py": f"{PLUGINS}/multicast_probe.py",
    "cli/src/mqctl/gate/batches.py": f"{PLUGINS}/batches.py",
    "cli/src/mqctl/remote/idle.py": f"{PLUGINS}/idle.py",
    "cli/src/mqctl/remote/operation.py": f"{PLUGINS}/operation.py",
    "cli/src/mqctl/remote/release_files.py": f"{PLUGINS}/release_files.py",
    "cli/src/mqctl/brokers/multicast_matrix.py": f"{PLUGINS}/multicast_matrix.py",
    f"{PLUGINS}/hosts.py": "broker/src/mqbroker/config/inventory/hosts.py",
}


def files() -> dict[str, str]:
    """Path from the root -> text."""
    return {copy: copied(copy, source) for copy, source in COPIES.items()}


def copied(copy: str, source: str) -> str:
    """The text of a copy. What is in the collection has its license at the top."""
    text = (ROOT / source).read_text(encoding="utf-8")
    head = LICENSE if copy.startswith("plugins/") and not text.startswith(LICENSE) else ""
    return f"{head}# Made by `make gen` from {source}; changes belong there.\n{text}"
