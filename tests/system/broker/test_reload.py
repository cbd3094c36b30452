"""A running broker reads its files again because an administrator says so."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import mqbroker.client as mq
import pytest

from tests.support.broker_process import BrokerFailed, BrokerProcess
from tests.support.certificates import Authority
from tests.support.patience import PATIENCE_S, wait_until

Make = Callable[..., BrokerProcess]


def test_what_changes_and_what_needs_a_restart(broker: BrokerProcess) -> None:
    assert broker.admin("config-reload") == {
        "changed": [],
        "users": {"added": [], "changed": [], "removed": []},
        "restart": [],
        "remarks": [],
    }
    broker.options = {
        "limits": {"link-credit": 7},
        "node": {"log-format": "json"},
        "address-settings": {"orders.#": {"max-delivery-attempts": 3}},
    }
    broker.listener = {"connections-max": 5}
    broker.write_config()
    broker.set_user("second", "second-password")
    answer = broker.admin("config-reload")
    assert {row["option"]: (row["old"], row["new"]) for row in answer["changed"]} == {
        "node.log-format": ("text", "json"),
        "listeners.clients.connections-max": (10_000, 5),
        "address-settings.orders.#": (None, "orders.#"),
    }
    assert answer["users"]["added"] == ["second"]
    assert answer["restart"] == [{"option": "limits.link-credit", "running": 2000, "file": 7}]
    settings = broker.admin("address-settings-show", address="orders.eu")["settings"]
    assert [row["value"] for row in settings if row["setting"] == "max-delivery-attempts"] == [3]
    lines = [json.loads(line) for line in broker.log.splitlines() if line.startswith("{")]
    (audit,) = [line for line in lines if line["event"] == "admin"]
    assert (audit["operation"], audit["outcome"]) == ("config-reload", "done")
    broker.restart()
    assert broker.admin("config-reload")["restart"] == []


def test_every_fault_at_once_and_nothing_changes(broker: BrokerProcess) -> None:
    broker.options = {"node": {"log-format": "json", "nme": "x"}, "limits": {"link-credit": -1}}
    broker.write_config()
    broker.set_user("second", "second-password")
    with pytest.raises(BrokerFailed) as caught:
        broker.admin("config-reload")
    for said in ("amqp:precondition-failed", "2 faults", "node.nme", "limits.link-credit", str(broker.config_file)):
        assert said in str(caught.value)
    # A signal takes the good part: nobody waits for an answer to it.
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("reloaded users=1 options=0")
    assert "{" not in broker.log.splitlines()[-1]


def test_a_certificate_that_cannot_be_used_refuses_the_whole_file(make_broker: Make, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    broker = make_broker(listener=authority.listener(), tls=authority.client())
    broker.start()
    broker.options = {"node": {"log-format": "json"}}
    broker.write_config()
    good = authority.key_file.read_text()
    authority.key_file.write_text("canary")
    with pytest.raises(BrokerFailed, match=r"tls-key-file.*holds no private key"):
        broker.admin("config-reload")
    broker.connect().close()
    authority.key_file.write_text(good)
    (row,) = broker.admin("config-reload")["changed"]
    assert row["option"] == "node.log-format"
    broker.connect().close()
    assert "canary" not in broker.log


@pytest.mark.parametrize("by_signal", [False, True])
def test_a_fifo_in_the_place_of_a_file_holds_up_nothing(make_broker: Make, tmp_path: Path, by_signal: bool) -> None:
    authority = Authority(tmp_path / "authority")
    broker = make_broker(listener=authority.listener("optional"), tls=authority.client())
    broker.start()
    files = (authority.certificate_file, authority.key_file, authority.ca_file)
    for file in (*files, broker.data_directory / "users.json", broker.config_file):
        aside = file.rename(tmp_path / "aside")
        os.mkfifo(file)
        if by_signal:
            refusals = broker.log.count("Is a FIFO")
            broker.signal(signal.SIGHUP)
            broker.wait_for_log("Is a FIFO", count=refusals + 1)
        else:
            with pytest.raises(BrokerFailed, match=f"{file}.* cannot be read.*Is a FIFO and no regular file.*; "):
                broker.admin("config-reload")
        broker.connect().close()
        file.unlink()
        aside.rename(file)
    assert broker.admin("config-reload")["changed"] == []


ORDERS = """
[[addresses]]
name = "orders"
routing-types = ["ANYCAST"]
anycast = [{name = "orders", max-consumers = 3}]
"""
COPIES = """
[[diverts]]
name = "copies"
address = "orders"
forwarding-address = "audit"
filter = "color %s"
"""


def test_addresses_and_diverts_come_while_it_runs(broker: BrokerProcess) -> None:
    def write(text: str) -> None:
        broker.write_config()
        broker.config_file.write_text(broker.config_file.read_text() + text)

    write(ORDERS + COPIES % "= 'red'")
    answer = broker.admin("config-reload")
    assert [row["option"] for row in answer["changed"]] == ["addresses.orders", "diverts.copies"]
    assert (answer["restart"], answer["remarks"]) == ([], [])
    assert broker.admin("queue-show", name="orders")["max_consumers"] == 3
    message = {"body": "x", "application_properties": {"color": "red"}}
    broker.admin("send", address="orders", messages=[message])
    assert {row["name"]: row["message_count"] for row in broker.admin("queues")["queues"]} == {"orders": 1, "audit": 1}
    # A signal takes no selector that is none, which a start would refuse too.
    write(ORDERS.replace("3", "4") + COPIES % "=")
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("reloaded users=1 options=0")
    assert broker.admin("queue-show", name="orders")["max_consumers"] == 3
    write(ORDERS.replace("3", "4") + COPIES % "= 'red'")
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("reloaded users=1 options=1")
    # The line is written before the broker acts on what was read.
    wait_until(lambda: broker.admin("queue-show", name="orders")["max_consumers"] == 4)
    broker.restart()
    assert broker.admin("queue-show", name="orders")["max_consumers"] == 4


def _uri(broker: BrokerProcess, user: str) -> str:
    return f"amqp://{user}:{broker.password}@{broker.host}:{broker.port}"


async def _gone(receiver: mq.Receiver, reload: Callable[[], object]) -> mq.ClientError:
    """What a receiver that waits for a message hears of a reload."""
    waits = asyncio.create_task(receiver.receive(PATIENCE_S))
    await asyncio.sleep(0)
    await asyncio.to_thread(reload)
    with pytest.raises(mq.ClientError) as caught:
        await waits
    return caught.value


@pytest.mark.parametrize("by_signal", [False, True])
def test_who_is_removed_is_disconnected_and_who_is_not_stays(broker: BrokerProcess, by_signal: bool) -> None:
    broker.set_user("second", broker.password)
    broker.admin("config-reload")

    def remove() -> None:
        broker.command("users", "remove", "second", "--file", str(broker.data_directory / "users.json"))
        if by_signal:
            broker.signal(signal.SIGHUP)
        else:
            assert broker.admin("config-reload")["users"]["removed"] == ["second"]

    async def work() -> None:
        async with mq.connect(_uri(broker, "app")) as app, mq.connect(_uri(broker, "second")) as second:
            stays = await app.receiver("orders")
            gone = await _gone(await second.receiver("orders"), remove)
            assert isinstance(gone, mq.LoginRefused)
            assert "user 'second' was removed" in str(gone)
            await (await app.sender("orders")).send("m")
            assert (await stays.receive(PATIENCE_S)).body == "m"
        assert {row["user"] for row in broker.admin("connections")["connections"]} <= {"app"}

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_who_may_not_receive_any_more_hears_so(broker: BrokerProcess) -> None:
    def take(*roles: str) -> None:
        broker.options = {"security-settings": {"#": {"send": ["client"], "consume": list(roles)}}}
        broker.write_config()
        broker.admin("config-reload")

    broker.admin("queue-create", name="orders")
    take("client")

    async def work() -> None:
        async with mq.connect(_uri(broker, "app")) as app:
            gone = await _gone(await app.receiver("orders"), take)
            assert (isinstance(gone, mq.LinkFailed), gone.condition) == (True, "amqp:unauthorized-access")
            assert "no permission consume at address 'orders'" in str(gone)
            await (await app.sender("orders")).send("m")
            take("client")
            assert (await (await app.receiver("orders")).receive(PATIENCE_S)).body == "m"

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_the_command_says_what_came_of_it(broker: BrokerProcess) -> None:
    """As `systemctl reload` calls it: it fails where the broker refuses, with every reason."""
    socket = f"{broker.admin_socket}"
    assert broker.command("reload", "--socket", socket) == "nothing has changed\n"
    broker.options = {"limits": {"link-credit": 7}, "node": {"log-format": "json"}}
    broker.write_config()
    broker.set_user("second", "second-password")
    assert broker.command("reload", "--socket", socket).splitlines() == [
        'node.log-format: "text" -> "json"', "user second: added", "limits.link-credit: 2000 -> 7, needs a restart",
    ]  # fmt: skip
    broker.options = {"node": {"nme": "x"}, "limits": {"link-credit": -1}}
    broker.write_config()
    with pytest.raises(BrokerFailed) as caught:
        broker.command("reload", "--socket", socket)
    lines = str(caught.value).splitlines()
    assert "2 faults" in str(caught.value)
    assert [sum(option in line for line in lines) for option in ("node.nme", "limits.link-credit")] == [1, 1]
    broker.stop()
    with pytest.raises(BrokerFailed, match=r"mqbroker reload: no broker answers at .*: the broker is not running"):
        broker.command("reload", "--socket", socket)


def test_certificates_on_record_are_those_that_listeners_show(make_broker: Make, tmp_path: Path) -> None:
    """A signal takes what is good: a certificate without its key is not, and the record says so."""
    authority = Authority(tmp_path / "authority")
    record = tmp_path / "loaded"
    record.mkdir()
    broker = make_broker(listener=authority.listener(), tls=authority.client(), arguments=("--record", str(record)))
    broker.start()

    def taken() -> dict[str, str]:
        found: dict[str, str] = json.loads((record / "files.json").read_text())["files"]
        return {Path(name).name: digest for name, digest in found.items()}

    def is_there(file: Path) -> bool:
        return taken()[file.name] == hashlib.sha256(file.read_bytes()).hexdigest()

    files = (authority.certificate_file, authority.key_file, broker.data_directory / "users.json")
    assert all(map(is_there, files))
    before = taken()
    key = authority.key_file.read_text()
    authority.key_file.write_text(Authority(tmp_path / "other").key_file.read_text())
    broker.set_user("second", "second-password")
    with pytest.raises(BrokerFailed, match="is not the key of the certificate"):
        broker.admin("config-reload")
    assert taken() == before
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("reloaded users=1 options=1")
    assert [is_there(file) for file in files] == [True, False, True]
    authority.key_file.write_text(key)
    broker.admin("config-reload")
    assert all(map(is_there, files))
