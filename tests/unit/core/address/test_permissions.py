"""What security settings let through: each permission, the one match that holds, and who somebody is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp.sasl import SaslClient
from mqbroker.base.errors import Refused
from mqbroker.config.users import make_verifier
from mqbroker.core.address.permissions import BROKER, Actor, Permissions
from mqbroker.node.values import inputs as given

from tests.golden.conversation import Conversation, ScriptStage
from tests.support.stage import options_with

ALL = ("send", "consume", "browse", "create_address", "create_durable_queue", "create_non_durable_queue",
       "delete_durable_queue", "delete_non_durable_queue")  # fmt: skip


def grants(*permissions: str, to: str = "shop") -> dict[str, list[str]]:
    return {name: [to] for name in permissions}


def talk(tables: dict[str, Any], *clients: str, role: str = "shop", **settings: Any) -> Conversation:
    """Clients that log in by ANONYMOUS and have this role."""
    script = Conversation()
    values: dict[str, Any] = {"address_settings": {"#": settings}} if settings else {}
    script.stage = ScriptStage(script, listener={"anonymous_role": role}, security_settings=tables, **values)
    for name in clients or ("c",):
        script.run(f"connect {name}")
    return script


def why(lines: list[str]) -> str:
    """Which permission was missing, empty where none was."""
    refused = [line for line in lines if "amqp:unauthorized-access" in line]
    return refused[0].partition("no permission ")[2].split()[0] if refused else ""


BASE = ("create_address", "create_durable_queue", "create_non_durable_queue")


@pytest.mark.option("security-settings.send")
@pytest.mark.parametrize(("granted", "missing"), [((*BASE, "send"), ""), ((*BASE, "consume"), "send")])
def test_who_may_send(granted: tuple[str, ...], missing: str) -> None:
    script = talk({"#": grants(*granted)})
    for place in ("orders", "orders::orders", "temporary"):
        assert why(script.run(f"attach c to {place}")) == missing
    if missing:
        assert script.stage.broker.store.queues == {}


@pytest.mark.option("security-settings.consume")
@pytest.mark.parametrize(("granted", "missing"), [((*BASE, "consume"), ""), ((*BASE, "send", "browse"), "consume")])
@pytest.mark.parametrize("place", ["orders", "orders topic", "orders topic durable as=s", "orders::one", "temporary"])
def test_who_may_consume(granted: tuple[str, ...], missing: str, place: str) -> None:
    script = talk({"#": grants(*granted)})
    assert why(script.run(f"attach c from {place}")) == missing
    if missing:
        assert script.stage.broker.store.queues == {}


@pytest.mark.option("security-settings.browse")
@pytest.mark.parametrize(("granted", "missing"), [((*BASE, "browse"), ""), ((*BASE, "consume"), "browse")])
@pytest.mark.parametrize("place", ["orders", "orders::orders"])
def test_who_may_browse(granted: tuple[str, ...], missing: str, place: str) -> None:
    script = talk({"#": grants(*granted)})
    assert why(script.run(f"attach c from {place} browse")) == missing


@pytest.mark.option("security-settings.create-address")
@pytest.mark.option("security-settings.create-durable-queue")
@pytest.mark.option("security-settings.create-non-durable-queue")
@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("attach c to orders", {"create_address", "create_durable_queue"}),
        ("attach c to orders topic", {"create_address"}),
        ("attach c from orders", {"create_address", "create_durable_queue"}),
        ("attach c from orders::one", {"create_address", "create_durable_queue"}),
        ("attach c from orders topic", {"create_address", "create_non_durable_queue"}),
        ("attach c from orders topic durable as=s", {"create_address", "create_durable_queue"}),
        ("attach c to temporary", {"create_address", "create_non_durable_queue"}),
        ("attach c from temporary", {"create_address", "create_non_durable_queue"}),
    ],
)
def test_who_may_have_things_made(command: str, needed: set[str]) -> None:
    enough = grants("send", "consume", *needed)
    assert why(talk({"#": enough}).run(command)) == ""
    for one in needed:
        script = talk({"#": {name: roles for name, roles in enough.items() if name != one}})
        assert why(script.run(command)) == one.replace("_", "-")
        assert script.stage.broker.store.queues == {}
    script = talk({"#": grants("send", "consume")})
    script.stage.admin("queue-create", name="orders")
    if command in ("attach c to orders", "attach c from orders"):
        assert why(script.run(command)) == "", "what is there needs no making"


@pytest.mark.option("security-settings.delete-durable-queue")
@pytest.mark.parametrize(("may", "left"), [(True, []), (False, ["c.s"])])
def test_who_may_end_a_durable_subscription(may: bool, left: list[str]) -> None:
    script = talk({"#": grants("consume", *BASE, *(["delete_durable_queue"] if may else []))})
    script.run("attach c from prices topic durable as=s")
    said = script.run("detach c prices")
    assert list(script.stage.broker.store.queues) == left
    assert any("unsubscribe-refused" in line for line in said) is not may


@pytest.mark.option("security-settings.delete-non-durable-queue")
@pytest.mark.option("security-settings.delete-durable-queue")
@pytest.mark.parametrize("kind", ["durable", "non_durable"])
@pytest.mark.parametrize("may", [True, False])
def test_who_may_replace_a_subscription_by_other_terms(kind: str, may: bool) -> None:
    delete = f"delete_{kind}_queue"
    script = talk({"#": grants("consume", *BASE, *([delete] if may else []))})
    if kind == "durable":
        script.run("attach c from prices topic durable as=s")
        script.run("suspend c prices")
    else:
        made = {"name": "c.s:shared-volatile", "address": "prices", "routing_type": "multicast", "durable": False}
        script.stage.admin("queue-create", **made)
    words = "durable" if kind == "durable" else "shared"
    said = script.run(f"attach c from prices topic {words} as=s select=a=1")
    assert why(said) == ("" if may else delete.replace("_", "-"))


def test_permissions_are_those_of_the_address_and_not_of_the_queue_name() -> None:
    script = talk({"open.#": grants(*ALL), "secret.#": {}})
    script.stage.admin("queue-create", name="open.door", address="secret.room")
    assert why(script.run("attach c from open.door")) == "consume"
    assert why(script.run("attach c from secret.room::open.door")) == "consume"
    assert why(script.run("attach c to secret.room::open.door")) == "send"
    assert why(script.run("attach c from open.window")) == ""


def test_a_subscription_is_looked_up_by_those_who_may_consume() -> None:
    script = talk({"#": grants("consume", *BASE)})
    script.run("attach c from prices topic durable as=s")
    script.run("suspend c prices")
    script.stage.broker.permissions = Permissions(options_with(security_settings={"#": {}}).security_settings)
    assert why(script.run("attach c from nobody as=s")) == "consume"


@pytest.mark.option("security-settings.match")
def test_the_most_specific_match_holds_as_a_whole() -> None:
    tables = {"#": grants(*ALL), "orders.*": grants("send", *BASE), "orders.eu": grants(*BASE, "consume")}
    script = talk(tables)
    found = {
        place: (why(script.run(f"attach c to {place}")), why(script.run(f"attach c from {place}")))
        for place in ("prices", "orders.us", "orders.eu", "orders.eu.old")
    }
    assert found == {
        "prices": ("", ""), "orders.us": ("", "consume"), "orders.eu": ("send", ""), "orders.eu.old": ("", ""),
    }  # fmt: skip


@pytest.mark.option("security-settings.match")
@pytest.mark.parametrize(
    ("wide", "narrow", "place"),
    [("#", "#.secret", "x.secret"), ("shop.#", "shop.#.cards", "shop.eu.cards"), ("*.#", "shop.*.#", "shop.eu.cards"),
     ("#.cards.#", "#.cards", "shop.cards")],
)  # fmt: skip
def test_who_may_all_in_a_wide_match_may_nothing_in_a_narrower_one(wide: str, narrow: str, place: str) -> None:
    for tables in ({wide: grants(*ALL), narrow: {}}, {narrow: {}, wide: grants(*ALL)}):
        script = talk(tables)
        assert why(script.run(f"attach c to {place}")) == "send"
        assert why(script.run(f"attach c from {place}")) == "consume"


def test_without_tables_everybody_may_and_with_them_nobody_else_may() -> None:
    assert why(talk({}, role="").run("attach c to orders")) == ""
    assert why(talk({"prices": grants(*ALL)}).run("attach c to orders")) == "send"


@pytest.mark.option("listeners.anonymous-role")
@pytest.mark.parametrize(("role", "missing"), [("shop", ""), ("ledger", "send"), ("", "send")])
def test_those_without_a_name_have_the_role_of_their_listener(role: str, missing: str) -> None:
    said = talk({"#": grants(*ALL)}, role=role).run("attach c to orders")
    assert why(said) == missing
    assert any("an anonymous user has no permission send at address 'orders'" in line for line in said) == bool(missing)


def test_users_have_their_roles_as_they_are_when_a_link_is_attached() -> None:
    users = {"app": make_verifier("right", b"0123456789abcdef", ("client",))}
    script = Conversation()
    listener = {"sasl_mechanisms": ("SCRAM-SHA-256",), "anonymous_role": "shop"}
    script.stage = ScriptStage(script, listener=listener, security_settings={"#": grants(*ALL)})
    script.stage.give(given.UsersChanged(users))
    script.stage.run()
    script.talkers["c"] = script.stage.connect("c", SaslClient("app", "right", b"n" * 32))
    said = script.run("attach c to orders")
    assert any("user 'app' has no permission send at address 'orders'" in line for line in said)
    script.stage.give(given.UsersChanged({"app": make_verifier("right", b"0123456789abcdef", ("shop",))}))
    assert why(script.run("attach c to orders")) == ""
    script.stage.give(given.UsersChanged({"app": make_verifier("right", b"0123456789abcdef", ("client",))}))
    assert why(script.run("attach c to prices")) == "send"
    assert script.run("publish c orders") == ["c learns rejected (amqp:unauthorized-access): m1"]


def reload(script: Conversation, tables: dict[str, dict[str, list[str]]]) -> list[str]:
    """Other permissions while the node runs; what the clients hear of it."""
    script.lines = []
    script.stage.give(given.OptionsChanged(replace(script.stage.options, **changed(tables))))
    script.stage.run()
    return script.lines


def changed(tables: dict[str, dict[str, list[str]]]) -> dict[str, Any]:
    return {"security_settings": options_with(security_settings=tables).security_settings}


NO_MORE = "c learns rejected (amqp:unauthorized-access): "
GONE = ("{who} link {address} is gone: amqp:unauthorized-access (an anonymous user has no permission {permission} at "
        "address '{address}')")  # fmt: skip


@pytest.mark.option("security-settings.match")
@pytest.mark.option("security-settings.send")
@pytest.mark.parametrize("place", ["orders", "orders::orders", "orders topic"])
def test_a_reload_takes_the_permission_to_send_at_once_and_gives_it_back(place: str) -> None:
    script = talk({"#": grants(*ALL)})
    script.run(f"attach c to {place}")
    link = place.split()[0]
    assert script.run(f"publish c {link}") == ["c learns accepted: m1"]
    assert reload(script, {"#": grants(*ALL), "orders": grants("consume")}) == [], "the link stays"
    assert script.run(f"publish c {link} count=2") == [NO_MORE + "m2 m3"]
    assert reload(script, {"orders.#": grants(*ALL)}) == []
    assert script.run(f"publish c {link}") == ["c learns accepted: m4"]
    assert reload(script, {}) == []
    assert script.run(f"publish c {link}") == ["c learns accepted: m5"]
    assert script.stage.broker.store.received_total == 3
    if "topic" not in place:
        assert script.stage.broker.store.queues["orders"].message_count == 3, "what was accepted is there"


def test_who_may_not_send_any_more_is_still_a_producer_and_leaves_as_one() -> None:
    script = talk({"#": grants(*ALL)}, max_size_messages=1, address_full_policy="BLOCK")
    script.run("attach c to orders topic")
    address = script.stage.broker.store.addresses["orders"]
    reload(script, {"#": {}})
    assert address.producers_count == 1
    assert [row["address"] for row in script.stage.admin("producers")["producers"]] == ["orders"]
    script.run("detach c orders")
    assert address.producers_count == 0


def test_who_may_send_again_but_not_make_the_queue_that_is_gone_is_told_as_before() -> None:
    script = talk({"#": grants(*ALL)})
    script.run("attach c to orders")
    reload(script, {"#": {}})
    store = script.stage.broker.store
    store.delete_queue(store.queues["orders"], BROKER)
    assert script.run("publish c orders") == [NO_MORE + "m1"]
    reload(script, {"#": grants("send")})
    assert why(script.run("publish c orders")) == "create-address"


def test_a_settled_message_of_who_may_send_no_more_ends_its_link() -> None:
    script = talk({"#": grants(*ALL)})
    script.run("attach c to orders settled")
    reload(script, {"#": {}})
    assert why(script.run("publish c orders")) == "send"
    assert script.stage.broker.store.received_total == 0


@pytest.mark.option("security-settings.consume")
@pytest.mark.option("security-settings.browse")
def test_a_reload_takes_the_permission_to_receive_at_once() -> None:
    script = talk({"#": grants(*ALL)}, "p", "c", "b")
    script.run("attach p to orders")
    script.run("attach c from orders credit=5")
    script.run("attach b from orders browse credit=5")
    reload(script, {"#": grants("send", "browse")})
    assert script.lines == [GONE.format(who="c", permission="consume", address="orders")]
    assert script.run("publish p orders")[0] == "b gets: m1"
    assert why(script.run("attach c from orders")) == "consume"
    reload(script, {"#": grants("consume")})
    assert script.lines == [GONE.format(who="b", permission="browse", address="orders")]
    assert why(script.run("attach b from orders browse")) == "browse"
    assert script.run("attach c from orders credit=5") == ["c link orders stands", "c gets: m1"]
    revoked = [event.fields["link"] for event in script.stage.notices if event.event == "link-revoked"]
    assert revoked == ["c-from-orders", "b-from-orders"]


def test_what_a_receiver_had_goes_to_others_and_a_durable_subscription_stays() -> None:
    script = talk({"#": grants(*ALL)}, "p", "c", "s", "d")
    script.run("attach p to orders")
    script.run("attach c from orders credit=1")
    script.run("publish p orders")
    script.run("attach s from news topic durable")
    script.run("attach d from news topic")
    assert len(script.stage.broker.store.queues) == 3
    reload(script, {"#": grants("send")})
    assert [line.split(":")[0] for line in script.lines] == [
        "c link orders is gone", "s link news is gone", "d link news is gone"
    ]  # fmt: skip
    queues = script.stage.broker.store.queues
    assert [(each.kind.routing, each.kind.is_durable, each.ready_count) for each in queues.values()] == [
        ("anycast", True, 1), ("multicast", True, 0)
    ]  # fmt: skip


def test_a_transaction_asks_for_each_message_also_after_a_reload() -> None:
    script = talk({"#": grants(*ALL)})
    script.run("attach c to orders")
    script.run("declare c t1")
    script.run("publish c orders txn=t1")
    reload(script, {"#": {}})
    script.run("publish c orders txn=t1")
    assert any("rejected" in line for line in script.run("commit c t1"))
    assert script.stage.broker.store.received_total == 0


def test_a_sender_without_an_address_is_asked_for_each_message() -> None:
    script = talk({"orders": grants(*ALL)})
    assert why(script.run("attach c to nobody")) == ""
    assert script.run("publish c nobody to=orders") == ["c learns accepted: m1"]
    assert script.run("publish c nobody to=prices") == ["c learns rejected (amqp:unauthorized-access): m2"]
    assert script.run("publish c nobody to=prices::x") == ["c learns rejected (amqp:unauthorized-access): m3"]
    assert list(script.stage.broker.store.queues) == ["orders"]


def test_who_sends_again_after_the_queue_is_gone_may_not_make_it_without_permission() -> None:
    script = talk({"#": grants("send")})
    script.stage.admin("queue-create", name="orders")
    script.run("attach c to orders")
    store = script.stage.broker.store
    store.delete_queue(store.queues["orders"], BROKER)
    assert why(script.run("publish c orders")) == "create-address"


def test_administration_and_dead_letters_need_no_permission() -> None:
    script = talk({"#": grants("consume")}, dead_letter_address="dead", auto_create_dead_letter_resources=True)
    script.stage.admin("send", address="orders", messages=[{"body_base64": "bTE="}])
    script.run("attach c from orders credit=1")
    script.run("reject c m1")
    assert sorted(script.stage.broker.store.queues) == ["DLQ.orders", "orders"]


def test_what_is_known_of_addresses_is_bounded() -> None:
    permissions = Permissions(options_with(security_settings={"#": grants("send")}).security_settings)
    permissions.check(BROKER, "consume", "orders")
    for number in range(10_500):
        permissions.check(Actor("bob", ("shop",)), "send", f"orders.{number}")
    with pytest.raises(Refused, match="consume"):
        permissions.check(Actor("bob", ("shop",)), "consume", "orders")
    assert len(permissions._known) <= 10_000
    with pytest.raises(Refused):
        permissions.check(Actor("bob", ()), "send", "orders")


def test_what_the_broker_ends_while_somebody_attaches_needs_no_permission_of_theirs() -> None:
    """A subscription that is made for a link goes with it where the link is refused, which is said as it is."""
    grant = grants("consume", "create_address", "create_non_durable_queue")
    script = talk({"#": grant}, default_max_consumers=0)
    said = script.run("attach c from news topic")
    assert [line for line in said if "max-consumers" in line], said
    assert script.stage.broker.store.queues == {}


def test_the_name_of_an_address_is_not_told_to_those_who_may_nothing_there() -> None:
    """Whoever names a queue, or a subscription, learns no more than what he named."""
    script = talk({"open.#": grants(*ALL), "secret.#": {}})
    script.stage.admin("queue-create", name="open.door", address="secret.room")
    script.stage.admin("queue-create", name="c.s", address="secret.room", routing_type="multicast")
    script.stage.admin("queue-create", name="open.window", address="open.house")
    for words in (
        "from open.door", "from open.room::open.door", "to open.room::open.door", "from open.room topic durable as=s",
    ):  # fmt: skip
        said = " ".join(one for one in script.run(f"attach c {words}") if "admin session" not in one)
        assert "amqp:" in said, words
        assert "secret" not in said, words
    # Who may do something there is told.
    assert "belongs to address 'open.house'" in " ".join(script.run("attach c from open.room::open.window"))
