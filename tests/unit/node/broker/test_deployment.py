"""Addresses and queues of the file of options: made at start and on reload, changed, and deleted where that is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.config.file.load import parse
from mqbroker.config.slices import BrokerOptions
from mqbroker.core.address.deployed_addresses import faults_of
from mqbroker.node.values import inputs as given

from tests.golden.conversation import Conversation, ScriptStage
from tests.unit.admin.site import Site

ORDERS = """
[[addresses]]
name = "orders"
routing-types = ["ANYCAST", "MULTICAST"]
[[addresses.anycast]]
name = "orders"
[[addresses.multicast]]
name = "audit"
[[addresses]]
name = "prices"
routing-types = ["MULTICAST"]
"""
ONE = '[[addresses]]\nname = "orders"\n[[addresses.anycast]]\nname = "q"\n'
GONE = ("queue-undeployed", "deployment-differs")


def read(text: str) -> BrokerOptions:
    found = parse(text)
    assert isinstance(found, BrokerOptions), [str(fault) for fault in found]
    return found


def site_with(text: str, said: dict[str, dict[str, Any]] | None = None) -> Site:
    """A node that was started with these addresses."""
    site = Site(said)
    take(site, text)
    site.restart()
    return site


def take(site: Site, text: str) -> None:
    site.stage.options = replace(site.stage.options, addresses=read(text).addresses)


def reload(site: Site, text: str) -> list[str]:
    """What could not be done."""
    take(site, text)
    remarks: list[str] = site.do("config-reload")["remarks"]
    return remarks


def queues(site: Site) -> dict[str, tuple[str, str]]:
    rows = site.do("queues")["queues"]
    return {row["name"]: (row["address"], row["routing_type"]) for row in rows}


def addresses(site: Site) -> dict[str, list[str]]:
    return {row["name"]: row["routing_types"] for row in site.do("addresses")["addresses"]}


def shown(site: Site, queue: str) -> dict[str, Any]:
    found: dict[str, Any] = site.do("queue-show", name=queue)
    return found


BOTH = {"orders": ["anycast", "multicast"], "prices": ["multicast"]}
MADE = {"orders": ("orders", "anycast"), "audit": ("orders", "multicast")}


@pytest.mark.option("addresses.name", "addresses.routing-types", "addresses.anycast", "addresses.multicast")
@pytest.mark.option("addresses.anycast.name")
@pytest.mark.parametrize("is_reloaded", [False, True])
def test_what_is_missing_is_made_at_start_and_on_reload_and_stays(is_reloaded: bool) -> None:
    site = Site() if is_reloaded else site_with(ORDERS)
    if is_reloaded:
        assert reload(site, ORDERS) == []
    assert (queues(site), addresses(site)) == (MADE, BOTH)
    row = site.do("address-show", name="prices")
    assert (row["configured"], row["auto_created"]) == (True, False)
    site.send("orders", "one")
    before = site.stage.broker.journal.position
    assert reload(site, ORDERS) == []
    assert site.stage.broker.journal.position == before, "what is there is not written again"
    site.restart()
    assert (queues(site), addresses(site)) == (MADE, BOTH)
    assert site.counts() == {"orders": 1, "audit": 1}
    site.stage.wait(100_000)
    assert addresses(site) == BOTH, "they do not go by themselves"


@pytest.mark.option("addresses.routing-types")
def test_an_address_takes_queues_of_its_types_only() -> None:
    site = site_with(ORDERS)
    assert site.refused("queue-create", name="x", address="prices")[0] == "amqp:not-allowed"
    assert reload(site, '[[addresses]]\nname = "prices"\n') == []
    assert addresses(site)["prices"] == ["multicast"], "nothing else is said of it"
    site.do("queue-create", name="x", address="free", routing_type="multicast")
    assert reload(site, '[[addresses]]\nname = "free"\nrouting-types = ["ANYCAST"]\n') == []
    assert addresses(site)["free"] == ["anycast", "multicast"], "what is bound there stays"


VALUES = {
    "max-consumers": (7, "max_consumers"),
    "exclusive": (True, "exclusive"),
    "consumers-before-dispatch": (2, "consumers_before_dispatch"),
    "delay-before-dispatch": (50, "delay_before_dispatch_ms"),
    "group-rebalance": (True, "group_rebalance"),
    "group-buckets": (5, "group_buckets"),
    "purge-on-no-consumers": (True, "purge_on_no_consumers"),
    "filter": ('"a = 1"', "selector"),
}
FIXED = {
    "durable": (False, "durable"),
    "last-value": (True, "last_value"),
    "non-destructive": (True, "non_destructive"),
    "ring-size": (3, "ring_size"),
}


def toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain(value: object) -> object:
    return value.strip('"') if isinstance(value, str) else value


@pytest.mark.slow
@pytest.mark.option("addresses.anycast.max-consumers", "addresses.anycast.exclusive", "addresses.anycast.filter")
@pytest.mark.option("addresses.anycast.consumers-before-dispatch", "addresses.anycast.delay-before-dispatch")
@pytest.mark.option("addresses.anycast.group-rebalance", "addresses.anycast.group-buckets")
@pytest.mark.option("addresses.anycast.purge-on-no-consumers")
@pytest.mark.parametrize("option", VALUES)
def test_an_option_makes_a_queue_and_changes_one_that_is_there(option: str) -> None:
    value, field = VALUES[option]
    said = f"{ONE}{option} = {toml(value)}\n"
    assert shown(site_with(said), "q")[field] == plain(value)
    site = site_with(ONE)
    default = shown(site, "q")[field]
    assert default != plain(value)
    assert reload(site, said) == []
    assert shown(site, "q")[field] == plain(value)
    site.restart()
    assert shown(site, "q")[field] == plain(value)
    assert reload(site, ONE) == []
    assert shown(site, "q")[field] == default


@pytest.mark.option("addresses.anycast.durable", "addresses.anycast.last-value", "addresses.anycast.non-destructive")
@pytest.mark.option("addresses.anycast.ring-size")
@pytest.mark.parametrize("option", FIXED)
def test_what_a_queue_keeps_is_decided_when_it_is_made(option: str) -> None:
    value, field = FIXED[option]
    said = f"{ONE}{option} = {toml(value)}\nmax-consumers = 7\n"
    assert shown(site_with(said), "q")[field] == value
    site = site_with(ONE)
    default = shown(site, "q")[field]
    assert reload(site, said) == [f"queue 'q' keeps its {option}; delete it to have it made anew"]
    assert (shown(site, "q")[field], shown(site, "q")["max_consumers"]) == (default, 7)
    assert [one.event for one in site.stage.notices if one.event in GONE] == ["deployment-differs"]
    site.do("queue-delete", name="q", configured=True)
    assert reload(site, said) == []
    assert shown(site, "q")[field] == value


def test_what_the_file_declares_is_not_deleted_by_mistake() -> None:
    """With whatever it holds; the next start would make it again, empty."""
    site = site_with(ONE)
    site.do("send", address="orders", messages=[{"body": "x"}])
    for force in ({}, {"force": True}):
        condition, why = site.refused("queue-delete", name="q", **force)
        assert (condition, "is in broker.toml" in why) == ("amqp:precondition-failed", True)
    assert shown(site, "q")["message_count"] == 1
    assert site.do("queue-delete", name="q", configured=True)["messages"] == 1
    site.restart()
    assert shown(site, "q")["message_count"] == 0


def test_what_the_file_declares_no_longer_is_deleted_as_any_other() -> None:
    site = site_with(ONE)
    reload(site, "")
    assert shown(site, "q")["configured"]
    assert site.do("queue-delete", name="q")["messages"] == 0
    site.restart()
    assert "q" not in site.stage.broker.store.queues


@pytest.mark.option("addresses.anycast.last-value-key", "addresses.anycast.group-first-key")
def test_properties_that_a_queue_looks_for() -> None:
    site = site_with(ONE + 'last-value-key = "color"\ngroup-first-key = "first"\n')
    kind = site.stage.broker.store.queues["q"].kind
    assert (kind.last_value, kind.last_value_key, kind.group_first_key) == (True, "color", "first")


def test_what_is_not_said_of_a_queue_is_as_the_settings_say() -> None:
    site = site_with(ONE, {"orders": {"default_max_consumers": 4, "default_exclusive_queue": True}})
    assert (shown(site, "q")["max_consumers"], shown(site, "q")["exclusive"]) == (4, True)
    site = site_with(ONE + "max-consumers = -1\n", {"orders": {"default_max_consumers": 4}})
    assert shown(site, "q")["max_consumers"] == -1


def talk(said: dict[str, dict[str, Any]], text: str, *commands: str) -> Conversation:
    """A node with these addresses, and clients that did this."""
    script = Conversation()
    script.stage = ScriptStage(script, address_settings=said)
    reload_of(script, text)
    for command in commands:
        script.run(command)
    return script


def reload_of(script: Conversation, text: str) -> list[str]:
    """What the clients hear of it."""
    script.lines = []
    script.stage.options = replace(script.stage.options, addresses=read(text).addresses)
    assert script.stage.admin("config-reload")["remarks"] == []
    return script.lines


@pytest.mark.option("addresses.anycast.filter")
@pytest.mark.parametrize("place", ["orders", "orders::q"])
def test_a_filter_that_changes_holds_for_what_comes_then(place: str) -> None:
    script = talk({}, ONE, "connect p", f"attach p to {place}")
    store = script.stage.broker.store

    def held(words: str) -> int:
        script.run(f"publish p {place}{words}")
        return store.queues["q"].message_count

    assert held("") == 1
    reload_of(script, ONE + "filter = \"color = 'red'\"\n")
    assert (held(""), held(" color=red")) == (1, 2)
    reload_of(script, ONE)
    assert held("") == 3


def test_a_queue_that_came_by_itself_is_one_of_the_file_from_then_on() -> None:
    site = Site()
    site.send("q", "one")
    assert shown(site, "q")["auto_created"]
    site.take("q")
    site.stage.admin("settle", 9, tag=1)
    assert reload(site, ONE.replace("orders", "q")) == []
    assert not shown(site, "q")["auto_created"]
    site.stage.wait(100_000)
    assert "q" in queues(site)


def test_what_cannot_be_made_is_said_and_the_rest_is_made() -> None:
    site = Site()
    site.do("queue-create", name="q", address="elsewhere")
    (remark,) = reload(site, ONE + ORDERS.replace('"orders"', '"news"'))
    assert remark == "queue 'q': it belongs to address 'elsewhere'; delete it first"
    assert {"news", "audit"} <= set(queues(site))
    assert queues(site)["q"] == ("elsewhere", "anycast")


def test_a_type_that_an_administrator_did_not_want_is_refused() -> None:
    site = Site()
    site.do("address-create", name="orders", routing_types=["multicast"])
    (remark,) = reload(site, ONE)
    assert remark.startswith("queue 'q': address 'orders' was made for multicast queues")


# -- what is gone from the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stays", [True, False])
def test_a_queue_that_the_file_has_at_another_address_goes_and_comes_where_it_is_to_be(stays: bool) -> None:
    """Its old address is gone from the file as well, or is there without it."""
    said = {"#": {"config_delete_addresses": "FORCE", "config_delete_queues": "FORCE"}}
    site = site_with(ONE, said)
    site.send("orders", "one")
    moved = ONE.replace("orders", "elsewhere")
    assert reload(site, '[[addresses]]\nname = "orders"\n' * stays + moved) == []
    assert (queues(site), site.counts()) == ({"q": ("elsewhere", "anycast")}, {"q": 0})
    site.restart()
    assert queues(site) == {"q": ("elsewhere", "anycast")}


@pytest.mark.option("address-settings.config-delete-queues")
@pytest.mark.parametrize("is_reloaded", [True, False])
@pytest.mark.parametrize("is_forced", [True, False])
def test_queues_that_are_gone_from_the_file(is_reloaded: bool, is_forced: bool) -> None:
    site = site_with(ORDERS, {"#": {"config_delete_queues": "FORCE"}} if is_forced else None)
    site.do("queue-create", name="mine", address="orders")
    site.send("orders", "one")
    rest = ORDERS.replace('[[addresses.multicast]]\nname = "audit"\n', "")
    if is_reloaded:
        reload(site, rest)
    else:
        take(site, rest)
        site.restart()
    assert set(queues(site)) == {"mine", "orders"} | (set() if is_forced else {"audit"})
    site.restart()
    assert set(queues(site)) == {"mine", "orders"} | (set() if is_forced else {"audit"})
    said = [one.fields for one in site.stage.notices if one.event == "queue-undeployed"]
    assert said == ([{"queue": "audit", "messages": 1}] if is_forced else [])


@pytest.mark.option("address-settings.config-delete-addresses")
@pytest.mark.parametrize("is_forced", [True, False])
def test_addresses_that_are_gone_from_the_file_go_with_all_they_have(is_forced: bool) -> None:
    site = site_with(ORDERS, {"#": {"config_delete_addresses": "FORCE"}} if is_forced else None)
    site.do("queue-create", name="mine", address="orders")
    site.do("address-create", name="by-hand")
    site.do("queue-create", name="other", address="free")
    reload(site, "")
    kept = {"by-hand", "free"} if is_forced else {"by-hand", "free", "orders", "prices"}
    assert set(addresses(site)) == kept
    assert set(queues(site)) == ({"other"} if is_forced else {"other", "mine", "orders", "audit"})
    site.restart()
    assert set(addresses(site)) == kept


def test_those_who_use_what_goes_are_told() -> None:
    said = {"#": {"config_delete_addresses": "FORCE"}}
    script = talk(said, ONE, "connect c", "connect p", "attach c from q credit=5", "attach p to orders",
                  "publish p orders")  # fmt: skip
    heard = reload_of(script, "")
    assert sorted(line.split()[0] for line in heard if "amqp:resource-deleted" in line) == ["c", "p"]
    assert script.stage.broker.store.queues == {}
    assert script.stage.broker.store.addresses == {}


@pytest.mark.parametrize("comes_again", [False, True])
def test_a_queue_that_a_transaction_holds_goes_when_that_ends_unless_the_file_wants_it_again(comes_again: bool) -> None:
    said = {"#": {"config_delete_queues": "FORCE"}}
    script = talk(said, ONE, "connect c", "attach c from q credit=5", "attach c to orders", "publish c orders",
                  "declare c t1", "accept c m1 txn=t1")  # fmt: skip
    queues = script.stage.broker.store.queues
    reload_of(script, '[[addresses]]\nname = "orders"\n')
    assert list(queues) == ["q"]
    if comes_again:
        reload_of(script, ONE)
    script.run("commit c t1")
    assert list(queues) == (["q"] if comes_again else [])


def test_the_answer_to_a_reload_that_made_something_waits_for_the_disk() -> None:
    site = Site()
    site.stage.is_disk_held = True
    take(site, ONE)
    request = site.stage.ask("config-reload")
    assert request not in site.stage.replies
    site.stage.is_disk_held = False
    site.stage.run()
    assert site.stage.replies[request].result["remarks"] == []


# -- what a file may hold ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (ONE + ONE.replace('"q"', '"r"'), "addresses.1.name"),
        (ONE + ONE.replace('"orders"', '"other"'), "addresses.1.anycast.0.name"),
        (ONE.replace("[[addresses.anycast]]", 'routing-types = ["MULTICAST"]\n[[addresses.anycast]]'),
         "addresses.0.anycast"),
        ('[[addresses]]\nname = "a::b"\n', "addresses.0.name"),
        ('[[addresses]]\nname = "a"\nrouting-types = ["ANYCAST", "ANYCAST"]\n', "addresses.0.routing-types"),
        (ONE + "ring-sise = 3\n", "addresses.0.anycast.0.ring-sise"),
        (ONE + "max-consumers = -2\n", "addresses.0.anycast.0.max-consumers"),
    ],
)  # fmt: skip
def test_faults_of_the_file(text: str, path: str) -> None:
    found = parse(text)
    assert isinstance(found, list)
    assert [fault.path for fault in found] == [path]


def test_filters_that_are_no_selectors_are_found_before() -> None:
    (fault,) = faults_of(read(ONE + 'filter = "color ="\n').addresses)
    assert fault.path == "addresses.0.anycast.0.filter"
    assert faults_of(read(ONE + 'filter = "color = 1"\n').addresses) == []


@pytest.mark.parametrize("is_asked", [True, False], ids=["by an administrator", "by a signal"])
def test_a_reload_that_a_stop_overtakes_writes_nothing_behind_the_end_of_the_journal(is_asked: bool) -> None:
    site = site_with("")
    stage = site.stage
    take(site, ONE)
    if is_asked:
        stage.give(given.AdminRequest(901, 1, "config-reload", {}))
    stage.give(given.Stop())
    if not is_asked:
        stage.give(given.OptionsChanged(stage.options))
    stage.run()
    assert stage.halted == 0
    if is_asked:
        error = {"condition": "amqp:connection:forced", "description": "config-reload: the broker stops"}
        assert stage.replies[901].error == error
    assert stage.disk.load().was_clean
    stage.start()
    assert queues(site) == {"q": ("orders", "anycast")}, "the next start reads them"
