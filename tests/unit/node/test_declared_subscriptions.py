"""Queues that have the name of a subscription and are none: no subscriber ends them, or has them begin anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.config.declarations.options import BrokerFile, to_slices
from mqbroker.node.values import inputs as given

from tests.golden.conversation import Conversation, ScriptStage

DURABLE = "durable as=s"
SHARED = "durable shared as=s"
VOLATILE = "shared as=s"
NAMES = {DURABLE: "c.s", SHARED: "c.s", VOLATILE: "c.s:shared-volatile"}


def declare(script: Conversation, **queue: Any) -> None:
    """The file of options declares a queue of topic t from now on."""
    said = {"addresses": [{"name": "t", "multicast": [queue]}]} if queue else {}
    addresses = to_slices(BrokerFile.model_validate(said)).addresses
    options = replace(script.stage.broker.offered, addresses=addresses)
    script.stage.give(given.OptionsChanged(options, {}))
    script.stage.run()
    script.stage.options = options


def talk(**settings: Any) -> Conversation:
    script = Conversation()
    script.stage = ScriptStage(script, address_settings={"#": settings} if settings else {})
    script.run("connect c")
    return script


def counts(script: Conversation) -> dict[str, int]:
    return {name: queue.message_count for name, queue in script.stage.broker.store.queues.items()}


def fill(script: Conversation, address: str = "t") -> None:
    script.stage.admin("send", address=address, messages=[{"body": "one"}, {"body": "two"}])


@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("words", [DURABLE, SHARED, VOLATILE])
def test_what_the_file_declares_stays_with_its_messages(words: str, is_durable: bool) -> None:
    is_too_little = not is_durable and words != VOLATILE  # who asks for a durable one does not get what a restart ends
    script, name = talk(), NAMES[words]
    declare(script, name=name, durable=is_durable)
    fill(script)
    said = " ".join(script.run(f"attach c from t topic {words}"))
    assert ("amqp:precondition-failed" in said) == ("is gone" in said) == is_too_little
    if not is_too_little:
        assert "is gone:" not in " ".join(script.run("detach c t")), "who closes did nothing wrong"
    assert counts(script) == {name: 2}
    script.run("close c")
    script.stage.wait(61_000)
    assert counts(script) == {name: 2}


@pytest.mark.parametrize("words", [DURABLE, SHARED, VOLATILE])
def test_other_terms_than_those_of_the_file_are_refused(words: str) -> None:
    script, name = talk(), NAMES[words]
    declare(script, name=name, filter="colour = 'red' OR colour IS NULL")
    fill(script)
    for terms in ("", "select=colour='blue'"):
        said = " ".join(script.run(f"attach c from t topic {words} {terms}"))
        assert "amqp:precondition-failed" in said
        assert f"the file of options declares queue '{name}'" in said
    assert "amqp:precondition-failed" in " ".join(script.run(f"attach c from other topic {words}"))
    assert counts(script) == {name: 2}


def test_who_asks_for_the_end_of_a_declared_queue_is_told_that_it_stays() -> None:
    script = talk()
    declare(script, name="c.s")
    fill(script)
    script.run("attach c from nobody as=s")
    assert "unsubscribe-refused" in " ".join(script.run("detach c nobody"))
    assert counts(script) == {"c.s": 2}


@pytest.mark.parametrize("end", ["detach c t", "close c", "break c"])
@pytest.mark.parametrize("words", [DURABLE, VOLATILE])
def test_a_subscription_that_the_file_declares_while_it_is_used_stays(words: str, end: str) -> None:
    script, name = talk(), NAMES[words]
    script.run(f"attach c from t topic {words}")
    fill(script)
    declare(script, name=name, durable=words == DURABLE)
    script.run(end)
    script.stage.wait(61_000)
    assert counts(script) == {name: 2}


def test_a_queue_that_leaves_the_file_goes_where_the_settings_say_so() -> None:
    script = talk(config_delete_queues="FORCE")
    declare(script, name="c.s")
    fill(script)
    declare(script)
    assert counts(script) == {}


@pytest.mark.parametrize("terms", ["", "select=a=1"])
@pytest.mark.parametrize("address", ["news", "c.s"])
def test_a_queue_for_consumers_of_that_name_is_nobodys_subscription(address: str, terms: str) -> None:
    script = talk()
    script.stage.admin("queue-create", name="c.s", address=address)
    fill(script, address)
    for at in ("news", "other"):
        assert "amqp:precondition-failed" in " ".join(script.run(f"attach c from {at} topic {DURABLE} {terms}"))
    assert "amqp:not-found" in " ".join(script.run("attach c from nobody as=s"))
    assert counts(script) == {"c.s": 2}


def test_a_queue_for_dead_letters_is_nobodys_subscription() -> None:
    script = talk(dead_letter_address="dead", max_delivery_attempts=1, auto_create_dead_letter_resources=True,
                  dead_letter_queue_prefix="c.", dead_letter_queue_suffix="")  # fmt: skip
    script.run("attach c to s")
    script.run("publish c s durable")
    script.run("attach c from s credit=1")
    script.run("reject c m1")
    assert counts(script)["c.s"] == 1
    assert "amqp:precondition-failed" in " ".join(script.run(f"attach c from dead topic {DURABLE}"))
    assert "amqp:not-found" in " ".join(script.run("attach c from nobody as=s"))
    assert counts(script)["c.s"] == 1


def test_a_queue_that_was_made_by_using_it_stays_when_a_subscriber_of_its_name_leaves() -> None:
    script = talk()
    script.run("attach c from t::c.s topic")
    script.run("detach c t::c.s")
    fill(script)
    script.run(f"attach c from t topic {DURABLE}")
    script.run("detach c t")
    assert counts(script) == {"c.s": 2}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_containers_whose_subscriptions_have_one_name_do_not_end_each_others(is_restarted: bool) -> None:
    script = talk()
    script.run("connect a.b a")
    script.run("attach a.b from t topic durable as=c")
    fill(script)
    script.run("close a.b")
    if is_restarted:
        script.run("crash")
        script.run("start")
        script.run("connect a")
    said = " ".join(script.run("attach a from t topic durable as=b.c"))
    assert "container 'a.b' subscribes by queue 'a.b.c'" in said
    assert "amqp:not-found" in " ".join(script.run("attach a from nobody as=b.c"))
    assert counts(script) == {"a.b.c": 2}
    script.run("connect a.b")
    assert "is gone" not in " ".join(script.run("attach a.b from t topic durable as=c"))


def test_what_subscribers_made_begins_anew_with_other_terms_and_ends_with_them() -> None:
    script = talk()
    script.run(f"attach c from t topic {DURABLE}")
    script.run("suspend c t")
    fill(script)
    script.run(f"attach c from t topic {DURABLE} select=a=1")
    assert counts(script) == {"c.s": 0}
    script.run("detach c t")
    assert counts(script) == {}
