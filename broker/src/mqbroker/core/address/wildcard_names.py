"""Names that stand for many addresses: `news.*`, `news.#`. The syntax is that of the settings (config/matching.py)."""

from __future__ import annotations

from mqbroker.base.errors import Refused
from mqbroker.config.matching import ANY_WORD, ANY_WORDS, DELIMITER
from mqbroker.core.queue.kinds import INTERNAL_PREFIX


def has_wildcards(name: str) -> bool:
    """Whether it stands for all addresses that match it."""
    if ANY_WORD not in name and ANY_WORDS not in name:
        return False
    is_internal = name.startswith(INTERNAL_PREFIX)
    return not is_internal and any(word in (ANY_WORD, ANY_WORDS) for word in name.split(DELIMITER))


def check_is_one(name: str) -> None:
    """Raises Refused where somebody would send to all addresses that match a name."""
    if has_wildcards(name):
        why = f"address {name!r} has wildcards: what is sent to an address that matches it comes there; send to one"
        raise Refused("amqp:not-allowed", why)
