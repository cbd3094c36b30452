"""Brokers that find each other without multicast: by files, by names and by gossip, all on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mqbroker.cluster.discovery.announcement import Announcement, Connector
from mqbroker.cluster.discovery.datagram import derive_key, seal
from mqbroker.cluster.discovery.gossip import pieces

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.patience import PATIENCE_S
from tests.system.broker.test_discovery import PATIENT_MS, PERIOD_MS, SECRET, group_of, hears, names, wait_for

pytestmark = pytest.mark.system

Start = Callable[..., BrokerProcess]
FOREIGN_ID = "0f0f0f0f-0000-4000-8000-000000000000"


def is_troubled(kind: str, found: dict[str, Any]) -> bool:
    """Whether a group of this kind says that something is wrong."""
    return bool(group_of(found, kind)["trouble"])


def is_well(kind: str, found: dict[str, Any]) -> bool:
    return not is_troubled(kind, found)


@pytest.fixture
def start(make_broker: Callable[..., BrokerProcess]) -> Start:
    """Starts a broker: its name, what its groups are, and the secret of its cluster."""

    def started(name: str, place: dict[str, Any], secret: str = SECRET, **discovery: Any) -> BrokerProcess:
        broadcast = {key: value for key, value in place.items() if key != "poll-period"}
        group = {"name": "lan", "broadcast-period": PERIOD_MS, "connector-ref": "cluster", **broadcast}
        broker: BrokerProcess = make_broker(
            options={
                "node": {"name": name},
                "connectors": [{"name": "cluster", "host": "127.0.0.1", "port": 5673}],
                "broadcast-groups": [group],
                "discovery-groups": [{"name": "lan", "refresh-timeout": PATIENT_MS, **place, **discovery}],
            }
        )
        broker.prepare()
        broker.command("secret", "set", "--stdin", "--config", str(broker.config_file), stdin=secret + "\n")
        broker.start()
        wait_for(broker, "it listens", lambda found: group_of(found, "discovery")["state"] == "listening")
        return broker

    return started


# -- files -------------------------------------------------------------------------------------------------------------


def files(directory: Path) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    return {"discovery": "file", "directory": str(directory), "poll-period": 50}


@pytest.mark.option(
    "broadcast-groups.discovery", "broadcast-groups.directory", "discovery-groups.discovery",
    "discovery-groups.directory", "discovery-groups.poll-period",
)  # fmt: skip
def test_brokers_find_each_other_by_files_of_one_directory(tmp_path: Path, start: Start) -> None:
    shared, other = tmp_path / "shared", tmp_path / "other"
    one, two, far = start("mq1", files(shared)), start("mq2", files(shared)), start("mq3", files(other))
    (row,) = hears(one, "mq2")["nodes"]
    assert (row["discovery"], row["connector"]) == ("file", "amqp://127.0.0.1:5673")
    assert row["source"] == str(shared / f"{row['node_id']}.json")
    hears(two, "mq1")
    found = wait_for(far, "it reads itself", lambda found: own(found) >= 3)
    assert (names(found), group_of(found, "discovery")["dropped"]) == ([], 0)
    assert json.loads(Path(row["source"]).read_text())["announcement"]["name"] == "mq2"


def own(found: dict[str, Any]) -> int:
    count: int = group_of(found, "discovery")["dropped_by_reason"]["own"]
    return count


def test_who_stops_takes_its_file_along_and_who_is_killed_is_gone_after_the_timeout(
    tmp_path: Path, start: Start
) -> None:
    shared = tmp_path / "shared"
    one = start("mq1", files(shared), **{"refresh-timeout": 3000})
    two = start("mq2", files(shared))
    hears(one, "mq2")
    two.kill()
    assert len(list(shared.iterdir())) == 2
    hears(one)
    late = start("mq3", files(shared))
    found = hears(late, "mq1")
    assert "mq2" not in names(found), "its file is there, and does not change"
    assert late.stop() == 0
    assert len([file for file in shared.iterdir() if file.name.endswith(".json")]) == 2


def test_files_that_others_wrote_are_dropped_with_a_reason(tmp_path: Path, start: Start) -> None:
    shared = tmp_path / "shared"
    one = start("mq1", files(shared))
    start("mq2", files(shared), secret="the secret of another cluster")
    found = wait_for(one, "it drops those", lambda found: group_of(found, "discovery")["dropped_by_reason"]["mac"] >= 3)
    assert names(found) == []
    (shared / f"{FOREIGN_ID}.json").write_bytes(os.urandom(5000))
    wait_for(one, "it drops noise", lambda found: group_of(found, "discovery")["dropped_by_reason"]["magic"] >= 1)


def test_a_directory_that_goes_and_comes_back_is_told_of(tmp_path: Path, start: Start) -> None:
    shared = tmp_path / "shared"
    one = start("mq1", files(shared))
    shared.rename(tmp_path / "away")
    for kind in ("broadcast", "discovery"):
        wait_for(one, "trouble", partial(is_troubled, kind))
    (tmp_path / "away").rename(shared)
    for kind in ("broadcast", "discovery"):
        wait_for(one, "no trouble", partial(is_well, kind))
    for event in ("broadcast-failed", "broadcast-works-again", "discovery-look-failed", "discovery-look-works-again"):
        assert one.log.count(f"{event} group=lan") == 1


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.option("discovery-groups.names")
def test_names_lead_to_the_places_of_others(make_broker: Callable[..., BrokerProcess]) -> None:
    # Without a secret: names prove nothing, and whoever connects finds out who is there.
    group = {"name": "lan", "discovery": "dns", "names": ["127.0.0.1:5673", "127.0.0.1:5674"], "poll-period": 50}
    broker = make_broker(
        options={
            "connectors": [{"name": "cluster", "host": "127.0.0.1", "port": 5673}],
            "discovery-groups": [group],
        }
    )
    broker.start()
    found = wait_for(broker, "a place", lambda found: bool(found["nodes"]))
    assert [(row["node_id"], row["connector"]) for row in found["nodes"]] == [(None, "amqp://127.0.0.1:5674")]
    assert group_of(found, "discovery")["place"] == "127.0.0.1:5673, 127.0.0.1:5674"


# -- gossip ------------------------------------------------------------------------------------------------------------


def talk(port: int, *peers: int, **more: Any) -> dict[str, Any]:
    return {
        "discovery": "gossip", "local-bind-address": "127.0.0.1", "local-bind-port": port,
        "peers": [f"127.0.0.1:{peer}" for peer in peers], **more,
    }  # fmt: skip


@pytest.mark.option("broadcast-groups.peers", "discovery-groups.peers", "discovery-groups.local-bind-port")
def test_two_who_know_the_same_third_find_each_other_by_gossip(start: Start) -> None:
    ports = [free_port() for _ in range(3)]
    seed = start("seed", talk(ports[0], ports[0]))
    one, two = start("mq1", talk(ports[1], ports[0])), start("mq2", talk(ports[2], ports[0]))
    hears(seed, "mq1", "mq2")
    hears(one, "seed", "mq2")
    found = hears(two, "seed", "mq1")
    assert {row["source"] for row in found["nodes"]} == {f"127.0.0.1:{ports[0]}"}
    assert "discovery-join-failed" not in seed.log + one.log + two.log, "both groups share the port"
    assert group_of(found, "discovery")["dropped"] == 0
    assert group_of(found, "discovery")["place"] == f"127.0.0.1:{ports[2]}"
    one.kill()
    one.start()
    restarted = wait_for(two, "it comes back", lambda found: "discovery-node-restarted group=lan node=mq1" in two.log)
    assert names(restarted) == ["mq1", "seed"]


def test_who_is_killed_is_forgotten_by_all_though_they_told_each_other_of_it(start: Start) -> None:
    ports = [free_port() for _ in range(3)]
    impatient = {"refresh-timeout": 3000}
    seed = start("seed", talk(ports[0]), **impatient)
    one, two = (
        start("mq1", talk(ports[1], ports[0]), **impatient), start("mq2", talk(ports[2], ports[0]), **impatient)
    )  # fmt: skip
    hears(one, "seed", "mq2")
    two.kill()
    hears(seed, "mq1")
    hears(one, "seed")


def test_without_peers_that_answer_it_is_told_once_and_tried_again(start: Start) -> None:
    mine, theirs = free_port(), free_port()
    one = start("mq1", talk(mine, theirs))
    found = wait_for(one, "it has tried", lambda found: group_of(found, "broadcast")["failed"] >= 5)
    assert "no peer can be reached" in group_of(found, "broadcast")["trouble"]
    assert one.log.count("broadcast-failed") == 1
    start("mq2", talk(theirs))
    hears(one, "mq2")
    wait_for(one, "it is told of", lambda found: "broadcast-works-again group=lan" in one.log)


def say(port: int, *parts: bytes) -> bytes:
    """What the broker answers to these bytes, until it closes."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        for part in parts:
            sock.sendall(part)
        answer = b""
        try:
            while piece := sock.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
        return answer


