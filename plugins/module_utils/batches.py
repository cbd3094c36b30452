# Copyright: mqops maintainers
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Hosts of which several are changed at a time: by name, and never two of one rack in a batch.

A rack is what falls out together, and one host of it at a time is as much as its neighbours are to miss. By name, since
whoever judges batches beforehand has to come to the same ones: in a play hosts stand as groups and forks have put them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def batches(
    hosts: Sequence[str], racks: Mapping[str, str], size: object = "", *, is_canary_first: bool = False
) -> list[int]:
    """How many of the hosts, sorted by name, are in each batch. `racks`: host -> rack, or empty; `size`: N or P%, empty
    for 1. `is_canary_first`: the first one is alone, whatever the size."""
    count = count_of(size, len(hosts))
    counts: list[int] = []
    rack_names: set[str] = set()
    for host in sorted(hosts):
        rack = racks.get(host) or ""
        is_canary = is_canary_first and len(counts) == 1
        if not counts or is_canary or counts[-1] >= count or (rack and rack in rack_names):
            counts.append(0)
            rack_names = set()
        counts[-1] += 1
        rack_names.add(rack)
    return counts


def count_of(size: object, total: int) -> int:
    """Hosts in a batch at most; of a percentage at least one."""
    text = str(size or 1)
    if text.endswith("%"):
        return max(1, total * int(text[:-1]) // 100)
    return max(1, int(text))
