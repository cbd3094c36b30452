"""Brokers as processes, ended with the test that started them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.broker_process import BrokerProcess


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers that are not started yet; each has a directory of its own."""
    made: list[BrokerProcess] = []

    def make(**arguments: Any) -> BrokerProcess:
        broker = BrokerProcess(tmp_path / f"broker-{len(made)}", **arguments)
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    """One broker that runs."""
    made = make_broker()
    made.start()
    return made
