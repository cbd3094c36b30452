"""Progress of long work on standard error: a bar on a terminal, nothing in a pipe (the result says enough there)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mqctl.world import World


@contextmanager
def counting(world: World, what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar for `total` things (None: nobody knows how many); the function moves it on."""
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=world.err,
        transient=True,
        disable=not world.err.is_terminal,
    )
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.advance(task, count)
