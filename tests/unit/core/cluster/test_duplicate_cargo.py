"""Ids of duplicate detection on their way to another node, as bytes."""

from __future__ import annotations

import pytest
from mqbroker.core.cluster.duplicate_cargo import packed, unpacked


@pytest.mark.parametrize("ids", [[], [b""], [b"a", b"\x00" * 300, b"\xff"]])
def test_there_and_back(ids: list[bytes]) -> None:
    assert unpacked(packed("orders/\u00e4", ids)) == ("orders/\u00e4", ids)


@pytest.mark.parametrize("cut", range(1, 20))
def test_what_ends_too_early_or_is_no_text_is_refused(cut: int) -> None:
    whole = packed("orders", [b"12345"])
    assert len(whole) == 19
    if 19 - cut != len(packed("orders", [])):
        with pytest.raises(ValueError, match=r".+"):
            unpacked(whole[: 19 - cut])
    with pytest.raises(ValueError, match=r"."):
        unpacked(b"\x00\x00\x00\x01\xff")
