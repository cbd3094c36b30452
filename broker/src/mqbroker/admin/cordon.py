"""A node that lets no client in and keeps what it has, for maintenance.

Source: docs/adr/0027-scale-down.md.
"""

from __future__ import annotations

from mqbroker.admin.scale_down import REFUSED, nodes_that_drain_here, show_to
from mqbroker.base.errors import Refused
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest


def begin(broker: Broker, request: AdminRequest) -> None:
    """`cordon`: no client is let in; who is here is sent to other nodes that say how clients reach them. What is here
    stays, also over a restart."""
    decisions, cordon = broker.store.decisions, broker.store.remotes.cordon
    _require_no_scale_down(broker, request)
    if cordon.is_on:
        decisions.wait_for_earlier(show_to, broker, request.id)
        return
    if sources := nodes_that_drain_here(broker):
        what = f"{request.operation}: queues of node {', '.join(sources)} drain to this one"
        raise Refused(REFUSED, f"{what}: wait until it has left, or call that off")
    broker.cordoning.begin()
    decisions.wait(show_to, broker, request.id)


def end(broker: Broker, request: AdminRequest) -> None:
    """`uncordon`: clients are let in again, and served what is here."""
    _require_no_scale_down(broker, request)
    if not broker.store.remotes.cordon.is_on:
        raise Refused(REFUSED, f"{request.operation}: this node is not cordoned")
    broker.cordoning.end()
    broker.store.decisions.wait(show_to, broker, request.id)


def _require_no_scale_down(broker: Broker, request: AdminRequest) -> None:
    """Raises Refused."""
    record = broker.store.remotes.scale_down
    if record.is_on:
        how = "and that is being called off" if record.is_ending else "call that off first (scale-down-cancel)"
        raise Refused(REFUSED, f"{request.operation}: this node scales down to node {record.target}; {how}")
