"""Hosts in batches, of which none has two of one rack."""

from __future__ import annotations

import pytest
from ansible_collections.mqops.cluster.plugins.filter.batches import batches

RACKS = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "", "c2": ""}


@pytest.mark.parametrize(
    ("hosts", "size", "counts"),
    [
        ([], "2", []), (["a1"], "", [1]), (["a1", "b1", "c1"], "", [1, 1, 1]), (["a1", "b1", "c1"], 1, [1, 1, 1]),
        (["a1", "a2", "b1", "b2"], "2", [1, 2, 1]), (["b2", "a1", "b1", "a2"], "2", [1, 2, 1]),
        (["a1", "b1", "a2", "b2"], "100%", [1, 2, 1]), (["c1", "c2"], "2", [2]),
        (["c1", "c2", "a2", "a1"], "4", [1, 3]),
        (["a1", "b1", "c1", "c2"], "50%", [2, 2]), (["a1", "b1", "c1"], "1%", [1, 1, 1]),
    ],
)  # fmt: skip
def test_no_batch_has_two_of_one_rack(hosts: list[str], size: str, counts: list[int]) -> None:
    hostvars = {name: {"mq_rack": rack} if rack else {} for name, rack in RACKS.items()}
    assert batches(hosts, hostvars, size) == counts


@pytest.mark.parametrize(
    ("hosts", "size", "counts"),
    [
        ([], "2", []), (["a1"], "100%", [1]), (["a1", "b1", "c1"], "", [1, 1, 1]), (["c2", "c1", "a1"], "100%", [1, 2]),
        (["a1", "a2", "b1", "c1"], "3", [1, 3]), (["a1", "b1", "b2", "c1", "c2"], "2", [1, 1, 2, 1]),
    ],
)  # fmt: skip
def test_a_canary_is_alone_whatever_the_size(hosts: list[str], size: str, counts: list[int]) -> None:
    hostvars = {name: {"mq_rack": rack} if rack else {} for name, rack in RACKS.items()}
    assert batches(hosts, hostvars, size, "true") == counts
