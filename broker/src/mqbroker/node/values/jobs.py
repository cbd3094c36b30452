"""Requests that take many steps: each step runs one bounded piece of one of them, in turn.

A job answers its request itself. None that needs the disk goes on while that is far behind (the next `Synced` makes a
step), and none when the node stops; one that waits for what it has asked for lets others go first. Bounded: at most
JOBS_MAX at a time.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from mqbroker.base.errors import Refused

JOBS_MAX: Final = 16


class Job(Protocol):
    """One request of an administrator that takes several steps."""

    needs_disk: bool  # it reads or writes there

    @property
    def is_waiting(self) -> bool:
        """Whether it can do nothing before an input comes, which makes a step."""

    def run(self) -> bool:
        """Do one piece; whether there is more to do. It answers when there is none."""

    def abandon(self) -> None:
        """The node stops: answer with what was done."""


class Jobs:
    """All jobs of a node, the one whose turn it is first."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()

    def add(self, job: Job) -> None:
        """Run it from now on. Raises Refused when there are too many."""
        if len(self._jobs) >= JOBS_MAX:
            why = f"{JOBS_MAX} requests that list, look at, move or purge are under way; try again when one is done"
            raise Refused("amqp:resource-limit-exceeded", why)
        self._jobs.append(job)

    def run(self, *, is_held: bool, is_running: bool) -> bool:
        """One piece of the first job; whether to call again at once."""
        jobs = self._jobs
        if not jobs:
            return False
        if not is_running:
            while jobs:
                jobs.popleft().abandon()
        job = next((each for each in jobs if not each.is_waiting and not (is_held and each.needs_disk)), None)
        if job is None:
            return False
        jobs.remove(job)
        if job.run():
            jobs.append(job)
        return any(not each.is_waiting and not (is_held and each.needs_disk) for each in jobs)
