"""One sum, whoever computes it."""

from __future__ import annotations

import runpy
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqbroker.base import checksum


@given(st.binary(max_size=5000), st.integers(0, 2**32 - 1))
def test_it_is_the_sum_of_zlib(content: bytes, start: int) -> None:
    assert checksum.crc32(content, start) == zlib.crc32(content, start)
    assert checksum.crc32(memoryview(content)) == zlib.crc32(content)
    assert checksum.crc32(content[2000:], checksum.crc32(content[:2000])) == zlib.crc32(content)


def test_a_mebibyte_is_summed_as_by_zlib() -> None:
    content = bytes(range(256)) * 4096
    assert checksum.crc32(bytearray(content)) == zlib.crc32(content)


def test_isal_is_what_computes_it_here() -> None:
    assert checksum.crc32.__module__ == "isal.isal_zlib"


def test_without_isal_zlib_computes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    assert runpy.run_path(checksum.__file__)["crc32"] is zlib.crc32