def announced(seq: int, secret: str = SECRET) -> bytes:
    connectors = (Connector("cluster", "amqp", "192.0.2.66", 5673),)
    return seal(Announcement(FOREIGN_ID, "0" * 31 + "1", seq, "by-hand", 2000, connectors), derive_key(secret))


def dropped(broker: BrokerProcess, reason: str, count: int) -> dict[str, Any]:
    return wait_for(
        broker, f"{count} dropped by {reason}",
        lambda found: group_of(found, "discovery")["dropped_by_reason"][reason] >= count,
    )  # fmt: skip


def test_nonsense_at_the_port_of_gossip_is_counted_and_believed_by_nobody(start: Start) -> None:
    port = free_port()
    broker = start("mq1", talk(port))
    assert say(port, b"GET / HTTP/1.1\r\n\r\n") == b""
    dropped(broker, "magic", 1)
    assert say(port, b"MQDR\x01\xff\xff") == b""
    dropped(broker, "magic", 2)
    assert say(port, b"MQDR\x01\0\x01\xff\xff") == b""
    dropped(broker, "length", 1)
    for piece in (announced(1, "the secret of another cluster"), os.urandom(500)):
        assert say(port, *pieces([piece])).startswith(b"MQDR")
    found = dropped(broker, "mac", 1)
    assert names(found) == []
    say(port, *pieces([announced(7)]))
    hears(broker, "by-hand")
    for seq in (6, 7):
        say(port, *pieces([announced(seq)]))
    say(port, *pieces([announced(6)]))
    dropped(broker, "replayed", 2)
    assert announced(7) in say(port, *pieces([])), "who asks is told what is known"


