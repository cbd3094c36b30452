"""Traffic through a rack from a process inside of it (tests/support/rack_load.py), for tests outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.support.patience import PATIENCE_S
from tests.support.rack_site import RACK, ROOT, Site

GROUP = "{name: lan, group_address: 231.7.7.7, group_port: 9876"
# Little is unanswered at a time, so the drain takes a while. What is at a node where nobody reads goes on to others.
OPTIONS = (
    'mq_address_settings:\n  - {match: "#", redistribution_delay: 0}\n'
    "mq_listeners:\n"
    '  - {name: clients, kind: client, port: 5672, local_bind_address: "{{ ansible_host }}"}\n'
    "  - {name: cluster, kind: cluster, port: 5673}\n"
    "mq_connectors:\n"
    "  - {name: cluster, port: 5673}\n"
    '  - {name: clients, host: "{{ ansible_host }}", port: 5672}\n'
    f"mq_broadcast_groups:\n  - {GROUP}, connector_ref: cluster}}\n"
    f"mq_discovery_groups:\n  - {GROUP}}}\n"
    "mq_cluster_connections:\n"
    "  - {name: all, connector_ref: cluster, discovery_group_ref: lan, client_connector_ref: clients,\n"
    "     confirmation_window_size: 20000}\n"
)
CALL = """
import json, sys
from tests.support import rack_load
print(json.dumps(getattr(rack_load, sys.argv[1])(*json.loads(sys.argv[2]))))
"""


class Traffic:
    """Producers and consumers inside the rack, and a backlog: `said` as rack_load wants it."""

    def __init__(self, site: Site, said: dict[str, Any]) -> None:
        command = [sys.executable, str(RACK), "enter", "--", sys.executable, "-m", "tests.support.rack_load"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=site.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            self._tell(json.dumps(said))
            assert self._hear() == "begun"
        except BaseException:
            self.end()
            raise

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def _hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def verdict(self) -> dict[str, Any]:
        """Sending ends, everything is read; what was violated and counted."""
        self._tell("stop")
        found: dict[str, Any] = json.loads(self._hear())
        assert self.process.wait(PATIENCE_S) == 0
        if found["violations"]:
            print(*found["violations"], *found["events"], sep="\n")
        return found

    def end(self) -> None:
        """Whatever it is at: the clients too, also where what they were started by has ended before them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def addresses(site: Site) -> dict[str, str]:
    """Host -> where Ansible reaches it, by the inventory, at which clients are served as well."""
    found: dict[str, str] = {}

    def visit(node: Any) -> None:
        for key, value in node.items() if isinstance(node, dict) else ():
            if isinstance(value, dict) and "ansible_host" in value:
                found[key] = value["ansible_host"]
            visit(value)

    visit(yaml.safe_load((site.folder / "inventory.yml").read_text()))
    return found


def uris(site: Site) -> Callable[..., str]:
    """Makes the address of clients that try these hosts in turn, with the user that the site has."""
    (user,) = yaml.safe_load((site.folder / "group_vars/brokers/secrets.yml").read_text())["mq_users"]
    where = addresses(site)

    def uri(*hosts: str) -> str:
        return f"amqp://{user['name']}:{user['password']}@" + ",".join(f"{where[host]}:5672" for host in hosts)

    return uri


def leaver_clients(site: Site, backlog: int) -> dict[str, Any]:
    """As rack_load wants it: clients of mq3 that know other nodes as well, and a backlog there that nobody reads."""
    uri = uris(site)
    return {
        "queue": "orders",
        "producers": {"mq1": uri("mq1"), "mq3": uri("mq3", "mq1")},
        "consumers": {"mq2": uri("mq2"), "mq3 then mq2": uri("mq3", "mq2")},
        "backlog": {"queue": "old", "uri": uri("mq3"), "count": backlog, "read_from": uri("mq1")},
    }


def inside(site: Site, what: str, *words: Any) -> Any:
    """What a function of rack_load answers that is called where clients reach the hosts: `fill` or `read`."""
    command = [sys.executable, str(RACK), "enter", "--", sys.executable, "-c", CALL, what, json.dumps(words)]
    done = subprocess.run(
        command, cwd=ROOT, env=site.environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@contextmanager
def traffic_of(site: Site, said: dict[str, Any]) -> Iterator[Traffic]:
    """Traffic that ends with the block, whatever it is at."""
    one = Traffic(site, said)
    try:
        yield one
    finally:
        one.end()
