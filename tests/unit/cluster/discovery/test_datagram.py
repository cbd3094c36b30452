"""Datagrams: only whole ones of the same secret are believed, and no bytes can do harm."""

from __future__ import annotations

import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqbroker.base.errors import Bug
from mqbroker.cluster.discovery.announcement import Connector
from mqbroker.cluster.discovery.datagram import DATAGRAM_BYTES_MAX, Drop, derive_key, seal, unseal

from tests.unit.cluster.discovery.sayings import KEY, said

GOOD = seal(said(), KEY)


def signed(body: bytes, key: bytes = KEY) -> bytes:
    """With the MAC that belongs to it, as somebody who has the secret could send it."""
    return body + hmac.digest(key, body, "sha256")


def test_what_is_sealed_is_unsealed_and_fits_an_ethernet_frame() -> None:
    assert unseal(GOOD, KEY) == said()
    assert DATAGRAM_BYTES_MAX <= 1500 - 28


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", Drop.LENGTH),
        (b"\0" * 6, Drop.LENGTH),
        (b"\0" * 200, Drop.MAGIC),
        (b"\0" * DATAGRAM_BYTES_MAX, Drop.MAGIC),
        (b"MQPF\1" + b"x" * 100, Drop.PROBE),
        (GOOD[:6], Drop.LENGTH),
        (GOOD[:-1], Drop.LENGTH),
        (GOOD + b"\0", Drop.LENGTH),
        (GOOD * 2, Drop.LENGTH),
        (b"MQDG\1\xff\xff" + b"x" * (65_535 + 32), Drop.LENGTH),
        (GOOD[:4] + b"\2" + GOOD[5:], Drop.VERSION),
        (GOOD[:4] + b"\2", Drop.LENGTH),
        (b"MQDG\2\0\0", Drop.VERSION),
        (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), Drop.MAC),
        (GOOD[:20] + bytes([GOOD[20] ^ 1]) + GOOD[21:], Drop.MAC),
        (seal(said(), b"x" * 32), Drop.MAC),
        (signed(b"MQDG\1\0\0"), Drop.CONTENT),
        (signed(b"MQDG\1\0\2{}"), Drop.CONTENT),
        (signed(b"MQDG\1\0\2{}", b""), Drop.MAC),
    ],
)
def test_what_is_dropped_and_why(data: bytes, why: Drop) -> None:
    assert unseal(data, KEY) is why


def test_every_changed_byte_is_noticed() -> None:
    for place in range(len(GOOD)):
        changed = GOOD[:place] + bytes([GOOD[place] ^ 0x40]) + GOOD[place + 1 :]
        assert isinstance(unseal(changed, KEY), Drop), place


def test_an_entry_without_connectors_is_refused() -> None:
    assert unseal(seal(said(connectors=()), KEY), KEY) is Drop.CONTENT


def test_what_fits_no_datagram_is_our_own_fault() -> None:
    with pytest.raises(Bug):
        seal(said(connectors=(Connector("a", "amqp", "h" * 250, 1),) * 8), KEY)


def test_keys_differ_where_secrets_do() -> None:
    one, other = derive_key("0123456789abcdef"), derive_key("0123456789abcdeg")
    assert (len(one), one == derive_key("0123456789abcdef"), one == other) == (32, True, False)
    assert unseal(seal(said(), one), other) is Drop.MAC


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.binary(max_size=1600))
def test_any_bytes_are_dropped(data: bytes) -> None:
    assert isinstance(unseal(data, KEY), Drop)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=1400))
def test_any_text_of_who_has_the_secret_is_dropped(text: bytes) -> None:
    assert unseal(signed(b"MQDG\1" + len(text).to_bytes(2, "big") + text), KEY) is Drop.CONTENT


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, len(GOOD)), st.integers(0, len(GOOD)), st.binary(max_size=8))
def test_any_splice_is_dropped_or_the_same(start: int, end: int, put: bytes) -> None:
    data = GOOD[:start] + put + GOOD[end:]
    assert isinstance(unseal(data, KEY), Drop) or data == GOOD
