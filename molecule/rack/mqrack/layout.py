"""Owns where things of a rack live on the machine that carries it.

Invariant: every file, namespace and control group of a rack has the rack's name in its path, between separators
that a name cannot contain, so that one rack never finds another's. Runtime things (key, sockets, logs) are below
/run, disks and images below /var/lib.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RUN = Path("/run/mqops-rack")
STATE = Path("/var/lib/mqops-rack")
IMAGES = STATE / "images"
LOCKS = RUN / ".locks"
NETNS = Path("/run/netns")
CGROUP_NAME = "mqops-rack"
ENTRY = Path(__file__).resolve().parent.parent / "rack"


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths and kernel names of one rack."""

    name: str

    @property
    def run(self) -> Path:
        return RUN / self.name

    @property
    def disks(self) -> Path:
        return STATE / "racks" / self.name

    @property
    def shared(self) -> Path:
        """The folder that every host of the rack sees as /srv/shared."""
        return self.disks / "shared"

    @property
    def plan(self) -> Path:
        return self.run / "rack.json"

    @property
    def faults(self) -> Path:
        return self.run / "faults.json"

    @property
    def key(self) -> Path:
        return self.run / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        return self.run / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        return self.run / "ssh_config"

    @property
    def control_sockets(self) -> Path:
        return self.run / "cp"

    def disk(self, host: str) -> Path:
        return self.disks / host

    def host_key(self, host: str) -> Path:
        return self.run / "host_keys" / host

    def log(self, host: str) -> Path:
        return self.run / "log" / f"{host}.log"

    # A rack's name holds no dot, so this prefix belongs to one rack only.
    @property
    def netns_prefix(self) -> str:
        return f"mqrack.{self.name}."

    def netns(self, member: str) -> str:
        return f"{self.netns_prefix}{member}"

    def netns_path(self, member: str) -> Path:
        return NETNS / self.netns(member)
