"""What real brokers say of whom they serve, and what would be lost while one of them is away."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import mqbroker.client.sync as mq
import pytest
from mqctl.dev import state
from mqctl.gate.facts import standings
from mqctl.gate.losses import Standing, losses
from mqctl.nodes import Node
from mqctl.world import real_world

from tests.support.patience import PATIENCE_S
from tests.system.mqctl.test_dev import Dev

pytestmark = pytest.mark.system


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    one = Dev(tmp_path / "d")
    one.run("dev", "up", "-n", "2", "--port", str(one.port))
    yield one
    one.run("dev", "down", "--discard")


def said(dev: Dev) -> list[Standing]:
    nodes = [Node(one.name, "default", socket=str(one.socket)) for one in state.nodes(dev.folder)]
    return standings(real_world(no_color=True), nodes)


def until_lost(dev: Dev, away: str, count: int) -> list[str]:
    """What is lost, once it is so many things: links come up and go by themselves."""
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found := [one.text for one in losses(said(dev), [away])]) != count:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.1)
    return found


def test_who_is_served_at_one_of_two_brokers_alone_is_named(dev: Dev) -> None:
    password = (dev.folder / "password").read_text().strip()
    uris = [f"amqp://dev:{password}@127.0.0.1:{dev.port + step}" for step in (0, 10)]
    assert losses(said(dev), ["dev-1"]) == []
    with (
        mq.connect(uris[0]) as first,
        mq.connect(uris[1]) as second,
        first.receiver("orders"),
        first.sender("bills"),
    ):
        assert until_lost(dev, "dev-1", 1) == [
            "queue orders: is consumed from at dev-1 alone (start a consumer at dev-2)"
        ]
        assert losses(said(dev), ["dev-2"]) == []
        with second.receiver("orders"):
            assert until_lost(dev, "dev-1", 0) == []
            dev.run("queue", "pause", "orders", "--dev", "--host", "dev-2")
            assert "dev-2 has it paused" in until_lost(dev, "dev-1", 1)[0]
            dev.run("queue", "resume", "orders", "--dev", "--host", "dev-2")
        dev.run("address", "create", "bills", "--dev", "--host", "dev-2")
        dev.run("address", "pause", "bills", "--dev", "--host", "dev-2")
        # It takes what is sent, and hands it out later.
        (queue,) = until_lost(dev, "dev-1", 1)
        assert queue.startswith("queue orders")
