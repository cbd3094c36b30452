"""Listening sockets out of /proc, made-up and real."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from ansible_collections.mqops.cluster.plugins.module_utils.sockets import Listening, address_of, listening, overlap

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1628 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 4711 1 0 100 0 0 10 0
   1: 0B6433C6:1629 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999        0 4712 1 0 100 0 0 10 0
   2: 0100007F:1628 0100007F:9999 01 00000000:00000000 00:00000000 00000000   999        0 4713 1 0 100 0 0 10 0
"""
TCP6 = """\
  sl  local_address                         remote_address                        st
   0: 00000000000000000000000000000000:0016 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 4714 1 0 100
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc with a broker and a program that nobody may look into."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(TCP)
    (tmp_path / "net/tcp6").write_text(TCP6)
    for pid, comm, inode, unit in (("12", "mqbroker", "4711", "mqbroker@default"), ("13", "nginx", "4712", "nginx")):
        (tmp_path / pid / "fd").mkdir(parents=True)
        (tmp_path / pid / "comm").write_text(f"{comm}\n")
        (tmp_path / pid / "cgroup").write_text(f"0::/system.slice/{unit}.service\n")
        (tmp_path / pid / "fd/5").symlink_to(f"socket:[{inode}]")
    (tmp_path / "self").mkdir()
    return tmp_path


def test_owners_are_found_and_our_own_known(proc: Path) -> None:
    assert listening(str(proc)) == [
        Listening("127.0.0.1", 5672, "mqbroker (process 12)", True),
        Listening("198.51.100.11", 5673, "nginx (process 13)", False),
        Listening("::", 22, "another process", False),
    ]


def test_a_process_that_ends_meanwhile_is_no_fault(proc: Path) -> None:
    (proc / "12/comm").unlink()
    assert listening(str(proc))[0] == Listening("127.0.0.1", 5672, "process 12", False)


def test_a_host_without_ipv6_is_no_fault(proc: Path) -> None:
    (proc / "net/tcp6").unlink()
    assert [one.port for one in listening(str(proc))] == [5672, 5673]


def test_addresses_of_both_families() -> None:
    assert address_of("0B6433C6") == "198.51.100.11"
    assert address_of("B80D0120000000000000000001000000") == "2001:db8::1"
    assert address_of("0000000000000000FFFF00000100007F") == "127.0.0.1"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_real_socket_is_seen_with_its_real_owner(family: socket.AddressFamily) -> None:
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        listener.listen()
        port = listener.getsockname()[1]
        (found,) = [one for one in listening() if one.port == port and one.address == address]
    assert found.owner.endswith(")")
    assert not found.is_ours


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "192.0.2.1", False),
        ("0.0.0.0", "192.0.2.1", True),
        ("192.0.2.1", "::", True),
        ("0.0.0.0", "::1", False),
        ("::1", "::", True),
        ("0.0.0.0", "::", True),
    ],
)
def test_which_addresses_share_ports(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is expected
    assert overlap(other, one) is expected
