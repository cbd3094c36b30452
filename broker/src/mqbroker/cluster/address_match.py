"""Which addresses a cluster connection is for: its option `address`.

Plain items are beginnings of names, any of them is enough; items with `!` exclude and always win; with exclusions alone
everything else matches; empty items count for nothing. There are no wildcards. Internal addresses never match.
"""

from __future__ import annotations

from typing import Final

from mqbroker.config.matching import address_items

INTERNAL: Final = "$."


def is_internal(name: str) -> bool:
    """Whether an address or a queue is one of the broker's own, of which nobody is told."""
    return name.startswith(INTERNAL)


class AddressPrefixes:
    """An option `address`, read once."""

    __slots__ = ("_excluded", "_included", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        included, excluded = address_items(text)
        self._included = included or ("",)
        self._excluded = (INTERNAL, *excluded)

    def matches(self, address: str) -> bool:
        """Whether the connection is for this address."""
        return address.startswith(self._included) and not address.startswith(self._excluded)

    def __repr__(self) -> str:
        return f"AddressMatch({self.text!r})"
