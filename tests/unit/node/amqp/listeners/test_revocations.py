"""Users that a reload removes while they are connected."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from mqbroker.amqp.events import Dead
from mqbroker.amqp.sasl import SaslClient
from mqbroker.config.users import CLUSTER_ROLE, UserVerifier, make_verifier
from mqbroker.node.values import inputs as given

from tests.support import frames
from tests.support.stage import Stage, Talker, options_with

SALT = b"0123456789abcdef"
LISTENER = {"sasl_mechanisms": ("SCRAM-SHA-256", "ANONYMOUS", "PLAIN"), "anonymous_role": "guest"}
UNAUTHORIZED = "amqp:unauthorized-access"


def user(password: str = "right", *roles: str) -> UserVerifier:
    return make_verifier(password, SALT, roles or ("client",))


def login(stage: Stage, name: str, password: str = "right") -> Talker:
    talker = stage.connect(name, SaslClient(name, password, b"n" * 32))
    assert fate(talker) == ""
    return talker


def fate(talker: Talker) -> str:
    dead = [event for event in talker.events if isinstance(event, Dead)]
    return f"{dead[0].condition}: {dead[0].description}" if dead else ""


def derive(stage: Stage) -> None:
    """As the threads beside the loop do for PLAIN."""
    asked = stage.derives.pop()
    key = hashlib.pbkdf2_hmac(asked.hash_name, asked.password, asked.salt, asked.iterations)
    stage.give(given.Done(asked.id, key))
    stage.run()


def both(**tables: Any) -> Stage:
    return Stage(options_with(LISTENER, **tables), {"app": user(), "web": user()})


@pytest.mark.parametrize("with_options", [False, True])
def test_the_connections_of_a_user_who_is_gone_are_closed_and_no_others(with_options: bool) -> None:
    stage = both()
    gone, stays, nobody = login(stage, "app"), login(stage, "web"), stage.connect("guest")
    users = {"web": user("another password")}
    stage.give(given.OptionsChanged(stage.options, users) if with_options else given.UsersChanged(users))
    stage.run()
    assert fate(gone) == f"{UNAUTHORIZED}: user 'app' was removed, or may not log in here any more"
    assert [fate(each) for each in (stays, nobody)] == ["", ""]
    assert sorted(str(peer.user) for peer in stage.broker.peers.values()) == ["None", "web"]


def test_so_are_they_where_an_administrator_asks_for_the_reload() -> None:
    stage = both()
    gone, stays = login(stage, "app"), login(stage, "web")
    stage.users = {"web": user()}
    assert stage.admin("config-reload")["users"]["removed"] == ["app"]
    assert fate(gone).startswith(UNAUTHORIZED)
    assert fate(stays) == ""


def test_what_it_had_is_there_for_others() -> None:
    stage = both()
    stage.admin("queue-create", name="orders")
    stage.admin("send", address="orders", messages=[{"body": "x"}])
    conn = stage.accept()
    stage.talk(conn, frames.plain("app", "right"))
    derive(stage)
    stage.talk(conn, frames.opened() + frames.begun() + frames.receiver(credit=5))
    queue = stage.broker.store.queues["orders"]
    assert (queue.delivering_count, len(queue.consumers)) == (1, 1)
    stage.give(given.UsersChanged({"web": user()}))
    stage.run()
    assert frames.errors(bytes(stage.sent[conn])) == [("Close", UNAUTHORIZED)]
    assert (queue.ready_count, queue.delivering_count, queue.consumers) == (1, 0, [])


def test_a_user_that_is_one_of_the_cluster_now_has_no_business_on_a_client_listener() -> None:
    stage = both()
    talker = login(stage, "app")
    stage.give(given.UsersChanged({"app": user("right", CLUSTER_ROLE)}))
    stage.run()
    assert fate(talker).startswith(UNAUTHORIZED)


def test_a_login_that_began_before_does_not_outlast_it() -> None:
    stage = both()
    conn = stage.accept()
    stage.talk(conn, frames.plain("app", "right"))
    stage.give(given.UsersChanged({"web": user()}))
    stage.run()
    assert list(stage.broker.peers) == [conn]
    derive(stage)
    assert stage.broker.peers == {}


def test_a_role_with_another_name_takes_nothing_from_anybody() -> None:
    """Users and permissions that come together are looked at together."""
    stage = both(security_settings={"#": {name: ["client"] for name in ("send", "consume", "create_address")}})
    stage.admin("queue-create", name="orders")
    conn = stage.accept()
    stage.talk(conn, frames.plain("app", "right"))
    derive(stage)
    stage.talk(conn, frames.opened() + frames.begun() + frames.receiver() + frames.sender())
    tables = options_with(security_settings={"#": {name: ["shop"] for name in ("send", "consume")}}).security_settings
    users = {"app": user("right", "shop"), "web": user()}
    stage.give(given.OptionsChanged(replace(stage.options, security_settings=tables), users))
    stage.run()
    assert frames.errors(bytes(stage.sent[conn])) == []
    assert len(stage.broker.store.queues["orders"].consumers) == 1


def test_a_broker_that_stops_has_no_eyes_for_it() -> None:
    stage = both()
    talker = login(stage, "app")
    for item in (given.Stop(), given.UsersChanged({}), given.OptionsChanged(stage.options, {})):
        stage.give(item)
    stage.run()
    assert fate(talker).startswith("amqp:connection:forced")
    assert stage.halted == 0
