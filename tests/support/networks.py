"""Hosts that are network namespaces: each with the cards eth0 (management) and eth1 (cluster), on two switches.

    with Networks() as networks:
        host = networks.host("mq1")
        BrokerProcess(path, network=host.network)

Nothing appears in the namespace of the test: switches are bridges in a namespace of their own, and multicast never
leaves it. Needs root. What is made is named after this process and is gone with `close`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from pathlib import Path
from types import TracebackType

NUMBERS = itertools.count(1)
CARDS = {"eth0": "192.0.2", "eth1": "198.51.100"}


def ip(*words: str, check: bool = True) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 or not check, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


class NetworkHost:
    """One host; its addresses end with `number`."""

    def __init__(self, networks: Networks, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.namespace = f"{networks.prefix}-{name}"
        self._switch = networks.switch

    @property
    def network(self) -> Path:
        """The file that stands for its network."""
        return Path("/run/netns", self.namespace)

    @property
    def within(self) -> tuple[str, ...]:
        """Words that run a command on this host. The process keeps its id."""
        return ("nsenter", f"--net={self.network}", "--")

    def address(self, card: str) -> str:
        return f"{CARDS[card]}.{self.number}"

    def add_card(self, card: str) -> None:
        """Plug a card in, with its address."""
        port = f"{self.name}-{card}"
        ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", card, "netns", self.namespace)
        ip("-n", self._switch, "link", "set", port, "master", f"br-{card}", "up")
        ip("-n", self.namespace, "address", "add", f"{self.address(card)}/24", "dev", card)
        ip("-n", self.namespace, "link", "set", card, "up")

    def remove_card(self, card: str) -> None:
        """Take a card out: its port on the switch is gone with it."""
        ip("-n", self._switch, "link", "delete", f"{self.name}-{card}")

    def read(self, path: str) -> str:
        """A file of the host's own, such as /proc/net/udp."""
        done = subprocess.run([*self.within, "cat", path], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout


class Networks:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.prefix = f"mqt{os.getpid()}-{next(NUMBERS)}"
        self.switch = f"{self.prefix}-switch"
        self.hosts: dict[str, NetworkHost] = {}
        self._add_namespace(self.switch)
        for card in CARDS:
            # A bridge that snoops would ask for a querier, which nobody here is.
            ip("-n", self.switch, "link", "add", f"br-{card}", "type", "bridge", "mcast_snooping", "0")
            ip("-n", self.switch, "link", "set", f"br-{card}", "up")

    def __enter__(self) -> Networks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def host(self, name: str, *cards: str) -> NetworkHost:
        """A host with these cards, by default with both. There is no default route, so none for multicast either."""
        made = self.hosts[name] = NetworkHost(self, name, 11 + len(self.hosts))
        self._add_namespace(made.namespace)
        for card in cards or CARDS:
            made.add_card(card)
        return made

    def close(self) -> None:
        # Cards first, by their ports: the kernel deletes namespaces some time later.
        for host in self.hosts.values():
            for card in CARDS:
                with contextlib.suppress(AssertionError):
                    host.remove_card(card)
        for namespace in (*(host.namespace for host in self.hosts.values()), self.switch):
            if Path(f"/run/netns/{namespace}").exists():
                ip("netns", "delete", namespace)

    def _add_namespace(self, namespace: str) -> None:
        ip("netns", "add", namespace)
        for unasked in ("ifb0", "ifb1"):  # some kernels put them into each new namespace
            ip("-n", namespace, "link", "delete", unasked, check=False)
        ip("-n", namespace, "link", "set", "lo", "up")
