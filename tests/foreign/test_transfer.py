"""Messages through a foreign client: sizes, settle modes, frames, sharing, and every byte as it was sent."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.client import FOLDER, PYTHON, ProtonClient
from tests.foreign.conftest import wait_for_depth
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.foreign

KIB, MIB = 1024, 1024 * 1024
FRAME_SIZE = 64 * KIB
# A frame of one message has some 60 bytes besides the body: these two lie on both sides of the listener's frame size.
SIZES = [1, 100, KIB, FRAME_SIZE - 200, FRAME_SIZE + 200, MIB, 5 * MIB]


def ids_of(queue: str, count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@pytest.mark.parametrize("rcv", ["first", "second"])
@pytest.mark.parametrize("snd", ["unsettled", "settled"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not-durable"])
def test_sizes_and_settle_modes(
    broker: BrokerProcess, client: ProtonClient, queue: str, durable: bool, snd: str, rcv: str
) -> None:
    """Each size there and back, with the same settle modes on both ways; nothing is left."""
    client.connect("c", broker)
    client.sender("c", "out", queue, snd=snd, rcv=rcv)
    attached = client.receiver("c", "in", queue, snd=snd, rcv=rcv, credit=100)
    assert (attached["snd"], attached["rcv"]) == (snd, rcv)
    for size in SIZES:
        wanted = [f"{size}-{number}" for number in range(2)] if size > 4 else []
        raws = [] if wanted else [base64.b64encode(b"\x00\x53\x75\xa0\x01" + byte).decode() for byte in (b"a", b"b")]
        outcomes = client.send("out", wanted, size=size, durable=durable, raw=raws)
        expected = {"outcome": "unknown" if snd == "settled" else "accepted", "settled": True, "error": None}
        assert outcomes == [expected] * 2
        found = client.receive("in", 2, settle=rcv == "first", is_raw=not wanted)
        assert [row["settled"] for row in found] == [snd == "settled"] * 2
        assert [row["delivery_count"] for row in found] == [0, 0]
        if wanted:
            assert [(row["id"], row["size"], row["durable"]) for row in found] == [
                (each, size, durable) for each in wanted
            ]
        else:
            assert [row["raw"] for row in found] == raws
    if snd == "unsettled" and rcv == "second":
        # The receiver told its outcome and did not settle: the broker does, and only then may it forget.
        client.ask("wait_settled", link="in", count=2 * len(SIZES))
    client.ask("close", name="c")
    wait_for_depth(broker, queue, 0)


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not-durable"])
def test_settled_and_unsettled_deliveries_mix_on_one_link(
    broker: BrokerProcess, client: ProtonClient, queue: str, durable: bool
) -> None:
    client.connect("c", broker)
    assert client.sender("c", "out", queue, snd="mixed")["snd"] == "mixed"
    client.receiver("c", "in", queue, credit=300)
    wanted = ids_of(queue, 90)
    for at in range(0, 90, 30):
        client.send("out", wanted[at : at + 10], settled=True, durable=durable)
        outcomes = client.send("out", wanted[at + 10 : at + 30], durable=durable)
        assert {row["outcome"] for row in outcomes} == {"accepted"}
    assert [row["id"] for row in client.receive("in", 90)] == wanted
    client.ask("close", name="c")
    wait_for_depth(broker, queue, 0)


def test_messages_stay_for_a_receiver_that_comes_later_in_order(
    broker: BrokerProcess, client: ProtonClient, queue: str
) -> None:
    client.connect("c", broker)
    client.sender("c", "out", queue)
    durable, others = ids_of(queue, 500, "d"), ids_of(queue, 500, "n")
    for at in range(0, 500, 100):
        client.send("out", durable[at : at + 100], durable=True)
        client.send("out", others[at : at + 100], durable=False)
    wait_for_depth(broker, queue, 1000)
    client.receiver("c", "in", queue, credit=2000)
    found = [row["id"] for row in client.receive("in", 1000)]
    assert [each for each in found if each.startswith("d")] == durable
    assert [each for each in found if each.startswith("n")] == others
    client.ask("close", name="c")
    wait_for_depth(broker, queue, 0)


@pytest.mark.parametrize("frame_size", [512, 1024, 4096])
def test_a_client_with_small_frames_gets_large_messages_in_pieces(
    broker: BrokerProcess, client: ProtonClient, queue: str, frame_size: int
) -> None:
    client.connect("c", broker, frame_size=frame_size)
    client.sender("c", "out", queue)
    client.receiver("c", "in", queue, credit=100)
    for size in (10, frame_size - 100, frame_size - 60, frame_size - 30, frame_size, 10 * frame_size, 300_000):
        client.send("out", [f"s{size}", f"t{size}"], size=size)
        found = client.receive("in", 2)
        assert [(row["id"], row["size"]) for row in found] == [(f"s{size}", size), (f"t{size}", size)]


def test_a_client_with_small_frames_is_told_that_its_selector_is_too_long_for_them(
    broker: BrokerProcess, client: ProtonClient, queue: str
) -> None:
    """The answer to an attach repeats it, and Proton ends its connection for a frame above its limit."""
    client.connect("c", broker, frame_size=512)
    said = client.receiver("c", "in", queue, selector=f"colour = '{'x' * 600}'")
    assert said["refused"]["condition"] == "amqp:frame-size-too-small"
    client.sender("c", "out", queue)
    assert [row["outcome"] for row in client.send("out", ["a"])] == ["accepted"]


def test_a_client_with_a_small_session_window_gets_large_messages_in_turns(
    broker: BrokerProcess, client: ProtonClient, queue: str
) -> None:
    client.connect("c", broker, frame_size=1024)
    client.sender("c", "out", queue)
    client.ask("session", connection="c", name="narrow", capacity_bytes=4096)
    client.send("out", ["a", "b", "c"], size=100_000)
    client.send("out", [f"x{number}" for number in range(50)], size=50)
    client.receiver("c", "in", queue, session="narrow", credit=100)
    found = client.receive("in", 53)
    assert [row["id"] for row in found] == ["a", "b", "c", *(f"x{number}" for number in range(50))]


def test_a_link_that_ends_in_the_middle_of_a_large_message_leaves_the_session_usable(
    broker: BrokerProcess, client: ProtonClient, queue: str
) -> None:
    """What the window held back of a message must not follow the detach of its link."""
    client.connect("c", broker, frame_size=1024)
    client.sender("c", "out", queue)
    client.ask("session", connection="c", name="narrow", capacity_bytes=4096)
    client.send("out", ["big"], size=200_000)
    client.receiver("c", "first", queue, session="narrow", credit=1)
    client.ask("close_link", name="first")
    client.receiver("c", "second", queue, session="narrow", credit=1)
    (found,) = client.receive("second", 1)
    assert (found["id"], found["size"]) == ("big", 200_000)


def test_many_links_of_one_session(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    """300 senders and 300 receivers, so that handles need more than a byte; each pair has a queue of its own."""
    client.connect("c", broker)
    names = [f"{number:03}" for number in range(300)]
    for name in names:
        client.sender("c", f"out{name}", f"{queue}-{name}")
        client.receiver("c", f"in{name}", f"{queue}-{name}", credit=3)
    for name in names:
        client.send(f"out{name}", [f"{name}a", f"{name}b", f"{name}c"])
    for name in names:
        found = client.receive(f"in{name}", 3)
        assert [row["id"] for row in found] == [f"{name}a", f"{name}b", f"{name}c"]
    for name in names[::2]:
        client.ask("close_link", name=f"in{name}")
        client.receiver("c", f"in{name}", f"{queue}-{name}", credit=1)
    client.send("out298", ["once more"])
    assert client.receive("in298", 1)[0]["id"] == "once more"


def test_links_of_many_sessions(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    client.connect("c", broker)
    for number in range(100):
        client.ask("session", connection="c", name=f"s{number}")
        client.sender("c", f"out{number}", queue, session=f"s{number}")
    for number in range(100):
        client.send(f"out{number}", [f"m{number}"])
    client.receiver("c", "in", queue, session="s99", credit=100)
    assert {row["id"] for row in client.receive("in", 100)} == {f"m{number}" for number in range(100)}
    client.ask("end", connection="c", name="s50")
    client.ask("session", connection="c", name="s50")
    client.sender("c", "out50", queue, session="s50")
    client.send("out50", ["again"])
    client.receiver("c", "in2", queue, session="s50", credit=1)


def test_several_senders_and_competing_consumers_share(
    broker: BrokerProcess, make_client: Callable[[], ProtonClient], queue: str
) -> None:
    """Three producers and four consumers on connections of their own: each message once, to everybody a fair share."""
    producers = [make_client() for _ in range(2)]
    consumers = [make_client() for _ in range(2)]
    for each in consumers:
        each.connect("c", broker)
        each.receiver("c", "in0", queue, credit=1000)
        each.receiver("c", "in1", queue, credit=1000)
    for each in producers:
        each.connect("c", broker)
        each.sender("c", "out", queue)
    for number, each in enumerate(producers):
        each.begin("send", link="out", ids=ids_of(queue, 600, f"p{number}-"))
    for each in producers:
        assert {row["outcome"] for row in each.finish()["outcomes"]} == {"accepted"}
    shares: list[list[dict[str, Any]]] = [[], [], [], []]
    links = [(each, link) for each in consumers for link in ("in0", "in1")]
    for _ in range(100):
        for (each, link), share in zip(links, shares, strict=True):
            share += each.receive(link, 1000, timeout_s=0.05)
        if sum(map(len, shares)) >= 1200:
            break
    found = [row["id"] for share in shares for row in share]
    assert sorted(found) == sorted(ids_of(queue, 600, "p0-") + ids_of(queue, 600, "p1-"))
    assert all(150 <= len(share) <= 450 for share in shares), [len(share) for share in shares]
    for share in shares:
        for producer in ("p0-", "p1-"):
            numbers = [int(row["id"].partition("-")[2]) for row in share if row["id"].startswith(producer)]
            assert numbers == sorted(numbers)
    wait_for_depth(broker, queue, 0)


def test_all_types_and_sections_pass_byte_for_byte(broker: BrokerProcess, client: ProtonClient, queue: str) -> None:
    """What Proton encodes is what Proton gets, each of its messages of every type and section."""
    made = subprocess.run(
        [PYTHON, str(FOLDER / "proton_messages.py")], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    raws = made.stdout.split()
    assert len(raws) > 60
    client.connect("c", broker)
    client.sender("c", "out", queue)
    client.receiver("c", "in", queue, credit=1000)
    assert {row["outcome"] for row in client.send("out", [], raw=raws)} == {"accepted"}
    found = client.receive("in", len(raws), is_raw=True)
    # One of them has a priority and overtakes.
    assert sorted(row["raw"] for row in found) == sorted(raws)


def test_all_types_and_sections_pass_a_restart(
    make_broker: Callable[..., BrokerProcess], make_client: Callable[[], ProtonClient], tmp_path: Path
) -> None:
    """The same through the journal: a redelivered message differs in its header section alone."""
    made = subprocess.run(
        [PYTHON, str(FOLDER / "proton_messages.py"), "durable"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    raws = made.stdout.split()
    broker = make_broker()
    broker.start()
    client = make_client()
    client.connect("c", broker)
    client.sender("c", "out", "orders")
    client.send("out", [], raw=raws)
    client.close()
    broker.kill()
    broker.start()
    client = make_client()
    client.connect("c", broker)
    client.receiver("c", "in", "orders", credit=1000)
    found = client.receive("in", len(raws), outcome="modify-failed", is_raw=True)
    assert sorted(row["raw"] for row in found) == sorted(raws)
    client.ask("flow", link="in", credit=1000)
    again = client.receive("in", len(raws), is_raw=True)
    assert [row["delivery_count"] for row in again] == [row["delivery_count"] + 1 for row in found]
    for before, after in zip(found, again, strict=True):
        assert without_header(after["raw"]) == without_header(before["raw"])


def without_header(raw: str) -> bytes:
    """An encoded message behind its header section, which is a short or a long list."""
    data = base64.b64decode(raw)
    if not data.startswith(b"\x00\x53\x70"):
        return data
    if data[3] == 0x45:
        return data[4:]
    return data[5 + data[4] :] if data[3] == 0xC0 else data[8 + int.from_bytes(data[4:8], "big") :]


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("settled", [False, True], ids=["unsettled", "settled"])
def test_deliveries_without_a_message_reach_nobody(
    broker: BrokerProcess, client: ProtonClient, queue: str, settled: bool, count: int
) -> None:
    """Proton sends such when it connects again while messages are in flight; its own receivers cannot decode them."""
    before = broker.log.count("message-empty")
    client.connect("c", broker)
    client.sender("c", "out", queue, snd="mixed")
    client.receiver("c", "in", queue, credit=100)
    raw = [""] * count + [base64.b64encode(b"\x00\x53\x75\xa0\x01x").decode()] + [""] * count
    outcomes = client.send("out", [], raw=raw, settled=settled)
    if not settled:
        conditions = [(row["error"] or {}).get("condition") for row in outcomes]
        assert conditions == ["amqp:decode-error"] * count + [None] + ["amqp:decode-error"] * count
    assert [row["size"] for row in client.receive("in", 1)] == [1]
    assert client.receive("in", 1, timeout_s=0.2) == []
    # Once a connection: a peer must not be able to fill the log.
    assert broker.log.count("message-empty") == before + 1
