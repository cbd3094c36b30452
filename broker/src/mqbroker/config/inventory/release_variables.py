"""Variables of an inventory that the role `release` takes: they have no prefix, so nothing else looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mqbroker.base.errors import ConfigFault

KEEP: Final = "release_keep"
KEPT: Final = 3
KEPT_MIN: Final = 2  # the one before is what `current` goes back to


def releases_kept(variables: Mapping[str, Any]) -> int:
    """So many releases stay on a host. Raises ConfigFault, also for a template: a plan counts with it."""
    said = variables.get(KEEP, KEPT)
    text = str(said).strip()
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= KEPT_MIN:
        return int(text)
    raise ConfigFault(KEEP, f"must be a whole number, {KEPT_MIN} or more, is {said!r}")


def found_faults(variables: Mapping[str, Any]) -> list[ConfigFault]:
    """What is wrong with these variables of one host; empty: nothing."""
    try:
        releases_kept(variables)
    except ConfigFault as fault:
        return [fault]
    return []
