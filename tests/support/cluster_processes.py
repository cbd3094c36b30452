"""Brokers as processes that make a cluster, and waiting for what they see of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from mqbroker.io.files import cluster_secret

from tests.support.broker_process import BrokerFailed, BrokerProcess, free_port
from tests.support.patience import PATIENCE_S

# Far above what it takes: nothing here may depend on how busy the machine is.
WAIT_S = PATIENCE_S
SECRET = "a secret of the cluster"
Make = Callable[..., BrokerProcess]


class Nodes:
    """Brokers on loopback that list each other, each with a port for the others."""

    def __init__(
        self,
        make: Make,
        count: int,
        secrets: tuple[str, ...] = (),
        settings: dict[str, Any] | None = None,
        **listener: Any,
    ) -> None:
        self.settings = settings
        self.ports = [free_port() for _ in range(count)]
        self.listener = listener
        self.brokers = [make(options=self.options(number)) for number in range(count)]
        for number, broker in enumerate(self.brokers):
            provide(broker, secrets[number] if secrets else SECRET)

    def options(self, number: int) -> dict[str, Any]:
        has_tls = bool(self.listener)
        connectors = [
            {"name": f"mq{each}", "host": "127.0.0.1", "port": port, "tls-enabled": has_tls}
            for each, port in enumerate(self.ports)
        ]
        listener = {"name": "cluster", "kind": "cluster", "port": self.ports[number]}
        return {
            "node": {"name": f"mq{number}"},
            "listeners": [listener | self.listener],
            "connectors": connectors,
            **({"address-settings": self.settings} if self.settings else {}),
            "cluster-connections": self.connections(number),
        }

    def connections(self, number: int) -> list[dict[str, Any]]:
        """Of one node: by default one, with all the others."""
        return [connection(f"mq{number}", **{"static-connectors": [f"mq{each}" for each in range(len(self.ports))]})]

    def start(self) -> list[BrokerProcess]:
        """All of them, at the same time."""
        with ThreadPoolExecutor(len(self.brokers)) as threads:
            list(threads.map(BrokerProcess.start, self.brokers))
        return self.brokers


def connection(connector: str, **changes: Any) -> dict[str, Any]:
    return {"name": "cluster", "connector-ref": connector, "retry-interval": 200, **changes}


def provide(broker: BrokerProcess, secret: str = SECRET) -> None:
    """What `mqbroker secret set` does, without the second that each process would cost."""
    broker.prepare()
    cluster_secret.write(broker.data_directory / "cluster-secret", secret)


class Reachable(Nodes):
    """Nodes that tell each other where clients reach them."""

    def __init__(self, make: Make, count: int) -> None:
        self.client_ports = [free_port() for _ in range(count)]
        self.settings, self.listener = None, {}
        self.ports = [free_port() for _ in range(count)]
        self.brokers = [
            make(options=self.options(number), listener={"port": port}) for number, port in enumerate(self.client_ports)
        ]
        for broker, port in zip(self.brokers, self.client_ports, strict=True):
            broker.port = port
            provide(broker)

    def options(self, number: int) -> dict[str, Any]:
        found = super().options(number)
        found["connectors"].append({"name": "clients", "host": "127.0.0.1", "port": self.client_ports[number]})
        return found

    def connections(self, number: int) -> list[dict[str, Any]]:
        listed = [f"mq{each}" for each in range(len(self.ports))]
        return [connection(f"mq{number}", **{"static-connectors": listed, "client-connector-ref": "clients"})]


def wait_for(
    broker: BrokerProcess, what: str, check: Callable[[dict[str, Any]], bool], operation: str = "topology"
) -> dict[str, Any]:
    """What the broker says of the cluster, or what this operation finds, once `check` likes it."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        found: dict[str, Any] = broker.admin(operation)
        if check(found):
            return found
        if time.monotonic() > deadline_s:
            raise BrokerFailed(f"not after {WAIT_S} s: {what}; {found}\n{broker.log}")
        time.sleep(0.05)


def linked(broker: BrokerProcess, *nodes: str) -> dict[str, Any]:
    """When its links to exactly these nodes are up."""

    def are_up(found: dict[str, Any]) -> bool:
        return sorted((row["node"] or "", row["state"]) for row in found["links"]) == sorted(
            (name, "up") for name in nodes
        )

    return wait_for(broker, f"it is linked with {nodes}", are_up)


def knows(broker: BrokerProcess, bindings: int, consumers: int, of: str = "") -> None:
    """When it knows of so many queues and consumers elsewhere, by all its cluster connections or by this one."""

    def does(found: dict[str, Any]) -> bool:
        rows = [row for row in found["links"] if of in ("", row["connection"])]
        return (sum(row["bindings"] for row in rows), sum(row["consumers"] for row in rows)) == (bindings, consumers)

    wait_for(broker, f"it knows {bindings} queues and {consumers} consumers", does)


def bodies(broker: BrokerProcess, count: int, queue: str) -> list[str]:
    """What is in a queue, once there are so many messages."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        rows = broker.admin("browse", queue=queue, limit=100)["messages"]
        if len(rows) >= count:
            return [row["body"] for row in rows]
        if time.monotonic() > deadline_s:
            raise BrokerFailed(f"{len(rows)} of {count} messages after {WAIT_S} s\n{broker.log}")
        time.sleep(0.05)
