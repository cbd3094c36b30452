"""Whether what a peer sent has changed anything by now that outlives its connection.

`node/amqp/peers/containment.py` begins a look where it gives bytes of a peer to those who understand them. Whoever
changes what others depend on (the journal, the store, queues, what is in delivery, the cluster, whatever a connection
leaves behind) says so here before it does, so a bug that shows while nothing was touched can end that connection alone.

Fail-closed: outside of a look everything counts as touched, and a mutator that is not reached says nothing wrong. There
is one of it for a process, because a step is never entered twice and one thread alone takes steps; to hand it to each
queue and segment would cost more than to set it. tests/contract/test_mutators.py says who has to.
"""

from __future__ import annotations

from typing import Final


class Look:
    """See the module's docstring."""

    __slots__ = ("has_touched",)

    def __init__(self) -> None:
        self.has_touched = True


LOOK: Final = Look()
