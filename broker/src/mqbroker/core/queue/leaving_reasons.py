"""Why messages leave a queue; each way out but a consumer's acceptance is counted apart, and none as acknowledged."""

from __future__ import annotations

from typing import Final

from mqbroker.core.queue.backlog import EXPIRED, REPLACED

ACKNOWLEDGED: Final = "acknowledged"  # a consumer accepted them
KILLED: Final = "killed"  # rejected, or delivered in vain too often
PURGED: Final = "purged"  # an administrator, or the queue's own kind, emptied it
DELETED: Final = "deleted"  # it went with its queue
MOVED: Final = "moved"  # to another queue, by an administrator, or to another node
LEFT: Final = (EXPIRED, KILLED, REPLACED, PURGED, DELETED, MOVED)  # without a consumer's acceptance
