"""An operation of the admin protocol is one row: a row more has all that operations have, in a real broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from tests.support.broker_process import BrokerFailed, BrokerProcess
from tests.support.one_operation_more import ROW

SCRIPT = (sys.executable, "-m", "tests.support.one_operation_more")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("one-more"), within=SCRIPT) as made:
        yield made


def test_it_is_dispatched_and_what_is_left_out_is_its_default(broker: BrokerProcess) -> None:
    assert broker.admin("paint", colour="red") == {"colour": "red", "coats": 2}
    assert broker.admin("paint", colour="red", coats=9) == {"colour": "red", "coats": 9}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "paint: argument 'colour' is missing"),
        ({"colour": 7}, "paint: argument 'colour' must be str"),
        ({"colour": "red", "coats": 10}, "paint: argument 'coats' is a whole number from 1 to 9, not 10"),
        ({"colour": "red", "coats": True}, "paint: argument 'coats' must be int"),
        ({"colour": "red", "coat": 1}, "paint: unknown argument 'coat'; there are: colour, coats"),
        ({"colour": "\ud800"}, "argument 'colour' has half of a surrogate pair"),
    ],
)
def test_its_arguments_are_checked(broker: BrokerProcess, arguments: dict[str, object], said: str) -> None:
    row = broker.admin_row({"id": 1, "op": "paint", "args": arguments})
    assert row["error"]["condition"] == "amqp:invalid-field"
    assert said in row["error"]["description"]


def test_it_leaves_a_notice_of_what_came_of_it(broker: BrokerProcess) -> None:
    broker.admin("paint", colour="blue")
    broker.admin_row({"id": 1, "op": "paint", "args": {}})
    events = broker.admin("events", name="admin")["events"]
    outcomes = [each["fields"]["outcome"] for each in events if each["fields"]["operation"] == "paint"]
    assert outcomes[-2:] == ["done", "amqp:invalid-field"]


def test_it_is_among_those_that_are_listed(broker: BrokerProcess) -> None:
    answer = json.loads(broker.command("admin", "--socket", str(broker.admin_socket), "operations"))
    (listed,) = [each for each in answer["operations"] if each["operation"] == "paint"]
    assert listed == json.loads(json.dumps(ROW.shown()))
    assert (listed["sentence"], listed["effect"]) == ("give the node a colour.", "changes")


def test_what_there_is_not_is_said_with_what_there_is(broker: BrokerProcess) -> None:
    with pytest.raises(BrokerFailed, match=r"unknown operation 'pant'; there are: .*paint"):
        broker.admin("pant")


def test_what_looks_takes_no_word_that_does_nothing(broker: BrokerProcess) -> None:
    with pytest.raises(BrokerFailed, match="status: unknown argument 'name'; it takes none"):
        broker.admin("status", name="x")
