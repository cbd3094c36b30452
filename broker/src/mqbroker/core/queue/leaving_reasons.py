"""Why messages leave a queue without a consumer's acceptance; each is counted apart, and none as acknowledged."""

from __future__ import annotations

from typing import Final

from mqbroker.core.queue.backlog import EXPIRED, REPLACED

KILLED: Final = "killed"  # rejected, or delivered in vain too often
PURGED: Final = "purged"  # an administrator, or the queue's own kind, emptied it
DELETED: Final = "deleted"  # it went with its queue
MOVED: Final = "moved"  # to another queue, by an administrator, or to another node
LEFT: Final = (EXPIRED, KILLED, REPLACED, PURGED, DELETED, MOVED)
