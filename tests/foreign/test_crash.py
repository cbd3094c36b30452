"""kill -9 of a broker under the load of a foreign client: nothing that was accepted is lost, no duplicate is unflagged.

Proton's own reconnect brings the clients back. The facts that the clients noted are judged by the one checker.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.conftest import depth
from tests.foreign.proton_stage import QUEUE, Login, ProtonLoad
from tests.support.broker_process import BrokerProcess
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.foreign

SEED = 20_260_101
IN_FLIGHT = 1000


@pytest.fixture
def make_load(tmp_path: Path) -> Iterator[Callable[[BrokerProcess], ProtonLoad]]:
    made: list[ProtonLoad] = []

    def make(broker: BrokerProcess) -> ProtonLoad:
        made.append(ProtonLoad(tmp_path, Login(broker.user, broker.password)))
        return made[-1]

    yield make
    for load in made:
        load.close()


def url_of(broker: BrokerProcess) -> str:
    return f"amqp://127.0.0.1:{broker.port}"


def added(broker: BrokerProcess) -> int:
    """Messages that came in since the broker started, and those that it found then."""
    return sum(row["messages_added"] for row in broker.admin("queues")["queues"] if row["name"] == QUEUE)


def kill_and_start(broker: BrokerProcess, dice: random.Random) -> None:
    """One crash at a random moment of the load; every other time a second one at a random moment of the start.

    Moments are counted in messages, so that a slow machine sees as much between two crashes as a fast one.
    """
    least = added(broker) + dice.randrange(1, 2500)
    wait_until(lambda: added(broker) >= least, f"{least} messages came in")
    time.sleep(dice.uniform(0.0, 0.03))
    broker.kill()
    if dice.random() < 0.5:
        broker.launch()
        time.sleep(dice.uniform(0.0, 0.6))
        broker.kill()
    broker.start()


def wait_until(is_so: Callable[[], bool], what: object, timeout_s: float = PATIENCE_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline_s, f"{what}: not after {timeout_s} s"
        time.sleep(0.01)


def wait_until_empty(broker: BrokerProcess) -> None:
    wait_until(lambda: depth(broker, QUEUE) == 0, "the queue is empty")


@pytest.mark.parametrize(
    ("kills", "journal"),
    [(5, {}), (3, {"journal-file-size-bytes": 128 << 10, "journal-compact-min-files": 3})],
    ids=["five kills", "small files"],
)
def test_kill_under_load(
    make_broker: Callable[..., BrokerProcess],
    make_load: Callable[[BrokerProcess], ProtonLoad],
    kills: int,
    journal: dict[str, Any],
) -> None:
    """Crashes under two producers with 1,000 messages in flight each and two consumers; then a drain."""
    dice = random.Random(SEED)
    broker = make_broker(options={"journal": journal})
    broker.start()
    load = make_load(broker)
    producers, consumers = ("p0", "p1"), ("c0", "c1")
    for name in producers:
        load.start(
            "produce", name, [url_of(broker)], in_flight=IN_FLIGHT, count_max=100_000, sizes=[40, 200, 200, 1000]
        )
    for name in consumers:
        load.start("consume", name, [url_of(broker)], credit=200)
    for _ in range(kills):
        kill_and_start(broker, dice)
    load.end(*producers)
    wait_until_empty(broker)
    load.end(*consumers)
    history, counts = load.history(), load.counts()
    found = history.check_drained(depth(broker, QUEUE))
    again = sum(history.received.values()) - len(history.received)
    print(f"{counts}, {again} deliveries were repetitions")
    assert found == []
    # The load was real: messages were in flight when the broker crashed, and clients came back.
    outcomes = [sent.outcome for sent in history.sent.values()]
    assert outcomes.count("accepted") > 200, counts
    assert outcomes.count("unknown") > 0, counts
    assert counts["opened"] >= 4 + kills, counts
    assert "detached" not in counts


def test_the_checker_would_notice(
    make_broker: Callable[..., BrokerProcess], make_load: Callable[[BrokerProcess], ProtonLoad]
) -> None:
    """The same clients against a broker that lost its journal in the crash: the verdict must be loss."""
    broker = make_broker()
    broker.start()
    load = make_load(broker)
    load.start("produce", "p0", [url_of(broker)], in_flight=IN_FLIGHT, count_max=100_000, sizes=[200])
    # Twice what may be on its way without an outcome: so the producer knows of half of them that they were accepted.
    wait_until(lambda: depth(broker, QUEUE) >= 2 * IN_FLIGHT, "messages were accepted")
    broker.kill()
    for file in (broker.data_directory / "journal").iterdir():
        file.unlink()
    broker.start()
    load.start("consume", "c0", [url_of(broker)], credit=200)
    wait_until(lambda: added(broker) > 0, "the producer is back")
    load.end("p0")
    wait_until_empty(broker)
    load.end("c0")
    assert any(each.startswith("lost: ") for each in load.history().check_drained(depth(broker, QUEUE)))
