"""Hosts that are folders of this machine: how mqctl connects to them."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from mqctl.ssh.local import LocalShell
from mqctl.ssh.variables import Access


def local_inventory(*names: str) -> str:
    """The text of an inventory of one cluster, whose hosts Ansible reaches as this machine."""
    hosts = "".join(f"    {name}: {{ansible_host: 192.0.2.{name.removeprefix('mq')}}}\n" for name in names)
    return f"""\
all:
  vars:
    mq_cluster_name: main
    mq_cluster_secret: 0123456789abcdef0123456789abcdef
    ansible_connection: local
    ansible_become: false
    ansible_python_interpreter: {sys.executable}
  hosts:
{hosts}"""


@dataclass(frozen=True)
class LocalHosts:
    """A connector; `shell_of` is the kind of shell that finds the folder of a host."""

    shell_of: type[LocalShell]

    def shell(self, access: Access) -> LocalShell:
        return self.shell_of(access.name, access.become)

    def close(self) -> None:
        """Nothing is held."""
