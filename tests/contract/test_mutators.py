"""Who changes what outlives a connection says so to base/look.py first, else a bug behind it would not stop the node.

Which functions those are is read from the source (tests/support/mutators.py), so a new one has no way around this: it
says so itself, or all that call it do, or it stands in EXEMPT with the reason why what it leaves half done is harmless.
That what is said is heeded, and in time, is tested where functions run
(tests/unit/node/amqp/peers/test_containment.py).
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.support.mutators import ROOMS, Function, files_of, functions, unanswered

# Called by `Broker.step` itself, where no bytes are looked at: all counts as touched there.
OUTSIDE = frozenset(f"node/broker/broker.py:Broker.{name}" for name in (
    "__init__", "_handlers_of_inputs", "step", "_dispatch", "_seal", "_collect", "_synced",
    "_closed", "_write_blocked", "_done", "_failed", "_disk", "_space", "_certificates_in_use", "_admin",
    "_admin_closed", "_cluster_key_changed", "take_options", "take_users",
))  # fmt: skip

# File, or file:function, and why nobody notices what is left half done.
EXEMPT: dict[str, str] = {
    "journal/rebuild.py": "before the first step",
    "journal/recover.py": "before the first step",
    "core/paging/recorded_messages.py": "before the first step",
    "core/paging/restore.py": "before the first step",
    "core/store/journal_export.py": "an import, before the first step",
    "core/store/exported_bodies.py": "an import, before the first step",
    "core/queue/kinds.py:QueueKind.encoded": "a text that is remembered, whole",
    "core/queue/message_view.py": "what a view has found in its message, for itself",
    "core/queue/message_filter.py": "answers that are remembered, each whole, and what was found in a message",
    "core/queue/prefilter.py": "how far a search has come",
    "core/queue/picking.py": "requests of administrators",
    "core/paging/paged_picking.py": "requests of administrators",
    "core/paging/page_look.py": "requests of administrators",
    "node/amqp/peers/turns.py": "what is still to be looked at",
    "node/broker/reloads.py": "requests of administrators",
    "node/broker/local.py": "requests of administrators",
    "node/values/jobs.py": "requests of administrators",
    "node/broker/chores.py": "whose turn it is",
    "node/values/event_ring.py": "a log",
    "node/amqp/peers/containment.py": "it is what looks",
    "cluster/discovery/broadcaster.py": "what this node says itself, by its own clock",
    "journal/recovered.py:Recovered.queue_contents": "before the first step",
    "journal/duplicates.py:DuplicateIds.__init__": "before the first step",
    "core/cluster/arrivals.py:Arrivals.load": "before the first step",
    "core/address/address_records.py:AddressRecords.load": "before the first step",
    "core/address/duplicates.py:Duplicates.load": "before the first step",
    "core/cluster/group_owners.py:GroupOwners.load": "before the first step",
    "core/store/store.py:Store.load": "before the first step",
    "core/address/auto_delete.py:AutoDelete.restored": "before the first step",
    "core/address/diverts.py:Diverts.__init__": "a table that is being made",
    "core/cluster/grouping.py:Grouping._want": "a list that its caller is making",
    "core/address/permissions.py:Permissions._of": "answers that are remembered, each whole",
    "core/address/settings.py:Settings.of": "answers that are remembered, each whole",
    "core/address/settings.py:Settings._merged": "answers that are remembered, each whole",
    "core/selector/selector.py:compile_selector": "answers that are remembered, each whole",
    "node/values/base_broker.py:BaseBroker.notice": "a log",
    "node/values/completions.py:Completions.next_id": "a number that nobody has to use",
    "node/values/activity.py:Activity.went": "what is shown of a link, which goes with it",
    "node/amqp/peers/peer.py:Peer.touch": "who may have to be written to at the end of the step: it is looked at",
    "node/amqp/links/address_end.py:AddressEnd.incoming": "what the next run costs, the link's own",
    "node/amqp/peers/peer.py:Peer._take_in": "the connection's own",
    "node/amqp/peers/peer.py:Peer.keep": "the connection's own",
    "node/cluster/membership/relay.py:Relay.incoming": "the connection's own",
    "node/broker/termini.py:Termini.attach": "the connection's own",
    "node/amqp/peers/coordinator.py:Transactions.requested": "the connection's own",
    "node/amqp/peers/peer.py:Peer.handle_events": "its own: what it held is in Unsettled and in events, which say so",
    "node/amqp/listeners/accepted_peer.py:AcceptedPeer._logged_in": "the connection's own, and a counter",
    "node/amqp/listeners/accepted_peer.py:AcceptedPeer._opened": "the connection's own",
    "node/amqp/listeners/open_answer.py:answer": "the connection's own",
    "node/cluster/membership/cluster.py:Cluster.greet": "the connection's own",
    "node/amqp/listeners/stolen_links.py:Stealing.attach": "goes with its link; the end of another link says so itself",
    "node/broker/termini.py:Termini._producer": "the link's own, which ends with the connection",
}


def is_exempt(function: Function) -> bool:
    return function.key in EXEMPT or function.key.partition(":")[0] in EXEMPT


@pytest.mark.slow
def test_every_mutator_says_that_it_touches() -> None:
    silent = [each for each in found()[1] if not is_exempt(each)]
    assert not [f"{each.key}: {each.mutations}" for each in silent]


@pytest.mark.slow
def test_nothing_is_exempt_that_need_not_be() -> None:
    needed = {name for each in found()[1] for name in (each.key, each.key.partition(":")[0])}
    assert not sorted(set(EXEMPT) - needed)


def test_whoever_is_said_to_be_outside_is_there() -> None:
    assert {each.key for each in found()[0]} >= OUTSIDE


@cache
def found() -> tuple[list[Function], list[Function]]:
    """All functions, and those with a mutation that nobody answers for."""
    own = set(files_of(ROOMS))
    everything = functions(sorted(own | set(files_of(("amqp",)))))
    return everything, [each for each in unanswered(everything, OUTSIDE) if each.file in own]
