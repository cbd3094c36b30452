"""What a broker says of the ends of its certificates, in words: for `status` and `check`.

The broker judges, by the days of its log and its alerts; nothing is said of what lasts long enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mqctl.output import counted


def soon_ending(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """`warning` or `error`, and a sentence, for each that has little time left. Older brokers say nothing of theirs."""
    for one in status.get("certificates") or []:
        if one["state"] == "ok":
            continue
        days = one["days_left"]
        end = f"ends in {counted(days, 'day')}" if days > 0 else "ends today" if days == 0 else "has ended"
        yield one["state"], f"{one['option']} of listener {one['listener']} {end} ({one['not_after']})"
