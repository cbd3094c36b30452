"""Three real brokers stop and come back one after the other, as by a rollout, and producers go on at the next one.

A producer that had no answer sends again, to a node that cannot know the message: so whoever stops in order has
answered all that it has taken in.
"""

from __future__ import annotations

import pytest

from tests.support.cluster_load import Load
from tests.support.cluster_processes import WAIT_S, Make
from tests.system.cluster.test_drains import count_at, wait_until
from tests.system.cluster.test_mixed_releases import NEW, OLD, MixedNodes, move, uri_of

pytestmark = [pytest.mark.system, pytest.mark.slow]

QUEUE = "orders"
TURNS = 2
PAUSE_S = 0.01  # so that some messages of each producer have no answer, whenever a broker stops
MORE = 20


def rings(uris: dict[str, str]) -> dict[str, str]:
    """Each node's own place first, then those of the others."""
    names = list(uris)
    places = {name: uri.split("@")[1] for name, uri in uris.items()}
    return {
        name: ",".join([uris[name], *(places[each] for each in names[at + 1 :] + names[:at])])
        for at, name in enumerate(names)
    }


@pytest.mark.one_day_in_three(2)
@pytest.mark.parametrize("first", [NEW, OLD])
def test_nothing_is_lost_or_doubled(make_broker: Make, first: str) -> None:
    """The release before has not answered all: what its producers sent again is forgiven, and nothing else."""
    nodes = MixedNodes(make_broker, *[first] * 3)
    brokers = nodes.start()
    nodes.all_linked()
    uris = {f"mq{number}": uri_of(broker) for number, broker in enumerate(brokers)}
    load = Load(QUEUE, rings(uris), uris, PAUSE_S, answers_at_stop=first == NEW)
    load.begin()
    try:
        for turn in range(TURNS * len(brokers)):
            accepted = dict(load.accepted)
            wait_until(
                "producers go on", lambda was=accepted: all(load.accepted[n] >= was.get(n, 0) + MORE for n in uris)
            )
            move(nodes, turn % len(brokers), NEW)
        load.stop_sending(WAIT_S)
        wait_until("all is consumed", lambda: sum(count_at(broker, QUEUE) for broker in brokers) == 0)
        assert load.verdict(left=0) == [], [load.counts, *load.events]
    finally:
        load.end()
    assert sum(load.lost_connections.values()) >= TURNS * len(brokers)
