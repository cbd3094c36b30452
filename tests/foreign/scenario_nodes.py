"""Five nodes that all scenarios of foreign clients share, each mode of load balancing with addresses of its own.

The first three know each other by one cluster connection for each mode; all five make a chain by one more. So a
conversation chooses its cluster by the beginning of its address, and brokers start once for all of them. All hear each
other by multicast over loopback in the group `lan`; in the group `mesh` the first three find each other for one of
their connections, and have lists for the others.
"""

from __future__ import annotations

import base64
import contextlib
from typing import Any, Final

from tests.foreign.client import ProtonClient
from tests.foreign.jms_client import JmsClient
from tests.support.broker_process import BrokerFailed, BrokerProcess, free_port
from tests.support.checker import id_in
from tests.support.cluster_processes import Make, Nodes, connection, knows, wait_for

COUNT: Final = 5
MESHED: Final = 3
CHAIN: Final = "chain"
# Cluster connection: what is special about it. Its addresses begin with its name where nothing else is said.
MODES: Final[dict[str, dict[str, Any]]] = {
    "demand": {"discovery-group-ref": "mesh"},
    "off": {"message-load-balancing": "OFF"},
    "strict": {"message-load-balancing": "STRICT"},
    "moving": {"message-load-balancing": "OFF_WITH_REDISTRIBUTION"},
    "listed": {"address": "listed,,included.,!listed.private,"},
}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "#": {"redistribution-delay": 0},
    "demand.29": {"redistribution-delay": 30_000},
    "demand.36": {"redistribution-delay": 0, "redelivery-delay": 500},
}


class ScenarioNodes(Nodes):
    """See the module's docstring."""

    def __init__(self, make: Make) -> None:
        # Nobody else on this host has these ports, so nobody else is heard.
        self.group_ports = {"lan": free_port(), "mesh": free_port()}
        self.heard: list[list[str]] = []  # by the first node after each start, see start
        self.log_of_starts = ""  # of the first node when all had started
        super().__init__(make, COUNT, settings=SETTINGS)

    def options(self, number: int) -> dict[str, Any]:
        found = super().options(number)
        places = [
            {"name": name, "local-bind-address": "127.0.0.1", "group-address": "231.7.7.7", "group-port": port}
            for name, port in self.group_ports.items() if name == "lan" or number < MESHED
        ]  # fmt: skip
        said = {"broadcast-period": 200, "connector-ref": f"mq{number}"}
        found["broadcast-groups"] = [{**place, **said} for place in places]
        found["discovery-groups"] = [{**place, "refresh-timeout": 600_000} for place in places]
        return found

    def start(self) -> list[BrokerProcess]:
        """One after the other, noting what the first one hears."""
        for number, broker in enumerate(self.brokers):
            broker.start()
            self.after_periods(2)
            found = self._heard(number)
            self.heard.append(sorted(row["node"] for row in found["nodes"] if row["group"] == "lan"))
        self.after_periods(5)
        self.log_of_starts = self.brokers[0].log
        return self.brokers

    def after_periods(self, count: int) -> None:
        """When the first one has heard itself so many times more."""

        def own(found: dict[str, Any]) -> int:
            (row,) = [row for row in found["groups"] if (row["group"], row["kind"]) == ("lan", "discovery")]
            return int(row["dropped_by_reason"]["own"])

        wanted = own(self.brokers[0].admin("discovery")) + count
        wait_for(self.brokers[0], f"{wanted} of its own", lambda found: own(found) >= wanted, "discovery")

    def _heard(self, count: int) -> dict[str, Any]:
        def has(found: dict[str, Any]) -> bool:
            return sum(row["group"] == "lan" for row in found["nodes"]) >= count

        return wait_for(self.brokers[0], f"{count} others", has, "discovery")

    def connections(self, number: int) -> list[dict[str, Any]]:
        beside = [f"mq{each}" for each in (number - 1, number + 1) if 0 <= each < COUNT]
        own = f"mq{number}"
        chain = {"static-connectors": beside, "allow-direct-connections-only": True, "max-hops": 3}
        found = [connection(own, **{"name": CHAIN, "address": f"{CHAIN}.", **chain})]
        if number < MESHED:
            others = [f"mq{each}" for each in range(MESHED)]
            for name, said in MODES.items():
                places = {} if "discovery-group-ref" in said else {"static-connectors": others}
                found.append(connection(own, **{"name": name, "address": f"{name}.", **places, **said}))
        return found

    def _links(self, number: int) -> list[tuple[str, str, str]]:
        beside = [each for each in (number - 1, number + 1) if 0 <= each < COUNT]
        meshed = [each for each in range(MESHED) if each != number] if number < MESHED else []
        wanted = [(CHAIN, f"mq{each}", "up") for each in beside]
        return sorted([*wanted, *((name, f"mq{each}", "up") for name in MODES for each in meshed)])

    def whole(self) -> None:
        """When all links that there should be are up, and no other is there."""
        for number, broker in enumerate(self.brokers):
            wanted = self._links(number)
            wait_for(broker, f"it has the links {wanted}", lambda found, wanted=wanted: wanted == sorted(
                (row["connection"], row["node"] or "", row["state"]) for row in found["links"]
            ))  # fmt: skip

    def clear(self) -> None:
        """No queue is left anywhere, and all know it."""
        for broker in self.brokers:
            for row in broker.admin("queues")["queues"]:
                with contextlib.suppress(BrokerFailed):  # it goes by itself
                    broker.admin("queue-delete", name=row["name"], force=True)
        for broker in self.brokers:
            knows(broker, 0, 0)


class Site:
    """The nodes and a client of each kind. Connections are called as the number of their node."""

    def __init__(self, nodes: ScenarioNodes, proton: ProtonClient, jms: JmsClient) -> None:
        self.nodes = nodes
        self.proton = proton
        self.jms = jms
        self.one, self.two, self.three, self.four, self.five = nodes.brokers
        self._with_proton: list[str] = []

    def connect_proton(self, *numbers: int) -> None:
        for number in numbers:
            self.proton.connect(str(number), self.nodes.brokers[number - 1])
            self._with_proton.append(str(number))

    def connect_jms(self, *numbers: int, mode: str = "auto") -> None:
        for number in numbers:
            self.jms.connect(str(number), self.nodes.brokers[number - 1])
            self.jms.session(str(number), str(number), mode)

    def send(self, address: str, ids: list[str], **fields: Any) -> None:
        """Proton sends them at the first node, each is accepted."""
        capabilities = fields.pop("capabilities", ())
        self.proton.sender("1", "out", address, capabilities=list(capabilities))
        outcomes = [row["outcome"] for row in self.proton.send("out", ids, **fields)]
        assert outcomes == ["accepted"] * len(ids)
        self.proton.ask("close_link", name="out")

    def by_proton(self, link: str, count: int) -> list[str]:
        """What comes to a receiver of Proton."""
        return [row["id"] for row in self.proton.receive(link, count)]

    def by_jms(self, consumer: str, count: int) -> list[str | None]:
        """What comes to a consumer of Qpid JMS."""
        return [id_in(base64.b64decode(body)) for body in self.jms.bodies(consumer, count)]

    def leave(self) -> None:
        """Clients go, and what they had goes."""
        self.jms.ask("reset")
        for name in dict.fromkeys(self._with_proton):
            self.proton.ask("close", name=name)
        self.nodes.whole()
        self.nodes.clear()


def names(count: int, first: int = 1) -> list[str]:
    return [f"m{number}" for number in range(first, first + count)]
