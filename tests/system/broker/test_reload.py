"""A running broker reads its files again because an administrator says so."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerFailed, BrokerProcess
from tests.support.certificates import Authority

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
    for _ in range(100):  # the line is written before the broker acts on what was read
        if broker.admin("queue-show", name="orders")["max_consumers"] == 4:
            break
        time.sleep(0.05)
    assert broker.admin("queue-show", name="orders")["max_consumers"] == 4
    broker.restart()
    assert broker.admin("queue-show", name="orders")["max_consumers"] == 4
