"""Who has how many queues and addresses, and how many they may have."""

from __future__ import annotations

from typing import Any

from mqbroker.admin import listing
from mqbroker.core.address.quotas import ADDRESSES, QUEUES
from mqbroker.node.broker.broker import Broker
from mqbroker.node.values.inputs import AdminRequest


def show_all(broker: Broker, request: AdminRequest) -> None:
    """`quotas`: one object for each user that has made any of what is there. A bound of null: none of its own."""
    quotas = broker.store.quotas

    def rows_of(user: str) -> list[dict[str, Any]]:
        share = quotas.users.get(user)
        if share is None:
            return []
        return [
            {
                "user": user,
                "queues": share.queues,
                "queues_max": _shown(quotas.per_user[QUEUES]),
                "addresses": share.addresses,
                "addresses_max": _shown(quotas.per_user[ADDRESSES]),
            }
        ]

    listing.answer(broker, request, sorted(quotas.users), rows_of)


def _shown(bound: int) -> int | None:
    return None if bound < 0 else bound
