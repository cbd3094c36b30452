"""The examples of docs/CLIENT.md do what they show, against a real broker."""

from __future__ import annotations

import re
from pathlib import Path

import mqbroker.client as mq
import pytest
from mqbroker.client import sync
from mqbroker.client.options import ReceiverOptions, ReceiverTerms, SenderOptions, SenderTerms, Settings
from mqbroker.client.uri import OPTIONS, POLICIES

from tests.support.broker_process import BrokerProcess

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "CLIENT.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_examples_run(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"amqp://{broker.user}:{broker.password}@{broker.host}:{broker.port}"
    assert len(EXAMPLES) >= 12
    for number, example in enumerate(EXAMPLES):
        exec(compile(example, f"example {number} of CLIENT.md", "exec"), {"URI": uri, "__name__": "example"})
    printed = capsys.readouterr().out
    assert printed.startswith("two coffees\ntwo coffees\n")
    assert "HELLO\n" in printed
    assert printed.count("done: a job\n") == 1
    assert "20 jobs done\n" in printed
    assert sorted(re.findall(r"done: job (\d+)", printed), key=int) == [str(n) for n in range(20)]
    assert "connected to" in printed


def test_the_page_names_every_option_and_its_default() -> None:
    rows = dict(re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", PAGE, re.MULTILINE))
    told = {name: default for names, default in rows.items() for name in re.findall(r"`([^`]+)`", names)}
    assert set(OPTIONS) <= set(told)
    defaults = Settings()
    for name, (field, _) in OPTIONS.items():
        if told[name].isdigit():
            assert int(told[name]) == getattr(defaults, field), name
    assert all(f"`{policy}`" in PAGE for policy in POLICIES)


def test_both_apis_have_the_same_names() -> None:
    for theirs, ours in ((mq.Connection, sync.Connection), (mq.Sender, sync.Sender), (mq.Receiver, sync.Receiver),
                         (mq.ReceivedMessage, sync.ReceivedMessage), (mq.Transaction, sync.Transaction)):  # fmt: skip
        missing = {name for name in _public(theirs) if re.search(rf"\b{name}\(", PAGE)} - _public(ours)
        assert missing == set(), theirs


def _public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_options_of_calls_are_those_of_the_terms() -> None:
    assert set(SenderOptions.__annotations__) | {"address"} == set(SenderTerms.__slots__)
    assert set(ReceiverOptions.__annotations__) | {"address", "temporary"} == set(ReceiverTerms.__slots__)
