"""The table of failures: who counts as one, how long it remembers, how large it gets."""

from __future__ import annotations

import pytest
from mqbroker.base.time import NS_PER_MS
from mqbroker.node.values.login_delays import ENTRIES_MAX, FORGOTTEN_MS, WAITING_MAX, LoginDelays, network_of

APP = ("192.0.2.1", "app")


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("192.0.2.1:5000", "192.0.2.1"),
        ("[2001:db8:1:2:3::4]:5000", "2001:db8:1:2::/64"),
        ("[fe80::1%eth0]:5000", "fe80::/64"),
        ("[::1]:5000", "::/64"),
        ("client-7", "client-7"),
    ],
)
def test_networks(peer: str, network: str) -> None:
    assert network_of(peer) == network


def test_delays_double_up_to_their_bound() -> None:
    delays = LoginDelays()
    found = []
    for _ in range(9):
        found.append(delays.decided(APP, False, 0))
        delays.told(APP, False)
    expected_ms = [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]
    assert found == [each * NS_PER_MS for each in expected_ms]
    assert delays.decided(APP, True, 0) == 5000 * NS_PER_MS
    assert delays.decided(("192.0.2.2", "app"), True, 0) == 0
    assert delays.decided(("192.0.2.1", "other"), True, 0) == 0


def test_a_good_login_leaves_no_trace() -> None:
    delays = LoginDelays()
    assert delays.decided(APP, True, 0) == 0
    assert len(delays) == 0


def test_more_than_a_few_do_not_wait() -> None:
    delays = LoginDelays()
    assert None not in [delays.decided(APP, False, 0) for _ in range(WAITING_MAX)]
    assert delays.decided(APP, False, 0) is None
    assert delays.decided(APP, True, 0) is None
    delays.told(APP, False)
    assert delays.decided(APP, True, 0) is not None


def test_entries_are_bounded_by_number_and_age() -> None:
    delays = LoginDelays()
    for number in range(ENTRIES_MAX + 50):
        delays.decided(("192.0.2.1", str(number)), False, number)
    assert len(delays) == ENTRIES_MAX
    assert delays.decided(("192.0.2.1", "0"), True, ENTRIES_MAX + 50) == 0, "the oldest went first"
    delays.told(("192.0.2.1", "0"), False)
    assert delays.decided(APP, True, ENTRIES_MAX + 50 + FORGOTTEN_MS * NS_PER_MS) == 0
    assert len(delays) == 0
