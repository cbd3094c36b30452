"""Metrics as plain values: what each is called and means, and how a node and its surroundings fill them.

Names that begin with `artemis_` are those of Artemis' metrics plugin, and gauges as there, so that its dashboards
carry over; a name that this broker cannot fill truthfully is left out. Names that begin with `mqbroker_` are ours;
those that end with `_total` never fall while the process lives. How values become text is io/requests/exposition.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from mqbroker import __version__
from mqbroker.admin.health import DiskSpace
from mqbroker.base.errors import Refused
from mqbroker.base.histogram import Histogram
from mqbroker.base.native import NATIVE
from mqbroker.base.time import NS_PER_S
from mqbroker.cluster.discovery.datagram import Drop
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.bridge_states import BridgeState
from mqbroker.node.values.inputs import CertificateExpiry

OBJECTS_MAX = 100_000  # queues and addresses that one answer names; above, only sums are given

BROKER = ("broker",)
QUEUE = ("broker", "address", "queue")
ADDRESS = ("broker", "address")
USER = ("broker", "user")
REASON = ("broker", "reason")


class Family(NamedTuple):
    """One name. `labels` are those of per-object metrics; summed up, only the first, the broker, is left."""

    name: str
    kind: str  # gauge, counter, summary, histogram
    labels: tuple[str, ...]
    meaning: str


# (label values, value); the value of a summary is (count, sum), that of a histogram a Histogram.
Sample = tuple[tuple[str, ...], Any]
Values = dict[str, list[Sample]]

FAMILIES = {
    family.name: family
    for family in (
        Family("artemis_active", "gauge", BROKER, "1 while the broker is active, 0 when it stops."),
        Family("artemis_connection_count", "gauge", BROKER, "Connections now."),
        Family("artemis_total_connection_count", "gauge", BROKER, "Connections since the start of the process."),
        Family(
            "artemis_authentication_count", "gauge", (*BROKER, "result"), "Logins since the start of the process."
        ),
        Family("artemis_address_memory_usage", "gauge", BROKER, "Bytes of memory that messages hold."),
        Family(
            "artemis_address_memory_usage_percentage", "gauge", BROKER,
            "Bytes of memory that messages hold, in percent of global-max-size-bytes.",
        ),
        Family("artemis_disk_store_usage", "gauge", BROKER, "Used share of the journal's file system, 0 to 1."),
        Family(
            "artemis_message_count", "gauge", QUEUE,
            "Messages in the queue, those in delivery and scheduled ones included.",
        ),
        Family("artemis_delivering_message_count", "gauge", QUEUE, "Messages that consumers have and did not settle."),
        Family("artemis_consumer_count", "gauge", QUEUE, "Consumers of the queue, browsers apart."),
        Family(
            "artemis_messages_added", "gauge", QUEUE,
            "Messages added to the queue since the start of the process, those found in the journal included.",
        ),
        Family(
            "artemis_messages_acknowledged", "gauge", QUEUE,
            "Messages that left the queue accepted by a consumer since the start of the process.",
        ),
        Family(
            "artemis_scheduled_message_count", "gauge", QUEUE, "Messages in the queue whose time has not come."
        ),
        Family(
            "artemis_messages_expired", "gauge", QUEUE,
            "Messages that expired in the queue since the start of the process.",
        ),
        Family(
            "artemis_messages_killed", "gauge", QUEUE,
            "Messages that left the queue as dead letters since the start of the process.",
        ),
        Family(
            "artemis_routed_message_count", "gauge", ADDRESS,
            "Messages to the address that reached a queue, since the start of the process.",
        ),
        Family(
            "artemis_unrouted_message_count", "gauge", ADDRESS,
            "Messages to the address that reached no queue, since the start of the process.",
        ),
        Family(
            "mqbroker_info", "gauge", (*BROKER, "node_id", "version", "native"), "Always 1; the labels say what runs."
        ),
        Family("mqbroker_uptime_seconds", "gauge", BROKER, "Time since the start of the node."),
        Family("mqbroker_queues", "gauge", BROKER, "Queues."),
        Family("mqbroker_addresses", "gauge", BROKER, "Addresses."),
        Family("mqbroker_user_queues", "gauge", USER, "Queues that count for a user, who made them."),
        Family("mqbroker_user_addresses", "gauge", USER, "Addresses that count for a user."),
        Family(
            "mqbroker_quota_refused_total", "counter", BROKER,
            "Queues and addresses that were refused because their user or connection had as many as it may.",
        ),
        Family("mqbroker_memory_held_bytes", "gauge", BROKER, "Memory that messages hold."),
        Family("mqbroker_memory_limit_bytes", "gauge", BROKER, "The option limits.global-max-size-bytes."),
        Family("mqbroker_paged_messages", "gauge", BROKER, "Messages that are on disk alone, once for each queue."),
        Family("mqbroker_paging_queues", "gauge", BROKER, "Queues of which some messages are on disk alone."),
        Family("mqbroker_publishers_waiting", "gauge", BROKER, "Links of publishers that wait for credit."),
        Family("mqbroker_journal_segments", "gauge", BROKER, "Files of the journal."),
        Family("mqbroker_journal_unsynced_appends", "gauge", BROKER, "Appends that are not on disk yet."),
        Family("mqbroker_disk_pending_bytes", "gauge", BROKER, "Bytes on their way to the disk."),
        Family("mqbroker_disk_free_bytes", "gauge", BROKER, "Free bytes of the journal's file system."),
        Family("mqbroker_disk_size_bytes", "gauge", BROKER, "Size of the journal's file system."),
        Family("mqbroker_messages_received_total", "counter", BROKER, "Messages taken in from publishers."),
        Family("mqbroker_messages_received_bytes_total", "counter", BROKER, "Bytes of these messages as sent."),
        Family(
            "mqbroker_messages_added_total", "counter", BROKER,
            "Messages added to queues, once for each queue that one reached.",
        ),
        Family("mqbroker_messages_unrouted_total", "counter", BROKER, "Messages that reached no queue."),
        Family(
            "mqbroker_messages_duplicate_total", "counter", BROKER,
            "Messages accepted and dropped because their `_AMQ_DUPL_ID` was seen at their address.",
        ),
        Family(
            "mqbroker_messages_refused_total", "counter", BROKER,
            "Messages refused because memory or the disk was full, or their transaction had as much as it may have.",
        ),
        Family(
            "mqbroker_messages_malformed_total", "counter", BROKER,
            "Messages that ended the link of their publisher because they are malformed.",
        ),
        Family(
            "mqbroker_messages_address_full_total", "counter", BROKER,
            "Messages refused because their address was full.",
        ),
        Family(
            "mqbroker_messages_dropped_total", "counter", BROKER,
            "Messages accepted and dropped because their address was full.",
        ),
        Family(
            "mqbroker_messages_paged_total", "counter", BROKER,
            "Messages that came into queues and were kept on disk alone.",
        ),
        Family(
            "mqbroker_messages_delivered_total", "counter", BROKER,
            "Messages handed to consumers, each time that one was.",
        ),
        Family("mqbroker_messages_returned_total", "counter", BROKER, "Messages that came back to their queue."),
        Family("mqbroker_messages_rejected_total", "counter", BROKER, "Messages that consumers rejected."),
        Family(
            "mqbroker_messages_acknowledged_total", "counter", BROKER,
            "Messages that left their queue because a consumer accepted them.",
        ),
        Family(
            "mqbroker_messages_left_total", "counter", REASON,
            "Messages that left their queue and were accepted by no consumer.",
        ),
        Family(
            "mqbroker_messages_lost_total", "counter", REASON,
            "Dead and expired messages that went nowhere, because no address is set for them.",
        ),
        Family(
            "mqbroker_messages_held_total", "counter", BROKER,
            "Attempts to move dead and expired messages that their address refused, so that they stayed.",
        ),
        Family("mqbroker_connections_accepted_total", "counter", BROKER, "Connections accepted."),
        Family("mqbroker_logins_failed_total", "counter", BROKER, "Logins that failed."),
        Family(
            "mqbroker_bugs_contained_total", "counter", BROKER,
            "Faults of the broker's own that ended one connection, or dropped one datagram.",
        ),
        Family("mqbroker_discovery_nodes", "gauge", BROKER, "Nodes that discovery groups hear, once for each group."),
        Family("mqbroker_node_id_conflicts", "gauge", BROKER, "Node ids that two brokers seem to have."),
        Family("mqbroker_discovery_broadcasts_total", "counter", BROKER, "Announcements of this node that were sent."),
        Family(
            "mqbroker_discovery_broadcasts_failed_total", "counter", BROKER,
            "Announcements of this node that could not be sent.",
        ),
        Family("mqbroker_discovery_datagrams_heard_total", "counter", BROKER, "Announcements of others that counted."),
        Family(
            "mqbroker_discovery_datagrams_dropped_total", "counter", (*BROKER, "reason"),
            "Datagrams that discovery groups got and dropped.",
        ),
        Family("mqbroker_cluster_members", "gauge", BROKER, "Nodes of the cluster, this one among them."),
        Family("mqbroker_cluster_links_up", "gauge", BROKER, "Links to other nodes that stand."),
        Family("mqbroker_cluster_links_down", "gauge", BROKER, "Links to other nodes that do not stand."),
        Family("mqbroker_cluster_waiting_messages", "gauge", BROKER, "Messages that wait for other nodes."),
        Family("mqbroker_cluster_messages_arrived_total", "counter", BROKER, "Messages that other nodes sent here."),
        Family(
            "mqbroker_cluster_messages_repeated_total", "counter", BROKER,
            "Messages that other nodes sent here again, and that were dropped.",
        ),
        Family(
            "mqbroker_cluster_messages_redistributed_total", "counter", BROKER,
            "Messages that went to other nodes because no consumer here took them.",
        ),
        Family("mqbroker_received_bytes_total", "counter", BROKER, "Bytes read from connections."),
        Family("mqbroker_sent_bytes_total", "counter", BROKER, "Bytes written to connections."),
        Family("mqbroker_journal_appends_total", "counter", BROKER, "Appends written to the journal."),
        Family("mqbroker_journal_written_bytes_total", "counter", BROKER, "Bytes written to the journal."),
        Family("mqbroker_journal_sync_seconds", "histogram", BROKER, "Time of each sync of the journal."),
        Family("mqbroker_step_seconds", "summary", BROKER, "Time of each step of the node, its effects included."),
        Family(
            "mqbroker_certificate_not_after_seconds", "gauge", (*BROKER, "listener", "option"),
            "When the certificate or the CA that the option of the listener names ends, in seconds since 1970.",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """What only `io/` knows. `space` is None where it could not be looked at."""

    disk_pending_bytes: int
    appends_total: int
    written_bytes_total: int
    syncs: Histogram
    steps_total: int
    steps_ns_total: int
    received_bytes_total: int
    sent_bytes_total: int
    space: DiskSpace | None = None
    endings: tuple[CertificateExpiry, ...] = ()


def of_node(broker: Broker, *, per_object: bool) -> Values:
    """What the node itself knows. Raises Refused where there are more objects than one answer may name."""
    name = broker.options.node.name
    plain = {**_of_broker(broker), **_of_store(broker), **_of_discovery(broker), **_of_cluster(broker)}
    values: Values = {key: [((name,), value)] for key, value in plain.items()}
    results = (("success", broker.counters.logins), ("failure", broker.counters.logins_failed))
    values["artemis_authentication_count"] = [((name, result), count) for result, count in results]
    values["mqbroker_discovery_datagrams_dropped_total"] = [
        ((name, drop.value), sum(group.dropped[drop] for group in broker.discovery.groups.values())) for drop in Drop
    ]
    leaving = broker.store.dead_letters
    for key, totals in (("left", leaving.left_totals), ("lost", leaving.lost_totals)):
        values[f"mqbroker_messages_{key}_total"] = [((name, reason), count) for reason, count in totals.items()]
    values["mqbroker_info"] = [((name, broker.node_id, __version__, NATIVE), 1)]
    for key in (*_QUEUE_NAMES, *_ADDRESS_NAMES, *_USER_NAMES):
        values[key] = []
    for key, labels, value in _objects(broker) if per_object else _sums(broker):
        values[key].append((labels, value))
    return values


def _waiting_for_addresses(broker: Broker) -> int:
    meters = (address.meter for address in broker.store.addresses.values())
    return sum(len(meter.waiting) for meter in meters if meter is not None)


def _of_broker(broker: Broker) -> dict[str, float]:
    counters = broker.counters
    return {
        "artemis_active": int(broker.is_running),
        "artemis_connection_count": len(broker.peers),
        "artemis_total_connection_count": counters.connections,
        "mqbroker_uptime_seconds": (broker.at.monotonic_ns - broker.started_at.monotonic_ns) / NS_PER_S,
        "mqbroker_publishers_waiting": len(broker.starved) + _waiting_for_addresses(broker),
        "mqbroker_journal_segments": broker.journal.segments_count,
        "mqbroker_journal_unsynced_appends": broker.journal.position - 1 - broker.store.journal.synced_position,
        "mqbroker_messages_refused_total": counters.refused,
        "mqbroker_messages_malformed_total": counters.malformed,
        "mqbroker_messages_delivered_total": counters.delivered,
        "mqbroker_messages_rejected_total": counters.rejected,
        "mqbroker_connections_accepted_total": counters.connections,
        "mqbroker_logins_failed_total": counters.logins_failed,
        "mqbroker_bugs_contained_total": counters.bugs_contained,
    }


def _of_discovery(broker: Broker) -> dict[str, float]:
    discovery = broker.discovery
    return {
        "mqbroker_discovery_nodes": discovery.entries_count,
        "mqbroker_node_id_conflicts": len(discovery.conflicts),
        "mqbroker_discovery_broadcasts_total": sum(each.sent_total for each in discovery.broadcasters.values()),
        "mqbroker_discovery_broadcasts_failed_total": sum(
            each.failed_total for each in discovery.broadcasters.values()
        ),
        "mqbroker_discovery_datagrams_heard_total": sum(each.heard_total for each in discovery.groups.values()),
    }


def _of_cluster(broker: Broker) -> dict[str, float]:
    store, connections = broker.store, list(broker.cluster.connections.values())
    bridges = [bridge for each in connections for bridge in [*each.bridges.values(), *each.probes]]
    up = sum(bridge.state is BridgeState.UP for bridge in bridges)
    return {
        "mqbroker_cluster_members": max((len(each.topology.members) for each in connections), default=0),
        "mqbroker_cluster_links_up": up,
        "mqbroker_cluster_links_down": len(bridges) - up,
        "mqbroker_cluster_waiting_messages": sum(queue.message_count for queue in store.remotes.queues.values()),
        "mqbroker_cluster_messages_arrived_total": store.arrivals.arrived_total,
        "mqbroker_cluster_messages_repeated_total": store.arrivals.dropped_total,
        "mqbroker_cluster_messages_redistributed_total": store.redistribution.moved_total,
    }


def _of_store(broker: Broker) -> dict[str, float]:
    store = broker.store
    memory = store.memory
    return {
        "artemis_address_memory_usage": memory.held_bytes,
        "artemis_address_memory_usage_percentage": memory.held_bytes * 100 // memory.max_bytes,
        "mqbroker_memory_held_bytes": memory.held_bytes,
        "mqbroker_memory_limit_bytes": memory.max_bytes,
        "mqbroker_queues": len(store.queues),
        "mqbroker_addresses": len(store.addresses),
        "mqbroker_quota_refused_total": store.quotas.refused_total,
        "mqbroker_messages_received_total": store.received_total,
        "mqbroker_messages_received_bytes_total": store.received_bytes_total,
        "mqbroker_messages_added_total": store.added_total,
        "mqbroker_messages_unrouted_total": store.unrouted_total,
        "mqbroker_messages_address_full_total": store.meters.refused_total,
        "mqbroker_messages_dropped_total": store.meters.dropped_total,
        "mqbroker_paged_messages": sum(queue.paged_count for queue in store.paging.queues),
        "mqbroker_paging_queues": len(store.paging.queues),
        "mqbroker_messages_paged_total": store.paging.paged_total,
        "mqbroker_messages_duplicate_total": store.duplicates.dropped_total,
        "mqbroker_messages_returned_total": store.returned_total,
        "mqbroker_messages_acknowledged_total": store.acknowledged_total,
        "mqbroker_messages_held_total": store.dead_letters.held_total,
    }


_QUEUE_NAMES = (
    "artemis_message_count",
    "artemis_delivering_message_count",
    "artemis_consumer_count",
    "artemis_messages_added",
    "artemis_messages_acknowledged",
    "artemis_scheduled_message_count",
    "artemis_messages_expired",
    "artemis_messages_killed",
)
_USER_NAMES = ("mqbroker_user_queues", "mqbroker_user_addresses")
_ADDRESS_NAMES = ("artemis_routed_message_count", "artemis_unrouted_message_count")


def _rows_of_queues(broker: Broker) -> Iterator[tuple[int, ...]]:
    """A row for each queue, in the order of _QUEUE_NAMES. Runs within a step, so it does nothing else."""
    for queue in broker.store.queues.values():
        yield (
            queue.message_count, queue.delivering_count, queue.takers_count, queue.added_total,
            queue.acknowledged_total, queue.scheduled_count, queue.expired_total, queue.killed_total,
        )  # fmt: skip


def _sums(broker: Broker) -> Iterator[tuple[str, tuple[str, ...], int]]:
    labels = (broker.options.node.name,)
    nothing = (0,) * len(_QUEUE_NAMES)
    sums = [sum(column) for column in zip(nothing, *_rows_of_queues(broker), strict=True)]
    for key, total in zip(_QUEUE_NAMES, sums, strict=True):
        yield key, labels, total
    addresses = broker.store.addresses.values()
    yield "artemis_routed_message_count", labels, sum(address.routed_total for address in addresses)
    yield "artemis_unrouted_message_count", labels, sum(address.unrouted_total for address in addresses)
    shares = broker.store.quotas.users.values()
    yield "mqbroker_user_queues", labels, sum(share.queues for share in shares)
    yield "mqbroker_user_addresses", labels, sum(share.addresses for share in shares)


def _objects(broker: Broker) -> Iterator[tuple[str, tuple[str, ...], int]]:
    store, name = broker.store, broker.options.node.name
    count = max(len(store.queues), len(store.addresses))
    if count > OBJECTS_MAX:
        why = f"there are {count} queues or addresses, and one answer names at most {OBJECTS_MAX}; take the sums"
        raise Refused("amqp:resource-limit-exceeded", why)
    for queue, row in zip(store.queues.values(), _rows_of_queues(broker), strict=True):
        labels = (name, queue.kind.address, queue.kind.name)
        for key, value in zip(_QUEUE_NAMES, row, strict=True):
            yield key, labels, value
    for address in store.addresses.values():
        labels_of_address = (name, address.name)
        yield "artemis_routed_message_count", labels_of_address, address.routed_total
        yield "artemis_unrouted_message_count", labels_of_address, address.unrouted_total
    for user, share in store.quotas.users.items():
        yield "mqbroker_user_queues", (name, user), share.queues
        yield "mqbroker_user_addresses", (name, user), share.addresses


def of_world(name: str, measured: Measured) -> Values:
    """What surrounds the node of this name."""
    plain: dict[str, Any] = {
        "mqbroker_disk_pending_bytes": measured.disk_pending_bytes,
        "mqbroker_received_bytes_total": measured.received_bytes_total,
        "mqbroker_sent_bytes_total": measured.sent_bytes_total,
        "mqbroker_journal_appends_total": measured.appends_total,
        "mqbroker_journal_written_bytes_total": measured.written_bytes_total,
        "mqbroker_journal_sync_seconds": measured.syncs,
        "mqbroker_step_seconds": (measured.steps_total, measured.steps_ns_total / NS_PER_S),
    }
    if measured.space is not None:
        plain["artemis_disk_store_usage"] = measured.space.used_share
        plain["mqbroker_disk_free_bytes"] = measured.space.free_bytes
        plain["mqbroker_disk_size_bytes"] = measured.space.size_bytes
    values: Values = {key: [((name,), value)] for key, value in plain.items()}
    values["mqbroker_certificate_not_after_seconds"] = [
        ((name, each.listener, each.option), each.not_after_s) for each in measured.endings
    ]
    return values
