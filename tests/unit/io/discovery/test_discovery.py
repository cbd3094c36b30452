"""Endpoints that cannot be reached: each effect gets its one answer, and people a sentence. Nothing is ever sent here;
what is sent and heard is in tests/system/broker/test_discovery.py."""

from __future__ import annotations

import asyncio
import errno
import io
import os

import pytest
from mqbroker.config.file.load import parse
from mqbroker.config.slices import BrokerOptions
from mqbroker.io.discovery.discovery import DiscoveryEndpoints
from mqbroker.io.discovery.multicast import _why
from mqbroker.io.loop.log import Log, LogShape
from mqbroker.io.loop.loop import NodeLoop
from mqbroker.node.values.effects import JoinGroup, SendDatagram
from mqbroker.node.values.inputs import Failed, Input

PLACE = 'name = "lan"\ngroup-address = "231.7.7.7"\ngroup-port = 9876\nlocal-bind-address = "203.0.113.199"\n'
TEXT = (
    '[[connectors]]\nname = "cluster"\nhost = "192.0.2.1"\nport = 5673\n'
    f'[[broadcast-groups]]\n{PLACE}connector-ref = "cluster"\n[[discovery-groups]]\n{PLACE}'
)


class Posted(NodeLoop):
    """A loop that keeps what is posted."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, Log(io.StringIO(), LogShape.PLAIN), 1 << 20)
        self.posted: list[Input] = []

    def post(self, item: Input) -> None:
        self.posted.append(item)


def test_an_address_that_no_card_has_is_a_failure_each_time() -> None:
    options = parse(TEXT)
    assert isinstance(options, BrokerOptions)
    loop = asyncio.new_event_loop()
    node = Posted(loop)
    endpoints = DiscoveryEndpoints(options, node, loop)
    why = "231.7.7.7:9876 cannot be {} over 203.0.113.199: no network card of this host has this address; "
    for turn in (10, 20):
        endpoints.join(JoinGroup(turn, "lan"))
        endpoints.send(SendDatagram(turn + 1, "lan", b"x"))
        loop.run_until_complete(asyncio.sleep(0))
    assert node.posted == [
        Failed(turn + number, why.format(verb) + "it is tried again")
        for turn in (10, 20)
        for number, verb in enumerate(("listened at", "sent to"))
    ]
    endpoints.close()
    endpoints.close()
    loop.close()


@pytest.mark.parametrize(
    ("number", "local", "verb", "said"),
    [
        (errno.ENETUNREACH, "", "sent to", "the host has no route for it; set local-bind-address to the address of"),
        (errno.ENODEV, "", "listened at", "the host has no route for it; set local-bind-address to the address of"),
        (errno.ENETUNREACH, "192.0.2.1", "sent to", "its network card is down or has no route; it is tried again"),
        (errno.ENODEV, "192.0.2.1", "listened at", "no network card of this host has this address"),
        (errno.ENOBUFS, "192.0.2.1", "listened at", "igmp_max_memberships"),
        (errno.ENOBUFS, "192.0.2.1", "sent to", "No buffer space available"),
        (errno.EADDRINUSE, "192.0.2.1", "listened at", "Address already in use"),
    ],
)
def test_what_is_said_of_each_error(number: int, local: str, verb: str, said: str) -> None:
    sentence = _why(OSError(number, os.strerror(number)), "231.7.7.7:9876", local, verb)
    assert sentence.startswith(f"231.7.7.7:9876 cannot be {verb}")
    assert said in sentence
