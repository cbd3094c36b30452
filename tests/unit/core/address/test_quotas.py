"""How many queues and addresses a user and a connection may have: what counts, for whom, and how it is given back."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp.sasl import SaslClient
from mqbroker.base.errors import Refused
from mqbroker.config.declarations.options import BrokerFile, to_slices
from mqbroker.config.users import make_verifier
from mqbroker.core.store.store import Store
from mqbroker.node.values import inputs as given
from mqbroker.node.values.repeated_notices import KEYS_MAX, PERIOD_NS
from mqbroker.wire.performatives import Open

from tests.golden.conversation import Conversation, ScriptStage
from tests.support.stage import Talker

SALT = b"0123456789abcdef"
WAYS = {  # what one link makes: (queues, addresses)
    "to {}": (1, 1),
    "to {} topic": (0, 1),
    "to {0}::{0}.one": (1, 1),
    "from {}": (1, 1),
    "from {} topic": (1, 1),
    "from {0} topic durable as={0}": (1, 1),
    "from {0} topic shared as={0}": (1, 1),
    "from {0}::{0}.two": (1, 1),
    "to temporary as={0}": (1, 1),
    "from temporary as={0}": (1, 1),
}


class UserStage(ScriptStage):
    """A node whose clients log in by their names."""

    def __init__(self, script: Conversation, *names: str, **limits: int) -> None:
        super().__init__(script, listener={"sasl_mechanisms": ("SCRAM-SHA-256",)}, limits=limits)
        self.users = {name: make_verifier("right", SALT, ("client",)) for name in names}
        self.crash()
        self.start()

    def connect(self, name: str, login: SaslClient | None = None, open_: Open | None = None) -> Talker:
        return super().connect(name, login or SaslClient(name, "right", b"n" * 32), open_)


def talk(*clients: str, **limits: int) -> Conversation:
    """A node with these bounds, and clients that log in by ANONYMOUS."""
    script = Conversation()
    script.stage = ScriptStage(script, limits=limits)
    for name in clients or ("c",):
        script.run(f"connect {name}")
    return script


def shares(script: Conversation) -> dict[str, tuple[int, int]]:
    return {name: (one.queues, one.addresses) for name, one in script.stage.broker.store.quotas.users.items()}


def is_refused(lines: list[str]) -> bool:
    return any("amqp:resource-limit-exceeded" in line and "-max is" in line for line in lines)


def reload(script: Conversation, **limits: int) -> None:
    stage = script.stage
    options = replace(stage.broker.offered, limits=replace(stage.broker.offered.limits, **limits))
    stage.give(given.OptionsChanged(options, {}))
    stage.run()


@pytest.mark.option("limits.queues-per-connection-max")
@pytest.mark.option("limits.queues-per-user-max")
@pytest.mark.option("limits.addresses-per-connection-max")
@pytest.mark.option("limits.addresses-per-user-max")
@pytest.mark.parametrize("whose", ["connection", "user"])
@pytest.mark.parametrize("what", ["queues", "addresses"])
@pytest.mark.parametrize("way", WAYS)
def test_one_more_than_the_bound_is_refused_on_its_link(way: str, what: str, whose: str) -> None:
    made = dict(zip(("queues", "addresses"), WAYS[way], strict=True))
    script = talk("c", "d", **{f"{what}_per_{whose}_max": 2})
    lines = [script.run(f"attach c {way.format(name)}") for name in ("one", "two", "three")]
    is_bounded = bool(made[what])
    assert [is_refused(each) for each in lines] == [False, False, is_bounded]
    count = 2 if is_bounded else 3
    assert shares(script) == {"anonymous": (made["queues"] * count, made["addresses"] * count)}
    assert is_refused(script.run(f"attach d {way.format('four')}")) == (is_bounded and whose == "user")
    assert not script.run("attach c to one")[0].startswith("c: refused"), "what is there is used as before"


def test_a_refusal_says_what_is_bounded_and_leaves_connection_and_node_as_they_were() -> None:
    script = talk("c", queues_per_connection_max=1)
    script.run("attach c to one")
    said = script.run("attach c to two")
    why = "this connection has made 1 queues that are there, and queues-per-connection-max is 1"
    assert f"c link two is gone: amqp:resource-limit-exceeded ({why})" in said
    assert set(script.stage.broker.store.queues) == {"one"} == set(script.stage.broker.store.addresses)
    assert "c learns accepted: m1" in script.run("publish c one")


def test_by_default_one_connection_cannot_take_all_that_there_may_be() -> None:
    limits = talk().stage.options.limits
    assert 0 < limits.queues_per_connection_max <= limits.queues_max // 10
    assert 0 < limits.addresses_per_connection_max <= limits.queues_max // 10


PASSING = [way for way in WAYS if "temporary" in way or ("topic" in way and "durable" not in way)]


@pytest.mark.parametrize("way", PASSING)
def test_what_ends_with_its_link_is_given_back(way: str) -> None:
    script = talk("c", queues_per_connection_max=1, addresses_per_connection_max=1)
    for _ in range(3):
        lines = script.run(f"attach c {way.format('one')}")
        assert not is_refused(lines)
        name = "temporary" if "temporary" in way else "one"
        script.run(f"detach c {name}")
        script.stage.wait(61_000)  # an address waits for somebody who comes back
        if not script.stage.broker.peers:
            script.run("connect c")
    assert shares(script) == {}


def test_what_a_connection_made_counts_for_its_user_when_it_is_gone_and_for_nobody_when_it_is_deleted() -> None:
    script = talk("c", queues_per_connection_max=2)
    for name in ("one", "two"):
        script.run(f"attach c to {name}")
    assert [(each.queues, each.addresses) for each in script.stage.broker.store.quotas.connections.values()] == [(2, 2)]
    script.run("close c")
    assert script.stage.broker.store.quotas.connections == {}
    assert shares(script) == {"anonymous": (2, 2)}
    script.stage.admin("queue-delete", name="one")
    assert shares(script) == {"anonymous": (1, 1)}
    script.stage.admin("queue-delete", name="two")
    assert shares(script) == {}


def test_what_administrators_and_nodes_make_counts_for_nobody() -> None:
    script = talk("c")
    script.stage.admin("queue-create", name="one")
    script.stage.admin("address-create", name="two")
    script.stage.admin("send", address="three", messages=[{"body": "x"}])
    assert shares(script) == {}
    script.run("attach c to one")
    script.run("attach c from one::more")
    assert shares(script) == {"anonymous": (1, 0)}


def test_a_reload_changes_bounds_and_leaves_what_is_there() -> None:
    script = talk("c", "d")
    for name in ("one", "two", "three"):
        script.run(f"attach c to {name}")
    reload(script, queues_per_user_max=2)
    assert is_refused(script.run("attach d to four"))
    assert not is_refused(script.run("attach d to three"))
    assert len(script.stage.broker.store.queues) == 3
    reload(script, queues_per_user_max=4)
    assert not is_refused(script.run("attach d to four"))
    assert is_refused(script.run("attach d to five"))


def test_what_the_file_declares_counts_for_nobody_any_more() -> None:
    script = talk("c")
    script.run("attach c to one")
    stage = script.stage
    file = script.stage.options
    file_said = {"addresses": [{"name": "one", "anycast": [{"name": "one"}]}]}
    declared = to_slices(BrokerFile.model_validate(file_said)).addresses
    stage.give(given.OptionsChanged(replace(file, addresses=declared), {}))
    stage.run()
    assert shares(script) == {}
    stage.crash()
    stage.start()
    assert shares(script) == {}


def test_messages_without_a_link_of_their_own_and_transactions_count_as_well() -> None:
    script = talk("c", queues_per_connection_max=1)
    script.run("attach c to nobody")
    script.run("publish c nobody to=one")
    assert any("rejected" in line for line in script.run("publish c nobody to=two"))
    assert shares(script) == {"anonymous": (1, 1)}


def test_users_are_counted_apart_and_anonymous_ones_together() -> None:
    script = talk("c", "d", queues_per_user_max=1)
    script.run("attach c to one")
    assert is_refused(script.run("attach d to two"))
    script.stage = UserStage(script, "bob", "eve", queues_per_user_max=1)
    for name in ("bob", "eve"):
        script.run(f"connect {name}")
        assert not is_refused(script.run(f"attach {name} to {name}s"))
        assert is_refused(script.run(f"attach {name} to more"))
    assert shares(script) == {"bob": (1, 1), "eve": (1, 1)}
    script.run("crash")
    script.run("start")
    script.run("connect bob")
    assert is_refused(script.run("attach bob to more")), "counted over a restart"
    assert shares(script) == {"bob": (1, 1), "eve": (1, 1)}


def test_refusals_are_told_at_once_and_then_once_in_a_while_with_their_count() -> None:
    script = talk("c", queues_per_connection_max=1)
    script.run("attach c to one")
    told = [line for number in range(50) for line in script.run(f"attach c to more{number}") if "quota-reached" in line]
    assert len(told) == 1
    assert "user=anonymous count=1" in told[0]
    before = len(script.stage.notices)
    script.stage.wait(PERIOD_NS // 1_000_000)
    (later,) = [each for each in script.stage.notices[before:] if each.event == "quota-reached"]
    assert later.fields["count"] == 49
    assert script.stage.broker.store.quotas.refused_total == 50


def test_however_many_users_are_refused_the_log_is_bounded() -> None:
    script = talk("c", queues_per_user_max=0)
    broker = script.stage.broker
    actor = next(iter(broker.peers.values())).actor
    for number in range(100):
        with pytest.raises(Refused):
            broker.store.target_for("one", actor._replace(user=f"user{number}"))
    script.stage.step()
    assert sum(each.event == "quota-reached" for each in script.stage.notices) == KEYS_MAX
    script.stage.wait(PERIOD_NS // 1_000_000)
    told = [each.fields for each in script.stage.notices if each.event == "quota-reached"]
    assert [(each["user"], each["count"]) for each in told[KEYS_MAX:]] == [("(others)", 100 - KEYS_MAX)]


def test_an_address_that_somebody_else_wants_counts_for_its_queues_alone() -> None:
    script = talk("c", addresses_per_connection_max=1)
    script.stage.admin("address-create", name="news")
    script.run("attach c from news::one")
    assert shares(script) == {"anonymous": (1, 1)}
    script.stage.admin("queue-delete", name="one", force=True)
    assert shares(script) == {}
    assert not is_refused(script.run("attach c to mine"))
    assert shares(script) == {"anonymous": (1, 1)}


@pytest.mark.parametrize("said", ["file", "pause"])
def test_an_address_of_which_somebody_says_something_counts_for_nobody_also_after_a_restart(said: str) -> None:
    script = talk("c", addresses_per_connection_max=1)
    script.run("attach c to news topic")
    assert shares(script) == {"anonymous": (0, 1)}
    stage = script.stage
    if said == "file":
        declared = to_slices(BrokerFile.model_validate({"addresses": [{"name": "news"}]})).addresses
        stage.give(given.OptionsChanged(replace(stage.options, addresses=declared), {}))
        stage.run()
    else:
        stage.admin("address-pause", name="news")
    assert shares(script) == {}
    assert not is_refused(script.run("attach c to mine topic"))
    stage.crash()
    stage.start()
    assert list(stage.broker.store.addresses) == ["news"]
    assert shares(script) == {}


def test_an_address_counts_for_who_made_it_when_queues_of_others_are_gone() -> None:
    script = talk("c", "d", addresses_per_connection_max=1)
    script.run("attach c to news topic")
    script.run("attach d from news::one")
    assert is_refused(script.run("attach d to two topic"))
    script.stage.admin("queue-delete", name="one", force=True)
    assert not is_refused(script.run("attach d to two topic"))
    assert is_refused(script.run("attach c to three topic"))
    assert shares(script) == {"anonymous": (0, 2)}


def assert_nothing_is_counted_for_who_is_gone(store: Store) -> None:
    for address in store.addresses.values():
        assert not address.maker or not address.is_empty, "an address that nobody made counts for somebody"
    assert not store.quotas.connections


def recounted(store: Store) -> tuple[Any, Any]:
    """What there is, counted afresh: by user, and by connections that are there."""
    users: Counter[tuple[str, str]] = Counter()
    connections: Counter[tuple[int, str]] = Counter()
    places = [("queues", queue.kind.maker, queue.made_on) for queue in store.queues.values()]
    for address in store.addresses.values():
        first = next(iter(address.anycast + address.multicast), None)
        maker, conn = address.founder if first is None else (first.kind.maker, first.made_on)
        places.append(("addresses", maker, conn))
    for what, maker, conn in places:
        users[maker, what] += bool(maker)
        connections[conn, what] += conn in store.quotas.connections
    return +users, +connections


def counted(store: Store) -> tuple[Any, Any]:
    tables: list[Counter[Any]] = []
    for table in (store.quotas.users, store.quotas.connections):
        found: Counter[Any] = Counter()
        for name, share in table.items():
            found[name, "queues"], found[name, "addresses"] = share.queues, share.addresses
        tables.append(+found)
    return tables[0], tables[1]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_made_deleted_and_restarted_counts_are_those_of_what_is_there(seed: int) -> None:
    chance = random.Random(seed)
    script, users = Conversation(), ("bob", "eve")
    script.stage = UserStage(
        script, *users, queues_per_connection_max=9, addresses_per_connection_max=7, queues_per_user_max=14
    )
    for each in users:
        script.run(f"connect {each}")
    for step in range(120):
        stage, name = script.stage, chance.choice(["a", "b", "d"])
        client = chance.choice(users)
        what = chance.choice(["attach"] * 6 + ["delete"] * 2 + ["detach", "wait", "close", "crash", "declare", "pause"])
        if what == "attach" and client in script.talkers:
            script.run(f"attach {client} {chance.choice(list(WAYS)).format(name)}")
        elif what == "detach" and client in script.talkers:
            links = [name for (owner, name), link in script.links.items() if owner == client and link.is_attached]
            if links:
                script.run(f"detach {client} {chance.choice(links)}")
        elif what == "delete" and stage.broker.store.queues:
            stage.admin("queue-delete", name=chance.choice(list(stage.broker.store.queues)), force=True)
        elif what == "declare":
            stage.admin("address-create", name=name)
        elif what == "pause":
            stage.admin("address-pause", name=name)
        elif what == "wait":
            stage.wait(35_000)
        elif what == "close" and client in script.talkers:
            script.run(f"break {client}")
            script.run(f"connect {client}")
        elif what == "crash" and chance.random() < 0.5:
            script.run("crash")
            script.run("start")
            assert_nothing_is_counted_for_who_is_gone(stage.broker.store)
            for each in users:
                script.run(f"connect {each}")
        assert counted(stage.broker.store) == recounted(stage.broker.store), (step, what)
