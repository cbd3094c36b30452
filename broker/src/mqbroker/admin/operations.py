"""The operations of the admin protocol. Each takes a node and a request, and answers it exactly once, now or later.

The node
    status   {}                                          what the node is and holds
    health   {}                                          what the checks of health look at (admin/health.py)
    metrics  {per_object?}                               families of metrics and their values (admin/metrics.py)
    config-show {}                                       {options: [{option, value, pending}]}
    config-reload {}                                     {changed, users, restart}, or every fault of the files
    events   {after?, level?, name?, limit?}             {events, position, missed}
    stop     {}                                          stop gracefully
Addresses and queues (admin/addresses.py, admin/queues.py)
    addresses    {}                                      one object an address
    address-show {name}                                  with its queues
    address-settings-show {address}                      what holds there, and which match says so
    address-create {name, routing_types?}                without a queue; routing_types: anycast, multicast, or both
    address-delete {name, force?}                        {queues, messages}: what was there
    address-pause  {name, persist?}, address-resume {name}   {changed}: all its queues, also those that come later
    queues       {}                                      one object a queue; its totals count from counted_from_ms on
    queue-show   {name}                                  with all that makes it what it is
    queue-create {name, address?, routing_type?, durable?, max_consumers?, exclusive?, last_value?, last_value_key?,
                  non_destructive?, ring_size?, consumers_before_dispatch?, delay_before_dispatch_ms?, group_rebalance?,
                  group_buckets?, group_first_key?, purge_on_no_consumers?, selector?, paused?}
    quotas       {}                                      one object a user that has made queues or addresses
    queue-delete {name, force?, store_and_forward?, configured?}     {messages}: how many were in it
    queue-pause  {name}, queue-resume {name}             {changed}
Messages (admin/messages.py, admin/browsing.py, admin/moves.py)
    send     {address, messages: [{body | body_base64, durable?, priority?, ttl_ms?, properties?,
              application_properties?}]}
    receive  {address, count_max?, wait_ms?, selector?}  {messages, tag}
    settle   {tag, outcome: accepted | released | modified | rejected}
    browse   {queue, selector?, from?, limit?}           {messages, next}: nothing is taken; what is paged
                                                         comes last
    message-show {queue, id}                             one message, wherever in the queue it is
    queue-purge   {name, selector?, store_and_forward?}  {purged}
    messages-move {queue, address, selector?, count_max?}    {moved, left}
    dead-letters-retry {queue, selector?, count_max?, to_address?}   {retried, left}
Clients (admin/connections.py)
    connections  {}                                      one object a connection
    sessions     {connection?, user?, container_id?}     {sessions, is_whole}
    consumers    {connection?, user?, container_id?, queue?}     {consumers, is_whole}
    producers    {connection?, user?, container_id?, address?}   {producers, is_whole}
    connection-close {connection | user | container_id}  {closed}
The cluster (admin/discovery.py, admin/topology.py, admin/groups.py)
    discovery    {}                                      {groups, nodes, conflicts}
    topology     {}                                      {node_id, members, links, inbound}
    cluster-canary  {timeout_ms?}                        {is_whole, links}: a message over each link, and how long it
                                                         took until the other node had it
    cluster-forget  {node_id, action?}                   {node_id, action, messages}
    groups       {queue?, limit?}                        {type, arbiter, groups, is_whole}

Arguments are checked here: a wrong one is an error that names it. What changes anything leaves a notice `admin` with
its outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mqbroker.admin import (
    addresses,
    browsing,
    configuration,
    connections,
    discovery,
    events,
    groups,
    messages,
    moves,
    queues,
    quotas,
    status,
    topology,
)
from mqbroker.admin.arguments import is_text
from mqbroker.base.errors import PeerFault, Refused
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest


def perform(broker: Broker, request: AdminRequest) -> None:
    """Carry out a request; whatever is wrong with it becomes its answer."""
    handler = OPERATIONS.get(request.operation)
    if handler is None:
        known = ", ".join(sorted(OPERATIONS))
        broker.reply_error(request.id, "amqp:not-found", f"unknown operation {request.operation!r}; there are: {known}")
        return
    if request.operation in CHANGING:
        broker.event_ring.expect(request)
    broken = next((name for name, value in _texts(request) if not is_text(value)), None)
    if broken is not None:
        why = f"{broken} has half of a surrogate pair, which no journal, log or client could hold"
        broker.reply_error(request.id, "amqp:invalid-field", why)
        return
    if not broker.is_running and request.operation not in WHILE_STOPPING:
        broker.reply_error(request.id, "amqp:connection:forced", f"{request.operation}: the broker stops")
        return
    try:
        handler(broker, request)
    except (Refused, PeerFault) as error:
        broker.reply_error(request.id, error.condition, error.description)


def _texts(request: AdminRequest) -> Iterator[tuple[str, Any]]:
    """What is said for all to see; messages are looked at when they are made."""
    for name, value in request.arguments.items():
        yield "the name of an argument", name
        yield f"argument {name!r}", value


OPERATIONS: dict[str, Callable[[Broker, AdminRequest], None]] = {
    "status": status.show,
    "health": status.show_health,
    "metrics": status.show_metrics,
    "config-show": configuration.show,
    "config-reload": configuration.reload,
    "events": events.show,
    "stop": status.stop,
    "addresses": addresses.show_all,
    "address-show": addresses.show,
    "address-settings-show": addresses.show_settings,
    "address-create": addresses.create,
    "address-delete": addresses.delete,
    "address-pause": addresses.pause,
    "address-resume": addresses.resume,
    "queues": queues.show_all,
    "quotas": quotas.show_all,
    "queue-show": queues.show,
    "queue-create": queues.create,
    "queue-delete": queues.delete,
    "queue-pause": queues.pause,
    "queue-resume": queues.resume,
    "send": messages.send,
    "receive": messages.receive,
    "settle": messages.settle,
    "browse": browsing.browse,
    "message-show": browsing.show,
    "queue-purge": moves.purge,
    "messages-move": moves.move,
    "dead-letters-retry": moves.retry,
    "connections": connections.show_all,
    "sessions": connections.show_sessions,
    "consumers": connections.show_consumers,
    "producers": connections.show_producers,
    "connection-close": connections.close,
    "discovery": discovery.show,
    "topology": topology.show,
    "cluster-canary": topology.canary,
    "groups": groups.show,
    "cluster-forget": topology.forget,
}
CHANGING = (
    "stop", "queue-create", "queue-delete", "queue-pause", "queue-resume", "send", "settle", "queue-purge",
    "messages-move", "dead-letters-retry", "connection-close", "config-reload", "address-create", "address-delete",
    "address-pause", "address-resume", "cluster-forget",
)  # fmt: skip
# Nothing may be journalled behind the journal's end.
WHILE_STOPPING = (
    "status", "health", "metrics", "stop", "addresses", "address-show", "address-settings-show", "queues",
    "quotas", "queue-show", "connections", "sessions", "consumers", "producers", "browse", "message-show",
    "config-show", "events", "discovery", "topology", "groups",
)  # fmt: skip
