"""The certificates in use are looked at again by themselves, until that is stopped."""

from __future__ import annotations

import asyncio
import io
import time

import pytest
from mqbroker.config.lifetimes import DAY_S
from mqbroker.io.loop.log import Log, LogShape
from mqbroker.io.sockets import certificate_watch
from mqbroker.io.sockets.certificate_watch import CertificateWatch
from mqbroker.node.values.inputs import CertificateExpiry, CertificatesInUse, Input

from tests.unit.io.conftest import until


def test_what_ends_later_is_found_by_a_later_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_watch, "LOOK_PERIOD_S", 0.01)
    text, looks = io.StringIO(), 0
    posted: list[Input] = []
    endings = [CertificateExpiry("clients", "tls-certificate-file", "/c.pem", 0, int(time.time()) + 31 * DAY_S)]

    def in_use() -> list[CertificateExpiry]:
        nonlocal looks
        looks += 1
        return endings

    async def story() -> None:
        watch = CertificateWatch(in_use, posted.append, Log(text, LogShape.PLAIN))
        watch.look()
        assert (looks, text.getvalue()) == (1, "")
        assert posted == [CertificatesInUse(tuple(endings))]
        endings[:] = [endings[0]._replace(not_after_s=int(time.time()) + 20 * DAY_S)]
        await until(lambda: looks >= 4)
        watch.stop()
        seen = looks
        assert posted[-1] == CertificatesInUse(tuple(endings)) != posted[0]
        await asyncio.sleep(0.05)
        assert looks == seen

    asyncio.run(story())
    (line,) = text.getvalue().splitlines()
    assert "WARNING certificate-expires listener=clients" in line
