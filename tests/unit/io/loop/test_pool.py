"""Hashing off the loop: right results, one completion each, a bound."""

from __future__ import annotations

import hashlib
import queue

import pytest
from mqbroker.io.loop.pool import DerivePool
from mqbroker.node.values.effects import Derive
from mqbroker.node.values.inputs import Done, Failed

from tests.support.patience import PATIENCE_S

WAIT_S = PATIENCE_S


def test_each_effect_comes_back_once_with_the_derived_key() -> None:
    results: queue.Queue[Done | Failed] = queue.Queue()
    pool = DerivePool(results.put)
    for number in range(20):
        pool.submit(Derive(number, "sha256", f"secret-{number}".encode(), b"salt", 10))
    got = {item.id: item for item in (results.get(timeout=WAIT_S) for _ in range(20))}
    for number in range(20):
        expected = hashlib.pbkdf2_hmac("sha256", f"secret-{number}".encode(), b"salt", 10)
        assert got[number] == Done(number, expected)
    pool.close()
    assert results.empty()


def test_what_cannot_be_derived_fails_and_the_thread_lives_on() -> None:
    results: queue.Queue[Done | Failed] = queue.Queue()
    pool = DerivePool(results.put, threads=1)
    pool.submit(Derive(1, "no-such-hash", b"p", b"s", 1))
    pool.submit(Derive(2, "sha256", b"p", b"s", 0))
    pool.submit(Derive(3, "sha256", b"p", b"s", 1))
    got = [results.get(timeout=WAIT_S) for _ in range(3)]
    assert [type(item) for item in got] == [Failed, Failed, Done]
    pool.close()


@pytest.mark.slow
def test_a_flood_fails_at_once_instead_of_growing() -> None:
    results: queue.Queue[Done | Failed] = queue.Queue()
    pool = DerivePool(results.put, threads=1, queue_max=4)
    for number in range(50):
        pool.submit(Derive(number, "sha256", b"p", b"s", 200_000))
    got = [results.get(timeout=WAIT_S) for _ in range(50)]
    refused = [item for item in got if isinstance(item, Failed)]
    # One may be taken out of the queue at any moment, so up to a few more than the queue holds get through.
    assert len(refused) >= 40
    assert {item.why for item in refused} == {"too many logins are being checked at once; try again"}
    assert len({item.id for item in got}) == 50
    pool.close()


def test_passwords_do_not_show() -> None:
    assert "hunter2" not in repr(Derive(1, "sha256", b"hunter2", b"salt-bytes"))
