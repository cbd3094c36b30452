"""Attaches: what a sender or receiver asks of a broker (AMQP 1.0 §2.6.3, §3.5; names of subscriptions as Artemis's)."""

from __future__ import annotations

from typing import Any, Final

from mqbroker.client.errors import UriFault
from mqbroker.client.options import ReceiverTerms, SenderTerms
from mqbroker.wire.performatives import (
    SETTLE_FIRST,
    SETTLE_SECOND,
    SETTLE_SETTLED,
    SETTLE_UNSETTLED,
    Attach,
    Coordinator,
    Source,
    Target,
)
from mqbroker.wire.types import Described, Symbol, ULong

OUTCOMES: Final = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))
SELECTOR: Final = Symbol("apache.org:selector-filter:string")
SELECTOR_CODE: Final = ULong(0x0000468C_00000004)
NO_LOCAL: Final = Symbol("apache.org:no-local-filter:list")
NO_LOCAL_CODE: Final = ULong(0x0000468C_00000003)
DELETE_ON_CLOSE: Final = Described(ULong(0x2B), [])
NEVER, COPY, SESSION_END = Symbol("never"), Symbol("copy"), Symbol("session-end")
DURABLE: Final = 2
CREDIT_MAX: Final = 1 << 20


def sender_attach(name: str, terms: SenderTerms) -> Attach:
    """The attach of a link on which we send to `terms.address`."""
    target = Target(address=terms.address or None, capabilities=_routing(terms.topic) or None)
    return Attach(
        name=name, handle=0, role=False, snd_settle_mode=SETTLE_SETTLED if terms.settled else SETTLE_UNSETTLED,
        source=Source(outcomes=OUTCOMES), target=target, initial_delivery_count=0,
    )  # fmt: skip


def coordinator_attach(name: str) -> Attach:
    """A link on which transactions are begun and ended (§4.2)."""
    target = Coordinator(capabilities=(Symbol("amqp:local-transactions"),))
    return Attach(name=name, handle=0, role=False, snd_settle_mode=SETTLE_UNSETTLED,
                  source=Source(outcomes=OUTCOMES), target=target, initial_delivery_count=0)  # fmt: skip


def receiver_attach(name: str, terms: ReceiverTerms, max_message_size: int) -> Attach:
    """A link on which we receive."""
    properties = {Symbol("priority"): terms.priority} if terms.priority else None
    return Attach(
        name=name, handle=0, role=True, snd_settle_mode=SETTLE_SETTLED if terms.settled else SETTLE_UNSETTLED,
        rcv_settle_mode=SETTLE_SECOND if terms.confirm else SETTLE_FIRST, source=_source(terms),
        target=Target(address=name), max_message_size=max_message_size, properties=properties,
    )  # fmt: skip


def receiver_name(handle: int, terms: ReceiverTerms) -> str:
    """The name of a subscription's link is the subscription's; behind `|` stands what keeps shared ones apart."""
    if not terms.subscription:
        return f"receiver-{handle}"
    return f"{terms.subscription}|{handle}" if terms.shared or terms.shared_globally else terms.subscription


def checked_receiver(terms: ReceiverTerms, *, has_container_id: bool) -> ReceiverTerms:
    """The same terms. Raises UriFault where they contradict each other."""
    if not 1 <= terms.credit <= CREDIT_MAX:
        raise UriFault(f"credit {terms.credit}: from 1 to {CREDIT_MAX} messages are possible")
    if terms.settled and terms.confirm:
        raise UriFault("settled and confirm: what is settled by the broker needs no confirmation; choose one")
    if terms.browse and (terms.settled or terms.confirm or terms.subscription):
        raise UriFault("browse is for queues, and its copies are not settled: leave out settled, confirm, subscription")
    if (terms.shared or terms.shared_globally) and not terms.subscription:
        raise UriFault("shared needs the name of the subscription that is shared: subscription=…")
    if "|" in terms.subscription:
        raise UriFault(f"subscription {terms.subscription!r}: a name has no |, which separates what brokers add")
    if terms.subscription and not terms.shared_globally and not has_container_id:
        raise UriFault(f"subscription {terms.subscription!r} belongs to a container: connect with a container_id")
    return terms


def _routing(topic: bool | None) -> tuple[Symbol, ...]:
    return () if topic is None else (Symbol("topic"),) if topic else (Symbol("queue"),)


def _source(terms: ReceiverTerms) -> Source:
    if terms.temporary:
        return Source(dynamic=True, outcomes=OUTCOMES, capabilities=(Symbol("temporary-queue"),),
                      dynamic_node_properties={Symbol("lifetime-policy"): DELETE_ON_CLOSE})  # fmt: skip
    capabilities = _routing(True if terms.subscription and terms.topic is None else terms.topic)
    if terms.shared or terms.shared_globally:
        capabilities += (Symbol("shared"),)
    if terms.shared_globally:
        capabilities += (Symbol("global"),)
    is_durable = terms.outlives_its_link
    return Source(
        address=terms.address, durable=DURABLE if is_durable else 0, expiry_policy=NEVER if is_durable else SESSION_END,
        distribution_mode=COPY if terms.browse or is_durable else None, filter=_filters(terms) or None,
        outcomes=OUTCOMES, capabilities=capabilities or None,
    )  # fmt: skip


def _filters(terms: ReceiverTerms) -> dict[Symbol, Any]:
    filters: dict[Symbol, Any] = {}
    if terms.selector:
        filters[SELECTOR] = Described(SELECTOR_CODE, terms.selector)
    if terms.no_local:
        filters[NO_LOCAL] = Described(NO_LOCAL_CODE, [])
    return filters
