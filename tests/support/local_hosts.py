"""Hosts that are folders of this machine: how mqctl connects to them."""

from __future__ import annotations

from dataclasses import dataclass

from mqctl.ssh.local import LocalShell
from mqctl.ssh.variables import Access


@dataclass(frozen=True)
class LocalHosts:
    """A connector; `shell_of` is the kind of shell that finds the folder of a host."""

    shell_of: type[LocalShell]

    def shell(self, access: Access) -> LocalShell:
        return self.shell_of(access.name, access.become)

    def close(self) -> None:
        """Nothing is held."""
