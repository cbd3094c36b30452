"""Looks now and then whether a certificate of the listeners ends soon, and writes that into the log; tells the node
which are in use, for those who ask it.

Owns one timer. The look touches no file: listeners know the ends of what they loaded. Invariant: looking more often
says nothing more, since `admin/certificates.py` decides what is due.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from mqbroker.admin.certificates import Warnings
from mqbroker.io.loop.log import Log
from mqbroker.node.values.inputs import CertificateExpiry, CertificatesInUse, Input

# More often than it is told, so that a host that slept, or whose clock was set, does not lose a day.
LOOK_PERIOD_S = 3600.0


class CertificateWatch:
    """See the module's docstring. `endings`: of what is in use now."""

    def __init__(
        self, endings: Callable[[], Iterable[CertificateExpiry]], post: Callable[[Input], None], log: Log
    ) -> None:
        self._endings = endings
        self._post = post
        self._log = log
        self._warnings = Warnings()
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Look now, and again after a while."""
        self.stop()
        endings = tuple(self._endings())
        self._post(CertificatesInUse(endings))
        for notice in self._warnings.due(endings, int(time.time())):
            self._log.emit(notice)
        self._timer = asyncio.get_running_loop().call_later(LOOK_PERIOD_S, self.look)

    def stop(self) -> None:
        """Look at certificates no more."""
        if self._timer is not None:
            self._timer.cancel()
