"""Foreign clients as processes under the system's Python, and brokers for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.foreign import debian
from tests.foreign.builds import GO_AMQP, JMS, RHEA, BuildFailed, Recipe, built
from tests.foreign.client import ProtonClient
from tests.foreign.jms_client import JmsClient
from tests.foreign.link_client import LinkClient
from tests.support.broker_process import BrokerProcess, brokers_in
from tests.support.patience import PATIENCE_S


@pytest.fixture(scope="session", autouse=True)
def debian_packages() -> None:
    """What the clients are made of. Installed here as root on Debian, else the missing ones are named."""
    if missing := debian.lacking():
        pytest.fail(debian.told(missing))


def _built(recipe: Recipe) -> list[str]:
    try:
        return built(recipe)
    except BuildFailed as failed:
        pytest.fail(str(failed))


@pytest.fixture(scope="module")
def _module_jms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JmsClient]:
    client = JmsClient(_built(JMS), tmp_path_factory.mktemp("jms") / "client.log")
    yield client
    client.close()


@pytest.fixture
def jms(_module_jms: JmsClient) -> Iterator[JmsClient]:
    """One process for all tests of a module, which has no connection when a test begins."""
    yield _module_jms
    _module_jms.ask("reset")


@pytest.fixture(scope="module")
def _module_rhea(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkClient]:
    client = LinkClient(_built(RHEA), tmp_path_factory.mktemp("rhea") / "client.log")
    yield client
    client.close()


@pytest.fixture
def rhea(_module_rhea: LinkClient) -> Iterator[LinkClient]:
    """As `jms`, on rhea."""
    yield _module_rhea
    _module_rhea.ask("reset")


@pytest.fixture(scope="module")
def _module_go_amqp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkClient]:
    client = LinkClient(_built(GO_AMQP), tmp_path_factory.mktemp("go_amqp") / "client.log")
    yield client
    client.close()


@pytest.fixture
def go_amqp(_module_go_amqp: LinkClient) -> Iterator[LinkClient]:
    """As `jms`, on go-amqp."""
    yield _module_go_amqp
    _module_go_amqp.ask("reset")


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes brokers that are not started yet; each has a directory of its own."""
    with brokers_in(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def _module_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def broker(_module_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """One broker for all tests of a module, which use queues of their own: what one did must not show to others."""
    yield _module_broker
    assert _module_broker.process is not None
    assert _module_broker.process.poll() is None, _module_broker.log
    assert "Traceback" not in _module_broker.log, _module_broker.log


@pytest.fixture
def make_client(tmp_path: Path) -> Iterator[Callable[[], ProtonClient]]:
    """Makes clients, a process each, that end with the test."""
    made: list[ProtonClient] = []

    def make() -> ProtonClient:
        made.append(ProtonClient(tmp_path / f"client-{len(made)}.log"))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(make_client: Callable[[], ProtonClient]) -> ProtonClient:
    """One client, not connected yet."""
    return make_client()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue name that no other test uses."""
    return str(request.node.name)


def depth(broker: BrokerProcess, queue: str) -> int:
    """Messages in a queue, in delivery or not."""
    rows = broker.admin("queues")["queues"]
    return sum(row["message_count"] for row in rows if row["name"] == queue)


def queues(broker: BrokerProcess, address: str) -> dict[str, int]:
    """Queues of an address with what they hold."""
    rows = broker.admin("queues")["queues"]
    return {row["name"]: row["message_count"] for row in rows if row["address"] == address}


def wait_for_queues(broker: BrokerProcess, address: str, wanted: dict[str, int]) -> None:
    """Until an address has these queues, holding so many messages each."""
    deadline_s = time.monotonic() + PATIENCE_S
    while (found := queues(broker, address)) != wanted:
        assert time.monotonic() < deadline_s, f"{address} has {found}, not {wanted}"
        time.sleep(0.02)


def wait_for_depth(broker: BrokerProcess, queue: str, count: int) -> None:
    """Until a queue holds so many messages: settlements go their way without an answer."""
    deadline_s = time.monotonic() + PATIENCE_S
    while depth(broker, queue) != count:
        assert time.monotonic() < deadline_s, f"{queue} holds {depth(broker, queue)}, not {count}"
        time.sleep(0.02)
