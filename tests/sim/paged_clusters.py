"""Histories of clusters in which addresses page and messages have priorities, on their way as well."""

from __future__ import annotations

from random import Random
from typing import Any

from mqbroker.config.slices import BrokerOptions
from mqbroker.wire.sections import Header

from tests.sim.clients import Producer
from tests.sim.clusters import ClusterSimulation
from tests.sim.world import paging


class PriorityProducer(Producer):
    """Each message has a priority, and of two that follow each other many have the same."""

    def said(self) -> dict[str, Any]:
        """Its header."""
        return {"header": Header(priority=self.world.rng.choice((None, None, 0, 4, 9)))}


class PagedClusters(ClusterSimulation):
    """What every node has little room for is on its disk alone."""

    producer = PriorityProducer

    def enriched(self, options: BrokerOptions) -> BrokerOptions:
        """Each node pages in its own way, drawn apart from all else."""
        return paging(options, Random(f"paging {self.seed} {options.node.name} {len(options.connectors)}"))
