"""Brokers as processes, as the broker's own tests have them; and the collection under its name, through the link that
`make setup` makes."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.system.broker.conftest import broker, make_broker

__all__ = ["broker", "make_broker"]

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / ".dev"))
