"""What an administrator changes under clients that go on: queues are deleted, permissions withdrawn and given back."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from mqbroker.config.slices import SecuritySettings
from mqbroker.node.values.effects import AdminReply
from mqbroker.node.values.inputs import OptionsChanged

from tests.sim.model import Model
from tests.sim.places import Place
from tests.sim.world import SimNode
from tests.support.stage import PERMISSIONS

KEPT = ("client",)  # the role of all clients
TOPIC_KEEPS = {"consume": KEPT, "create_durable_queue": KEPT, "create_non_durable_queue": KEPT}
WITHDRAWN_MS = 150  # at most


class Changes:
    """Those of one history."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._withdrawn: dict[SimNode, list[Place]] = {}

    def act(self, node: SimNode) -> None:
        """One of them, at some place."""
        if node.is_up:
            rng = node.world.rng
            places = [each for each in self._model.places.values() if each.address.startswith(node.name)]
            rng.choice((self.delete, self.withdraw))(node, rng.choice(places))

    def delete(self, node: SimNode, place: Place) -> None:
        """Delete a queue with what is in it, whoever sends to it or consumes from it."""
        if place.is_topic:
            return  # a subscription is its subscriber's, and goes with it
        place.is_deleted = True
        taken = self._model.purges.setdefault(place.address, [])
        taken.append(math.inf)  # as long as it has no answer
        number = len(taken) - 1

        def answered(reply: AdminReply) -> None:
            taken[number] = 0 if reply.result is None else reply.result["messages"]

        node.ask("queue-delete", {"name": place.address, "force": True}, answered)

    def withdraw(self, node: SimNode, place: Place) -> None:
        """Nobody may send there for a while, nor consume, unless it is a topic."""
        self._withdrawn.setdefault(node, []).append(place)
        self._reload(node)
        node.world.after(node.world.rng.random() * WITHDRAWN_MS, partial(self._give_back, node, place))

    def _give_back(self, node: SimNode, place: Place) -> None:
        self._withdrawn[node].remove(place)
        self._reload(node)

    def _reload(self, node: SimNode) -> None:
        """A node that was started again meanwhile has its options from the beginning: nothing is withdrawn then."""
        tables = tuple(dict.fromkeys(map(_nothing_at, self._withdrawn[node])))
        if tables:
            tables += (SecuritySettings("#", **dict.fromkeys(PERMISSIONS, KEPT)),)
        node.give(OptionsChanged(replace(node.options, security_settings=tables)))


def _nothing_at(place: Place) -> SecuritySettings:
    nobody: dict[str, tuple[str, ...]] = dict.fromkeys(PERMISSIONS, ())
    return SecuritySettings(place.address, **nobody | (TOPIC_KEEPS if place.is_topic else {}))