def test_peers_that_are_silent_or_do_not_read_hold_up_nobody(start: Start) -> None:
    port = free_port()
    broker = start("mq1", talk(port))
    rss_bytes = broker.rss_bytes()
    silent = [socket.create_connection(("127.0.0.1", port), PATIENCE_S) for _ in range(20)]
    for number, sock in enumerate(silent):
        # Some say nothing, some stop in the middle of a record, some ask and never read.
        sock.sendall((b"", b"MQDR\x01\0\x05\0\x10abc", b"".join(pieces([])))[number % 3])
    assert say(port, *pieces([announced(1)])).startswith(b"MQDR")
    hears(broker, "by-hand")
    for sock in silent:
        with sock:
            ends = b"x"
            while ends:
                try:
                    ends = sock.recv(65536)
                except ConnectionResetError:
                    break
    assert broker.rss_bytes() - rss_bytes < 20 << 20


def test_more_guests_than_there_may_be_are_sent_away(start: Start) -> None:
    port = free_port()
    broker = start("mq1", talk(port))
    guests = [socket.create_connection(("127.0.0.1", port), PATIENCE_S) for _ in range(200)]
    for sock in guests:
        sock.close()

    def is_told(found: dict[str, Any]) -> bool:
        # Whoever comes before the others have gone is sent away as well, and comes again.
        with contextlib.suppress(OSError):
            say(port, *pieces([announced(1)]))
        return names(found) == ["by-hand"]

    wait_for(broker, "it hears who comes later", is_told)
    assert broker.admin("status")["state"] == "active"


def test_a_length_that_lies_costs_its_own_connection_and_no_memory(start: Start) -> None:
    port = free_port()
    broker = start("mq1", talk(port))
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as sock:
        sock.sendall(b"MQDR\x01\x03\xe9" + struct.pack(">H", 1439) + b"\0" * 1439)
        dropped(broker, "magic", 1)
        assert sock.recv(1) == b""  # after its time is over, since 1000 more are due
    assert broker.admin("status")["state"] == "active"
