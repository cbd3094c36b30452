"""Filters of the collection have the name that Ansible gives them, through the link that `make setup` makes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / ".dev"))
