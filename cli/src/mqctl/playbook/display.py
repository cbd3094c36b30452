"""Live progress of a playbook on standard error: a bar per host on a terminal, a line per change elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from mqbroker.base.text import printable
from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from mqctl.playbook.events import Happened, PlayProgress
from mqctl.world import World

COLOURS = {"changed": "yellow", "refused": "red", "failed": "red", "unreachable": "red"}


class Display:
    """Shows the progress of a playbook to whoever watches."""

    def __init__(self, world: World, title: str, redact: Callable[[str], str]) -> None:
        self._world = world
        self._redact = redact
        self._bars: dict[str, TaskID] = {}
        self._is_live = world.err.is_terminal and world.verbosity == 0
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[now]}", markup=False, style="dim"),
            TimeElapsedColumn(),
            console=world.err,
            disable=not self._is_live,
            transient=True,
        )
        self._title = self._progress.add_task(title, total=None, now="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def happened(self, what: Happened, state: PlayProgress) -> None:
        """Show one thing that happened on a host, or which task began."""
        if what.kind == "task":
            self._progress.update(self._title, now=what.text)
            return
        text = printable(self._redact(what.text))
        line = Text(f"{what.host}: {what.kind}: {text}", style=COLOURS.get(what.kind, ""))
        if what.kind != "changed" or not self._is_live:
            self._progress.console.print(line, soft_wrap=True)
        if self._is_live:
            host = state.hosts[what.host]
            if what.host not in self._bars:
                self._bars[what.host] = self._progress.add_task(what.host, total=None, now="")
            self._progress.update(self._bars[what.host], now=f"{host.changed} changed, {text}")

    def said(self, text: str) -> None:
        """What Ansible prints itself, for -v."""
        if self._world.verbosity and text:
            self._progress.console.print(
                printable(self._redact(text)).replace("\r", ""), markup=False, highlight=False, soft_wrap=True
            )
