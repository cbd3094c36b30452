"""The whole broker on a disk that fails: it ends at once, tries nothing again, and what it acknowledged is there.

Its journal is on the FUSE disk that keeps only what was synced; identity and users are elsewhere.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqbroker.io.files import durable_files
from mqbroker.wire.performatives import Close, Open

from tests.support import frames
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S
from tests.system.bad_input.peer import Peer

from .lossy_fs import LossyDisk

pytestmark = pytest.mark.system

EXIT_STORAGE = 74
EXIT_UNUSABLE = 6


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyDisk]:
    with LossyDisk(tmp_path_factory.mktemp("lossy")) as disk:
        yield disk


@pytest.fixture
def broker(disk: LossyDisk, tmp_path: Path) -> Iterator[BrokerProcess]:
    """It has acknowledged some messages on this disk."""
    broker = BrokerProcess(tmp_path / "broker")
    broker.prepare()
    disk.power_cut()
    disk.leave("lost", 0)
    place = disk.mountpoint / "journal"
    place.mkdir()
    durable_files.sync_directory(disk.mountpoint)
    (broker.data_directory / "journal").symlink_to(place)
    with broker:
        for number in range(20):
            send(broker, f"before {number}")
        wait_until_the_next_file_is_made(disk)
        yield broker


def wait_until_the_next_file_is_made(disk: LossyDisk) -> None:
    """It is made beside the others, where a failure ends nothing: calls must not be counted there."""
    deadline_s = time.monotonic() + PATIENCE_S
    before, now = {}, disk.order("calls")
    while before != now:
        assert time.monotonic() < deadline_s
        time.sleep(0.5)
        before, now = now, disk.order("calls")


def send(broker: BrokerProcess, body: str) -> None:
    assert broker.admin("send", address="orders", messages=[{"body": body, "durable": True}]) == {"accepted": 1}


def send_until_it_ends(broker: BrokerProcess) -> list[str]:
    """What was acknowledged."""
    done: list[str] = []
    try:
        for number in range(1000):
            send(broker, f"later {number}")
            done.append(f"later {number}")
    except (OSError, ValueError):
        return done
    raise AssertionError("it did not end")


def found_after_power_cut(broker: BrokerProcess, disk: LossyDisk) -> list[str]:
    """The messages after a power cut, on a disk that is well."""
    disk.power_cut()
    stored = disk.leave("lost", 1) / "journal"
    link = broker.data_directory / "journal"
    link.unlink()
    shutil.copytree(stored, link)
    broker.start()
    answer = broker.admin("receive", address="orders", count_max=10_000, wait_ms=1)
    return [message["body"] for message in answer["messages"]]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("kind", ["write", "fsync"])
def test_one_failure_is_the_end(disk: LossyDisk, broker: BrokerProcess, kind: str, code: int) -> None:
    """The call that follows would succeed, so a broker that tried again would go on."""
    disk.arm(kind, 10, "error", code=code)
    acknowledged = send_until_it_ends(broker)
    assert broker.wait() == EXIT_STORAGE
    assert disk.order("calls")[kind] == 10, "nothing was tried again"
    assert "storage-failed" in broker.log
    assert os.strerror(code) in broker.log
    assert "Traceback" not in broker.log
    found = found_after_power_cut(broker, disk)
    expected = [f"before {number}" for number in range(20)] + acknowledged
    assert found[: len(expected)] == expected
    assert len(found) <= len(expected) + 1, "what was under way may be there"


@pytest.mark.parametrize("number", [3, 11])
def test_a_power_cut_takes_nothing_that_was_acknowledged(disk: LossyDisk, broker: BrokerProcess, number: int) -> None:
    disk.arm("fsync", number, "lost")
    acknowledged = send_until_it_ends(broker)
    assert broker.wait() == EXIT_STORAGE
    found = found_after_power_cut(broker, disk)
    assert found[: 20 + len(acknowledged)] == [f"before {n}" for n in range(20)] + acknowledged


def stays(broker: BrokerProcess, name: str) -> bool:
    """Whether a client of this name is not sent elsewhere."""
    with Peer(broker) as peer:
        peer.send(frames.plain(broker.user, broker.password) + frames.opened(container_id=name) + frames.close())
        peer.wait_for(Open)
        (close,) = peer.wait_for(Close)
        assert close.error is None or str(close.error.condition) == "amqp:connection:redirect"
        return close.error is None


def test_a_power_cut_takes_no_route_of_a_client_that_something_on_disk_came_after(
    disk: LossyDisk, broker: BrokerProcess
) -> None:
    broker.stop()
    with socket.create_server(("127.0.0.1", 0)) as other:
        router = {
            "name": "spread", "key-type": "CLIENT_ID", "static-connectors": ["other"], "local-target-enabled": True,
            "quorum-size": 2, "quorum-timeout": 90_000, "check-period": 3_600_000,
            "cache-timeout": 0, "cache-persisted": True,
        }  # fmt: skip
        place = {"name": "other", "host": "127.0.0.1", "port": other.getsockname()[1]}
        broker.options, broker.listener = {"connectors": [place], "connection-routers": [router]}, {"router": "spread"}
        broker.start()
        before = {name: stays(broker, name) for name in "abcd"}
        assert sorted(before.values()) == [False, False, True, True]
        send(broker, "after them")
        broker.kill()
        assert found_after_power_cut(broker, disk)[-1] == "after them"
        assert {name: stays(broker, name) for name in reversed("abcd")} == before


def test_a_slow_disk_holds_up_its_acknowledgements_and_nothing_else(disk: LossyDisk, broker: BrokerProcess) -> None:
    """A slow sync after quick ones may hold up all for once; and this machine may stall. So it has some attempts, each
    of which has more time."""
    for delay_s in (2.0, 4.0, 8.0, 16.0, 32.0):
        disk.arm("fsync", 1, "delay", delay_s=delay_s)
        waiting = threading.Thread(target=send, args=(broker, f"slow {delay_s}"))
        started_s = time.monotonic()
        waiting.start()
        while not disk.order("calls").get("fsync") and waiting.is_alive():
            time.sleep(0.01)
        assert broker.admin("status")["state"] == "active"
        went_on = waiting.is_alive()
        waiting.join()
        assert time.monotonic() - started_s >= delay_s, "nothing is acknowledged while its sync hangs"
        if went_on:
            break
    else:
        raise AssertionError("nobody was served while the disk was busy")
    broker.kill()
    assert found_after_power_cut(broker, disk)[-1] == f"slow {delay_s}"


def test_a_bit_that_flips_is_found_at_the_next_start(disk: LossyDisk, broker: BrokerProcess) -> None:
    broker.kill()
    disk.power_cut()
    # The next file may have been made ahead.
    file = min((disk.leave("lost", 1) / "journal").glob("journal-*.mqj"))
    content = bytearray(file.read_bytes())
    content[content.index(b"before 7")] ^= 1
    file.write_bytes(content)
    link = broker.data_directory / "journal"
    link.unlink()
    shutil.copytree(file.parent, link)
    broker.launch()
    assert broker.wait() == EXIT_UNUSABLE
    assert f"{file.name} at byte " in broker.log
    assert (link / file.name).read_bytes() == content, "and nothing is changed"
