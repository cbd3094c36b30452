"""Addresses and queues that `broker.toml` declares: made where they are missing, changed where the file changes.

They are in the journal like all others, marked as configured, so that it is known which of them are gone from the file.
What a queue holds, and how, cannot be changed by a file: address, routing type, durability, and which messages it
keeps stay as they are, and whoever applies the file is told. Source: Artemis's manual, "Configuration Reload".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from mqbroker.amqp import frame_costs
from mqbroker.base.errors import ConfigFault, Refused
from mqbroker.base.look import LOOK
from mqbroker.config.slices import AddressOptions, QueueOptions
from mqbroker.core.address.address import ANYCAST, MULTICAST, Address
from mqbroker.core.address.permissions import BROKER
from mqbroker.core.queue.kinds import DRAIN, QueueKind, kind_of
from mqbroker.core.selector.selector import compile_selector

if TYPE_CHECKING:
    from mqbroker.core.address.address_records import AddressRecords
    from mqbroker.core.address.address_store import AddressStore
    from mqbroker.core.queue.queue import Queue

FORCE = "FORCE"
# Fields of a queue's kind that stay as they were when it was made, and their options.
FIXED = {
    "routing": "routing type",
    "is_durable": "durable",
    "last_value": "last-value",
    "last_value_key": "last-value-key",
    "non_destructive": "non-destructive",
    "ring_size": "ring-size",
}
# Options of the file that have other names as fields of a kind.
FIELDS = {"durable": "is_durable", "filter": "selector", "delay_before_dispatch": "delay_before_dispatch_ms"}


def faults_of(options: tuple[AddressOptions, ...]) -> list[ConfigFault]:
    """Filters that are no selectors."""
    faults = []
    for number, address in enumerate(options):
        for routing, place, queue in _numbered(address):
            try:
                if queue.filter:
                    compile_selector(queue.filter)
            except Refused as refused:
                path = f"addresses.{number}.{routing}.{place}.filter"
                faults.append(ConfigFault(path, refused.description))
    return faults


def _numbered(address: AddressOptions) -> Iterator[tuple[str, int, QueueOptions]]:
    for routing, queues in ((ANYCAST, address.anycast), (MULTICAST, address.multicast)):
        for place, queue in enumerate(queues):
            yield routing, place, queue


def declares(options: tuple[AddressOptions, ...], name: str) -> bool:
    """Whether there is to be a queue of this name."""
    return any(queue.name == name for one in options for _, _, queue in _numbered(one))


class DeployedAddresses:
    """See the module's docstring."""

    def __init__(self, store: AddressStore, records: AddressRecords) -> None:
        self._store = store
        self._records = records

    def apply(self, options: tuple[AddressOptions, ...]) -> Iterator[tuple[int, list[str]]]:
        """Make and change, an address or a queue of it in each piece, on disk with the append of its step.

        A piece yields what it cost, in units of amqp/frame_costs.py, and what could not be done, and why.
        """
        for one in options:
            try:
                self._records.configure(one.name, tuple(each.lower() for each in one.routing_types))
            except Refused as refused:
                yield frame_costs.DECLARED, [f"address {one.name!r}: {refused.description}"]
                continue
            yield frame_costs.DECLARED, []
            for routing, _, queue in _numbered(one):
                try:
                    remarks = self._queue(one.name, routing, queue)
                except Refused as refused:
                    remarks = [f"queue {queue.name!r}: {refused.description}"]
                yield frame_costs.DEPLOYED, remarks

    def _queue(self, address: str, routing: str, options: QueueOptions) -> list[str]:
        kind = self._kind(address, routing, options)
        queue = self._store.queues.get(kind.name)
        if queue is None:
            self._store.create_queue(kind, BROKER)
            return []
        if queue.kind.address != address:
            raise Refused("amqp:precondition-failed", f"it belongs to address {queue.kind.address!r}; delete it first")
        LOOK.has_touched = True
        queue.is_ending = False
        differing = [name for field, name in FIXED.items() if getattr(queue.kind, field) != getattr(kind, field)]
        kept = {field: getattr(queue.kind, field) for field in (*FIXED, *DRAIN, "paused", "no_local", "moved_from")}
        self._change(queue, replace(kind, **kept))
        if not differing:
            return []
        return [f"queue {kind.name!r} keeps its {', '.join(differing)}; delete it to have it made anew"]

    def _change(self, queue: Queue, kind: QueueKind) -> None:
        """It is of another kind from now on, with the same name, place and content. Raises Refused."""
        store, before = self._store, queue.kind
        if kind == before:
            return
        LOOK.has_touched = True
        if kind.selector != before.selector:
            queue.filter = compile_selector(kind.selector) if kind.selector else None
        store.quotas.queue_gone(before, queue.made_on)  # the file's by now, and nobody's share
        queue.made_on = 0
        queue.kind = kind
        queue.idle_until_ms = 0
        queue.dispatcher.changed(before)
        store.addresses[kind.address].look()
        store.quotas.look(store.addresses[kind.address])
        if queue.alone is not None:
            queue.alone.look()
        if queue.journal_id:
            store.journal.declare(queue.journal_id, kind.encoded())
        store.kind_changed(queue, before)
        store.changed(queue)

    def _kind(self, address: str, routing: str, options: QueueOptions) -> QueueKind:
        said = {name: getattr(options, name) for name in options.__slots__ if name != "name"}
        changes = {FIELDS.get(name, name): value for name, value in said.items() if value is not None}
        if options.last_value_key and options.last_value is None:
            changes["last_value"] = True
        settings = self._store.settings.of(address)
        return kind_of(options.name, address, settings, routing=routing, configured=True, **changes)

    def gone(self, options: tuple[AddressOptions, ...]) -> Iterator[Address | Queue | None]:
        """Addresses to be deleted with all that they have, and single queues: not in the file any more, and FORCE.

        None: something was looked at and stays.
        """
        store = self._store
        names: set[str] = set()
        queues: set[tuple[str, str]] = set()
        for one in options:
            names.add(one.name)
            queues.update((one.name, queue.name) for _, _, queue in _numbered(one))
            yield None
        for address in list(store.addresses.values()):
            settings = store.settings.of(address.name)
            if address.is_configured and address.name not in names and settings.config_delete_addresses == FORCE:
                yield address
            elif settings.config_delete_queues == FORCE:
                here = [each for each in address.queues if (address.name, each.kind.name) not in queues]
                yield from (each for each in here if each.kind.configured)
            yield None
