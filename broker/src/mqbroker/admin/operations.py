"""The operations of the admin protocol: a row for each, from which follows all that is common to them.

The row says what it is called, which function answers it and with what, which arguments it takes, and what it does to
the node. From it come the dispatch, the checks of arguments, the refusal while the node stops, the notice `admin` with
the outcome of what changes anything, the answer to `operations`, and docs/reference/operations.md (`make gen`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mqbroker.admin import (
    addresses,
    backups,
    browsing,
    configuration,
    connections,
    cordon,
    discovery,
    drains,
    events,
    groups,
    messages,
    moves,
    queues,
    quotas,
    scale_down,
    status,
    topology,
)
from mqbroker.admin.arguments import (
    CONFIGURED,
    STORE_AND_FORWARD,
    Argument,
    flag,
    is_text,
    needed,
    number,
    text,
)
from mqbroker.admin.operation import Operation, OperationEffect
from mqbroker.core.cluster.group_owners import PINS_MAX
from mqbroker.node.broker.broker import Broker
from mqbroker.node.broker.snapshots import HOLD_MS_MAX
from mqbroker.node.values.inputs import AdminRequest

TAKES_PART, CHANGES, ENDS = OperationEffect.TAKES_PART, OperationEffect.CHANGES, OperationEffect.ENDS
NAME, QUEUE, ADDRESS, SELECTOR = needed("name"), needed("queue"), needed("address"), text("selector")
FORCE, DROPS_FORWARDED = flag("force"), flag(STORE_AND_FORWARD)
COUNT_MAX = number("count_max", -1, (-1, moves.COUNT_MAX))


def show_operations(broker: Broker, request: AdminRequest) -> None:
    """`operations`: all of them, with their arguments."""
    broker.reply(request.id, {"operations": [each.shown() for each in OPERATIONS.values()]})


ROWS = (
    Operation("operations", show_operations, "operations"),
    # The node.
    Operation("status", status.show, "what the node is and holds"),
    Operation("health", status.show_health, "what the node knows of its health"),
    Operation("metrics", status.show_metrics, "families of metrics and their values", (flag("per_object"),)),
    Operation("config-show", configuration.show, "options: option, value, pending"),
    Operation("config-reload", configuration.reload, "changed, users, restart; or every fault of the files",
              effect=CHANGES),
    Operation("events", events.show, "events, position, missed", (
        number("after", None, (0, events.POSITION_MAX)), text("level", "debug", tuple(events.LEVELS)),
        text("name", "*"), number("limit", events.LIMIT, (1, events.LIMIT_MAX)))),
    Operation("restart-begins", status.restart_begins, "within_s", (number("within_s", 60, (1, 3600)),), CHANGES),
    Operation("stop", status.stop, "nothing", effect=ENDS),
    Operation("backup-begin", backups.begin,
              "node_id, node, boot, term, position, data_directory; segments: number, bytes; large: ids of files",
              (number("hold_ms", backups.HOLD_MS, (1, HOLD_MS_MAX)),), TAKES_PART),
    Operation("backup-end", backups.end, "held: true", effect=TAKES_PART),
    # Addresses and queues.
    Operation("addresses", addresses.show_all, "addresses"),
    Operation("address-show", addresses.show, "the address with its queues", (NAME,)),
    Operation("address-settings-show", addresses.show_settings, "address, matches, settings", (ADDRESS,)),
    Operation("address-create", addresses.create, "the address",
              (NAME, Argument("routing_types", list, ("anycast",))), CHANGES),
    Operation("address-delete", addresses.delete, "name, queues, messages: what was there",
              (NAME, FORCE), CHANGES),
    Operation("address-pause", addresses.pause, "name, paused, changed", (NAME, flag("persist", True)), CHANGES),
    Operation("address-resume", addresses.resume, "name, paused, changed", (NAME,), CHANGES),
    Operation("queues", queues.show_all, "queues; totals count from counted_from_ms on"),
    Operation("quotas", quotas.show_all, "quotas"),
    Operation("queue-show", queues.show, "the queue", (NAME,)),
    Operation("queue-create", queues.create, "the queue", (
        NAME, text("address", None), text("routing_type", "anycast", queues.ROUTING_TYPES), flag("durable", True),
        *queues.CHOICES), CHANGES),
    Operation("queue-delete", queues.delete, "name, messages: how many were in it",
              (NAME, FORCE, DROPS_FORWARDED, flag(CONFIGURED)), CHANGES),
    Operation("queue-pause", queues.pause, "name, paused, changed", (NAME,), CHANGES),
    Operation("queue-resume", queues.resume, "name, paused, changed", (NAME,), CHANGES),
    # Messages.
    Operation("send", messages.send, "what was accepted", (ADDRESS, needed("messages", list)), CHANGES),
    Operation("receive", messages.receive, "messages, tag", (
        ADDRESS, number("count_max", 1, (1, moves.COUNT_MAX)),
        number("wait_ms", 0, (0, messages.RECEIVE_WAIT_MS_MAX)), SELECTOR), TAKES_PART),
    Operation("settle", messages.settle, "nothing",
              (needed("tag", int), text("outcome", "accepted", messages.OUTCOMES)), CHANGES),
    Operation("browse", browsing.browse, "messages, next", (
        QUEUE, SELECTOR, text("from", browsing.BEGINNING),
        number("limit", browsing.LIMIT, (1, browsing.LIMIT_MAX)))),
    Operation("message-show", browsing.show, "the message", (QUEUE, needed("id", int, (1, browsing.ID_MAX)))),
    Operation("queue-purge", moves.purge, "purged", (NAME, SELECTOR, DROPS_FORWARDED), CHANGES),
    Operation("messages-move", moves.move, "moved, left", (QUEUE, ADDRESS, SELECTOR, COUNT_MAX), CHANGES),
    Operation("dead-letters-retry", moves.retry, "retried, left",
              (QUEUE, SELECTOR, COUNT_MAX, flag("to_address")), CHANGES),
    # Clients.
    Operation("connections", connections.show_all, "connections"),
    Operation("sessions", connections.show_sessions, "sessions, is_whole", connections.WHO),
    Operation("consumers", connections.show_consumers, "consumers, is_whole", (*connections.WHO, text("queue"))),
    Operation("producers", connections.show_producers, "producers, is_whole", (*connections.WHO, text("address"))),
    Operation("connection-close", connections.close, "closed: how many it is asked for", connections.WHO, CHANGES),
    # The cluster.
    Operation("discovery", discovery.show, "groups, nodes, conflicts"),
    Operation("topology", topology.show, "node_id, members, links, inbound, journal_formats"),
    Operation("cluster-canary", topology.canary, "is_whole, links",
              (number("timeout_ms", topology.CANARY_MS, (1, topology.CANARY_MS_MAX)),), TAKES_PART),
    Operation("cluster-forget", topology.forget, "node_id, action, messages",
              (needed("node_id"), text("action", topology.REROUTE, topology.ACTIONS)), CHANGES),
    Operation("drain-queue", drains.begin, "the drain", (QUEUE, needed("node")), CHANGES),
    Operation("drain-show", drains.show, "drains, each with left, moved, rate", (text("queue"),)),
    Operation("drain-cancel", drains.cancel, "the drain, as it ends", (QUEUE, FORCE), CHANGES),
    Operation("scale-down", scale_down.begin, "as of scale-down-show",
              (needed("node"), flag("dry_run"), FORCE, text("not_to", None)), CHANGES),
    Operation("scale-down-show", scale_down.show,
              "state, left, moved, passed_over, staying, hindrances, queues, receipt"),
    Operation("scale-down-cancel", scale_down.cancel, "as of scale-down-show", (FORCE,), CHANGES),
    Operation("cordon", cordon.begin, "as of scale-down-show", effect=CHANGES),
    Operation("uncordon", cordon.end, "as of scale-down-show", effect=CHANGES),
    Operation("groups", groups.show, "type, arbiter, groups, is_whole",
              (text("queue"), number("limit", groups.ROWS_MAX, (1, PINS_MAX)))),
)  # fmt: skip
OPERATIONS = {row.name: row for row in ROWS}


def perform(broker: Broker, request: AdminRequest) -> None:
    """Carry out a request; whatever is wrong with it becomes its answer."""
    row = OPERATIONS.get(request.operation)
    if row is None:
        known = ", ".join(sorted(OPERATIONS))
        broker.reply_error(request.id, "amqp:not-found", f"unknown operation {request.operation!r}; there are: {known}")
        return
    if row.effect.leaves_notice:
        broker.event_ring.expect(request)
    broken = next((name for name, value in _texts(request) if not is_text(value)), None)
    if broken is not None:
        why = f"{broken} has half of a surrogate pair, which no journal, log or client could hold"
        broker.reply_error(request.id, "amqp:invalid-field", why)
        return
    row.perform(broker, request)


def _texts(request: AdminRequest) -> Iterator[tuple[str, Any]]:
    """What is said for all to see; messages are looked at when they are made."""
    for name, value in request.arguments.items():
        yield "the name of an argument", name
        yield f"argument {name!r}", value
