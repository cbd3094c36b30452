"""A cluster under load to which something is done: what it must do meanwhile, and how soon it is whole again.

scene = Scene([cluster], load)
with scene.fault("power cut of mq2"):
    scene.rack("kill", "mq2")
    scene.loses_links("mq1", "mq3")
    scene.rack("boot", "mq2")
violations = scene.verdict()
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tests.support.cluster_load import Load
from tests.support.patience import PATIENCE_S
from tests.support.rack_cluster import RackCluster, RackHosts, wait

# A node that was away, or not heard, belongs to the cluster again after at most so long.
WHOLE_S = PATIENCE_S
DRAIN_S = PATIENCE_S
# Messages that show that a producer or consumer goes on.
MORE = 50


class Scene:
    """Clusters on a rack, and what goes through the first of them."""

    def __init__(self, rack: RackHosts, clusters: Sequence[RackCluster], load: Load) -> None:
        self.rack = rack
        self.clusters = clusters
        self.load = load
        for each in clusters:
            each.whole_after_s(WHOLE_S)
        load.begin()
        self.goes_on(load.producers, load.consumers)

    @property
    def cluster(self) -> RackCluster:
        return self.clusters[0]

    def goes_on(self, producers: Iterable[str], consumers: Iterable[str] = ()) -> None:
        """Wait until these producers and consumers have had so many messages more."""
        counters = [(self.load.accepted, f"{one}", one) for one in producers]
        counters += [(self.load.received, f"to {one}", one) for one in consumers]
        before = [counter[node] for counter, _, node in counters]

        def lacks() -> str:
            found = {what: counter[node] - count for (counter, what, node), count in zip(counters, before, strict=True)}
            return f"{found} messages, not {MORE} each" if min(found.values()) < MORE else ""

        wait(lacks)

    def loses_links(self, *hosts: str) -> None:
        """Wait until each of these nodes has given up a link."""

        def lacks() -> str:
            found = {host: {row["state"] for row in self.cluster[host].ask("topology")["links"]} for host in hosts}
            return f"links are {found}" if {"up"} in found.values() else ""

        wait(lacks)

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Something that is healed at the end of the block. Says how long it took until everything was whole again."""
        began_s = time.monotonic()
        yield
        healed_s = time.monotonic()
        for each in self.clusters:
            each.whole_after_s(max(healed_s + WHOLE_S - time.monotonic(), 0.1))
        whole_s = time.monotonic() - healed_s
        self.goes_on(self.load.producers, self.load.consumers)
        assert self.load.errors == []
        print(f"{name}: lasted {healed_s - began_s:.1f} s, whole {whole_s:.1f} s after it ended")

    def verdict(self) -> list[str]:
        """Everything that the checker finds, once all was sent and consumed."""
        self.load.stop_sending(DRAIN_S)
        wait(lambda: str(self.cluster.depths() or ""), DRAIN_S)
        found = self.load.verdict(left=0)
        print(json.dumps({**self.load.counts, "violations": found}))
        return found
