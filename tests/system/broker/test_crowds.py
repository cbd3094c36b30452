"""Crowds: peers that are many and silent, or that do not read. Each costs bounded memory, and others work meanwhile."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mqbroker.wire.performatives import Attach, Source, Target
from mqbroker.wire.types import Symbol

from tests.support import frames
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_S, wait_until
from tests.system.bad_input.peer import BUSY_S, CLOSE_S_MAX, Bystander

Make = Callable[..., BrokerProcess]

KIB = 1 << 10
CROWD = 5000
SHAKEN = CROWD if "SOAK" in os.environ else 1000  # handshakes take their time
CROWD_BYTES_MAX = 1331 << 20  # 1.3 GiB, for the whole process
PATIENT_MS = 600_000  # no deadline ends them meanwhile


def allow_descriptors(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))


def wait_for_descriptors(broker: BrokerProcess, count: int) -> None:
    """Until the process has at least so many: a peer before its TLS handshake is no connection yet."""
    wait_until(lambda: len(os.listdir(f"/proc/{broker.pid}/fd")) >= count, f"{count} descriptors")


# Whether there is TLS, whether they shake hands before they fall silent, how many they are, and what each may cost.
SILENT = {
    "plain": (False, False, CROWD, 64 * KIB),
    "before the handshake": (True, False, CROWD, 64 * KIB),
    "behind the handshake": (True, True, SHAKEN, 256 * KIB),
}


@pytest.mark.parametrize(("has_tls", "shakes_hands", "count", "bytes_max"), SILENT.values(), ids=SILENT)
def test_silent_connections_cost_little_and_disturb_nobody(
    make_broker: Make, tmp_path: Path, has_tls: bool, shakes_hands: bool, count: int, bytes_max: int
) -> None:
    allow_descriptors(2 * CROWD)
    authority = Authority(tmp_path / "ca") if has_tls else None
    patient = {"login-timeout-ms": PATIENT_MS, "tls-handshake-timeout-ms": PATIENT_MS, "idle-timeout-ms": PATIENT_MS}
    broker = make_broker(
        listener=patient | (authority.listener() if authority else {}), tls=authority.client() if authority else None
    )
    broker.start()
    with Bystander(broker) as bystander:
        bystander.work()
        before, started_s = broker.rss_bytes(), time.monotonic()
        place = (broker.host, broker.port)
        socks = [
            broker.connect() if shakes_hands else socket.create_connection(place, PATIENCE_S) for _ in range(count)
        ]
        wait_for_descriptors(broker, count)
        took_s, grown = time.monotonic() - started_s, broker.rss_bytes() - before
        waited_s = max(bystander.timed_work() for _ in range(20))
        each = f"{grown / count / KIB:.1f} KiB each, {before / 2**20:.0f} MiB before"
        print(f"{count} connections: {took_s:.2f} s, {each}; others wait {waited_s * 1000:.0f} ms at most")
        assert waited_s < BUSY_S
        assert grown < count * bytes_max
        assert before + grown * CROWD // count < CROWD_BYTES_MAX
        for sock in socks:
            sock.close()
        broker.wait_for_connections(1)
        bystander.work()
    assert "Traceback" not in broker.log


READER_BYTES_MAX = 1 << 20
BROWSING = Attach(name="r", handle=1, role=True, snd_settle_mode=1, target=Target(),
                  source=Source(address="orders", distribution_mode=Symbol("copy")))  # fmt: skip


@pytest.mark.one_day_in_three(2)
def test_a_thousand_readers_that_do_not_read_cost_little_and_disturb_nobody(make_broker: Make) -> None:
    """Each may have 8 MB at once, by credit and by window, and takes nothing of it."""
    allow_descriptors(3000)
    broker = make_broker(listener={"sasl-mechanisms": ["ANONYMOUS", "PLAIN"], "idle-timeout-ms": PATIENT_MS})
    broker.start()
    for _ in range(20):
        broker.admin("send", address="orders", messages=[{"body": "x" * 8000, "durable": False}] * 50)
    hello = frames.anonymous() + frames.opened() + frames.begun(incoming_window=1 << 30) + frames.frame(BROWSING)
    with Bystander(broker) as bystander:
        bystander.work()
        before = broker.rss_bytes()
        socks = [broker.connect() for _ in range(1000)]
        for sock in socks:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(hello + frames.flow(1, 100_000, window=1 << 30))
        deadline_s = time.monotonic() + 240
        row = {"id": 1, "op": "consumers", "args": {"queue": "orders"}}
        while len(broker.admin_row(row)["result"]["consumers"]) < 1000:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        # As they come, all of them log in and are given what there is: that takes seconds of the processor.
        grown, since_s, waits = 0, time.monotonic(), [BUSY_S]
        while max(waits[-5:]) >= CLOSE_S_MAX or time.monotonic() < since_s + 2:
            assert time.monotonic() < deadline_s, waits
            if (now := broker.rss_bytes() - before) > grown:
                grown, since_s = now, time.monotonic()
            waits.append(bystander.timed_work())
            assert grown < 1000 * READER_BYTES_MAX
            time.sleep(0.05)
        told = f"others wait {max(waits[1:]) * 1000:.0f} ms at first, {waits[-1] * 1000:.0f} ms then"
        print(f"1,000 readers: {grown / 1000 / KIB:.0f} KiB each; {told}")
        for sock in socks:
            sock.close()
        broker.wait_for_connections(1)
