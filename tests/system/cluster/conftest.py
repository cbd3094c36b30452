"""Brokers as processes, as the broker's own tests have them."""

from __future__ import annotations

from tests.system.broker.conftest import broker, make_broker

__all__ = ["broker", "make_broker"]
