"""What a command may touch, handed to it: clock, streams, environment, hosts, playbooks. Tests hand over others.

Data goes to `out` (through `data`), everything else to `err` (a rich console), so that a pipe sees only data.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol, TextIO

from mqbroker.base.text import printable
from rich.console import Console

from mqctl.output import data_console

if TYPE_CHECKING:
    from mqctl.operation import HeldCluster
    from mqctl.ssh.shell import Shell
    from mqctl.ssh.variables import Access


class ShellConnector(Protocol):
    """Opens shells on hosts, and keeps them open for later commands."""

    def shell(self, access: Access) -> Shell:
        """A shell on a host; the same one when asked again, as long as its connection stands."""
        ...

    def close(self) -> None:
        """Close the shells of all hosts."""
        ...


@dataclass(slots=True)
class World:
    """Everything outside of the process. `connector` opens shells on hosts and is made on first use.

    `operation`: under which something is changed on hosts.
    """

    environ: Mapping[str, str]
    cwd: Path
    stdin_bytes: BinaryIO
    out: TextIO
    data: Console
    err: Console
    monotonic_s: Callable[[], float] = time.monotonic
    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
    sleep_s: Callable[[float], None] = time.sleep
    is_interactive: bool = False
    verbosity: int = 0
    connector: ShellConnector | None = field(default=None)
    operation: HeldCluster | None = None

    def note(self, text: str) -> None:
        """One line for people, on standard error."""
        self.err.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Close the shells of all hosts, where any is open."""
        if self.connector is not None:
            self.connector.close()
            self.connector = None


def colour_wanted(environ: Mapping[str, str], *, no_color: bool) -> bool:
    """Colour is off for --no-color, for NO_COLOR with any value but the empty one, and for dumb terminals."""
    return not (no_color or environ.get("NO_COLOR") or environ.get("TERM") == "dumb")


def real_world(*, no_color: bool = False, verbosity: int = 0) -> World:
    """The world of a process that a user started: its environment, streams, clock and SSH."""
    has_colour = colour_wanted(os.environ, no_color=no_color)
    is_terminal = sys.stderr.isatty()
    err = Console(
        file=sys.stderr,
        force_terminal=is_terminal,
        color_system="standard" if has_colour and is_terminal else None,
        highlight=False,
        emoji=False,
    )
    return World(
        environ=os.environ,
        cwd=Path.cwd(),
        stdin_bytes=sys.stdin.buffer,
        out=sys.stdout,
        data=data_console(sys.stdout, has_colour=has_colour),
        err=err,
        is_interactive=sys.stdin.isatty() and is_terminal,
        verbosity=verbosity,
    )
