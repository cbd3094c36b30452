"""Three bare hosts of the rack, and everything from an inventory to running brokers."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Sequence

import yaml

from demo.narrator import Call, DoesNotHold, Narrator, Said
from demo.stage import MQCTL, ROOT, Login, Stage

RACK = str(ROOT / "molecule" / "rack" / "rack")
HOSTS = 3
GROUP = "brokers"
PORT = 5672
# The first `up` builds the image of the hosts.
UP_TIME_S_MAX = 240.0
PLAYBOOK_TIME_S_MAX = 240.0
START_TIME_S_MAX = 30.0
DIFFERENCES = 3
# Clients come by the management card; brokers find each other on the other one and pass messages on over it.
CLUSTER = """
mq_listeners:
  - {name: clients, port: 5672, local_bind_address: "{{ ansible_host }}"}
  - {name: cluster, port: 5673, kind: cluster}
mq_connectors:
  - {name: cluster, port: 5673}
mq_broadcast_groups:
  - {name: lan, group_address: 231.7.7.7, group_port: 9876, connector_ref: cluster}
mq_discovery_groups:
  - {name: lan, group_address: 231.7.7.7, group_port: 9876}
mq_cluster_connections:
  - {name: all, connector_ref: cluster, discovery_group_ref: lan}
mq_address_settings:
  - {match: "#", dead_letter_address: DLQ, expiry_address: ExpiryQueue, redistribution_delay: 0}
"""


def why_not(narrator: Narrator) -> list[str]:
    """What keeps hosts from being booted here, found out by trying; nothing if they can."""
    said = narrator.run(Call([RACK, "doctor"], codes=(0, 1), quiet=True, time_s_max=60))
    return [] if said.code == 0 else (said.out + said.err).strip().splitlines()


class Rack(Stage):
    """The second host loses its power: the first is the one that everything goes to by default."""

    node = "mq2"
    power_cut_is = "The power of mq2 is cut"
    ends = ("mq1", "mq3")
    leaver = ("mq3", "mq1")

    def __init__(self, narrator: Narrator, name: str) -> None:
        super().__init__(narrator)
        self.name = name
        self.addresses: dict[str, str] = {}

    def clear(self) -> None:
        self.rack("destroy", hidden=True)
        for name in ("inventory.yml", "group_vars", "dist", "receipts"):
            path = self.narrator.place / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def set_up(self) -> None:
        self.boot()
        self.bundle()
        self.inventory()
        self.preflight()
        self.rollout()

    def boot(self) -> None:
        self.narrator.step(f"A rack of {HOSTS} bare hosts: systemd, an ssh server, Python, nothing of ours")
        self.rack("up", str(HOSTS), time_s_max=UP_TIME_S_MAX)
        status = json.loads(self.rack("status", "--json", hidden=True).out)
        self.addresses = {host["name"]: host["cards"]["eth0"]["address"] for host in status["hosts"]}
        names = ", ".join(f"{name} {address}" for name, address in self.addresses.items())
        self.narrator.say(f"{names}. They reach each other and this program, and no network beyond.")

    def bundle(self) -> None:
        self.narrator.step("The bundle: the broker and all that it needs, so that hosts need no package index")
        words = ["bundle", "build"]
        # The one command that needs the outside, so it runs outside of the rack's network.
        self.narrator.run(Call([MQCTL, *words], f"mqctl {' '.join(words)}", time_s_max=180))

    def inventory(self) -> None:
        self.narrator.step("The inventory: the hosts, and passwords made at random")
        listing = self.rack("inventory", "--group", GROUP, hidden=True).out
        (self.narrator.place / "inventory.yml").write_text(listing)
        self.mqctl("init", "--interface", "eth1", "--allow-plaintext")
        with (self.narrator.place / "group_vars" / GROUP / "cluster.yml").open("a") as file:
            file.write(CLUSTER)
        self.narrator.say(
            "Nothing is encrypted here: --allow-plaintext lets the brokers listen without TLS, as the foreign"
        )
        self.narrator.say("client will need. Clients come by the card eth0. On eth1 the brokers find each other by")
        self.narrator.say("multicast and make one cluster.")

    def preflight(self) -> None:
        self.narrator.step("Preflight: would anything stop the rollout?")
        self.mqctl("preflight", time_s_max=PLAYBOOK_TIME_S_MAX)

    def rollout(self) -> None:
        self.narrator.step("Plan, then rollout of exactly that plan")
        said = self.mqctl("plan", codes=(DIFFERENCES,))
        found = re.search(r"^plan ([0-9a-f]+):", said.err, re.MULTILINE)
        if found is None:
            raise DoesNotHold("`mqctl plan` printed no hash of the plan.")
        self.mqctl("rollout", "--plan", found[1], time_s_max=PLAYBOOK_TIME_S_MAX)

    def enter(self, words: Sequence[str]) -> list[str]:
        return [RACK, "enter", "--name", self.name, "--", *words]

    def login(self, node: str = "") -> Login:
        secrets = yaml.safe_load((self.narrator.place / "group_vars" / GROUP / "secrets.yml").read_text())
        user = secrets["mq_users"][0]
        return Login(f"amqp://{self.addresses[node or self.node]}:{PORT}", user["name"], user["password"])

    def power_off(self) -> None:
        self.rack("kill", self.node)
        self.narrator.say("Its cables went silent first, then every process was gone at once.")
        self.mqctl("status", "--timeout", "3", codes=(DIFFERENCES,))

    def power_on(self) -> None:
        self.rack("boot", self.node)
        deadline_s = time.monotonic() + START_TIME_S_MAX
        while self.mqctl("status", codes=(0, DIFFERENCES), hidden=True, quiet=True).code != 0:
            if time.monotonic() > deadline_s:
                raise DoesNotHold(f"The broker of {self.node} does not run {START_TIME_S_MAX:g} s after its boot.")
        self.narrator.say(f"{self.node} is up, and its broker runs again without anybody's help.")

    def again(self) -> None:
        self.narrator.step("A second rollout changes nothing")
        self.mqctl("plan")
        said = self.mqctl("rollout", "--yes", "--json", quiet=True, time_s_max=PLAYBOOK_TIME_S_MAX)
        changed = json.loads(said.out)["changed"]
        if changed != 0:
            raise DoesNotHold(f"The second rollout changed {changed} things.")
        self.narrator.say("All tasks ran on all hosts; 0 of them changed anything.")

    def how_to_reach(self) -> list[str]:
        name, place = f"--name {self.name}", self.narrator.place.relative_to(ROOT)
        return [
            f"molecule/rack/rack status {name}",
            f"molecule/rack/rack ssh {name} {self.node}",
            f"cd {place} && {RACK} enter {name} -- {MQCTL} status",
            f"molecule/rack/rack destroy {name}; rm -r {place}",
        ]

    def rack(self, *words: str, codes: tuple[int, ...] = (0,), hidden: bool = False, time_s_max: float = 60.0) -> Said:
        """Run a command of the rack."""
        shown = "" if hidden else f"rack {' '.join(words)}"
        full = [RACK, words[0], "--name", self.name, *words[1:]]
        return self.narrator.run(Call(full, shown, codes, "", time_s_max, quiet=hidden))
